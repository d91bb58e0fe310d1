//! What changes nothing.

use eutectic_ir::DType;

use super::{super::call::NodeCall, OpRow, Outputs, many, one};

pub(super) const OPS: &[OpRow] = &[one("Identity", 1, |c| c.input(0)), many("Dropout", 7, dropout)];

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
    let dims = c.dims(x);
    Ok(vec![x, c.full(1.0, DType::Bool, &dims)?])
}
