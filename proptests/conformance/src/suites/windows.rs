//! Compares products of windows of padded images, as in convolutions, with sums in `f64`. Sizes, strides, dilations and
//! padding are random. Channels are innermost, outermost, or in groups.

use crate::{
    device::Device,
    kernels::{
        Random,
        build::{Build, body, map, map_with, push, row_major},
        windows::{Line, product, windows},
    },
    suite::{Check, checks},
};
use eutectic_backend::{AnchorKernel, Body, Instr, axes::Nest};
use eutectic_ir::{
    Attr, DType,
    index::{Atom, Index, flatten},
};

pub(super) const CHECKS: &[(&str, Check)] = checks![
    windows_are_copied_as_they_are_needed,
    windows_of_many_channels,
    windows_that_are_packed,
    windows_that_slide_along_lines,
    windows_with_most_taps_outside,
    windows_whose_taps_are_innermost,
    windows_of_narrow_groups,
    windows_of_long_lines,
    windows_as_right_operands,
];

fn case(device: &Device, seed: u64, dtype: DType) {
    let mut build = Build::new(seed);
    let random = &mut build.random;
    let lines = [Line::random(random), Line::random(random)];
    let groups = random.pick(&[1, 1, 1, 2]);
    let sizes = [groups, 1 + random.below(2), random.pick(&[1, 2, 3, 5, 16, 33])];
    let (last, n) = (random.below(3) > 0, random.pick(&[1, 2, 7, 33, 64]));
    let lhs = windows(&mut build, &lines, sizes, last, dtype);
    let k = lhs.domain[2];
    let (kernel, inputs) = product(build, lhs, n, dtype);
    for params in 0..2 {
        device.check_with(&kernel, &inputs, params, 8.0 + 4.0 * k as f64);
    }
}

fn windows_are_copied_as_they_are_needed(device: &Device) {
    (0..150).for_each(|seed| case(device, seed, DType::F32));
    (150..180).for_each(|seed| case(device, seed, DType::F64));
}

/// Tests sums in several parts, and right operands of few or many panels. A segment of terms is whole vectors.
fn windows_of_many_channels(device: &Device) {
    for (seed, channels, n) in [(1, 130, 300), (2, 200, 40), (3, 32, 300)] {
        let mut build = Build::new(seed);
        let line = || Line { extent: 7, before: 1, after: 1, size: 3, stride: 1, dilation: 1 };
        let lhs = windows(&mut build, &[line(), line()], [1, 1, channels], true, DType::F32);
        let k = lhs.domain[2];
        let (kernel, inputs) = product(build, lhs, n, DType::F32);
        device.check_with(&kernel, &inputs, 1, 8.0 + 4.0 * k as f64);
    }
}

/// Tests rows that are packed for many panels, in segments of whole vectors. Terms of a segment are contiguous in
/// memory, or at a distance of one image plane.
fn windows_that_are_packed(device: &Device) {
    for (seed, last) in [(4, true), (5, false)] {
        let mut build = Build::new(seed);
        let line = || Line { extent: 20, before: 1, after: 1, size: 3, stride: 1, dilation: 1 };
        let lhs = windows(&mut build, &[line(), line()], [1, 1, 16], last, DType::F32);
        let k = lhs.domain[2];
        let (kernel, inputs) = product(build, lhs, 300, DType::F32);
        device.check_with(&kernel, &inputs, 1, 8.0 + 4.0 * k as f64);
    }
}

