//! Compares matrix products with those of the crates `gemm` and `faer`: `cargo bench -p eutectic-cpu --bench gemm`
//! times shapes of transformers.
//!
//! `-- ratios` alternates between our product on one and on two threads and the products of the crates on one thread.
//! It measures the shapes of transformers and 200 random ones, in `f32` and `f64`. It prints our speed relative to the
//! faster crate, the speed-up of two threads, and the speed of 16-bit storage relative to our `f32`.
//!
//! `-- bandwidth` compares products of few rows with the time of reading their right operand. Further words select
//! tables and shapes: see [`ratios::Options`]. Times are minima over all rounds, because other processes only add time.

mod product;
mod ratios;
#[path = "../../examples/roofline/reading.rs"]
mod reading;

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput};
use eutectic_cpu::Isa;
use product::{Operands, Ours, Shape, faer, flops, gemm, name};

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

fn table(criterion: &mut Criterion) {
    for threads in [1, 2] {
        let mut group = criterion.benchmark_group(format!("gemm, {threads} thread(s)"));
        for &shape in SHAPES {
            let of = Operands::<f32>::new(shape);
            let mut ours = Ours::new(&of, threads, true);
            group.throughput(Throughput::Elements(flops(shape) as u64));
            group.bench_function(BenchmarkId::new("ours", name(shape)), |b| b.iter(|| black_box(&mut ours).run(&of)));
            if threads == 1 {
                let mut out = ours.out.clone();
                for (other, product) in [("gemm", gemm::<f32> as fn(&_, &mut _)), ("faer", faer::<f32>)] {
                    let id = BenchmarkId::new(other, name(shape));
                    group.bench_function(id, |b| b.iter(|| product(&of, black_box(&mut out))));
                }
            }
        }
        group.finish();
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    if let Some(what @ ("ratios" | "bandwidth")) = args.next().as_deref() {
        println!("{}", Isa::detect().name());
        let options = ratios::Options::new(args);
        return if what == "ratios" { ratios::ratios(&options) } else { ratios::bandwidth(&options) };
    }
    let mut criterion = Criterion::default().configure_from_args();
    table(&mut criterion);
    criterion.final_summary();
}
