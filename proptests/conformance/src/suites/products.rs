//! Compares matrix products with sums in `f64`. Extents are odd, prime, large or 0. Operands are transposed, strided or
//! batched, and are inputs, or parameters that are packed once. Results are stored directly or through an epilogue.

use crate::{
    device::{Device, program},
    kernels::{
        Random,
        build::{Build, body, constant, map, map_with, push, row_major},
        expected,
    },
    suite::{Check, checks},
};
use eutectic_backend::{AnchorKernel, Body, Buffer, Instr, Place, Step};
use eutectic_ir::{
    DType, Tensor,
    index::{Index, flatten},
};

pub(super) const CHECKS: &[(&str, Check)] = checks![
    small_and_odd_extents_in_every_layout,
    every_number_of_rows_and_columns_up_to_two_blocks,
    few_rows_and_few_terms_in_every_layout,
    few_rows_of_long_sums,
    narrow_products,
    many_rows_of_few_terms,
    panels_that_are_packed_on_the_way,
    rows_that_are_packed,
    short_storage,
    sums_longer_than_a_block_of_terms_and_results_of_many_tasks,
    constants_are_packed_again_with_new_parameters,
    right_operands_that_are_packed_before_each_run,
    sums_replace_the_residual_in_memory,
    empty_extents,
    double_precision,
];

/// The layout of an operand in its buffer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Layout {
    Dense,
    Transposed,
    /// A part in the middle of longer rows.
    Slice,
    /// Every third element of every second row.
    Strided,
    /// One matrix for all batches.
    Shared,
    /// Elements that are scaled when they are read.
    Scaled,
}
use Layout::*;
const LAYOUTS: [Layout; 6] = [Dense, Transposed, Slice, Strided, Shared, Scaled];

/// Returns an operand over `[b.. rows columns]`.
fn operand(build: &mut Build, domain: &[usize], layout: Layout, dtype: DType) -> Body {
    let mut b = body(domain);
    let rank = domain.len();
    let mut at: Vec<_> = (0..rank).map(Index::coord).collect();
    let mut dims = domain.to_vec();
    match layout {
        Dense | Scaled => {}
        Transposed => {
            dims.swap(rank - 1, rank - 2);
            at.swap(rank - 1, rank - 2);
        }
        Slice => {
            dims[rank - 1] += 13;
            at[rank - 1] = at[rank - 1].plus(&Index::constant(7));
        }
        Strided => {
            dims[rank - 1] *= 3;
            at[rank - 1] = at[rank - 1].times(3);
            dims[rank - 2] *= 2;
            at[rank - 2] = at[rank - 2].times(2);
        }
        Shared => {
            dims = dims.split_off(rank - 2);
            at = at.split_off(rank - 2);
        }
    }
    let slot = build.input(dtype, dims.iter().product());
    let mut x = build.load(&mut b, slot, flatten(&at, &dims));
    if layout == Scaled {
        let half = constant(&mut b, 0.5, dtype);
        x = map(&mut b, "mul", &[x, half], dtype);
    }
    b.results = vec![x];
    b
}

/// The epilogue of the product.
#[derive(Clone, Copy, Debug)]
enum Epilogue {
    None,
    /// Stored as `[b.. n m]`.
    Transposing,
    /// relu(y + bias + residual), which kernels compute in registers.
    Sums,
    /// gelu(y + bias) + residual, and the product itself too.
    Everything,
}

/// Adds relu(product + bias + residual). Bias and residual are the next two inputs.
fn sums(build: &mut Build, b: &mut Body, product: usize, dtype: DType) -> usize {
    let bias = build.input(dtype, *b.domain.last().expect("the domain has columns"));
    let bias = build.load(b, bias, Index::coord(b.domain.len() - 1));
    let y = map(b, "add", &[product, bias], dtype);
    let residual = build.dense(b, dtype);
    let y = map(b, "add", &[residual, y], dtype);
    map_with(b, "act", &["relu".into()], &[y], dtype)
}

