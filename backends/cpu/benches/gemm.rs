//! Matrix products beside those of the crate `gemm`: `cargo bench -p eutectic-cpu --bench gemm` times shapes of transformers;
//! with `-- ratios` it runs both in turn over these and 200 random shapes, in `f32` and `f64`, and prints how many times as fast ours
//! are. `gemm` has one thread, ours one or two. Times are the least of all turns: what else runs on the machine only adds.

#[path = "../tests/support/mod.rs"]
mod support;

use std::{hint::black_box, time::Instant};

use criterion::{BenchmarkId, Criterion, Throughput};
use eutectic_backend::{AnchorKernel, Backend, Body, Executable, Instr, Kernel, Load, Place, Store};
use eutectic_cpu::{Cpu, CpuOptions, Isa};
use eutectic_ir::{DType, Tensor};
use support::{
    Random,
    build::{body, push, row_major},
};

/// A product: batch, rows, columns, length of the sums.
type Shape = (usize, usize, usize, usize);

const SHAPES: &[Shape] = &[
    (1, 128, 384, 384),
    (1, 128, 1152, 384),
    (1, 128, 1536, 384),
    (1, 128, 384, 1536),
    (1, 16, 1536, 384),
    (1, 197, 3072, 768),
    (1, 1024, 768, 768),
    (1, 4096, 768, 768),
    (12, 128, 128, 32),
    (12, 128, 32, 128),
    (1, 1, 5632, 2048),
    (1, 4, 2048, 2048),
    (1, 127, 131, 137),
    (1, 33, 1000, 65),
    (1, 1024, 1024, 1024),
];

/// What both multiply.
trait Element: Copy + 'static {
    const DTYPE: DType;
    /// What a result may differ by for each term.
    const CLOSE: f64;
    fn of(x: f64) -> Self;
    fn to(self) -> f64;
}

macro_rules! element {
    ($t:ty, $dtype:expr, $close:literal) => {
        impl Element for $t {
            const DTYPE: DType = $dtype;
            const CLOSE: f64 = $close;
            fn of(x: f64) -> $t {
                x as $t
            }
            fn to(self) -> f64 {
                f64::from(self)
            }
        }
    };
}
element!(f32, DType::F32, 1e-4);
element!(f64, DType::F64, 1e-12);

fn operand(slot: usize, domain: &[usize], dtype: DType) -> Body {
    let mut b = body(domain);
    let load = Load { slot, at: row_major(domain), guards: Vec::new(), dtype };
    let x = push(&mut b, Instr::Load(load));
    b.results = vec![x];
    b
}

/// The two ways to compute a product, with data of their own.
struct Pair<T> {
    shape: Shape,
    executable: Box<dyn Executable>,
    constant: bool,
    lhs: Vec<T>,
    rhs: Vec<T>,
    ours: Vec<T>,
    theirs: Vec<T>,
}

impl<T: Element> Pair<T> {
    /// `constant`: the right operand is a parameter, not an input.
    fn new(shape: Shape, threads: usize, constant: bool) -> Pair<T> {
        let (b, m, n, k) = shape;
        let mut result = body(&[b, m, n]);
        let value = push(&mut result, Instr::Anchor { dtype: T::DTYPE });
        let anchor =
            AnchorKernel::Contraction { lhs: operand(0, &[b, m, k], T::DTYPE), rhs: operand(1, &[b, k, n], T::DTYPE) };
        let stores = vec![Store { slot: 2, at: row_major(&[b, m, n]), value }];
        let counts = [b * m * k, b * k * n, b * m * n];
        let kernel = Kernel { anchor, body: result, stores, slots: counts.map(|n| (T::DTYPE, n)).to_vec() };
        let mut program = support::program(&kernel);
        let mut random = Random(7);
        let mut numbers = |n: usize| (0..n).map(|_| T::of(random.between(-1.0, 1.0))).collect::<Vec<_>>();
        let (lhs, rhs) = (numbers(counts[0]), numbers(counts[1]));
        let mut params = Vec::new();
        if constant {
            program.params.push(program.inputs.remove(1));
            program.buffers[1].place = Place::Param(0);
            params.push(Tensor::from_f64(T::DTYPE, &[rhs.len()], rhs.iter().map(|x: &T| x.to())));
        }
        let cpu = Cpu::new(CpuOptions { threads, ..CpuOptions::default() });
        let mut executable = cpu.compile(&program).expect("a product");
        executable.load(&params).expect("the program's parameter");
        let (ours, theirs) = (vec![T::of(0.0); counts[2]], vec![T::of(0.0); counts[2]]);
        Pair { shape, executable, constant, lhs, rhs, ours, theirs }
    }

    fn flops(&self) -> f64 {
        let (b, m, n, k) = self.shape;
        2.0 * (b * m * n * k) as f64
    }

    fn ours(&mut self) {
        let inputs = [bytes(&self.lhs), bytes(&self.rhs)];
        let inputs = &inputs[..if self.constant { 1 } else { 2 }];
        self.executable.run(inputs, &mut [bytes_mut(&mut self.ours)]).expect("a run");
    }

