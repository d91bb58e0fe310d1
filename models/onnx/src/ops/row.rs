//! A row of the table of ops.

use eutectic_ir::{NodeId, Op};

use super::super::{
    call::{NodeCall, NodeResult},
    error::NodeError,
};

/// Several outputs.
pub(super) type Outputs = Result<Vec<NodeId>, NodeError>;

/// How an op is mapped.
#[derive(Clone, Copy)]
pub enum Build {
    /// It is an op of ours without attributes.
    Op(&'static str),
    /// Its one output, from ops of ours.
    One(fn(&mut NodeCall<'_, '_>) -> NodeResult),
    /// It is an op that a file declares.
    Declared(Op),
    /// Its outputs, in order; what is not there is not supported.
    Many(fn(&mut NodeCall<'_, '_>) -> Outputs),
}

/// An op in one of its forms.
pub(super) struct OpRow {
    pub name: &'static str,
    /// The version of its domain's op set from which on it has this form.
    pub since: i64,
    pub build: Build,
}

/// An op that is one of ours.
pub(super) const fn same(name: &'static str, since: i64, op: &'static str) -> OpRow {
    OpRow { name, since, build: Build::Op(op) }
}

/// An op with one output.
pub(super) const fn one(name: &'static str, since: i64, build: fn(&mut NodeCall<'_, '_>) -> NodeResult) -> OpRow {
    OpRow { name, since, build: Build::One(build) }
}

/// An op with several outputs.
pub(super) const fn many(name: &'static str, since: i64, build: fn(&mut NodeCall<'_, '_>) -> Outputs) -> OpRow {
    OpRow { name, since, build: Build::Many(build) }
}
