//! Compares the portable kernels of each anchor with a reference that evaluates point by point. The shapes are small
//! enough for Miri (`backends/cpu/miri.sh`).

use std::sync::OnceLock;

use eutectic_backend::{AnchorKernel, AttentionAxes, Backend, Body, EmptyRow, Instr, ScoreForm};
use eutectic_conformance::{
    device::{program, run},
    kernels::{
        build::{Build, body, constant, map, push},
        expected,
    },
};
use eutectic_cpu::{Cpu, CpuOptions, Isa};
use eutectic_ir::{DType, index::Index, ops::Reduction};

/// Returns the backend on one or two threads. The first call opens it for all later calls, because under Miri reading
/// the costs takes longer than the kernels.
fn cpu(threads: usize) -> &'static Cpu {
    static OPEN: [OnceLock<Cpu>; 2] = [const { OnceLock::new() }; 2];
    OPEN[threads - 1].get_or_init(|| Cpu::new(CpuOptions { threads, isa: Isa::Portable, ..CpuOptions::default() }))
}

/// Checks the results of a kernel on `threads` threads. The error of a result x may be 1e-5 · (1 + |x|).
fn check(build: Build, anchor: AnchorKernel, body: Body, threads: usize) {
    let (mut kernel, inputs) = build.kernel(anchor, body);
    let expected = expected::kernel(&kernel, &inputs);
    kernel.normalise();
    let program = program(&kernel);
    let outputs = run(cpu(threads).compile(&program).unwrap(), &program, &inputs, &[]).unwrap();
    for (output, expected) in outputs.iter().zip(expected) {
        for (i, (got, want)) in output.to_f64().into_iter().zip(expected).enumerate() {
            let Some(want) = want else { continue };
            assert!((got - want).abs() <= 1e-5 * (1.0 + want.abs()), "element {i}: {got}, expected {want}");
        }
    }
}

#[test]
fn maps() {
    for (seed, domain) in [&[5][..], &[3, 4], &[2, 3, 37]].into_iter().enumerate() {
        for threads in [1, 2] {
            let mut build = Build::new(seed as u64);
            let mut b = body(domain);
            let (x, y) = (build.any(&mut b, DType::F32), build.pieces(&mut b, DType::F32));
            let sum = map(&mut b, "add", &[x, y], DType::F32);
            let result = map(&mut b, "tanh", &[sum], DType::F32);
            build.store(domain, DType::F32, result);
            check(build, AnchorKernel::map(), b, threads);
        }
    }
}

#[test]
fn rows() {
    for (seed, domain) in [[3, 1], [4, 7], [2, 70]].into_iter().enumerate() {
        let mut build = Build::new(seed as u64);
        let mut b = body(&domain);
        let x = build.any(&mut b, DType::F32);
        let most = push(&mut b, Instr::reduce(Reduction::Max, x, DType::F32));
        let shifted = map(&mut b, "sub", &[x, most], DType::F32);
        let e = map(&mut b, "exp", &[shifted], DType::F32);
        let sum = push(&mut b, Instr::reduce(Reduction::Sum, e, DType::F32));
        let result = map(&mut b, "div", &[e, sum], DType::F32);
        build.store(&domain, DType::F32, result);
        check(build, AnchorKernel::rows(1), b, 1);
    }
}

/// Returns an operand: a load in a random layout, multiplied by 0.5 if `half` is set.
fn operand(build: &mut Build, domain: &[usize], dtype: DType, half: bool) -> Body {
    let mut b = body(domain);
    let mut x = build.any(&mut b, dtype);
    if half {
        let half = constant(&mut b, 0.5, dtype);
        x = map(&mut b, "mul", &[x, half], dtype);
    }
    b.results = vec![x];
    b
}

#[test]
fn contractions() {
    let extents = [[1, 1, 1], [1, 20, 9], [20, 1, 9], [5, 7, 3], [17, 19, 12], [3, 4, 0]];
    for (seed, [m, n, k]) in extents.into_iter().enumerate() {
        for dtype in [DType::F32, DType::I32] {
            for half in [false, dtype.is_float()] {
                let mut build = Build::new(seed as u64);
                let lhs = operand(&mut build, &[2, m, k], dtype, half);
                let rhs = operand(&mut build, &[2, k, n], dtype, half);
                let mut b = body(&[2, m, n]);
                let product = push(&mut b, Instr::Anchor { dtype });
                let residual = build.any(&mut b, dtype);
                let result = map(&mut b, "add", &[product, residual], dtype);
                build.store(&[2, m, n], dtype, result);
                check(build, AnchorKernel::product(lhs, rhs), b, 2);
            }
        }
    }
}

#[test]
fn attentions() {
    for (seed, [s, t, d, e]) in [[1, 1, 1, 1], [3, 5, 4, 2], [9, 17, 3, 5]].into_iter().enumerate() {
        let mut build = Build::new(seed as u64);
        let [query, key, value] = [[2, s, d], [2, t, d], [2, t, e]].map(|e| operand(&mut build, &e, DType::F32, false));
        let bias = Some(operand(&mut build, &[2, s, t], DType::F32, true));
        let mut b = body(&[2, s, e]);
        let result = push(&mut b, Instr::Anchor { dtype: DType::F32 });
        // The result is stored with queries before heads, as in models that merge heads.
        let at = eutectic_ir::index::flatten(&[1, 0, 2].map(Index::coord), &[s, 2, e]);
        build.store_at(2 * s * e, at, DType::F32, result);
        let (scale, softcap, axes) = (0.4, 0.0, AttentionAxes::matrices(1));
        let empty = EmptyRow::Zeros;
        check(
            build,
            AnchorKernel::attention([query, key, value], bias, axes, ScoreForm { scale, softcap, empty }),
            b,
            1,
        );
    }
}
