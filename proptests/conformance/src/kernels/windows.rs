//! Builds products whose left operand is the windows of padded images, as in a convolution.

use eutectic_backend::{AnchorKernel, Body, Guard, Instr, Kernel, Load};
use eutectic_ir::{
    DType, Tensor,
    index::{Index, flatten, unflatten},
};

use super::{
    Random,
    build::{Build, body, push, row_major},
};

/// The windows along one axis of an image.
pub struct Line {
    /// The extent of the image, in elements.
    pub extent: usize,
    /// The padding before the image, in elements.
    pub before: usize,
    /// The padding after the image, in elements.
    pub after: usize,
    /// The number of elements (taps) of a window.
    pub size: usize,
    /// The distance from a window to the next, in elements.
    pub stride: usize,
    /// The distance from a tap to the next, in elements.
    pub dilation: usize,
}

impl Line {
    /// Returns random windows, at least one.
    pub fn random(random: &mut Random) -> Line {
        let (size, dilation) = (1 + random.below(4), 1 + random.below(2));
        let (before, after) = (random.pick(&[0, 0, 1, 2, 9]), random.pick(&[0, 1, 3]));
        let least = (dilation * (size - 1) + 1_usize).saturating_sub(before + after).max(1);
        Line { extent: least + random.below(9), before, after, size, stride: 1 + random.below(3), dilation }
    }

    /// Returns the number of windows.
    pub fn count(&self) -> usize {
        (self.before + self.extent + self.after - self.dilation * (self.size - 1) - 1) / self.stride + 1
    }

    /// Returns the index of the element that a tap of a window reads, and the guard that the index is inside of the
    /// image.
    fn at(&self, window: &Index, tap: &Index) -> (Index, Guard) {
        let at = window.times(self.stride as i64).plus(&tap.times(self.dilation as i64));
        let at = at.plus(&Index::constant(-(self.before as i64)));
        (at.clone(), (at, 0..self.extent as i64))
    }
}

/// Returns a body over `[groups, images·rows·columns, taps·channels]` that reads windows of images. Channels are the
/// innermost axis of an image if `last`, and otherwise the outermost.
pub fn windows(
    build: &mut Build,
    lines: &[Line; 2],
    [groups, images, channels]: [usize; 3],
    last: bool,
    dtype: DType,
) -> Body {
    let [rows, columns] = lines;
    let points = [images, rows.count(), columns.count()];
    let taps = [rows.size, columns.size, channels];
    let domain = [groups, points.iter().product(), taps.iter().product()];
    let mut b = body(&domain);
    let point = unflatten(&Index::coord(1), &points, &domain);
    let tap = unflatten(&Index::coord(2), &taps, &domain);
    let (row, in_rows) = rows.at(&point[1], &tap[0]);
    let (column, in_columns) = columns.at(&point[2], &tap[1]);
    let channel = Index::coord(0).times(channels as i64).plus(&tap[2]);
    let all = groups * channels;
    let at = match last {
        true => flatten(&[point[0].clone(), row, column, channel], &[images, rows.extent, columns.extent, all]),
        false => flatten(&[point[0].clone(), channel, row, column], &[images, all, rows.extent, columns.extent]),
    };
    let slot = build.input(dtype, images * all * rows.extent * columns.extent);
    let fill = build.random.pick(&[0.0, 0.5]).into();
    let load = Load { slot, at, guards: vec![in_rows.clone(), in_columns.clone()], dtype };
    let load = push(&mut b, Instr::Load(load));
    let inner = push(&mut b, Instr::Select { pieces: vec![(vec![in_columns], load)], fill, dtype });
    let outer = push(&mut b, Instr::Select { pieces: vec![(vec![in_rows], inner)], fill, dtype });
    b.results = vec![outer];
    b
}

/// Returns a kernel and its inputs. The kernel multiplies `lhs`, over `[b m k]`, by a contiguous operand with `n`
/// columns, and stores the product unchanged.
pub fn product(mut build: Build, lhs: Body, n: usize, dtype: DType) -> (Kernel, Vec<Tensor>) {
    let (batch, m, k) = (lhs.domain[0], lhs.domain[1], lhs.domain[2]);
    let mut rhs = body(&[batch, k, n]);
    let w = build.dense(&mut rhs, dtype);
    rhs.results = vec![w];
    let domain = [batch, m, n];
    let mut b = body(&domain);
    let y = push(&mut b, Instr::Anchor { dtype });
    build.store_at(domain.iter().product(), row_major(&domain), dtype, y);
    build.kernel(AnchorKernel::product(lhs, rhs), b)
}
