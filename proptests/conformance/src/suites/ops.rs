//! Compares every pointwise op, in each element type that it takes, with its evaluation point by point. Also tests that
//! invalid kernels are refused.

use crate::{
    device::{Device, program},
    kernels::build::{Build, body, constant, map, map_with, push, row_major},
    suite::{Check, checks},
};
use eutectic_backend::{AnchorKernel, BackendError, Instr, Load};
use eutectic_ir::{
    Attr, DType, Tensor,
    index::{Atom, Index},
    ops::{Ids, OutOfRange},
};

pub(super) const CHECKS: &[(&str, Check)] = checks![
    functions_of_one_argument,
    activations_and_clamp,
    functions_of_two_and_three_arguments,
    casts_between_all_types,
    nan_wins_in_maximum_and_minimum,
    gathers_read_in_range_only,
    pieces_and_fill,
    unsupported_ops_and_types_are_named,
    loads_and_stores_outside_of_a_buffer_are_refused,
];

const ALL: &[DType] = &DType::ALL;
const FLOATS: &[DType] = &[DType::F32, DType::F64, DType::F16, DType::Bf16];
const NUMBERS: &[DType] = &[
    DType::F32,
    DType::F64,
    DType::F16,
    DType::Bf16,
    DType::I8,
    DType::U8,
    DType::I16,
    DType::U16,
    DType::I32,
    DType::I64,
    DType::U32,
];
const BOOL: &[DType] = &[DType::Bool];
const INTEGERS: &[DType] = &[DType::I8, DType::U8, DType::I16, DType::U16, DType::I32, DType::U32, DType::I64];

/// Returns the allowed error of a function, in roundoffs relative to 1 + |x|.
fn tolerance(dtype: DType) -> f64 {
    if dtype.is_half() { 2f64.powi(15) } else { 60.0 }
}

fn functions_of_one_argument(device: &Device) {
    let floats = [
        "exp",
        "exp-normal",
        "expm1",
        "sin",
        "cos",
        "tan",
        "atan",
        "sinh",
        "cosh",
        "asinh",
        "tanh",
        "erf",
        "sigmoid",
        "softplus",
        "floor",
        "ceil",
        "round",
        "is-nan",
    ];
    let positive = ["log", "log1p", "sqrt", "rsqrt", "reciprocal", "acosh"];
    // These functions are tested with arguments from −0.9 to 0.9.
    let bounded = ["asin", "acos", "atanh"];
    let of = |names: &'static [&'static str], types| names.iter().map(move |n| (*n, types));
    let table = of(&["neg", "abs", "sign"], NUMBERS).chain(of(&["not"], BOOL)).chain(of(&["bit-not"], INTEGERS));
    let table = table.chain(floats.map(|n| (n, FLOATS))).chain(positive.map(|n| (n, FLOATS)));
    let table = table.chain(bounded.map(|n| (n, FLOATS)));
    for (name, types) in table {
        for &dtype in types {
            let mut build = Build::new(5);
            let mut b = body(&[3, 41]);
            let mut x = build.dense(&mut b, dtype);
            if positive.contains(&name) {
                x = map(&mut b, "abs", &[x], dtype);
                let small = constant(&mut b, if name == "acosh" { 1.5 } else { 0.125 }, dtype);
                x = map(&mut b, "add", &[x, small], dtype);
            }
            if bounded.contains(&name) {
                x = map(&mut b, "tanh", &[x], dtype);
                let scale = constant(&mut b, 0.9, dtype);
                x = map(&mut b, "mul", &[x, scale], dtype);
            }
            let to = if name == "is-nan" { DType::Bool } else { dtype };
            let y = map(&mut b, name, &[x], to);
            build.store(&[3, 41], to, y);
            let (kernel, inputs) = build.kernel(AnchorKernel::map(), b);
            device.check(&kernel, &inputs, tolerance(dtype));
        }
    }
}

fn activations_and_clamp(device: &Device) {
    for &dtype in FLOATS {
        for kind in ["none", "relu", "gelu-erf", "gelu-tanh", "silu", "sigmoid", "tanh", "clamp"] {
            let mut build = Build::new(5);
            let mut b = body(&[3, 41]);
            let x = build.dense(&mut b, dtype);
            let attrs: Vec<Attr> = if kind == "clamp" { vec![(-0.5).into(), 1.0.into()] } else { vec![kind.into()] };
            let y = map_with(&mut b, if kind == "clamp" { "clamp" } else { "act" }, &attrs, &[x], dtype);
            build.store(&[3, 41], dtype, y);
            let (kernel, inputs) = build.kernel(AnchorKernel::map(), b);
            device.check(&kernel, &inputs, tolerance(dtype));
        }
    }
}

