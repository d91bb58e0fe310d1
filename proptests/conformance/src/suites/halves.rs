//! Tests products of operands that are narrower in memory than in registers: 16-bit floats and 8-bit integers. Operands
//! are packed once, packed in each run, or computed when they are read.

use crate::{
    device::Device,
    kernels::{
        Random,
        build::{Build, body, map, map_with, push, row_major},
    },
    suite::{Check, checks},
};
use eutectic_backend::{AnchorKernel, Body, Instr, Load};
use eutectic_ir::{
    Attr, DType,
    index::{Index, flatten},
};

pub(super) const CHECKS: &[(&str, Check)] = checks![
    constants_of_16_bits_of_few_rows_and_more,
    constants_of_8_bits_of_few_rows_and_more,
    all_numbers_of_8_bits,
    large_constants_of_16_bits,
    large_constants_of_8_bits,
    operands_of_8_bits_with_a_scale,
    batches_of_operands_of_16_bits,
    right_operands_that_are_computed,
    left_operands_that_are_copied,
    left_operands_that_are_computed,
];

/// A form of operands, with the element type in memory.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// Loaded without a conversion.
    Loaded(DType),
    /// Converted to `f32`.
    Converted(DType),
    /// Converted to `f32`, with contiguous columns.
    Transposed(DType),
    /// tanh(x)·y in `f32`, where y is a number for each column.
    Computed(DType),
    /// x·y in `f32`, where y is a number for each column.
    Scaled(DType),
    /// Rows that ids select from a table, converted to `f32`.
    Gathered(DType),
    /// Loaded without a conversion: each row is the row before it in memory, and the first row is zeros.
    Shifted(DType),
}
use Form::*;

impl Form {
    /// Returns a bound of the magnitudes of elements, for numbers that [`Build::input`] draws.
    fn most(self) -> f64 {
        let of = |dtype: DType| if dtype.is_float() { 2.0 } else { 8.0 };
        match self {
            Loaded(dtype) | Converted(dtype) | Transposed(dtype) | Gathered(dtype) | Shifted(dtype) => of(dtype),
            Computed(_) => 2.0,
            Scaled(dtype) => 2.0 * of(dtype),
        }
    }
}

/// Returns an operand over `[b.. rows columns]`, in `f32` or in a type that registers hold as `f32`.
fn operand(build: &mut Build, domain: &[usize], form: Form) -> Body {
    let mut b = body(domain);
    let rank = domain.len();
    let to_f32 = |b: &mut Body, x| map_with(b, "cast", &[Attr::DType(DType::F32)], &[x], DType::F32);
    let result = match form {
        Loaded(dtype) => build.dense(&mut b, dtype),
        Converted(dtype) => {
            let x = build.dense(&mut b, dtype);
            to_f32(&mut b, x)
        }
        Transposed(dtype) => {
            let (mut dims, mut at) = (domain.to_vec(), (0..rank).map(Index::coord).collect::<Vec<_>>());
            dims.swap(rank - 1, rank - 2);
            at.swap(rank - 1, rank - 2);
            let slot = build.input(dtype, dims.iter().product());
            let x = build.load(&mut b, slot, flatten(&at, &dims));
            to_f32(&mut b, x)
        }
        Computed(dtype) | Scaled(dtype) => {
            let y = build.input(DType::F32, domain[rank - 1]);
            let y = build.load(&mut b, y, Index::coord(rank - 1));
            let x = build.dense(&mut b, dtype);
            let mut x = to_f32(&mut b, x);
            if let Computed(_) = form {
                x = map(&mut b, "tanh", &[x], DType::F32);
            }
            map(&mut b, "mul", &[x, y], DType::F32)
        }
        Shifted(dtype) => {
            let slot = build.input(dtype, domain.iter().product());
            let guards = vec![(Index::coord(rank - 2), 1..domain[rank - 2] as i64)];
            let at = row_major(domain).plus(&Index::constant(-(domain[rank - 1] as i64)));
            let load = push(&mut b, Instr::Load(Load { slot, at, guards: guards.clone(), dtype }));
            push(&mut b, Instr::Select { pieces: vec![(guards, load)], fill: 0.0.into(), dtype })
        }
        Gathered(dtype) => {
            let numbers = domain[..rank - 1].iter().map(|&n| n as i64);
            let rows: usize = domain[..rank - 1].iter().product();
            let table = (0..rows).map(|row| ((row * 7 + numbers.clone().sum::<i64>() as usize) % 9) as f64);
            let slot = build.tensor(eutectic_ir::Tensor::from_f64(DType::I64, &[rows], table));
            let at = flatten(&(0..rank - 1).map(Index::coord).collect::<Vec<_>>(), &domain[..rank - 1]);
            let arg = build.load(&mut b, slot, at);
            let extent = 9_usize.into();
            let within = Instr::Within { arg, extent, from_end: false, check: 0, guards: vec![], dtype: DType::I64 };
            let row = push(&mut b, within);
            let slot = build.input(dtype, 9 * domain[rank - 1]);
            let row = Index::atom(eutectic_ir::index::Atom::Value(row)).times(domain[rank - 1] as i64);
            let x = build.load(&mut b, slot, row.plus(&Index::coord(rank - 1)));
            to_f32(&mut b, x)
        }
    };
    b.results = vec![result];
    b
}

