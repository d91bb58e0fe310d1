//! The convolutions of ResNet-50 beside products of the same extents whose operands lie dense, in turns, on one thread:
//! `cargo run --release -p eutectic-cpu --example windows`. The last column is what reading windows costs.

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::Instant;

use eutectic_backend::{AnchorKernel, Backend, Body, Executable, Instr, Kernel, Place};
use eutectic_cpu::{Cpu, CpuOptions};
use eutectic_ir::{DType, Tensor};
use support::{
    build::{Build, body, push, row_major},
    windows::{Line, windows},
};

/// Rows (as many as columns), channels, channels of the result, size of the window, stride.
const SHAPES: &[[usize; 5]] = &[
    [224, 3, 64, 7, 2],
    [56, 64, 64, 1, 1],
    [56, 64, 64, 3, 1],
    [56, 64, 256, 1, 1],
    [56, 256, 64, 1, 1],
    [56, 256, 128, 1, 1],
    [56, 128, 128, 3, 2],
    [28, 128, 512, 1, 1],
    [56, 256, 512, 1, 2],
    [28, 512, 128, 1, 1],
    [28, 128, 128, 3, 1],
    [28, 512, 256, 1, 1],
    [28, 256, 256, 3, 2],
    [14, 256, 1024, 1, 1],
    [28, 512, 1024, 1, 2],
    [14, 1024, 256, 1, 1],
    [14, 256, 256, 3, 1],
    [14, 1024, 512, 1, 1],
    [14, 512, 512, 3, 2],
    [7, 512, 2048, 1, 1],
    [14, 1024, 2048, 1, 2],
    [7, 2048, 512, 1, 1],
    [7, 512, 512, 3, 1],
];
const TURNS: usize = 25;

/// A product with constant right operand, ready to run.
struct Work {
    executable: Box<dyn Executable>,
    input: Tensor,
    output: Vec<u8>,
    predicted: f64,
}

impl Work {
    fn new(mut build: Build, lhs: Body, n: usize) -> Work {
        let (m, k) = (lhs.domain[1], lhs.domain[2]);
        let mut rhs = body(&[1, k, n]);
        let w = build.dense(&mut rhs, DType::F32);
        rhs.results = vec![w];
        let mut b = body(&[1, m, n]);
        let y = push(&mut b, Instr::Anchor { dtype: DType::F32 });
        build.store_at(m * n, row_major(&[1, m, n]), DType::F32, y);
        let (kernel, mut inputs): (Kernel, Vec<Tensor>) = build.kernel(AnchorKernel::Contraction { lhs, rhs }, b);
        let mut program = support::program(&kernel);
        program.params.push(program.inputs.remove(1));
        program.buffers[1].place = Place::Param(0);
        let cpu = Cpu::new(CpuOptions { threads: 1, ..CpuOptions::default() });
        let mut executable = cpu.compile(&program).expect("a product");
        executable.load(&[inputs.remove(1)]).expect("the program's parameter");
        let predicted = cpu.cost(&kernel).seconds;
        Work { executable, input: inputs.remove(0), output: vec![0; m * n * 4], predicted }
    }

    fn run(&mut self) -> f64 {
        let start = Instant::now();
        self.executable.run(&[self.input.bytes()], &mut [&mut self.output]).expect("a run");
        start.elapsed().as_secs_f64()
    }
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    println!("rows channels results size stride |  GFLOP/s  predicted |  dense GFLOP/s |  ratio");
    for &[extent, channels, results, size, stride] in SHAPES {
        let line = || Line { extent, before: size / 2, after: size / 2, size, stride, dilation: 1 };
        let mut build = Build::new(1);
        let lhs = windows(&mut build, &[line(), line()], [1, 1, channels], true, DType::F32);
        let domain = lhs.domain.clone();
        let flops = 2.0 * (domain[1] * domain[2] * results) as f64;
        let mut ours = Work::new(build, lhs, results);
        let mut build = Build::new(2);
        let mut lhs = body(&domain);
        let x = build.dense(&mut lhs, DType::F32);
        lhs.results = vec![x];
        let mut dense = Work::new(build, lhs, results);
        let (mut of_windows, mut of_dense): (Vec<f64>, Vec<f64>) =
            (0..TURNS).map(|_| (ours.run(), dense.run())).unzip();
        let (w, d) = (median(&mut of_windows), median(&mut of_dense));
        println!(
            "{extent:4} {channels:8} {results:7} {size:4} {stride:6} | {:8.1} {:10.1} | {:14.1} | {:6.2}",
            flops / w / 1e9,
            flops / ours.predicted / 1e9,
            flops / d / 1e9,
            d / w
        );
    }
}
