//! Compares every kind of kernel with its evaluation point by point, on random, narrow, odd and larger shapes.

mod attentions;
mod operands;

use self::{attentions::attentions, operands::operand};
use crate::{
    device::Device,
    kernels::build::{Build, body, constant, map, map_with, push, row_major},
    suite::{Check, checks},
};
use eutectic_backend::{AnchorKernel, Body, Instr, Load};
use eutectic_ir::{DType, Tensor, index::Index, ops::Reduction};

pub(super) const CHECKS: &[(&str, Check)] = checks![
    maps,
    lines_of_padded_windows,
    pieces_of_pieces,
    a_value_that_is_stored_for_each_point_of_another_axis,
    results_past_the_caches,
    a_result_past_the_caches_and_a_copied_load,
    strips_of_values_of_several_sizes,
    rows,
    layer_norms_of_short_and_very_long_rows,
    interleaved_rows,
    empty_rows_reduce_to_the_identity,
    contractions,
    contractions_of_other_types,
    attentions,
    zero_sized_domains_do_nothing,
    reductions_of_every_type,
];

const SHAPES: &[&[usize]] = &[
    &[],
    &[1],
    &[7],
    &[1, 5],
    &[5, 1],
    &[3, 4],
    &[17, 33],
    &[2, 3, 5, 7],
    &[6, 10, 4],
    &[40, 130, 3],
    &[100, 257],
    &[2, 1, 3000],
    &[5, 9, 6, 48],
];

/// Returns a body of a few ops that do not amplify errors, over loads in random layouts. It has reductions of rows if
/// `reduce`.
fn random_body(build: &mut Build, domain: &[usize], reduce: bool) -> Body {
    let mut b = body(domain);
    let mut values: Vec<_> = (0..3).map(|_| build.any(&mut b, DType::F32)).collect();
    values.push(build.pieces(&mut b, DType::F32));
    values.push(constant(&mut b, 0.75, DType::F32));
    values.push(push(&mut b, Instr::Coordinate { index: Index::coord(0).modulo(3, domain), dtype: DType::F32 }));
    for _ in 0..5 {
        let n = values.len();
        let (x, y) = (values[build.random.below(n)], values[build.random.below(n)]);
        let new = match build.random.below(9) {
            0 => map(&mut b, "add", &[x, y], DType::F32),
            1 => map(&mut b, "sub", &[x, y], DType::F32),
            2 => map(&mut b, "max", &[x, y], DType::F32),
            3 => map(&mut b, "tanh", &[x], DType::F32),
            4 => map(&mut b, "sigmoid", &[y], DType::F32),
            5 => map(&mut b, "erf", &[y], DType::F32),
            6 => {
                let t = map(&mut b, "tanh", &[x], DType::F32);
                map(&mut b, "mul", &[t, y], DType::F32)
            }
            7 if reduce => {
                let how = build.random.pick(&[Reduction::Max, Reduction::Min]);
                push(&mut b, Instr::reduce(how, x, DType::F32))
            }
            8 if reduce => {
                let sum = push(&mut b, Instr::reduce(Reduction::Sum, x, DType::F32));
                map(&mut b, "tanh", &[sum], DType::F32)
            }
            _ => map(&mut b, "min", &[x, y], DType::F32),
        };
        values.push(new);
    }
    b
}

fn maps(device: &Device) {
    for (s, domain) in SHAPES.iter().enumerate() {
        for seed in 0..6 {
            let mut build = Build::new(seed * 100 + s as u64);
            let domain = if domain.is_empty() { &[1] } else { *domain };
            let b = random_body(&mut build, domain, false);
            build.store(domain, DType::F32, b.instrs.len() - 1);
            // The second result is stored transposed.
            let reversed: Vec<_> = domain.iter().rev().copied().collect();
            let coords: Vec<_> = (0..domain.len()).rev().map(Index::coord).collect();
            let at = eutectic_ir::index::flatten(&coords, &reversed);
            build.store_at(domain.iter().product(), at, DType::F32, b.instrs.len() - 2);
            let (kernel, inputs) = build.kernel(AnchorKernel::map(), b);
            device.check(&kernel, &inputs, 60.0);
        }
    }
}