/// The epilogue of the product.
#[derive(Clone, Copy, Debug)]
enum Epilogue {
    /// None: the product is stored in this type.
    Stored(DType),
    /// relu(y + bias) in this type, and the product itself in `f32`.
    Twice(DType),
}
use Epilogue::*;

/// Checks a product without parameters, and with the last input as a parameter, from which the right operand is
/// computed.
fn case(device: &Device, batch: &[usize], (m, n, k): (usize, usize, usize), forms: [Form; 2], epilogue: Epilogue) {
    let extents = |a, b| batch.iter().copied().chain([a, b]).collect::<Vec<_>>();
    let domain = extents(m, n);
    for params in 0..=1 {
        let mut build = Build::new((m * 31 + n * 7 + k) as u64);
        let mut b = body(&domain);
        let product = push(&mut b, Instr::Anchor { dtype: DType::F32 });
        let mut relu = product;
        if let Twice(dtype) = epilogue {
            let bias = build.input(dtype, n);
            let bias = build.load(&mut b, bias, Index::coord(domain.len() - 1));
            let sum = map(&mut b, "add", &[product, bias], DType::F32);
            relu = map_with(&mut b, "act", &["relu".into()], &[sum], DType::F32);
        }
        let lhs = operand(&mut build, &extents(m, k), forms[0]);
        let rhs = operand(&mut build, &extents(k, n), forms[1]);
        let (Stored(dtype) | Twice(dtype)) = epilogue;
        build.store(&domain, dtype, relu);
        if let Twice(_) = epilogue {
            build.store_at(domain.iter().product(), row_major(&domain), DType::F32, product);
        }
        let (kernel, inputs) = build.kernel(AnchorKernel::product(lhs, rhs), b);
        // This bounds the rounding of each sum, whose terms are products of two factors.
        let terms: f64 = forms.iter().map(|form| form.most()).product();
        device.check_with(&kernel, &inputs, params, 8.0 + terms * k as f64);
    }
}

const HALVES: [DType; 2] = [DType::F16, DType::Bf16];
const BYTES: [DType; 2] = [DType::I8, DType::U8];

fn constants_of_16_bits_of_few_rows_and_more(device: &Device) {
    let mut random = Random(21);
    for m in [1, 2, 3, 4, 5, 6, 7, 14, 15, 40] {
        for n in [1, 5, 16, 17, 31, 32, 33, 48, 100, 290] {
            let k = random.pick(&[1, 7, 48, 49, 130]);
            let dtype = random.pick(&HALVES);
            let rhs = random.pick(&[Loaded(dtype), Converted(dtype), Transposed(dtype)]);
            let lhs = random.pick(&[Loaded(DType::F32), Loaded(dtype), Converted(dtype)]);
            let epilogue = random.pick(&[Stored(DType::F32), Stored(dtype), Twice(DType::F32)]);
            case(device, &[], (m, n, k), [lhs, rhs], epilogue);
        }
    }
}

