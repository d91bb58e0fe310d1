//! Prints tables of speeds: our products relative to the crates `gemm` and `faer`, two threads relative to one, 16-bit
//! storage relative to `f32`, and products of few rows relative to reading memory.

use std::hint::black_box;

use ::faer::traits::ComplexField;
use eutectic_conformance::kernels::Random;
use half::{bf16, f16};

use crate::{
    SHAPES,
    product::{Element, Operands, Ours, Shape, faer, flops, gemm, least, name},
    reading::read,
};

/// The minimal number of operations of a long product. It takes about ten microseconds, so that a second thread can
/// help.
const LONG: f64 = 2e6;

/// The tables and shapes to show.
pub struct Options {
    words: Vec<String>,
}

impl Options {
    /// Parses words that select tables and shapes. A word is an element type, the kind of the right operand (`constant`
    /// or `input`), or a shape such as `128x384x384`, which replaces all shapes. `all` shows every random shape, not
    /// only those for which our product is slower. `one` leaves out the second thread. A number is the seconds per
    /// shape.
    pub fn new(words: impl Iterator<Item = String>) -> Options {
        Options { words: words.collect() }
    }

    fn has(&self, word: &str) -> bool {
        self.words.iter().any(|w| w == word)
    }

    /// Returns whether the options select `word`: they contain it, or they contain none of the alternatives `kind`.
    fn admits(&self, word: &str, kind: &[&str]) -> bool {
        self.has(word) || !kind.iter().any(|w| self.has(w))
    }

    /// Returns the numbers of threads of the first column and of the second.
    fn threads(&self) -> [usize; 2] {
        [1, if self.has("one") { 1 } else { 2 }]
    }

    fn seconds(&self, or: f64) -> f64 {
        self.words.iter().find_map(|w| w.parse().ok()).unwrap_or(or)
    }

    fn shapes(&self) -> Vec<Shape> {
        let shape = |word: &String| {
            let n: Vec<usize> = word.split('x').map(str::parse).collect::<Result<_, _>>().ok()?;
            match n[..] {
                [m, n, k] => Some((1, m, n, k)),
                [b, m, n, k] => Some((b, m, n, k)),
                _ => None,
            }
        };
        self.words.iter().filter_map(shape).collect()
    }
}

/// Returns random shapes whose sizes have uniformly distributed logarithms. Their products take at most about a
/// millisecond.
fn random_shapes(count: usize) -> Vec<Shape> {
    let mut random = Random(2026);
    let mut size = move || random.between(0.0, 2048_f64.log2()).exp2().round() as usize;
    let shapes = std::iter::repeat_with(|| (1, size(), size(), size()));
    shapes.filter(|s| (1 << 12..1 << 26).contains(&(s.1 * s.2 * s.3))).take(count).collect()
}