fn functions_of_two_and_three_arguments(device: &Device) {
    let of = |names: &'static [&'static str], types, truth| names.iter().map(move |n| (*n, types, truth));
    let table = of(&["add", "sub", "mul", "div", "max", "min", "pow", "mod"], NUMBERS, false)
        .chain(of(&["and", "or", "xor"], BOOL, false))
        .chain(of(&["bit-and", "bit-or", "bit-xor", "shift-left", "shift-right"], INTEGERS, false))
        .chain(of(&["eq", "ne", "lt", "le", "gt", "ge"], ALL, true))
        .chain(of(&["where"], ALL, false));
    for (name, types, truth) in table {
        for &dtype in types {
            // Each argument varies along all axes, some, or none.
            for seed in 0..4 {
                let mut build = Build::new(seed);
                let domain = [4, 9, 10];
                let mut b = body(&domain);
                let mut argument = |dtype| {
                    let slot = build.input(dtype, 360);
                    let at = match (seed as usize + build.random.below(4)) % 4 {
                        0 => row_major(&domain),
                        1 => Index::coord(2),
                        2 => Index::coord(0).times(9).plus(&Index::coord(1)),
                        _ => Index::constant(3),
                    };
                    build.load(&mut b, slot, at)
                };
                let (mut x, mut y) = (argument(dtype), argument(dtype));
                let condition = if name == "where" { Some(argument(DType::Bool)) } else { None };
                if dtype.is_float() && (name == "pow" || name == "div" || name == "mod") {
                    // Avoids arguments at which these functions are steep or jump.
                    let low = constant(&mut b, 0.3, dtype);
                    (x, y) = (map(&mut b, "abs", &[x], dtype), map(&mut b, "max", &[y, low], dtype));
                    x = map(&mut b, "add", &[x, low], dtype);
                }
                if name == "mod" && dtype.is_float() {
                    // Remainders jump, so they are tested with integers, on which they are exact.
                    (x, y) = (map(&mut b, "round", &[x], dtype), map(&mut b, "ceil", &[y], dtype));
                }
                if name.starts_with("shift") {
                    // Shifts are from −1 to the number of bits, one beyond the range on either side.
                    let [count, one] = [f64::from(dtype.def().bits) + 2.0, 1.0].map(|n| constant(&mut b, n, dtype));
                    y = map(&mut b, "mod", &[y, count], dtype);
                    y = map(&mut b, "sub", &[y, one], dtype);
                }
                let args: Vec<_> = condition.into_iter().chain([x, y]).collect();
                let to = if truth { DType::Bool } else { dtype };
                let z = map(&mut b, name, &args, to);
                build.store(&domain, to, z);
                let (kernel, inputs) = build.kernel(AnchorKernel::map(), b);
                device.check(&kernel, &inputs, tolerance(dtype));
            }
        }
    }
}

fn casts_between_all_types(device: &Device) {
    let special =
        [0.0, 1.0, -1.0, 1.5, 2.5, -2.5, 300.0, -300.0, 70_000.0, 3e9, -3e9, 1e20, f64::NAN, f64::INFINITY, 1e-9];
    for from in DType::ALL {
        for to in DType::ALL {
            let mut build = Build::new(1);
            let tensor = if from.is_float() {
                Tensor::from_f64(from, &[15], special)
            } else {
                Tensor::from_i64(
                    from,
                    &[15],
                    [0, 1, -1, 2, 3, 127, 128, 255, 256, 70_000, 1 << 31, -(1 << 31), 1 << 40, 32_768, 65_535],
                )
            };
            let slot = build.tensor(tensor);
            let mut b = body(&[15]);
            let x = build.load(&mut b, slot, Index::coord(0));
            let y = map_with(&mut b, "cast", &[to.into()], &[x], to);
            build.store(&[15], to, y);
            let (kernel, inputs) = build.kernel(AnchorKernel::map(), b);
            device.check(&kernel, &inputs, 0.0);
        }
    }
}

fn nan_wins_in_maximum_and_minimum(device: &Device) {
    for name in ["max", "min"] {
        for dtype in [DType::F32, DType::F64, DType::F16] {
            let mut build = Build::new(1);
            let nan = f64::NAN;
            let a = build.tensor(Tensor::from_f64(dtype, &[4], [nan, 1.0, nan, 2.0]));
            let c = build.tensor(Tensor::from_f64(dtype, &[4], [1.0, nan, nan, 3.0]));
            let mut b = body(&[4]);
            let (x, y) = (build.load(&mut b, a, Index::coord(0)), build.load(&mut b, c, Index::coord(0)));
            let z = map(&mut b, name, &[x, y], dtype);
            build.store(&[4], dtype, z);
            let (kernel, inputs) = build.kernel(AnchorKernel::map(), b);
            device.check(&kernel, &inputs, 0.0);
        }
    }
}

/// Returns the kernel table[ids[i], j], and its inputs.
fn gather(ids: Tensor, (rows, from_end): (usize, bool), columns: usize) -> (eutectic_backend::Kernel, Vec<Tensor>) {
    let mut build = Build::new(2);
    let n = ids.count();
    let mut b = body(&[n, columns]);
    let dtype = ids.dtype();
    let slot = build.tensor(ids);
    let id = build.load(&mut b, slot, Index::coord(0));
    let (check, guards) = (0, Vec::new());
    let id = push(&mut b, Instr::Within { arg: id, extent: rows.into(), from_end, check, guards, dtype });
    let table = build.input(DType::F32, rows * columns);
    let at = Index::atom(Atom::Value(id)).times(columns as i64).plus(&Index::coord(1));
    let load = Load { slot: table, at, guards: Vec::new(), dtype: DType::F32 };
    let x = push(&mut b, Instr::Load(load));
    build.store(&[n, columns], DType::F32, x);
    build.kernel(AnchorKernel::map(), b)
}