/// Checks a product. The operands are the last two inputs, the left one first, so that the right one or both can be
/// parameters.
fn case(
    device: &Device,
    batch: &[usize],
    (m, n, k): (usize, usize, usize),
    layouts: [Layout; 2],
    epilogue: Epilogue,
    dtype: DType,
) {
    let extents = |a, b| batch.iter().copied().chain([a, b]).collect::<Vec<_>>();
    let domain = extents(m, n);
    for params in 0..=2 {
        let mut build = Build::new((m * 31 + n * 7 + k) as u64);
        let mut b = body(&domain);
        let product = push(&mut b, Instr::Anchor { dtype });
        let mut y = product;
        if let Epilogue::Sums = epilogue {
            y = sums(&mut build, &mut b, product, dtype);
        }
        if let Epilogue::Everything = epilogue {
            let bias = build.input(dtype, n);
            let bias = build.load(&mut b, bias, Index::coord(domain.len() - 1));
            y = map(&mut b, "add", &[y, bias], dtype);
            y = map_with(&mut b, "act", &["gelu-erf".into()], &[y], dtype);
            let residual = build.dense(&mut b, dtype);
            y = map(&mut b, "add", &[y, residual], dtype);
        }
        let lhs = operand(&mut build, &extents(m, k), layouts[0], dtype);
        let rhs = operand(&mut build, &extents(k, n), layouts[1], dtype);
        let (mut dims, mut at) = (domain.clone(), (0..domain.len()).map(Index::coord).collect::<Vec<_>>());
        if let Epilogue::Transposing = epilogue {
            let rank = domain.len();
            dims.swap(rank - 1, rank - 2);
            at.swap(rank - 1, rank - 2);
        }
        build.store_at(domain.iter().product(), flatten(&at, &dims), dtype, y);
        if let Epilogue::Everything = epilogue {
            build.store_at(domain.iter().product(), row_major(&domain), dtype, product);
        }
        let (kernel, inputs) = build.kernel(AnchorKernel::product(lhs, rhs), b);
        // This bounds the rounding of each sum, whose terms are up to 4.
        device.check_with(&kernel, &inputs, params, 8.0 + 4.0 * k as f64);
    }
}

const EPILOGUES: [Epilogue; 4] = [Epilogue::None, Epilogue::Transposing, Epilogue::Sums, Epilogue::Everything];

fn small_and_odd_extents_in_every_layout(device: &Device) {
    let sizes = [1, 2, 3, 5, 8, 13, 14, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 65];
    let mut random = Random(11);
    for lhs in LAYOUTS {
        for rhs in LAYOUTS {
            for _ in 0..3 {
                let extents = (random.pick(&sizes), random.pick(&sizes), random.pick(&sizes));
                let batch: &[usize] = random.pick(&[&[][..], &[3], &[2, 3]]);
                let epilogue = random.pick(&EPILOGUES);
                case(device, batch, extents, [lhs, rhs], epilogue, DType::F32);
            }
        }
    }
}

fn every_number_of_rows_and_columns_up_to_two_blocks(device: &Device) {
    for m in 1..=29 {
        case(device, &[], (m, 70 - m, 9), [Dense, Dense], Epilogue::None, DType::F32);
    }
    for n in 1..=67 {
        case(device, &[], (5, n, 9), [Dense, Dense], Epilogue::None, DType::F32);
    }
    // These sums have too many terms to be unrolled.
    for n in 1..=131 {
        case(device, &[], (7 + n % 13, n, 49 + n % 3), [Dense, Dense], EPILOGUES[n % 4], DType::F32);
        case(device, &[], (7 + n % 17, n.div_ceil(2), 50), [Slice, Slice], Epilogue::None, DType::F64);
    }
}

fn few_rows_and_few_terms_in_every_layout(device: &Device) {
    let mut random = Random(12);
    for m in 1..=9 {
        for k in 1..=9 {
            let n = random.pick(&[1, 2, 7, 16, 31, 33, 64, 70, 129]);
            let layouts = [random.pick(&LAYOUTS), random.pick(&LAYOUTS)];
            let batch: &[usize] = random.pick(&[&[][..], &[], &[2]]);
            case(device, batch, (m, n, k), layouts, random.pick(&EPILOGUES), random.pick(&[DType::F32, DType::F64]));
        }
    }
}

/// Tests few rows. Kernels read rows of the right operand in pieces, because there is room for a limited number of
/// partial sums. The last piece is shorter.
fn few_rows_of_long_sums(device: &Device) {
    for m in 1..=9 {
        let dtype = if m % 2 == 0 { DType::F64 } else { DType::F32 };
        case(device, &[], (m, 1100 - m, 53 + m), [Dense, Dense], EPILOGUES[m % 4], dtype);
        case(device, &[], (m, 530 + m, 61), [Transposed, Slice], Epilogue::Sums, DType::F32);
        // A transposed matrix times a few columns is the same product with exchanged operands.
        case(device, &[], (1030, m, 60), [Transposed, Dense], EPILOGUES[(m + 1) % 4], dtype);
    }
    case(device, &[], (1, 13_001, 67), [Dense, Dense], Epilogue::Sums, DType::F32);
    // The right operands exceed the second-level cache, twice or many times.
    for m in 1..=8 {
        case(device, &[], (m, 4099, 67), [Dense, Dense], EPILOGUES[m % 4], DType::F32);
    }
    case(device, &[], (3, 2099, 1051), [Dense, Dense], Epilogue::None, DType::F64);
    case(device, &[], (5, 4199, 1051), [Dense, Dense], Epilogue::None, DType::F32);
}