/// Returns a body with two results for each point of images with `channels`. One is a neighbour, and the other is the
/// point times the maximum of three neighbours. Some neighbours are outside of the image.
fn padded_windows(build: &mut Build, channels: usize) -> Body {
    let domain = [3, 6, 7, channels];
    let mut b = body(&domain);
    let x = build.dense(&mut b, DType::F32);
    let &Instr::Load(Load { slot, .. }) = &b.instrs[x] else { unreachable!("it is a load") };
    let mut values = vec![x];
    for (dy, dx) in [(-1, 0), (0, 1), (2, -2)] {
        let (y, z) = (Index::coord(1).plus(&Index::constant(dy)), Index::coord(2).plus(&Index::constant(dx)));
        let inside = vec![(y.clone(), 0..6), (z.clone(), 0..7)];
        let at = eutectic_ir::index::flatten(&[Index::coord(0), y, z, Index::coord(3)], &domain);
        let load = Load { slot, dtype: DType::F32, at, guards: inside.clone() };
        let load = push(&mut b, Instr::Load(load));
        let fill = (dx as f64).into();
        let [rows, columns] = [0, 1].map(|n| vec![inside[n].clone()]);
        let inner = push(&mut b, Instr::Select { pieces: vec![(rows, load)], fill, dtype: DType::F32 });
        values.push(push(&mut b, Instr::Select { pieces: vec![(columns, inner)], fill, dtype: DType::F32 }));
    }
    let sum = map(&mut b, "max", &[values[1], values[2]], DType::F32);
    let sum = map(&mut b, "max", &[sum, values[3]], DType::F32);
    let last = map(&mut b, "mul", &[sum, values[0]], DType::F32);
    b.results = vec![values[1], last];
    b
}

fn lines_of_padded_windows(device: &Device) {
    for channels in [1, 31, 32, 64, 200] {
        let mut build = Build::new(channels as u64);
        let mut b = padded_windows(&mut build, channels);
        let results = std::mem::take(&mut b.results);
        build.store(&[3, 6, 7, channels], DType::F32, results[1]);
        // One result is stored with columns before rows. Its channels stay contiguous.
        let turned = eutectic_ir::index::flatten(&[0, 2, 1, 3].map(Index::coord), &[3, 7, 6, channels]);
        build.store_at(3 * 7 * 6 * channels, turned, DType::F32, results[0]);
        let (kernel, inputs) = build.kernel(AnchorKernel::map(), b);
        device.check(&kernel, &inputs, 4.0);
    }
}

/// Tests nested concatenations. Pieces have any length, and follow each other, overlap or leave a gap. Some
/// concatenations are also stored as a whole.
fn pieces_of_pieces(device: &Device) {
    for (seed, width) in
        [3, 5, 16, 33, 70, 96, 260].into_iter().flat_map(|w| [0, 1, 2, 3].map(|n| (n + 4 * w as u64, w)))
    {
        let mut build = Build::new(seed);
        let rows = build.random.pick(&[1, 7, 130]);
        let domain = [rows, width];
        let mut b = body(&domain);
        let first = 1 + build.random.below(width - 2);
        let second = first + 1 + build.random.below(width - first - 1);
        // The outer pieces follow each other, overlap, or leave a gap.
        let third = second + build.random.below(3) - 1;
        let piece = |build: &mut Build, b: &mut Body, from: usize, to: usize| {
            let columns = to.saturating_sub(from).max(1);
            let slot = build.input(DType::F32, rows * columns);
            let at =
                Index::coord(0).times(columns as i64).plus(&Index::coord(1)).plus(&Index::constant(-(from as i64)));
            let guards = vec![(Index::coord(1), from as i64..to as i64)];
            let load = push(b, Instr::Load(Load { slot, dtype: DType::F32, at, guards: guards.clone() }));
            (guards, load)
        };
        let inner = vec![piece(&mut build, &mut b, 0, first), piece(&mut build, &mut b, first, second)];
        let last = piece(&mut build, &mut b, third, width);
        let fill = (0.5 * (seed % 2) as f64).into();
        let inner = push(&mut b, Instr::Select { pieces: inner, fill, dtype: DType::F32 });
        let before = vec![(Index::coord(1), 0..second as i64)];
        let pieces = vec![(before, inner), last];
        let all = push(&mut b, Instr::Select { pieces, fill, dtype: DType::F32 });
        let beside = build.dense(&mut b, DType::F32);
        let product = map(&mut b, "mul", &[all, beside], DType::F32);
        build.store(&domain, DType::F32, product);
        if seed % 4 > 1 {
            build.store(&domain, DType::F32, inner);
            build.store(&domain, DType::F32, all);
        }
        let (kernel, inputs) = build.kernel(AnchorKernel::map(), b);
        device.check(&kernel, &inputs, 4.0);
    }
}

