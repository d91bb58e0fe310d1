//! Images: pooling over everything. What slides a window is not mapped yet.

use super::{
    super::call::{Built, Call},
    Row, one,
};

pub(super) const OPS: &[Row] =
    &[one("GlobalAveragePool", 1, |c| global(c, "reduce-mean")), one("GlobalMaxPool", 1, |c| global(c, "reduce-max"))];

/// A reduction over all axes behind the channels.
fn global(c: &mut Call<'_, '_>, how: &str) -> Built {
    let x = c.input(0)?;
    let axes: Vec<usize> = (2..c.rank(x)).collect();
    c.reduce(how, x, &axes)
}