/// Tests products of few columns, whose right operand is not packed. The last vector of a row is loaded in part.
fn narrow_products(device: &Device) {
    for m in 1..=18 {
        for (i, n) in [1, 3, 7, 8, 9, 15, 16, 17, 31, 33, 40, 77].into_iter().enumerate() {
            let (dtype, layout) = if (m + i) % 2 == 0 { (DType::F64, Dense) } else { (DType::F32, Slice) };
            case(device, &[], (m, n, 49 + m), [Dense, layout], EPILOGUES[(m + i / 2) % 4], dtype);
        }
    }
}

fn many_rows_of_few_terms(device: &Device) {
    for (extents, layouts) in [
        ((70, 2300, 47), [Dense, Dense]),
        ((35, 1201, 48), [Transposed, Slice]),
        ((131, 50, 3), [Slice, Dense]),
        ((200, 3, 1), [Dense, Dense]),
        ((3, 200, 1), [Strided, Dense]),
    ] {
        case(device, &[], extents, layouts, Epilogue::None, DType::F64);
        case(device, &[], extents, layouts, Epilogue::Sums, DType::F32);
        case(device, &[], extents, layouts, Epilogue::Everything, DType::F32);
    }
}

/// Tests products whose first rows pack the right operand. There are whole and narrower panels, in one group or
/// several, and the rows are in one task or several.
fn panels_that_are_packed_on_the_way(device: &Device) {
    for (extents, dtype) in [
        ((15, 33, 50), DType::F32),
        ((28, 48, 60), DType::F32),
        ((29, 8, 49), DType::F64),
        ((7, 79, 64), DType::F64),
        ((43, 700, 600), DType::F32),
        ((43, 710, 600), DType::F64),
        ((300, 129, 520), DType::F32),
        // The last task is narrower, and packs more panels at once.
        ((45, 1300, 801), DType::F32),
    ] {
        for (layouts, epilogue) in [([Dense, Dense], Epilogue::None), ([Strided, Slice], Epilogue::Sums)] {
            case(device, &[], extents, layouts, epilogue, dtype);
        }
    }
}

/// Tests each number of rows, with enough panels that rows are packed. The last panel is narrow or not, and terms are
/// not whole vectors.
fn rows_that_are_packed(device: &Device) {
    for m in 6..=30 {
        let dtype = if m % 3 == 0 { DType::F64 } else { DType::F32 };
        let layouts = if m % 2 == 0 { [Dense, Dense] } else { [Slice, Transposed] };
        case(device, &[], (m, 320 + 2 * m, 33 + m), layouts, EPILOGUES[m % 4], dtype);
    }
    // The terms are on more pages than TLBs have entries, so all rows are packed at once, a few terms at a time.
    for (m, n, k, dtype) in [(1030, 200, 67, DType::F32), (1024, 193, 131, DType::F32), (520, 100, 75, DType::F64)] {
        case(device, &[], (m, n, k), [Transposed, Dense], EPILOGUES[k % 4], dtype);
    }
}

/// Tests operands of 16 bits. Sums have 32 bits, and results 32 or 16.
fn short_storage(device: &Device) {
    for storage in [DType::F16, DType::Bf16] {
        for (extents, layouts) in [
            ((1, 75, 60), [Dense, Dense]),
            ((5, 33, 70), [Dense, Transposed]),
            ((29, 47, 51), [Slice, Slice]),
            ((17, 40, 6), [Transposed, Strided]),
        ] {
            let (m, n, k) = extents;
            for (params, to) in (0..=2).flat_map(|params| [DType::F32, storage].map(|to| (params, to))) {
                let mut build = Build::new((m * n + k) as u64);
                let mut b = body(&[m, n]);
                let product = push(&mut b, Instr::Anchor { dtype: DType::F32 });
                let lhs = operand(&mut build, &[m, k], layouts[0], storage);
                let rhs = operand(&mut build, &[k, n], layouts[1], storage);
                build.store_at(m * n, row_major(&[m, n]), to, product);
                let (kernel, inputs) = build.kernel(AnchorKernel::product(lhs, rhs), b);
                device.check_with(&kernel, &inputs, params, 8.0 + 4.0 * k as f64);
            }
        }
    }
}

