//! Measures decoding steps with a cache length that changes from run to run, in alternation with a program for one
//! fixed length. The model has four Llama-style layers with a width of 2,048.
//!
//! `cargo run --release -p eutectic-benches --example decode -- [THREADS]`

use std::time::Instant;

use eutectic::{
    Compiler, Cpu, CpuOptions, Dim, Error, Session,
    engine::models::{llama::LlamaConfig, random::random_weights},
};

const BOUND: usize = 1024;
/// The number of rounds. Each round runs `STEPS` steps of both programs. The median of the rounds' ratios is printed.
const ROUNDS: usize = 15;
const STEPS: usize = 20;

fn session(decoder: &LlamaConfig, threads: usize, rows: impl Into<Dim>) -> Result<Session, Error> {
    let graph = decoder.step(rows, false)?;
    let compiler = Compiler::new(Cpu::new(CpuOptions { threads, ..CpuOptions::default() }))?;
    let mut session = compiler.compile(&graph)?;
    let weights = random_weights(&graph, 1);
    session.load_named(|name| weights.get(name).cloned())?;
    Ok(session)
}

fn microseconds(session: &mut Session, words: usize, at: usize) -> Result<f64, Error> {
    let inputs = [7_i64.to_le_bytes(), (at as i64).to_le_bytes()];
    let mut logits = vec![0_u8; 4 * words];
    let start = Instant::now();
    for _ in 0..STEPS {
        session.run_into(&[&inputs[0], &inputs[1]], &mut [&mut logits])?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e6 / STEPS as f64)
}

/// Prints the median time of setting a length that no run had, and of setting one that an earlier run had.
fn print_changes(session: &mut Session) -> Result<(), Error> {
    for what in ["new", "known"] {
        let mut times = Vec::new();
        for length in (64..256).map(|n| n * 2 + 1) {
            let start = Instant::now();
            session.set_length("S", length)?;
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        times.sort_by(f64::total_cmp);
        println!("set_length to a {what} length: {:.1} µs", times[times.len() / 2]);
    }
    Ok(())
}

fn main() -> Result<(), Error> {
    let threads = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(1);
    let decoder = LlamaConfig {
        layers: 4,
        heads: 32,
        groups: 8,
        depth: 64,
        inner: 5632,
        words: 512,
        positions: BOUND,
        tied: false,
        theta: 1e4,
    };
    let mut any = session(&decoder, threads, Dim::between("S", 1, BOUND as i64))?;
    print_changes(&mut any)?;
    for length in [16, 128, 512, BOUND] {
        let mut fixed = session(&decoder, threads, length)?;
        any.set_length("S", length)?;
        let mut times = Vec::new();
        for round in 0..=ROUNDS {
            let of_any = microseconds(&mut any, decoder.words, length - 1)?;
            let of_fixed = microseconds(&mut fixed, decoder.words, length - 1)?;
            // The first round warms up the caches.
            if round > 0 {
                times.push([of_any, of_fixed]);
            }
        }
        times.sort_by(|a, b| (a[0] / a[1]).total_cmp(&(b[0] / b[1])));
        let [of_any, of_fixed] = times[ROUNDS / 2];
        println!(
            "{length:5} of {BOUND}: {of_any:9.1} µs a step, {of_fixed:9.1} in a program of that length, {:.3}",
            of_any / of_fixed
        );
    }
    Ok(())
}