fn a_value_that_is_stored_for_each_point_of_another_axis(device: &Device) {
    let mut build = Build::new(3);
    let mut b = body(&[4, 5, 33]);
    let at = Index::coord(2).plus(&Index::coord(1).times(33));
    let slot = build.input(DType::F32, 5 * 33);
    let x = build.load(&mut b, slot, at);
    let y = map(&mut b, "mul", &[x, x], DType::F32);
    build.store(&[4, 5, 33], DType::F32, y);
    let (kernel, inputs) = build.kernel(AnchorKernel::map(), b);
    device.check(&kernel, &inputs, 4.0);
}

fn results_past_the_caches(device: &Device) {
    let domain = [1234, 2347];
    let mut build = Build::new(7);
    let mut b = body(&domain);
    let [x, y] = [0, 1].map(|_| build.dense(&mut b, DType::F32));
    let z = map(&mut b, "mul", &[x, y], DType::F32);
    let z = map(&mut b, "sub", &[z, y], DType::F32);
    build.store(&domain, DType::F32, z);
    // Neither of these stores bypasses the caches: the first is not contiguous, and the second stores a loaded value.
    let transposed = Index::coord(1).times(domain[0] as i64).plus(&Index::coord(0));
    build.store_at(domain.iter().product(), transposed, DType::F32, z);
    build.store(&domain, DType::F32, x);
    let (kernel, inputs) = build.kernel(AnchorKernel::map(), b);
    device.check(&kernel, &inputs, 4.0);
}

/// Stores a result past the caches. The store must not overwrite the copy of a strided load, which is still read strip
/// by strip.
fn a_result_past_the_caches_and_a_copied_load(device: &Device) {
    let n = (1 << 20) + 5;
    let mut build = Build::new(8);
    let mut b = body(&[n]);
    let x = build.dense(&mut b, DType::F32);
    let apart = build.input(DType::F32, 2 * n);
    let z = build.load(&mut b, apart, Index::coord(0).times(2));
    let t = map(&mut b, "abs", &[z], DType::F32);
    let y = map(&mut b, "mul", &[t, x], DType::F32);
    build.store(&[n], DType::F32, y);
    let (kernel, inputs) = build.kernel(AnchorKernel::map(), b);
    device.check(&kernel, &inputs, 4.0);
}

/// Tests a kernel with more ops than one pass computes, on values of one byte and of four. Its data exceeds a core's
/// caches. Slots of scratch memory are reused while a tile is computed strip by strip.
fn strips_of_values_of_several_sizes(device: &Device) {
    for (axes, domain) in [(0, [701, 1503]), (1, [701, 1503]), (0, [1, 1_100_003])] {
        let mut build = Build::new(11);
        let mut b = body(&domain);
        let [mut x, y] = [0, 1].map(|_| build.dense(&mut b, DType::F32));
        let column = build.input(DType::F32, domain[1]);
        let z = build.load(&mut b, column, Index::coord(1));
        for n in 0..5 {
            let larger = map(&mut b, "gt", &[x, y], DType::Bool);
            let t = map(&mut b, "tanh", &[x], DType::F32);
            let sum = map(&mut b, if n % 2 == 0 { "add" } else { "sub" }, &[t, z], DType::F32);
            let smaller = map(&mut b, "not", &[larger], DType::Bool);
            x = map(&mut b, "where", &[smaller, sum, y], DType::F32);
            if axes == 1 && n == 2 {
                let most = push(&mut b, Instr::reduce(Reduction::Max, x, DType::F32));
                x = map(&mut b, "sub", &[x, most], DType::F32);
            }
        }
        build.store(&domain, DType::F32, x);
        let anchor = if axes == 0 { AnchorKernel::map() } else { AnchorKernel::rows(axes) };
        let (kernel, inputs) = build.kernel(anchor, b);
        device.check(&kernel, &inputs, 60.0);
    }
}