fn sums_longer_than_a_block_of_terms_and_results_of_many_tasks(device: &Device) {
    for (extents, layouts) in [
        ((31, 130, 1100), [Dense, Dense]),
        ((257, 193, 67), [Dense, Transposed]),
        ((67, 600, 301), [Transposed, Slice]),
        ((300, 40, 521), [Strided, Scaled]),
        ((1, 700, 515), [Dense, Dense]),
        ((1, 700, 515), [Dense, Transposed]),
        ((4, 331, 515), [Dense, Dense]),
        ((700, 1, 515), [Dense, Dense]),
        ((700, 1, 515), [Transposed, Dense]),
    ] {
        case(device, &[], extents, layouts, Epilogue::Everything, DType::F32);
    }
    case(device, &[12], (40, 64, 32), [Slice, Transposed], Epilogue::None, DType::F32);
    case(device, &[2, 2], (65, 33, 300), [Shared, Dense], Epilogue::Transposing, DType::F32);
    case(device, &[], (45, 70, 4000), [Dense, Dense], Epilogue::Sums, DType::F32);
    case(device, &[], (30, 40, 2049), [Strided, Transposed], Epilogue::Sums, DType::F64);
    // Rows of the left operand are at a distance of one page in memory, and there are several panels.
    case(device, &[], (40, 200, 1024), [Dense, Dense], Epilogue::None, DType::F32);
}

/// Computes z = (x·w)·w in two steps with one weight, for several values of the weight. Each value is loaded by the
/// same executable, which must pack the new value.
fn constants_are_packed_again_with_new_parameters(device: &Device) {
    const N: usize = 75;
    let mut build = Build::new(5);
    let domain = [N, N];
    let mut b = body(&domain);
    let y = push(&mut b, Instr::Anchor { dtype: DType::F32 });
    let lhs = operand(&mut build, &domain, Dense, DType::F32);
    let rhs = operand(&mut build, &domain, Transposed, DType::F32);
    build.store(&domain, DType::F32, y);
    let (kernel, inputs) = build.kernel(AnchorKernel::product(lhs, rhs), b);
    let mut program = program(&kernel);
    let weight = program.inputs.pop().expect("the right operand is an input");
    program.params.push(weight);
    program.buffers[1].place = Place::Param(0);
    let middle = program.buffers.len();
    program.buffers.push(Buffer { dtype: DType::F32, count: N * N, place: Place::Arena(0) });
    program.arena_bytes = N * N * 4;
    let step = program.run[0].clone();
    program.run =
        vec![Step { buffers: vec![0, 1, middle], ..step.clone() }, Step { buffers: vec![middle, 1, 2], ..step }];
    let Some(executable) = device.compile(&**device.backend(), &program) else { return };
    let numbers = |seed: usize| (0..N * N).map(move |i| ((i * 37 + seed) % 101) as f64 / 200.0 - 0.25);
    for seed in [1, 50, 3] {
        let w = Tensor::from_f64(DType::F32, &[N * N], numbers(seed));
        let mut session = executable.clone().load(std::slice::from_ref(&w)).unwrap().session().unwrap();
        let mut out = vec![0; N * N * 4];
        session.run(&[inputs[0].bytes()], &mut [&mut out]).unwrap();
        let product = |x: Tensor| {
            let y = expected::kernel(&kernel, &[x, w.clone()]).swap_remove(0);
            Tensor::from_f64(DType::F32, &[N * N], y.into_iter().map(|y| y.expect("every element is stored")))
        };
        let want = product(product(inputs[0].clone())).to_f64();
        let got = Tensor::new(DType::F32, &[N * N], out).unwrap().to_f64();
        let worst = got.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(worst < 1e-4, "parameters {seed}: {worst}");
        device.judge();
    }
}

