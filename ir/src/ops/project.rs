//! The op that takes one result out of a tuple.

use super::{AttrKind::*, Class, OpDef, attr, eval::Eval, op};

pub(super) const OPS: &[OpDef] = &[OpDef {
    attrs: &[attr("index", Int)],
    ..op("get", "One result of an op that returns a tuple.", Class::Project, "", Eval::Given)
}];
