//! Tests the prices of products whose right operands have a narrower type in memory than in registers. Constant
//! operands are packed in the narrower type.

use eutectic_backend::{AnchorKernel, Backend, Body, Instr, Kernel, Load, Store};
use eutectic_cpu::{Cpu, CpuOptions};
use eutectic_ir::{Attr, DType, Op, index::Index};

const WEIGHTS: usize = 1;

fn cpu(threads: usize) -> Cpu {
    Cpu::new(CpuOptions { threads, ..CpuOptions::default() })
}

fn at(steps: [usize; 2]) -> Index {
    Index::coord(0).times(steps[0] as i64).plus(&Index::coord(1).times(steps[1] as i64))
}

fn map(body: &mut Body, op: &str, attrs: Vec<Attr>, args: Vec<usize>) -> usize {
    let (op, attrs) = (Op::named(op).expect("an op"), attrs.into_iter().collect());
    body.instrs.push(Instr::Map { op, attrs, args, dtype: DType::F32 });
    body.instrs.len() - 1
}

/// Returns a product `[rows k] · [k n]` with weights of a type. They are contiguous along the columns, or along the
/// terms of a sum if `along_sums` is set. They are squared if `scaled` is set.
fn product([rows, n, k]: [usize; 3], dtype: DType, along_sums: bool, scaled: bool) -> Kernel {
    let load = |slot, dtype, domain: [usize; 2], steps| Body {
        domain: domain.to_vec(),
        instrs: vec![Instr::Load(Load { slot, at: at(steps), guards: Vec::new(), dtype })],
        results: vec![0],
        ..Body::default()
    };
    let lhs = load(0, DType::F32, [rows, k], [k, 1]);
    let mut rhs = load(WEIGHTS, dtype, [k, n], if along_sums { [1, k] } else { [n, 1] });
    if dtype != DType::F32 {
        rhs.results = vec![map(&mut rhs, "cast", vec![Attr::DType(DType::F32)], vec![0])];
    }
    if scaled {
        let result = rhs.results[0];
        rhs.results = vec![map(&mut rhs, "mul", Vec::new(), vec![result, result])];
    }
    let body = Body { domain: vec![rows, n], instrs: vec![Instr::Anchor { dtype: DType::F32 }], ..Body::default() };
    let stores = vec![Store::new(2, at([n, 1]), 0)];
    let slots = vec![(DType::F32, rows * k), (dtype, k * n), (DType::F32, rows * n)];
    Kernel { anchor: AnchorKernel::product(lhs, rhs), body, stores, slots }
}

#[test]
fn constant_weights_cost_as_much_less_as_they_are_shorter() {
    for threads in [1, 2] {
        let cpu = cpu(threads);
        let seconds =
            |dtype, along_sums| cpu.cost_among(&product([1, 4096, 4096], dtype, along_sums, false), &[WEIGHTS]).seconds;
        for along_sums in [false, true] {
            let whole = seconds(DType::F32, along_sums);
            for (dtype, least) in [(DType::F16, 1.9), (DType::Bf16, 1.9), (DType::I8, 3.0), (DType::U8, 3.0)] {
                let ratio = whole / seconds(dtype, along_sums);
                assert!(ratio >= least, "{dtype}, along sums: {along_sums}: {ratio} times");
            }
        }
    }
}

#[test]
fn weights_that_change_are_evaluated_in_each_run() {
    let cpu = cpu(1);
    for (dtype, along_sums) in [DType::F16, DType::I8].into_iter().flat_map(|d| [(d, false), (d, true)]) {
        for extents in [[1, 4096, 4096], [1, 1000, 777], [8, 511, 513], [3, 2, 4096], [40, 300, 200]] {
            let kernel = product(extents, dtype, along_sums, false);
            let [kept, changing] = [&[WEIGHTS][..], &[]].map(|constants| cpu.cost_among(&kernel, constants).seconds);
            assert!(kept < changing, "{dtype} {extents:?}: {kept} and {changing}");
        }
    }
}

/// Tests that a constant operand is no cheaper than a changing one if it computes more than a conversion: it is packed
/// in the wider type of registers.
#[test]
fn computed_weights_are_not_kept_as_they_are() {
    let kernel = product([1, 1024, 1024], DType::I8, false, true);
    let [constant, changing] = [&[WEIGHTS][..], &[]].map(|constants| cpu(1).cost_among(&kernel, constants).seconds);
    assert!(constant >= changing, "{constant} and {changing}");
}