fn rows(device: &Device) {
    for (s, domain) in SHAPES.iter().enumerate().filter(|s| !s.1.is_empty()) {
        for axes in 1..=domain.len().min(2) {
            for seed in 0..4 {
                let mut build = Build::new(seed * 1000 + s as u64);
                let b = random_body(&mut build, domain, true);
                let row: usize = domain[domain.len() - axes..].iter().product();
                build.store(domain, DType::F32, b.instrs.len() - 1);
                let (kernel, inputs) = build.kernel(AnchorKernel::rows(axes), b);
                device.check(&kernel, &inputs, 60.0 + row as f64);
            }
        }
    }
}

/// Returns (x − mean)·rsqrt(var + eps)·g + b. The mean of each row is stored too.
fn layernorm(build: &mut Build, domain: &[usize], axes: usize) -> Body {
    let mut b = body(domain);
    let row: usize = domain[domain.len() - axes..].iter().product();
    let x = build.dense(&mut b, DType::F32);
    let n = constant(&mut b, row as f64, DType::F32);
    let sum = push(&mut b, Instr::reduce(Reduction::Sum, x, DType::F32));
    let mean = map(&mut b, "div", &[sum, n], DType::F32);
    let centred = map(&mut b, "sub", &[x, mean], DType::F32);
    let square = map(&mut b, "mul", &[centred, centred], DType::F32);
    let sum = push(&mut b, Instr::reduce(Reduction::Sum, square, DType::F32));
    let var = map(&mut b, "div", &[sum, n], DType::F32);
    let eps = constant(&mut b, 1e-5, DType::F32);
    let var = map(&mut b, "add", &[var, eps], DType::F32);
    let inverse = map(&mut b, "rsqrt", &[var], DType::F32);
    let y = map(&mut b, "mul", &[centred, inverse], DType::F32);
    let slot = build.input(DType::F32, *domain.last().unwrap());
    let gain = build.load(&mut b, slot, Index::coord(domain.len() - 1));
    let y = map(&mut b, "mul", &[y, gain], DType::F32);
    build.store(domain, DType::F32, y);
    let outer = &domain[..domain.len() - axes];
    build.store_at(outer.iter().product(), row_major(outer), DType::F32, mean);
    b
}

fn layer_norms_of_short_and_very_long_rows(device: &Device) {
    for (domain, axes) in [
        (&[128, 384][..], 1),
        (&[3, 5, 7], 2),
        (&[9, 1], 1),
        (&[1, 1], 1),
        (&[2, 50_000], 1),
        (&[3, 70, 700], 2),
        (&[40_000], 1),
    ] {
        let mut build = Build::new(7);
        let b = layernorm(&mut build, domain, axes);
        let (kernel, inputs) = build.kernel(AnchorKernel::rows(axes), b);
        device.check(&kernel, &inputs, 200.0);
    }
}

/// Reduces rows along the outer axis of their operand. Rows that share a cache line are read together.
fn interleaved_rows(device: &Device) {
    for (count, row) in [(70, 300), (70, 1500), (33, 40_000), (5, 129), (1, 4097), (1000, 513), (3, 1100)] {
        for centred in [false, true] {
            let (mut build, domain) = (Build::new(9), [count, row]);
            let mut b = body(&domain);
            let at = || eutectic_ir::index::flatten(&[Index::coord(1), Index::coord(0)], &[row, count]);
            let slot = build.input(DType::F32, count * row);
            let x = build.load(&mut b, slot, at());
            let mut sum = push(&mut b, Instr::reduce(Reduction::Sum, x, DType::F32));
            if centred {
                let n = constant(&mut b, row as f64, DType::F32);
                let mean = map(&mut b, "div", &[sum, n], DType::F32);
                let apart = map(&mut b, "sub", &[x, mean], DType::F32);
                let square = map(&mut b, "mul", &[apart, apart], DType::F32);
                build.store_at(count * row, at(), DType::F32, apart);
                sum = push(&mut b, Instr::reduce(Reduction::Sum, square, DType::F32));
            }
            build.store_at(count, Index::coord(0), DType::F32, sum);
            let (kernel, inputs) = build.kernel(AnchorKernel::rows(1), b);
            device.check(&kernel, &inputs, 60.0 + row as f64);
        }
    }
}

fn empty_rows_reduce_to_the_identity(device: &Device) {
    let mut build = Build::new(1);
    let mut b = body(&[4, 0]);
    let x = build.dense(&mut b, DType::F32);
    let sum = push(&mut b, Instr::reduce(Reduction::Product, x, DType::F32));
    build.store_at(4, Index::coord(0), DType::F32, sum);
    let (kernel, inputs) = build.kernel(AnchorKernel::rows(1), b);
    device.check(&kernel, &inputs, 0.0);
}

