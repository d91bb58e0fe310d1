//! What changes nothing.

use eutectic_ir::{DType, Tensor};

use super::{
    super::call::{NodeCall, NodeResult},
    row::{OpRow, Outputs, many, one},
};

pub(super) const OPS: &[OpRow] = &[
    one("Identity", 1, |c| c.input(0)),
    many("Dropout", 7, dropout),
    // A tensor is there, and an input that is left out is not.
    one("OptionalGetElement", 15, |c| c.input(0)),
    one("OptionalHasElement", 15, |c| {
        let there = c.optional(0).is_some();
        c.constant(Tensor::from_i64(DType::Bool, &[], [i64::from(there)]))
    }),
    one("BitCast", 26, bit_cast),
];

/// The same bits as another type: of integers as long as these, the number that is equal but for a multiple of 2ⁿ.
fn bit_cast(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    let (from, to) = (c.dtype(x), c.dtype_attr("to")?.ok_or("it does not say to which type")?);
    if from.size() != to.size() {
        return Err(format!("from {from} to {to}, which are not equally long").into());
    }
    // A truth value of a file is 0 or 1; the other way round, other bytes would be lost.
    if from != to && (from.is_float() || to.is_float() || to == DType::Bool) {
        return Err(format!("from {from} to {to}; between integers and floats, Cast converts the number").into());
    }
    c.cast(x, to)
}

/// In inference nothing is dropped, and in training with a ratio of 0 neither.
fn dropout(c: &mut NodeCall<'_, '_>) -> Outputs {
    let x = c.input(0)?;
    if c.optional(2).is_some() && c.known_number(2)? != 0.0 {
        let ratio = match c.optional(1) {
            Some(_) => c.known_number(1)?,
            None => 0.5,
        };
        if ratio != 0.0 {
            return Err(format!(
                "it drops {ratio} of its elements at random, as in training; export the model for inference"
            )
            .into());
        }
    }
    let dims = c.shape(x);
    Ok(vec![x, c.full(1.0, DType::Bool, &dims)?])
}