/// Tests image lines that are long enough for blocks of rows. Elements that windows share are copied once. The padding
/// has any width, and may contain whole windows.
fn windows_that_slide_along_lines(device: &Device) {
    for seed in 0..80 {
        let mut build = Build::new(seed);
        let random = &mut build.random;
        let line = |random: &mut Random, extents: &[usize]| {
            let (size, dilation) = (random.pick(&[1, 2, 3, 5]), random.pick(&[1, 1, 2, 3]));
            let (before, after) = (random.pick(&[0, 1, 2, 5]), random.pick(&[0, 1, 2, 5]));
            let least = (dilation * (size - 1) + 1_usize).saturating_sub(before + after).max(1);
            Line {
                extent: random.pick(extents).max(least),
                before,
                after,
                size,
                stride: random.pick(&[1, 1, 2]),
                dilation,
            }
        };
        let lines = [line(random, &[1, 5, 9]), line(random, &[11, 13, 24, 28, 41])];
        let sizes = [random.pick(&[1, 1, 2, 5]), 1, random.pick(&[8, 11, 16, 40])];
        let n = random.pick(&[3, 17, 32, 70]);
        let lhs = windows(&mut build, &lines, sizes, true, DType::F32);
        let k = lhs.domain[2];
        let (kernel, inputs) = product(build, lhs, n, DType::F32);
        device.check_with(&kernel, &inputs, 1, 8.0 + 4.0 * k as f64);
    }
}

/// Tests taps with large dilation. Many are outside of the image for all windows of a line, or for all windows. Kernels
/// do not multiply taps that read only zeros.
fn windows_with_most_taps_outside(device: &Device) {
    for seed in 0..24 {
        let mut build = Build::new(seed);
        let random = &mut build.random;
        let line = |random: &mut Random| {
            let (extent, dilation) = (random.pick(&[1, 5, 9, 14]), random.pick(&[1, 4, 8, 12]));
            Line { extent, before: dilation, after: dilation, size: 3, stride: 1, dilation }
        };
        let lines = [line(random), line(random)];
        let sizes = [random.pick(&[1, 1, 2]), random.pick(&[1, 2]), random.pick(&[3, 48, 300, 331])];
        let n = random.pick(&[2, 17, 40, 200]);
        let dtype = if seed % 6 == 5 { DType::F64 } else { DType::F32 };
        let lhs = windows(&mut build, &lines, sizes, true, dtype);
        let k = lhs.domain[2];
        let (kernel, inputs) = product(build, lhs, n, dtype);
        for params in 0..2 {
            device.check_with(&kernel, &inputs, params, 8.0 + 4.0 * k as f64);
        }
    }
}

/// Tests images whose channels are outermost. The terms of a window are the taps of one channel after the other.
/// Kernels read the lines of windows in place, one row of the image at a time.
fn windows_whose_taps_are_innermost(device: &Device) {
    for seed in 0..60 {
        let mut build = Build::new(seed);
        let random = &mut build.random;
        let line = |random: &mut Random| Line {
            extent: random.pick(&[3, 8, 13, 30]),
            before: random.pick(&[0, 1]),
            after: random.pick(&[0, 1]),
            size: random.pick(&[1, 2, 3]),
            stride: random.pick(&[1, 1, 2]),
            dilation: random.pick(&[1, 1, 1, 2]),
        };
        let lines = [line(random), line(random)].map(|l| Line { extent: l.extent.max(1 + l.dilation * 2), ..l });
        let (images, channels, n) =
            (random.pick(&[1, 2]), random.pick(&[1, 3, 40, 130]), random.pick(&[2, 16, 33, 300]));
        let dtype = if seed % 5 == 4 { DType::F64 } else { DType::F32 };
        let mut lhs = windows(&mut build, &lines, [1, images, channels], false, dtype);
        let [rows, columns] = &lines;
        let (taps, k) = (rows.size * columns.size, lhs.domain[2]);
        // The terms of a channel become contiguous: term c·taps + t is term t·channels + c of the windows.
        let term = Index::coord(2);
        let domain = lhs.domain.clone();
        let at = flatten(&[term.modulo(taps as i64, &domain), term.div(taps as i64, &domain)], &[taps, channels]);
        let coords = [Index::coord(0), Index::coord(1), at];
        for map in lhs.instrs.iter_mut().flat_map(Instr::maps_mut) {
            *map = map.substitute(&coords, &|v| Index::atom(Atom::Value(v)), &domain);
        }
        let (mut kernel, inputs) = product(build, lhs, n, dtype);
        kernel.normalise();
        for params in 0..2 {
            device.check_with(&kernel, &inputs, params, 8.0 + 4.0 * k as f64);
        }
    }
}

