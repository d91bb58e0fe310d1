//! The ways to name an op for the builder.

use crate::Op;

/// The op to apply: a built-in op by its name, or any op by its [`Op`]. The op table lacks the names of declared ops.
#[derive(Clone, Copy, Debug)]
pub enum OpName<'n> {
    /// A built-in op, by its name.
    Name(&'n str),
    /// An op.
    Op(Op),
}

impl OpName<'_> {
    pub(super) fn text(&self) -> &str {
        match self {
            OpName::Name(name) => name,
            OpName::Op(op) => op.name(),
        }
    }

    pub(super) fn op(self) -> Option<Op> {
        match self {
            OpName::Op(op) => Some(op),
            OpName::Name(name) => Op::named(name),
        }
    }
}

impl<'n> From<&'n str> for OpName<'n> {
    fn from(name: &'n str) -> OpName<'n> {
        OpName::Name(name)
    }
}

impl<'n> From<&'n String> for OpName<'n> {
    fn from(name: &'n String) -> OpName<'n> {
        OpName::Name(name)
    }
}

impl From<Op> for OpName<'_> {
    fn from(op: Op) -> Self {
        OpName::Op(op)
    }
}
