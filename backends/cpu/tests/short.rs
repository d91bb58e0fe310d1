//! Compares attention on keys and values of a narrower type than the accumulator with a reference that evaluates point
//! by point, at each instruction-set level. Kernels read keys and values in place for few queries, and pack them for
//! many.

use eutectic_backend::{AnchorKernel, AttentionAxes, Backend, Body, EmptyRow, Instr, ScoreForm};
use eutectic_conformance::{
    device::{program, run},
    kernels::{
        build::{Build, body, push},
        expected,
    },
};
use eutectic_cpu::{Cpu, CpuOptions, Isa};
use eutectic_ir::{Attr, DType, Op, Tensor, index::Index};

/// The number of groups of heads. The heads of a group share keys and values.
const GROUPS: usize = 2;

/// Returns an operand over a domain: a load of a dense tensor over some of the domain's axes, converted to `f32`.
fn operand(build: &mut Build, domain: &[usize], axes: &[usize], tensor: Tensor) -> Body {
    let mut b = body(domain);
    let dims: Vec<usize> = axes.iter().map(|&axis| domain[axis]).collect();
    let at = eutectic_ir::index::flatten(&axes.iter().map(|&axis| Index::coord(axis)).collect::<Vec<_>>(), &dims);
    let slot = build.tensor(tensor);
    let mut x = build.load(&mut b, slot, at);
    let dtype = build.slots[slot].0;
    if dtype != DType::F32 {
        let (op, attrs) = (Op::named("cast").expect("an op"), [Attr::DType(DType::F32)].into_iter().collect());
        x = push(&mut b, Instr::Map { op, attrs, args: vec![x], dtype: DType::F32 });
    }
    b.results = vec![x];
    b
}

/// Returns a tensor of small random numbers that the element type represents exactly.
fn numbers(build: &mut Build, dtype: DType, dims: &[usize]) -> Tensor {
    let scale = if dtype.is_float() { 4.0 } else { 1.0 };
    let low = if dtype == DType::U8 { 0.0 } else { -4.0 };
    let count: usize = dims.iter().product();
    let values: Vec<f64> = (0..count).map(|_| (build.random.between(low, 4.0) * scale).round() / scale).collect();
    Tensor::from_f64(dtype, &[count], values)
}

/// Checks attention of `heads` heads on keys and values of a type. If `hidden` is set, the last key and value are NaN,
/// and the bias hides them.
fn check(isa: Isa, dtype: DType, [heads, queries, keys, depth, columns]: [usize; 5], hidden: bool) {
    let mut build = Build::new((heads * 7 + queries * 31 + keys) as u64);
    let cut = |mut tensor: Vec<f64>, width: usize| {
        if hidden {
            for matrix in tensor.chunks_exact_mut(keys * width) {
                matrix[(keys - 1) * width..].fill(f64::NAN);
            }
        }
        tensor
    };
    let query = numbers(&mut build, DType::F32, &[GROUPS, heads, queries, depth]);
    let query = operand(&mut build, &[GROUPS, heads, queries, depth], &[0, 1, 2, 3], query);
    let [key, value] = [depth, columns].map(|width| {
        let all = numbers(&mut build, dtype, &[GROUPS, keys, width]).to_f64();
        let all = Tensor::from_f64(dtype, &[GROUPS * keys * width], cut(all, width));
        operand(&mut build, &[GROUPS, heads, keys, width], &[0, 2, 3], all)
    });
    let bias = hidden.then(|| {
        let row: Vec<f64> = (0..keys).map(|key| if key + 1 == keys { f64::NEG_INFINITY } else { 0.0 }).collect();
        operand(&mut build, &[GROUPS, heads, queries, keys], &[3], Tensor::from_f64(DType::F32, &[keys], row))
    });
    let mut b = body(&[GROUPS, heads, queries, columns]);
    let result = push(&mut b, Instr::Anchor { dtype: DType::F32 });
    build.store(&[GROUPS, heads, queries, columns], DType::F32, result);
    let form = ScoreForm { scale: 0.25, softcap: 0.0, empty: EmptyRow::Zeros };
    let anchor = AnchorKernel::attention([query, key, value], bias, AttentionAxes::matrices(2), form);
    let (mut kernel, inputs) = build.kernel(anchor, b);
    let expected = expected::kernel(&kernel, &inputs);
    kernel.normalise();
    let program = program(&kernel);
    let cpu = Cpu::new(CpuOptions { threads: 1, isa, ..CpuOptions::default() });
    let outputs = run(cpu.compile(&program).unwrap(), &program, &inputs, &[]).unwrap();
    for (output, expected) in outputs.iter().zip(expected) {
        for (i, (got, want)) in output.to_f64().into_iter().zip(expected).enumerate() {
            let want = want.expect("a number");
            assert!(
                (got - want).abs() <= 1e-5 * (1.0 + want.abs()),
                "{isa:?} {dtype} {heads} heads, {queries} queries, {keys} keys, {depth} and {columns}: element {i}: {got}, expected {want}"
            );
        }
    }
}

#[test]
fn keys_and_values_of_shorter_types_are_read_as_they_are() {
    let levels = [Isa::Portable, Isa::Avx2, Isa::Avx512].into_iter().filter(|&isa| isa <= Isa::detect());
    let extents = [
        // Few queries: heads that fill whole vectors, partial vectors, and single elements.
        [1, 1, 40, 32, 32],
        [3, 1, 65, 64, 48],
        [4, 1, 7, 17, 9],
        [1, 1, 1, 1, 1],
        [2, 5, 30, 8, 16],
        [12, 1, 33, 32, 33],
        // More queries than are handled in place, in one strip and in several; one key, and several blocks of keys.
        [1, 13, 20, 16, 16],
        [3, 7, 50, 40, 72],
        [1, 24, 1, 32, 32],
        [2, 40, 1, 64, 1],
        [3, 30, 90, 33, 47],
        [1, 26, 1030, 16, 32],
        [2, 1, 1100, 32, 16],
    ];
    for isa in levels {
        for dtype in [DType::F16, DType::Bf16, DType::I8, DType::U8] {
            for extents in extents {
                check(isa, dtype, extents, false);
            }
        }
        for extents in [[1, 2, 20, 16, 16], [3, 1, 9, 8, 5], [2, 30, 40, 16, 32]] {
            check(isa, DType::F16, extents, true);
        }
    }
}
