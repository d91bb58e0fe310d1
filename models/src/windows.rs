//! Attention within windows of an image, as in ViTs for large images (Li et al. 2022, arXiv:2203.16527).

use eutectic_ir::NodeId;

use crate::{
    module::{ModuleBuilder, reshaped, slice},
    nn::{Built, transpose},
};

/// The extents of a grid of tokens [batch rows columns E].
#[derive(Clone, Copy)]
pub(crate) struct TokenGrid {
    pub batch: usize,
    pub rows: usize,
    pub columns: usize,
}

/// Applies `attend` within windows: each window becomes an image of the batch. If windows do not divide the grid, zeros
/// pad the grid at the bottom and at the right. The padding is not masked, so tokens attend to it, as in the published
/// models.
pub(crate) fn in_windows(
    m: &mut ModuleBuilder<'_>,
    grid: TokenGrid,
    width: usize,
    window: Option<usize>,
    x: NodeId,
    attend: impl FnOnce(&mut ModuleBuilder<'_>, TokenGrid, NodeId) -> Built,
) -> Built {
    let Some(size) = window else { return attend(m, grid, x) };
    let TokenGrid { batch, rows, columns } = grid;
    let (down, across) = (rows.div_ceil(size), columns.div_ceil(size));
    let mut padded = x;
    for (axis, extent, windows) in [(-3, rows, down), (-2, columns, across)] {
        let after = (windows * size - extent) as i64;
        if after > 0 {
            let attrs = [("axis", axis.into()), ("before", 0.into()), ("after", after.into())];
            padded = m.g.apply("pad", &[padded], &attrs)?;
        }
    }
    let apart = reshaped(m.g, padded, &[batch, down, size, across, size, width])?;
    let sorted = transpose(m.g, apart, &[0, 1, 3, 2, 4, 5])?;
    let windows = TokenGrid { batch: batch * down * across, rows: size, columns: size };
    let images = reshaped(m.g, sorted, &[windows.batch, size, size, width])?;
    let attended = attend(m, windows, images)?;
    let sorted = reshaped(m.g, attended, &[batch, down, across, size, size, width])?;
    let apart = transpose(m.g, sorted, &[0, 1, 3, 2, 4, 5])?;
    let mut cropped = reshaped(m.g, apart, &[batch, down * size, across * size, width])?;
    for (axis, extent, windows) in [(-3, rows, down), (-2, columns, across)] {
        if windows * size > extent {
            cropped = slice(m.g, cropped, axis, 0, extent)?;
        }
    }
    Ok(cropped)
}