/// Tests many groups of few channels and few results. A group of one channel and one result is a depthwise convolution.
/// Weights are ordered by groups or by taps, and the result's channels are innermost or not. Some cases have an
/// epilogue.
fn windows_of_narrow_groups(device: &Device) {
    for seed in 0..200 {
        let mut build = Build::new(seed);
        let dtype = if seed % 5 == 4 { DType::F64 } else { DType::F32 };
        let random = &mut build.random;
        let lines = [Line::random(random), Line::random(random)];
        let sizes = [random.pick(&[2, 3, 5, 16, 17, 40, 70]), 1 + random.below(2), random.pick(&[1, 1, 1, 2, 4])];
        let (last, n) = (random.below(3) > 0, random.pick(&[1, 1, 1, 2, 3, 8]));
        let lhs = windows(&mut build, &lines, sizes, last, dtype);
        let [groups, m, k] = [lhs.domain[0], lhs.domain[1], lhs.domain[2]];
        let mut rhs = body(&[groups, k, n]);
        let slot = build.input(dtype, groups * k * n);
        let [g, t, o] = [0, 1, 2].map(Index::coord);
        let at = match build.random.below(3) {
            0 => row_major(&[groups, k, n]),
            1 => flatten(&[g, o, t], &[groups, n, k]),
            _ => flatten(&[t, o, g], &[k, n, groups]),
        };
        let w = build.load(&mut rhs, slot, at);
        rhs.results = vec![w];
        let domain = [groups, m, n];
        let mut own = body(&domain);
        let mut y = push(&mut own, Instr::Anchor { dtype });
        let [g, point, o] = [0, 1, 2].map(Index::coord);
        if build.random.below(2) == 0 {
            let bias = build.input(dtype, groups * n);
            let bias = build.load(&mut own, bias, flatten(&[g.clone(), o.clone()], &[groups, n]));
            y = map(&mut own, "add", &[bias, y], dtype);
        }
        if build.random.below(3) == 0 {
            let other = build.any(&mut own, dtype);
            y = map(&mut own, "mul", &[y, other], dtype);
        }
        let at = match build.random.below(3) {
            0 => row_major(&domain),
            _ => flatten(&[point, g, o], &[m, groups, n]),
        };
        build.store_at(groups * m * n, at, dtype, y);
        let (kernel, inputs) = build.kernel(AnchorKernel::product(lhs, rhs), own);
        for params in 0..2 {
            device.check_with(&kernel, &inputs, params, 16.0 + 8.0 * k as f64);
        }
    }
}