    /// Always on one thread.
    fn theirs(&mut self) {
        let (b, m, n, k) = self.shape;
        for i in 0..b {
            let to = self.theirs[i * m * n..][..m * n].as_mut_ptr();
            let (lhs, rhs) = (&self.lhs[i * m * k..][..m * k], &self.rhs[i * k * n..][..k * n]);
            // SAFETY: slices of the matrices' sizes.
            unsafe {
                gemm::gemm(
                    m,
                    n,
                    k,
                    to,
                    1,
                    n as isize,
                    false,
                    lhs.as_ptr(),
                    1,
                    k as isize,
                    rhs.as_ptr(),
                    1,
                    n as isize,
                    T::of(0.0),
                    T::of(1.0),
                    false,
                    false,
                    false,
                    gemm::Parallelism::None,
                );
            }
        }
    }

    /// The least seconds of each over runs in turn.
    fn compare(&mut self, seconds: f64) -> (f64, f64) {
        let (mut ours, mut theirs, mut rounds) = (f64::INFINITY, f64::INFINITY, 0);
        let start = Instant::now();
        while rounds < 4 || start.elapsed().as_secs_f64() < seconds {
            // Twice each: the first brings its own data into the caches.
            for _ in 0..2 {
                let t = Instant::now();
                self.ours();
                ours = ours.min(t.elapsed().as_secs_f64());
            }
            for _ in 0..2 {
                let t = Instant::now();
                self.theirs();
                theirs = theirs.min(t.elapsed().as_secs_f64());
            }
            rounds += 1;
        }
        let close = |(a, b): (&T, &T)| (a.to() - b.to()).abs() <= T::CLOSE * self.shape.3 as f64;
        assert!(self.ours.iter().zip(&self.theirs).all(close), "{:?}: results differ", self.shape);
        (ours, theirs)
    }
}

fn bytes<T: Element>(x: &[T]) -> &[u8] {
    // SAFETY: floats are made of bytes.
    unsafe { std::slice::from_raw_parts(x.as_ptr().cast(), size_of_val(x)) }
}

fn bytes_mut<T: Element>(x: &mut [T]) -> &mut [u8] {
    // SAFETY: as above, and any such bytes are a float.
    unsafe { std::slice::from_raw_parts_mut(x.as_mut_ptr().cast(), size_of_val(x)) }
}

fn name((b, m, n, k): Shape) -> String {
    if b == 1 { format!("{m}x{n}x{k}") } else { format!("{b}x{m}x{n}x{k}") }
}

/// Sizes whose logarithms are even, products of about a millisecond at most.
fn random_shapes(count: usize) -> Vec<Shape> {
    let mut random = Random(2026);
    let mut size = move || random.between(0.0, 2048_f64.log2()).exp2().round() as usize;
    let shapes = std::iter::repeat_with(|| (1, size(), size(), size()));
    shapes.filter(|s| (1 << 12..1 << 26).contains(&(s.1 * s.2 * s.3))).take(count).collect()
}

/// The table of one element type.
fn ratios<T: Element>() {
    for threads in [1, 2] {
        for constant in [true, false] {
            let what = if constant { "constant (packed before)" } else { "input" };
            println!("\n{}, {threads} thread(s), right operand {what}", T::DTYPE);
            println!("{:20} {:>8} {:>8} {:>6}", "shape", "ours", "gemm", "ratio");
            for &shape in SHAPES {
                let mut pair = Pair::<T>::new(shape, threads, constant);
                let (ours, theirs) = pair.compare(0.5);
                let rate = pair.flops() / 1e9;
                println!("{:20} {:8.1} {:8.1} {:6.2}", name(shape), rate / ours, rate / theirs, theirs / ours);
            }
            let mut all: Vec<_> = random_shapes(200)
                .into_iter()
                .map(|shape| {
                    let (ours, theirs) = Pair::<T>::new(shape, threads, constant).compare(0.03);
                    (theirs / ours, shape)
                })
                .collect();
            all.sort_by(|a, b| a.0.total_cmp(&b.0));
            let mean = |ratios: &[f64]| (ratios.iter().map(|r| r.ln()).sum::<f64>() / ratios.len() as f64).exp();
            let [every, high] =
                [1, 128].map(|least| all.iter().filter(|r| r.1.1 >= least).map(|r| r.0).collect::<Vec<_>>());
            let below = every.iter().filter(|r| **r < 0.8).count();
            println!(
                "200 random shapes: geometric mean {:.3}, of {} with m >= 128 {:.3}; {below} below 0.8; the least:",
                mean(&every),
                high.len(),
                mean(&high)
            );
            all.iter().take(8).for_each(|(ratio, shape)| println!("{:20} {ratio:24.2}", name(*shape)));
        }
    }
}

fn table(criterion: &mut Criterion) {
    for threads in [1, 2] {
        let mut group = criterion.benchmark_group(format!("gemm, {threads} thread(s)"));
        for &shape in SHAPES {
            let mut pair = Pair::<f32>::new(shape, threads, true);
            group.throughput(Throughput::Elements(pair.flops() as u64));
            group.bench_function(BenchmarkId::new("ours", name(shape)), |b| b.iter(|| black_box(&mut pair).ours()));
            if threads == 1 {
                group.bench_function(BenchmarkId::new("gemm", name(shape)), |b| {
                    b.iter(|| black_box(&mut pair).theirs())
                });
            }
        }
        group.finish();
    }
}

fn main() {
    if std::env::args().any(|a| a == "ratios") {
        println!("{}, GFLOP/s; the ratio is ours / that of `gemm` on one thread", Isa::detect().name());
        ratios::<f32>();
        return ratios::<f64>();
    }
    let mut criterion = Criterion::default().configure_from_args();
    table(&mut criterion);
    criterion.final_summary();
}
