//! Measures the start of a process: loading the rules, and the first plan of a small graph.
//!
//! `cargo run --release -p eutectic-benches --example start -- [ROUNDS]`

use std::time::Instant;

use eutectic::{Compiler, Cpu, CpuOptions, engine::ir::lang::Source, engine::ir::text};

/// A perceptron with two layers.
const GRAPH: &str = r#"(graph "mlp"
  (input x f32[8 128]) (param w f32[128 64]) (param b f32[64]) (param v f32[64 10])
  (output y (matmul (act (add (matmul x w) b) :kind gelu-erf) v)))"#;

fn milliseconds<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let done = work();
    (done, start.elapsed().as_secs_f64() * 1e3)
}

/// Prints the first time and the least one.
fn print(what: &str, times: &[f64]) {
    let least = times.iter().copied().fold(f64::INFINITY, f64::min);
    println!("{what:40} first {:8.3} ms, least {least:8.3} ms", times[0]);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rounds = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(10);
    let graph = text::parse(&Source::new("mlp", GRAPH))?;
    let [mut new, mut first, mut second] = [const { Vec::new() }; 3];
    for _ in 0..rounds {
        let cpu = Cpu::new(CpuOptions { threads: 1, ..CpuOptions::default() });
        let (compiler, time) = milliseconds(|| Compiler::new(cpu));
        let compiler = compiler?;
        new.push(time);
        first.push(milliseconds(|| compiler.plan(&graph)).1);
        second.push(milliseconds(|| compiler.plan(&graph)).1);
    }
    print("Compiler::new", &new);
    print("the compiler's first plan", &first);
    print("its second plan", &second);
    Ok(())
}
