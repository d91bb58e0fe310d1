//! Compares the convolutions of ResNet-50 with dense products of equal extents, and with the machine's multiply-adds in
//! registers, on one thread: `cargo run --release -p eutectic-cpu --example windows`. A number as an argument selects
//! one convolution. Times are minima over alternating rounds, because other processes only add time.

// Only the arithmetic ceiling is used.
#[allow(dead_code)]
#[path = "roofline/ceilings.rs"]
mod ceilings;

use std::time::Instant;

use ceilings::flops_per_second;
use eutectic_backend::{Backend, Body, Place, Session};
use eutectic_conformance::{
    device::program,
    kernels::{
        build::{Build, body},
        windows::{Line, product, windows},
    },
};
use eutectic_cpu::{Cpu, CpuOptions};
use eutectic_ir::DType;

/// The convolutions: rows (and columns) of the image, channels, channels of the result, size of the window, stride.
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
const TURNS: usize = 50;

/// Bytes that start at a cache line, as buffers within a program do.
struct Aligned {
    room: Vec<u8>,
    from: usize,
}

impl Aligned {
    fn new(bytes: &[u8]) -> Aligned {
        let mut room = vec![0; bytes.len() + 64];
        let from = room.as_ptr().align_offset(64);
        room.truncate(from + bytes.len());
        room[from..].copy_from_slice(bytes);
        Aligned { room, from }
    }
}

/// A product with a constant right operand, compiled and ready to run.
struct Work {
    session: Box<dyn Session>,
    input: Aligned,
    output: Aligned,
    predicted: f64,
}

impl Work {
    fn new(build: Build, lhs: Body, n: usize) -> Work {
        let count = lhs.domain[1] * n;
        let (kernel, mut inputs) = product(build, lhs, n, DType::F32);
        let mut program = program(&kernel);
        program.params.push(program.inputs.remove(1));
        program.buffers[1].place = Place::Param(0);
        let cpu = Cpu::new(CpuOptions { threads: 1, ..CpuOptions::default() });
        let loaded = cpu.compile(&program).expect("a product compiles").load(&[inputs.remove(1)]);
        let session = loaded.expect("the parameter fits").session().expect("memory suffices");
        let predicted = cpu.cost(&kernel).seconds;
        let (input, output) = (Aligned::new(inputs.remove(0).bytes()), Aligned::new(&vec![0; count * 4]));
        Work { session, input, output, predicted }
    }

    fn run(&mut self) -> f64 {
        let start = Instant::now();
        let (input, output) = (&self.input.room[self.input.from..], &mut self.output.room[self.output.from..]);
        self.session.run(&[input], &mut [output]).expect("the run succeeds");
        start.elapsed().as_secs_f64()
    }
}

fn main() {
    let only: Option<usize> = std::env::args().nth(1).and_then(|n| n.parse().ok());
    println!(
        "rows channels results size stride |  GFLOP/s    ms  predicted |  dense GFLOP/s  ratio |  registers  share"
    );
    let (mut all, mut least) = (0.0, 0.0);
    for (number, &[extent, channels, results, size, stride]) in SHAPES.iter().enumerate() {
        if only.is_some_and(|n| n != number) {
            continue;
        }
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
        let (mut w, mut d, mut registers) = (f64::INFINITY, f64::INFINITY, 0.0_f64);
        for _ in 0..TURNS {
            w = w.min(ours.run());
            d = d.min(dense.run());
            registers = registers.max(flops_per_second(1));
        }
        (all, least) = (all + w, least + flops / registers);
        println!(
            "{extent:4} {channels:8} {results:7} {size:4} {stride:6} | {:8.1} {:5.2} {:10.1} | {:14.1} {:6.2} | {:10.1} {:6.2}",
            flops / w / 1e9,
            w * 1e3,
            flops / ours.predicted / 1e9,
            flops / d / 1e9,
            d / w,
            registers / 1e9,
            flops / w / registers
        );
    }
    println!("all: {:.2} ms, {:.0} % of the rate in registers", all * 1e3, 100.0 * least / all);
}
