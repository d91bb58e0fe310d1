//! Ops that do not change their input, or only its element type.

use eutectic_ir::{DType, Tensor};

use super::{
    super::call::{NodeCall, NodeResult},
    row::{OpRow, one},
};

pub(super) const OPS: &[OpRow] = &[
    one("Identity", 1, |c| c.input(0)),
    // An optional input that is empty is refused elsewhere, so each value here has an element.
    one("OptionalGetElement", 15, |c| c.input(0)),
    one("OptionalHasElement", 15, |c| {
        let there = c.optional(0).is_some();
        c.constant(Tensor::from_i64(DType::Bool, &[], [i64::from(there)]))
    }),
    one("BitCast", 26, bit_cast),
];

/// Reinterprets the bits of integers as another integer type of the same size, which is a conversion modulo 2ⁿ.
fn bit_cast(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    let (from, to) = (c.dtype(x), c.dtype_attr("to")?.ok_or("its attribute `to` is missing")?);
    if from.size() != to.size() {
        return Err(format!("it reinterprets {from} as {to}, but their sizes differ").into());
    }
    // A conversion to Boolean would change bytes other than 0 and 1.
    if from != to && (from.is_float() || to.is_float() || to == DType::Bool) {
        return Err(format!("it reinterprets {from} as {to}, which is not supported between integers and floats; Cast converts the value").into());
    }
    c.cast(x, to)
}