/// Tests operands that exceed the caches. The right operand is packed in each run if it is an input, and when it is
/// loaded if it is a parameter. Both must give the same bits.
fn right_operands_that_are_packed_before_each_run(device: &Device) {
    let (m, n, k) = (4200, 1030, 301);
    let mut build = Build::new(7);
    let mut b = body(&[m, n]);
    let product = push(&mut b, Instr::Anchor { dtype: DType::F32 });
    let lhs = operand(&mut build, &[m, k], Dense, DType::F32);
    let rhs = operand(&mut build, &[k, n], Scaled, DType::F32);
    build.store(&[m, n], DType::F32, product);
    let (kernel, inputs) = build.kernel(AnchorKernel::product(lhs, rhs), b);
    let changing = program(&kernel);
    let mut constant = changing.clone();
    constant.params.push(constant.inputs.remove(1));
    constant.buffers[1].place = Place::Param(0);
    let numbers = |seed: usize| (0..k * n).map(move |i| ((i * 37 + seed) % 101) as f64 / 50.0 - 1.0);
    for backend in device.forms() {
        let [Some(changing), Some(constant)] = [&changing, &constant].map(|p| device.compile(&**backend, p)) else {
            return;
        };
        let mut changing = changing.load(&[]).unwrap().session().unwrap();
        let [mut got, mut want] = [0, 0].map(|byte| vec![byte; m * n * 4]);
        for seed in [3, 70] {
            let w = Tensor::from_f64(DType::F32, &[k * n], numbers(seed));
            changing.run(&[inputs[0].bytes(), w.bytes()], &mut [&mut got]).unwrap();
            let mut constant = constant.clone().load(std::slice::from_ref(&w)).unwrap().session().unwrap();
            constant.run(&[inputs[0].bytes()], &mut [&mut want]).unwrap();
            assert!(got == want, "operand {seed}");
        }
        let (x, w) = (inputs[0].to_f64(), numbers(70).collect::<Vec<_>>());
        let got = Tensor::new(DType::F32, &[m, n], got).unwrap().to_f64();
        for (i, j) in (0..200).map(|s| (s * 7919 % m, s * 104_729 % n)) {
            let want: f64 = (0..k).map(|l| x[i * k + l] * w[l * n + j] * 0.5).sum();
            assert!((got[i * n + j] - want).abs() < 1e-6 * k as f64, "row {i}, column {j}");
        }
    }
}

/// Stores the result over the residual in memory. A partial sum must not overwrite the residual before the residual is
/// added.
fn sums_replace_the_residual_in_memory(device: &Device) {
    for (m, n, k) in [(30, 50, 8000), (7, 33, 20), (1, 64, 40), (64, 1, 40)] {
        let mut build = Build::new(k as u64);
        let domain = [m, n];
        let mut b = body(&domain);
        let product = push(&mut b, Instr::Anchor { dtype: DType::F32 });
        let y = sums(&mut build, &mut b, product, DType::F32);
        let lhs = operand(&mut build, &[m, k], Dense, DType::F32);
        let rhs = operand(&mut build, &[k, n], Dense, DType::F32);
        build.store(&domain, DType::F32, y);
        let (kernel, inputs) = build.kernel(AnchorKernel::product(lhs, rhs), b);
        let mut build = Build::new(0);
        let mut b = body(&[m * n]);
        let x = build.dense(&mut b, DType::F32);
        build.store(&[m * n], DType::F32, x);
        let mut program = program(&kernel);
        program.kernels.push(build.kernel(AnchorKernel::map(), b).0);
        let shared = Buffer { dtype: DType::F32, count: m * n, place: Place::Arena(0) };
        program.buffers.extend([shared.clone(), shared]);
        program.arena_bytes = m * n * 4;
        let whole = program.run[0].clone();
        let copy = |from, to| Step { kernel: 1, buffers: vec![from, to], ..whole.clone() };
        let product = Step { buffers: vec![0, 5, 2, 3, 6], ..whole.clone() }.over(1, 4);
        program.run = vec![copy(1, 5), product, copy(6, 4)];
        let want = expected::kernel(&kernel, &inputs).swap_remove(0);
        for backend in device.forms() {
            let Some(executable) = device.compile(&**backend, &program) else { return };
            let mut session = executable.load(&[]).unwrap().session().unwrap();
            let mut out = vec![0; m * n * 4];
            let inputs: Vec<&[u8]> = inputs.iter().map(Tensor::bytes).collect();
            session.run(&inputs, &mut [&mut out]).unwrap();
            let got = Tensor::new(DType::F32, &[m * n], out).unwrap().to_f64();
            let close = |(got, want): (&f64, &Option<f64>)| {
                (got - want.expect("every element is stored")).abs() < 1e-5 * k as f64
            };
            assert!(got.iter().zip(&want).all(close), "{m} {n} {k}");
        }
    }
}

fn empty_extents(device: &Device) {
    for extents in [(0, 5, 3), (5, 0, 3), (5, 7, 0), (1, 7, 0), (5, 1, 0)] {
        case(device, &[2], extents, [Dense, Dense], Epilogue::Everything, DType::F32);
    }
}

fn double_precision(device: &Device) {
    for (extents, layouts) in [
        ((1, 9, 5), [Dense, Dense]),
        ((15, 17, 30), [Transposed, Transposed]),
        ((29, 65, 700), [Strided, Slice]),
        ((100, 3, 40), [Scaled, Shared]),
    ] {
        case(device, &[2], extents, layouts, Epilogue::Everything, DType::F64);
    }
}