fn contractions(device: &Device) {
    let shapes: &[(&[usize], usize, usize, usize)] = &[
        (&[], 1, 1, 1),
        (&[], 5, 7, 3),
        (&[], 1, 300, 70),
        (&[], 300, 1, 70),
        (&[3], 1, 40, 64),
        (&[2, 3], 17, 33, 9),
        (&[4], 16, 16, 1),
        (&[], 130, 600, 65),
        (&[2], 3, 4, 0),
        (&[0], 3, 4, 2),
    ];
    for (s, &(batch, m, n, k)) in shapes.iter().enumerate() {
        for seed in 0..6_u64 {
            let mut build = Build::new(seed * 50 + s as u64);
            let extents = |a, b| batch.iter().copied().chain([a, b]).collect::<Vec<_>>();
            let (kl, kr) = (build.random.below(5), build.random.below(5));
            let lhs = operand(&mut build, &extents(m, k), DType::F32, kl);
            let rhs = operand(&mut build, &extents(k, n), DType::F32, kr);
            let domain = extents(m, n);
            let mut b = body(&domain);
            let mut y = push(&mut b, Instr::Anchor { dtype: DType::F32 });
            if seed % 3 != 0 {
                let residual = build.any(&mut b, DType::F32);
                y = map(&mut b, "add", &[y, residual], DType::F32);
                y = map_with(&mut b, "act", &["gelu-erf".into()], &[y], DType::F32);
                build.store(&domain, DType::F32, residual);
            }
            build.store(&domain, DType::F32, y);
            let (kernel, inputs) = build.kernel(AnchorKernel::product(lhs, rhs), b);
            device.check(&kernel, &inputs, 30.0 + 4.0 * k as f64);
        }
    }
}

fn contractions_of_other_types(device: &Device) {
    for dtype in DType::ALL.into_iter().filter(|dtype| dtype.computes() && ![DType::F32, DType::Bool].contains(dtype)) {
        let mut build = Build::new(3);
        let lhs = operand(&mut build, &[2, 5, 9], dtype, 0);
        let rhs = operand(&mut build, &[2, 9, 6], dtype, 2);
        let mut b = body(&[2, 5, 6]);
        let y = push(&mut b, Instr::Anchor { dtype });
        let small = if dtype == DType::I8 || dtype == DType::U8 { map(&mut b, "max", &[y, y], dtype) } else { y };
        build.store(&[2, 5, 6], dtype, small);
        let (kernel, inputs) = build.kernel(AnchorKernel::product(lhs, rhs), b);
        if dtype.size() == 1 {
            // Integer sums wrap, but the expected sums do not, so this only checks that the run has no error.
            assert!(device.run(&kernel, &inputs).is_none_or(|run| run.is_ok()));
        } else {
            let loose = if dtype.is_half() { 2f64.powi(16) } else { 40.0 };
            device.check(&kernel, &inputs, loose);
        }
    }
}

fn zero_sized_domains_do_nothing(device: &Device) {
    let mut build = Build::new(1);
    let mut b = body(&[0, 5]);
    let x = build.dense(&mut b, DType::F32);
    build.store(&[0, 5], DType::F32, x);
    let (kernel, inputs) = build.kernel(AnchorKernel::map(), b);
    device.check(&kernel, &inputs, 0.0);
}

fn reductions_of_every_type(device: &Device) {
    for dtype in DType::ALL.into_iter().filter(|dtype| dtype.computes()) {
        for how in Reduction::ALL {
            let mut build = Build::new(9);
            let mut b = body(&[3, 70]);
            let x = build.dense(&mut b, dtype);
            let y = push(&mut b, Instr::reduce(how, x, dtype));
            build.store_at(3, Index::coord(0), dtype, y);
            let (kernel, mut inputs) = build.kernel(AnchorKernel::rows(1), b);
            if dtype.is_float() && how == Reduction::Product {
                inputs[0] = Tensor::from_f64(dtype, &[210], (0..210).map(|i| if i % 2 == 0 { 1.5 } else { 0.625 }));
            }
            if dtype == DType::Bool && matches!(how, Reduction::Sum | Reduction::Product) {
                continue;
            }
            device.check(&kernel, &inputs, if dtype.is_half() { 2f64.powi(15) } else { 200.0 });
        }
    }
}