/// Tests depthwise convolutions of images with long lines, with strides of one and two. An epilogue adds a number for
/// each channel or a whole tensor, and applies a clamp or an activation.
fn windows_of_long_lines(device: &Device) {
    for seed in 0..120 {
        let mut build = Build::new(seed);
        let dtype = if seed % 5 == 4 { DType::F64 } else { DType::F32 };
        let random = &mut build.random;
        let mut lines = [Line::random(random), Line::random(random)];
        lines[1].extent += random.pick(&[0, 15, 16, 31, 33, 64, 90]);
        lines[1].stride = 1 + random.below(2);
        let groups = random.pick(&[1, 2, 3, 17]);
        let lhs = windows(&mut build, &lines, [groups, 1, 1], false, dtype);
        let (m, k) = (lhs.domain[1], lhs.domain[2]);
        let mut rhs = body(&[groups, k, 1]);
        let slot = build.input(dtype, groups * k);
        let w = build.load(&mut rhs, slot, row_major(&[groups, k, 1]));
        rhs.results = vec![w];
        let domain = [groups, m, 1];
        let mut own = body(&domain);
        let mut y = push(&mut own, Instr::Anchor { dtype });
        let added = match build.random.below(3) {
            0 => None,
            1 => Some((groups, Index::coord(0))),
            _ => Some((groups * m, row_major(&domain))),
        };
        if let Some((count, at)) = added {
            let slot = build.input(dtype, count);
            let added = build.load(&mut own, slot, at);
            y = map(&mut own, "add", &[y, added], dtype);
        }
        y = match build.random.below(4) {
            0 => map_with(&mut own, "act", &[Attr::Word("relu".into())], &[y], dtype),
            1 => map_with(&mut own, "clamp", &[Attr::Float((-0.5).into()), Attr::Float(0.75.into())], &[y], dtype),
            2 => map_with(&mut own, "act", &[Attr::Word("silu".into())], &[y], dtype),
            _ => y,
        };
        build.store_at(groups * m, row_major(&domain), dtype, y);
        let (kernel, inputs) = build.kernel(AnchorKernel::product(lhs, rhs), own);
        device.check_with(&kernel, &inputs, 2, 24.0 + 8.0 * k as f64);
    }
}

/// Tests weights as left operands, with one or several results for each group, in each floating-point type. Some images
/// have a prologue, and some have one element. Some sums have an epilogue.
fn windows_as_right_operands(device: &Device) {
    for seed in 0..160 {
        let mut build = Build::new(seed);
        let dtype = [DType::F32, DType::F16, DType::F32, DType::F64, DType::Bf16][seed as usize % 5];
        let random = &mut build.random;
        let mut lines = [Line::random(random), Line::random(random)];
        match random.below(5) {
            0 => lines = [1, 3].map(|size| Line { extent: 1, before: 1, after: 1, size, stride: 1, dilation: 1 }),
            1 => lines[1].extent += 29,
            2 => lines[0].extent += 13,
            _ => {}
        }
        let sizes = [random.pick(&[1, 2, 5, 33]), random.pick(&[1, 2, 3]), random.pick(&[1, 1, 2, 3, 4])];
        let (last, m) = (random.below(2) > 0, random.pick(&[1, 1, 2, 3, 4, 7, 16]));
        let mut image = windows(&mut build, &lines, sizes, last, dtype);
        if build.random.below(3) == 0 {
            let act = if build.random.below(2) == 0 { "relu" } else { "silu" };
            let read = image.results.clone();
            let x = map_with(&mut image, "act", &[Attr::Word(act.into())], &read, dtype);
            image.results = vec![x];
        }
        let [groups, points, k] = [0, 1, 2].map(|axis| image.domain[axis]);
        let Nest { domain, instrs, results, .. } = Nest::of(image).permuted(&[0, 2, 1]);
        let rhs = Body { domain, instrs, results, ..Body::default() };
        let mut lhs = body(&[groups, m, k]);
        let w = build.dense(&mut lhs, dtype);
        lhs.results = vec![w];
        let domain = [groups, m, points];
        let mut own = body(&domain);
        let mut y = push(&mut own, Instr::Anchor { dtype });
        if build.random.below(2) == 0 {
            let slot = build.input(dtype, groups * m);
            let [group, row, _] = [0, 1, 2].map(Index::coord);
            let bias = build.load(&mut own, slot, flatten(&[group, row], &[groups, m]));
            y = map(&mut own, "add", &[bias, y], dtype);
        }
        if build.random.below(2) == 0 {
            let other = build.dense(&mut own, dtype);
            y = map(&mut own, "add", &[y, other], dtype);
        }
        build.store_at(groups * m * points, row_major(&domain), dtype, y);
        let (kernel, inputs) = build.kernel(AnchorKernel::product(lhs, rhs), own);
        device.check_with(&kernel, &inputs, 0, 24.0 + 8.0 * k as f64);
    }
}
