//! Leaves: ops without operands.

use super::{AttrKind::*, Class, Leaf, OpDef, Rounding, attr, eval::Eval, op};

pub(super) const OPS: &[OpDef] = &[
    leaf(
        "input",
        "A tensor that is given at each run.",
        Leaf::Input,
        &[attr("name", Name), attr("type", Type)],
        "-> type",
    ),
    leaf(
        "param",
        "A tensor that is given once, when the program is loaded: a weight.",
        Leaf::Param,
        &[attr("name", Name), attr("type", Type)],
        "-> type",
    ),
    leaf(
        "state",
        "A tensor that is kept from run to run: zeros at first, then the value of its `update`.",
        Leaf::State,
        &[attr("name", Name), attr("type", Type)],
        "-> type",
    ),
    leaf("const", "A tensor that is part of the program.", Leaf::Const, &[attr("value", Tensor)], "-> value"),
    leaf(
        "iota",
        "The coordinate along an axis (counted from the end of the shape): 0, 1, 2, … as elements of the type.",
        Leaf::Iota,
        &[attr("shape", Shape), attr("axis", Axis), attr("dtype", DType)],
        "(F number) -> F[C..] (shape shape C) (dtype dtype F)",
    ),
];

const fn leaf(
    name: &'static str,
    doc: &'static str,
    leaf: Leaf,
    attrs: &'static [super::AttrDef],
    signature: &'static str,
) -> OpDef {
    OpDef { attrs, rounding: Rounding::Correct, ..op(name, doc, Class::Leaf(leaf), signature, Eval::Given) }
}