fn gathers_read_in_range_only(device: &Device) {
    for dtype in [DType::I64, DType::I32, DType::U8, DType::I8, DType::U16, DType::I16, DType::U32] {
        let (kernel, inputs) = gather(Tensor::from_i64(dtype, &[5], [0, 6, 3, 3, 1]), (7, false), 33);
        device.check(&kernel, &inputs, 0.0);
    }
    for dtype in [DType::I64, DType::I32, DType::I8, DType::I16] {
        let (kernel, inputs) = gather(Tensor::from_i64(dtype, &[5], [0, -7, 3, -1, 6]), (7, true), 33);
        device.check(&kernel, &inputs, 0.0);
    }
    for (bad, from_end) in
        [7, -1, i64::MAX, i64::MIN].map(|id| (id, false)).into_iter().chain([7, -8, i64::MIN].map(|id| (id, true)))
    {
        let (kernel, inputs) = gather(Tensor::from_i64(DType::I64, &[5], [0, 6, bad, 3, 1]), (7, from_end), 33);
        if let Some(run) = device.run(&kernel, &inputs) {
            match run {
                Err(BackendError::IndexOutOfRange { problem, origin }) => {
                    assert_eq!(problem, OutOfRange { id: bad, ids: Ids { extent: 7, from_end } });
                    assert_eq!(origin.path(), "test");
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

fn pieces_and_fill(device: &Device) {
    // The kernel is pad(concat(a, b)) along the last axis, with a transposed store.
    for (rows, left, right, pad) in [(3, 5, 4, 2), (1, 1, 1, 0), (70, 100, 33, 7)] {
        let mut build = Build::new(4);
        let domain = [rows, left + right + 2 * pad];
        let mut b = body(&domain);
        let (p, l, r) = (pad as i64, left as i64, right as i64);
        let guard = |from: i64, to: i64| vec![(Index::coord(1), from..to)];
        let mut piece = |width: usize, offset: i64, guards: Vec<eutectic_backend::Guard>| {
            let slot = build.input(DType::F32, rows * width);
            let at = Index::coord(0).times(width as i64).plus(&Index::coord(1)).plus(&Index::constant(-offset));
            push(&mut b, Instr::Load(Load { slot, at, guards, dtype: DType::F32 }))
        };
        let x = piece(left, p, guard(p, p + l));
        let y = piece(right, p + l, guard(p + l, p + l + r));
        let pieces = vec![(guard(p, p + l), x), (guard(p + l, p + l + r), y)];
        let z = push(&mut b, Instr::Select { pieces, fill: (-7.5).into(), dtype: DType::F32 });
        let at = Index::coord(1).times(rows as i64).plus(&Index::coord(0));
        build.store_at(domain[0] * domain[1], at, DType::F32, z);
        let (kernel, inputs) = build.kernel(AnchorKernel::map(), b);
        device.check(&kernel, &inputs, 0.0);
    }
}

fn unsupported_ops_and_types_are_named(device: &Device) {
    let mut build = Build::new(1);
    let mut b = body(&[4]);
    let x = build.dense(&mut b, DType::I32);
    let y = map(&mut b, "exp", &[x], DType::I32);
    let t = build.dense(&mut b, DType::Bool);
    let t = map(&mut b, "mul", &[t, t], DType::Bool);
    build.store(&[4], DType::I32, y);
    build.store(&[4], DType::Bool, t);
    let (kernel, _) = build.kernel(AnchorKernel::map(), b);
    let backend = device.backend();
    let Err(why) = backend.supports(&kernel) else {
        return assert!(device.compile(&**backend, &program(&kernel)).is_some());
    };
    let named = |text: &str| ["`exp`", "i32", "`mul`", "bool"].iter().all(|word| text.contains(word));
    assert!(named(&why.join(", ")), "{why:?}");
    assert!(backend.cost(&kernel).seconds.is_infinite());
    let error = backend.compile(&program(&kernel)).err().expect("the kernel is not supported").to_string();
    assert!(named(&error), "{error}");
}

fn loads_and_stores_outside_of_a_buffer_are_refused(device: &Device) {
    let mut build = Build::new(1);
    let mut b = body(&[4]);
    let slot = build.input(DType::F32, 4);
    let x = build.load(&mut b, slot, Index::coord(0).plus(&Index::constant(1)));
    build.store_at(4, Index::coord(0).times(2), DType::F32, x);
    let (kernel, _) = build.kernel(AnchorKernel::map(), b);
    let refused = device.backend().supports(&kernel).expect_err("the kernel accesses memory outside of its buffers");
    assert_eq!(refused.len(), 2, "{refused:?}");
}
