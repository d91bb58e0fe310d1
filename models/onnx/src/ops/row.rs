//! A row of the table of ops.

use eutectic_ir::{NodeId, Op};

use super::super::{
    call::{NodeCall, NodeResult},
    error::NodeError,
};

/// The outputs of a node.
pub(super) type Outputs = Result<Vec<NodeId>, NodeError>;

/// The translation of an op.
#[derive(Clone, Copy)]
pub enum Build {
    /// The Eutectic op of the same meaning, without attributes.
    Op(&'static str),
    /// A function that builds the only output.
    One(fn(&mut NodeCall<'_, '_>) -> NodeResult),
    /// An op that the user declares.
    Declared(Op),
    /// A function that builds the outputs in order. Further outputs of the node are not supported.
    Many(fn(&mut NodeCall<'_, '_>) -> Outputs),
}

/// An op as defined from one version of its op set on.
pub(super) struct OpRow {
    pub name: &'static str,
    /// The first version of the domain's op set with this definition.
    pub since: i64,
    pub build: Build,
}

/// Declares an op that is equal to a Eutectic op.
pub(super) const fn same(name: &'static str, since: i64, op: &'static str) -> OpRow {
    OpRow { name, since, build: Build::Op(op) }
}

/// Declares an op with one output.
pub(super) const fn one(name: &'static str, since: i64, build: fn(&mut NodeCall<'_, '_>) -> NodeResult) -> OpRow {
    OpRow { name, since, build: Build::One(build) }
}

/// Declares an op with several outputs.
pub(super) const fn many(name: &'static str, since: i64, build: fn(&mut NodeCall<'_, '_>) -> Outputs) -> OpRow {
    OpRow { name, since, build: Build::Many(build) }
}