fn constants_of_8_bits_of_few_rows_and_more(device: &Device) {
    let mut random = Random(23);
    for m in [1, 2, 3, 4, 5, 6, 7, 8, 14, 15, 40] {
        for n in [1, 2, 15, 16, 17, 31, 32, 33, 48, 100, 290] {
            let k = random.pick(&[1, 7, 48, 49, 130]);
            let dtype = random.pick(&BYTES);
            let rhs = random.pick(&[Converted(dtype), Transposed(dtype)]);
            let lhs = random.pick(&[Loaded(DType::F32), Loaded(DType::F16), Converted(DType::Bf16)]);
            let epilogue = random.pick(&[Stored(DType::F32), Stored(DType::F16), Twice(DType::F32)]);
            case(device, &[], (m, n, k), [lhs, rhs], epilogue);
        }
    }
}

/// Multiplies the identity by a matrix of all numbers of a type. The result is that matrix, without rounding.
fn all_numbers_of_8_bits(device: &Device) {
    const TERMS: usize = 3;
    for (dtype, least) in [(DType::I8, -128), (DType::U8, 0)] {
        for params in 0..=1 {
            let mut build = Build::new(1);
            let mut lhs = body(&[TERMS, TERMS]);
            let identity = (0..TERMS * TERMS).map(|i| f64::from(i % (TERMS + 1) == 0));
            let slot = build.tensor(eutectic_ir::Tensor::from_f64(DType::F32, &[TERMS * TERMS], identity));
            lhs.results = vec![build.load(&mut lhs, slot, row_major(&[TERMS, TERMS]))];
            let mut rhs = body(&[TERMS, 256]);
            let numbers = (0..TERMS as i64 * 256).map(|i| (least + i * 7 % 256) as f64);
            let slot = build.tensor(eutectic_ir::Tensor::from_f64(dtype, &[TERMS * 256], numbers));
            let x = build.load(&mut rhs, slot, row_major(&[TERMS, 256]));
            rhs.results = vec![map_with(&mut rhs, "cast", &[Attr::DType(DType::F32)], &[x], DType::F32)];
            let mut own = body(&[TERMS, 256]);
            let product = push(&mut own, Instr::Anchor { dtype: DType::F32 });
            build.store(&[TERMS, 256], DType::F32, product);
            let (kernel, inputs) = build.kernel(AnchorKernel::product(lhs, rhs), own);
            device.check_with(&kernel, &inputs, params, 0.0);
        }
    }
}

/// Tests products of several groups of panels, several blocks of terms, or several tasks.
fn large_constants_of_8_bits(device: &Device) {
    for (extents, dtype) in [
        ((1, 700, 1500), DType::I8),
        ((1, 4099, 130), DType::I8),
        ((2, 531, 1501), DType::U8),
        ((4, 1300, 300), DType::I8),
        ((6, 700, 300), DType::U8),
        ((8, 301, 700), DType::I8),
        ((40, 300, 300), DType::I8),
        ((200, 700, 7), DType::U8),
        ((70, 2300, 40), DType::I8),
    ] {
        case(device, &[], extents, [Loaded(DType::F32), Converted(dtype)], Stored(DType::F32));
        case(device, &[], extents, [Loaded(DType::F16), Transposed(dtype)], Twice(DType::F32));
        case(device, &[2], extents, [Loaded(DType::F32), Converted(dtype)], Stored(DType::F32));
    }
}

/// Tests scales of the left and of the right operand. A product of few columns is computed as a transposed one of few
/// rows.
fn operands_of_8_bits_with_a_scale(device: &Device) {
    for dtype in BYTES {
        for (m, n, k) in [(1, 40, 33), (4, 70, 60), (70, 4, 60), (300, 1, 47), (20, 33, 49), (1, 1, 9), (5, 7, 1)] {
            case(device, &[], (m, n, k), [Loaded(DType::F32), Scaled(dtype)], Stored(DType::F32));
            case(device, &[], (m, n, k), [Scaled(dtype), Loaded(DType::F32)], Stored(DType::F32));
        }
    }
}

