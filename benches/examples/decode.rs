//! What a step of decoding takes where the length of the cache is another in each run, beside a program of that length alone, in turns:
//! four Llama-style layers, 2,048 wide. `cargo run --release -p eutectic-benches --example decode -- [THREADS]`

use std::time::Instant;

use eutectic::{
    Compiler, Cpu, CpuOptions, Dim, Error, Session,
    engine::models::{llama::LlamaConfig, random::random_weights},
};

const BOUND: usize = 1024;
/// Rounds of so many steps of either program; the median of the ratios counts.
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
    for length in [16, 128, 512, BOUND] {
        let mut fixed = session(&decoder, threads, length)?;
        any.set_length("S", length)?;
        let mut times = Vec::new();
        for round in 0..=ROUNDS {
            let of_any = microseconds(&mut any, decoder.words, length - 1)?;
            let of_fixed = microseconds(&mut fixed, decoder.words, length - 1)?;
            // The first warms caches up.
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