fn mean(ratios: impl Iterator<Item = f64>) -> f64 {
    let logarithms: Vec<f64> = ratios.map(f64::ln).collect();
    (logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp()
}

/// The speeds for one shape in operations per second: of our product on one and on two threads, and of the others.
struct Row {
    shape: Shape,
    ours: [f64; 2],
    others: Vec<f64>,
}

impl Row {
    /// Returns the row of a shape, given the seconds of ours on one thread, of ours on two threads, and of each other.
    fn new<const N: usize>(shape: Shape, seconds: [f64; N]) -> Row {
        let rates = seconds.map(|t| flops(shape) / t);
        Row { shape, ours: [rates[0], rates[1]], others: rates[2..].to_vec() }
    }

    /// Returns the speed of our product on one thread relative to the fastest other.
    fn ratio(&self) -> f64 {
        self.ours[0] / self.others.iter().copied().fold(0.0, f64::max)
    }

    fn half_of_two(&self) -> f64 {
        self.ours[1] / self.ours[0] / 2.0
    }

    fn print(&self) {
        let rates: String = self.ours.iter().chain(&self.others).map(|rate| format!(" {:8.1}", rate / 1e9)).collect();
        println!("{:20}{rates} {:6.2} {:6.2}", name(self.shape), self.ratio(), self.half_of_two());
    }
}

/// Prints a table of the given shapes, each measured by `row`. If none is given, it has [`SHAPES`] and random shapes.
fn table(options: &Options, others: &[&str], row: impl Fn(Shape, f64) -> Row) {
    let columns: String = ["1 thread", "2"].iter().chain(others).map(|name| format!(" {name:>8}")).collect();
    println!("{:20}{columns} {:>6} {:>6}", "shape", "ratio", "2/1/2");
    let given = options.shapes();
    for &shape in if given.is_empty() { SHAPES } else { &given } {
        row(shape, options.seconds(0.5)).print();
    }
    if !given.is_empty() {
        return;
    }
    let mut rows: Vec<_> = random_shapes(200).into_iter().map(|shape| row(shape, options.seconds(0.04))).collect();
    rows.sort_by(|a, b| a.ratio().total_cmp(&b.ratio()));
    let high = || rows.iter().filter(|r| r.shape.1 >= 128);
    let long = || high().filter(|r| flops(r.shape) >= LONG);
    println!(
        "200 random shapes: geometric mean of ratios {:.3}, of {} with m >= 128 {:.3}; for these, two threads relative to twice one {:.3}, \
         of {} with over {:.0} million operations {:.3}; {} ratios below 0.8, {} below 1:",
        mean(rows.iter().map(Row::ratio)),
        high().count(),
        mean(high().map(Row::ratio)),
        mean(high().map(Row::half_of_two)),
        long().count(),
        LONG / 1e6,
        mean(long().map(Row::half_of_two)),
        rows.iter().filter(|r| r.ratio() < 0.8).count(),
        rows.iter().filter(|r| r.ratio() < 1.0).count(),
    );
    rows.iter().filter(|r| r.ratio() < 1.0 || options.has("all")).for_each(Row::print);
}

/// Prints the table of our speed relative to the crates `gemm` and `faer`.
fn beside_others<T: Element + ComplexField>(options: &Options, constant: bool) {
    table(options, &["gemm", "faer"], |shape, seconds| {
        let of = Operands::<T>::new(shape);
        let [mut one, mut two] = options.threads().map(|threads| Ours::new(&of, threads, constant));
        let [mut of_gemm, mut of_faer] = [one.out.clone(), one.out.clone()];
        let calls: [&mut dyn FnMut(); 4] =
            [&mut || one.run(&of), &mut || two.run(&of), &mut || gemm(&of, &mut of_gemm), &mut || {
                faer(&of, &mut of_faer)
            }];
        let row = Row::new(shape, least(calls, seconds));
        one.check(&of_gemm, shape);
        two.check(&of_gemm, shape);
        one.check(&of_faer, shape);
        row
    });
}

/// Prints the table of the speed of 16-bit storage relative to `f32`.
fn beside_f32<T: Element>(options: &Options, constant: bool) {
    table(options, &["f32"], |shape, seconds| {
        let (of, wide) = (Operands::<T>::new(shape), Operands::<f32>::new(shape));
        let [mut one, mut two] = options.threads().map(|threads| Ours::new(&of, threads, constant));
        let mut other = Ours::new(&wide, 1, constant);
        let calls: [&mut dyn FnMut(); 3] = [&mut || one.run(&of), &mut || two.run(&of), &mut || other.run(&wide)];
        let row = Row::new(shape, least(calls, seconds));
        one.check(&other.out, shape);
        two.check(&other.out, shape);
        row
    });
}

/// Prints the table of products of few rows: the bytes of the right operand per second, relative to a loop that only
/// reads as many bytes.
fn few_rows<T: Element>(options: &Options, constant: bool) {
    println!("{:20} {:>8} {:>8} {:>6}", "shape", "GB/s", "reading", "share");
    for (n, k) in [(5632, 2048), (2048, 2048), (1000, 300)] {
        for m in [1, 2, 3, 4, 8] {
            let shape = (1, m, n, k);
            let of = Operands::<T>::new(shape);
            let mut ours = Ours::new(&of, 1, constant);
            let bytes = size_of::<T>() * n * k;
            let memory = vec![1.0_f32; bytes / size_of::<f32>()];
            let times = least([&mut || ours.run(&of), &mut || read(black_box(&memory))], options.seconds(0.3));
            let [ours, reading] = times.map(|t| bytes as f64 / t / 1e9);
            println!("{:20} {ours:8.1} {reading:8.1} {:6.2}", name(shape), ours / reading);
        }
    }
}

/// Prints the tables of ratios for one kind of right operand, one for each element type.
fn each(options: &Options, kind: &str, constant: bool) {
    macro_rules! each {
        ($show:ident: $($t:ty)*) => {$(
            if options.admits(&<$t>::DTYPE.to_string(), &["f32", "f64", "f16", "bf16"]) {
                println!("\n{}, right operand {kind}, GFLOP/s", <$t>::DTYPE);
                $show::<$t>(options, constant);
            }
        )*};
    }
    each!(beside_others: f32 f64);
    each!(beside_f32: f16 bf16);
}

/// Prints all tables of ratios.
pub fn ratios(options: &Options) {
    for (kind, constant) in [("constant", true), ("input", false)] {
        if options.admits(kind, &["constant", "input"]) {
            each(options, kind, constant);
        }
    }
}

/// Prints all tables of products of few rows.
pub fn bandwidth(options: &Options) {
    for (kind, constant) in [("constant", true), ("input", false)] {
        if options.admits(kind, &["constant", "input"]) {
            println!("\nf32, right operand {kind}");
            few_rows::<f32>(options, constant);
            println!("\nf64, right operand {kind}");
            few_rows::<f64>(options, constant);
        }
    }
}
