//! Windows of padded images, as the left operand of a product.

use eutectic_backend::{AnchorKernel, Body, Guard, Instr, Kernel, Load};
use eutectic_ir::{
    DType, Tensor,
    index::{Index, flatten, unflatten},
};

use super::{
    Random,
    build::{Build, body, push, row_major},
};

/// Windows along one axis.
pub struct Line {
    /// Elements of the image.
    pub extent: usize,
    /// Elements of padding before it.
    pub before: usize,
    /// Elements of padding after it.
    pub after: usize,
    /// Elements of a window.
    pub size: usize,
    /// The distance of neighbouring windows.
    pub stride: usize,
    /// The distance of neighbouring elements of a window.
    pub dilation: usize,
}

impl Line {
    /// Returns a random line of windows.
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

    /// Returns the index that a tap of a window reads, and the guard that it is inside the axis.
    fn at(&self, window: &Index, tap: &Index) -> (Index, Guard) {
        let at = window.times(self.stride as i64).plus(&tap.times(self.dilation as i64));
        let at = at.plus(&Index::constant(-(self.before as i64)));
        (at.clone(), (at, 0..self.extent as i64))
    }
}

/// Returns windows [groups, images·rows·columns, taps·channels] of images whose channels are last or first.
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

/// Returns a kernel that multiplies an operand over `[b m k]` by a contiguous one with `n` columns and stores the
/// product unchanged, with its inputs.
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