/// Tests products of several groups of panels, several blocks of terms, or several tasks.
fn large_constants_of_16_bits(device: &Device) {
    for (extents, dtype) in [
        ((1, 700, 1500), DType::F16),
        ((6, 700, 300), DType::Bf16),
        ((40, 300, 300), DType::F16),
        ((200, 100, 300), DType::Bf16),
        ((15, 33, 1500), DType::Bf16),
        ((9, 1300, 700), DType::F16),
        ((200, 700, 7), DType::F16),
        ((70, 2300, 40), DType::Bf16),
    ] {
        case(device, &[], extents, [Loaded(DType::F32), Loaded(dtype)], Stored(DType::F32));
        case(device, &[], extents, [Loaded(dtype), Transposed(dtype)], Twice(dtype));
    }
}

fn batches_of_operands_of_16_bits(device: &Device) {
    for (extents, dtype) in [
        ((1, 33, 60), DType::F16),
        ((5, 64, 7), DType::Bf16),
        ((16, 40, 50), DType::F16),
        ((33, 100, 129), DType::Bf16),
    ] {
        for forms in [[Loaded(dtype); 2], [Computed(dtype), Converted(dtype)], [Transposed(dtype); 2]] {
            case(device, &[3], extents, forms, Stored(dtype));
            case(device, &[2, 3], extents, forms, Twice(DType::F32));
        }
    }
}

/// Tests right operands that are computed, gathered, or converted from `f64`, which rounds.
fn right_operands_that_are_computed(device: &Device) {
    for dtype in HALVES {
        for extents in [(1, 40, 33), (4, 70, 60), (20, 33, 49), (40, 100, 300)] {
            for rhs in [Computed(dtype), Gathered(dtype), Computed(DType::F64)] {
                case(device, &[], extents, [Loaded(DType::F32), rhs], Stored(DType::F32));
            }
        }
    }
}

/// Tests left operands whose rows are copied, with panels of 16 bits.
fn left_operands_that_are_copied(device: &Device) {
    for m in [1, 2, 3, 6, 7, 14, 15, 20, 43, 60] {
        for (n, k, dtype) in [(33, 49, DType::F16), (70, 30, DType::Bf16), (80, 700, DType::F16)] {
            case(device, &[], (m, n, k), [Shifted(DType::F32), Loaded(dtype)], Stored(DType::F32));
            case(device, &[2], (m, n, k), [Shifted(dtype), Converted(dtype)], Twice(DType::F32));
        }
    }
}

fn left_operands_that_are_computed(device: &Device) {
    let mut random = Random(22);
    for m in [1, 6, 7, 13, 14, 15, 29, 63, 200] {
        for form in [Loaded, Converted, Transposed, Computed, Gathered] {
            let (n, k) = (random.pick(&[5, 33, 64, 130]), random.pick(&[1, 7, 48, 49, 300]));
            let dtype = random.pick(&HALVES);
            case(
                device,
                &[],
                (m, n, k),
                [form(dtype), Loaded(DType::F32)],
                random.pick(&[Stored(dtype), Twice(DType::F32)]),
            );
        }
        case(device, &[], (m, 70, 60), [Converted(DType::F64), Converted(DType::F64)], Stored(DType::F32));
    }
    // These products take several blocks of terms, with a shorter one at the end, or several groups of panels.
    for form in [Converted(DType::F16), Transposed(DType::Bf16), Computed(DType::F16), Gathered(DType::Bf16)] {
        case(device, &[], (33, 70, 1501), [form, Loaded(DType::F16)], Stored(DType::F32));
        case(device, &[], (45, 1300, 801), [form, Loaded(DType::F32)], Stored(DType::F32));
        case(device, &[], (1030, 34, 50), [form, Converted(DType::Bf16)], Stored(DType::Bf16));
    }
}
