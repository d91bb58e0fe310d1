//! Products whose left operand is windows of padded images, against sums in f64: sizes, strides, gaps and borders at random, with
//! the channels last and first, and in groups.

mod support;

use eutectic_backend::{AnchorKernel, Body, Guard, Instr, Load};
use eutectic_ir::{
    DType,
    index::{Index, flatten, unflatten},
};
use support::{
    Random,
    build::{Build, body, push, row_major},
    check_with,
};

/// Windows along one axis: extent, elements before and after it, size, stride, gap.
struct Line {
    extent: usize,
    before: usize,
    after: usize,
    size: usize,
    stride: usize,
    dilation: usize,
}

impl Line {
    fn random(random: &mut Random) -> Line {
        let (size, dilation) = (1 + random.below(4), 1 + random.below(2));
        let (before, after) = (random.pick(&[0, 0, 1, 2, 9]), random.pick(&[0, 1, 3]));
        let least = (dilation * (size - 1) + 1_usize).saturating_sub(before + after).max(1);
        Line { extent: least + random.below(9), before, after, size, stride: 1 + random.below(3), dilation }
    }

    fn count(&self) -> usize {
        (self.before + self.extent + self.after - self.dilation * (self.size - 1) - 1) / self.stride + 1
    }

    /// The element of the axis, and the guard that it is one.
    fn at(&self, window: &Index, tap: &Index) -> (Index, Guard) {
        let at = window.times(self.stride as i64).plus(&tap.times(self.dilation as i64));
        let at = at.plus(&Index::constant(-(self.before as i64)));
        (at.clone(), (at, 0..self.extent as i64))
    }
}

/// Windows [groups, images·rows·columns, taps·channels] of images whose channels are last or first.
fn windows(
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

fn case(seed: u64, dtype: DType) {
    let mut build = Build::new(seed);
    let random = &mut build.random;
    let lines = [Line::random(random), Line::random(random)];
    let groups = random.pick(&[1, 1, 1, 2]);
    let sizes = [groups, 1 + random.below(2), random.pick(&[1, 2, 3, 5, 16, 33])];
    let (last, n) = (random.below(3) > 0, random.pick(&[1, 2, 7, 33, 64]));
    let lhs = windows(&mut build, &lines, sizes, last, dtype);
    let (m, k) = (lhs.domain[1], lhs.domain[2]);
    let mut rhs = body(&[groups, k, n]);
    let w = build.dense(&mut rhs, dtype);
    rhs.results = vec![w];
    let domain = [groups, m, n];
    let mut b = body(&domain);
    let y = push(&mut b, Instr::Anchor { dtype });
    build.store_at(domain.iter().product(), row_major(&domain), dtype, y);
    let (kernel, inputs) = build.kernel(AnchorKernel::Contraction { lhs, rhs }, b);
    for params in 0..2 {
        check_with(&kernel, &inputs, params, 8.0 + 4.0 * k as f64);
    }
}

#[test]
fn windows_are_copied_as_they_are_needed() {
    (0..150).for_each(|seed| case(seed, DType::F32));
    (150..180).for_each(|seed| case(seed, DType::F64));
}

/// Sums in several parts, and right operands that are packed at once and panel by panel.
#[test]
fn windows_of_many_channels() {
    for (seed, channels, n) in [(1, 130, 300), (2, 200, 40)] {
        let mut build = Build::new(seed);
        let line = || Line { extent: 7, before: 1, after: 1, size: 3, stride: 1, dilation: 1 };
        let lhs = windows(&mut build, &[line(), line()], [1, 1, channels], true, DType::F32);
        let (m, k) = (lhs.domain[1], lhs.domain[2]);
        let mut rhs = body(&[1, k, n]);
        let w = build.dense(&mut rhs, DType::F32);
        rhs.results = vec![w];
        let mut b = body(&[1, m, n]);
        let y = push(&mut b, Instr::Anchor { dtype: DType::F32 });
        build.store_at(m * n, row_major(&[1, m, n]), DType::F32, y);
        let (kernel, inputs) = build.kernel(AnchorKernel::Contraction { lhs, rhs }, b);
        check_with(&kernel, &inputs, 1, 8.0 + 4.0 * k as f64);
    }
}
