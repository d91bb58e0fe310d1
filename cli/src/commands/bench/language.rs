//! `bench` of language models: measures the tokens per second of a prompt and of a continuation, and compares the
//! continuation with the memory bandwidth.

use std::{
    io::{Write, stdout},
    time::{Duration, Instant},
};

use eutectic::{
    Compiler, DType, Generator, Graph, Tensor,
    engine::ir::{lang::Source, text::parse},
};
use serde_json::{Value, json};

use super::args::Args;
use crate::{
    args::print_json,
    fault::{Fault, input},
    format::Format,
    generation::{cache, open},
    table::{bytes, duration, heading, table, thousands},
    timing::{Times, progress},
};

/// The default numbers of tokens in the prompt and in its continuation.
const TOKENS: [usize; 2] = [512, 128];
/// The default numbers of timed runs, and of runs before them.
const RUNS: [u32; 2] = [5, 1];
/// The size in bytes of the array that measures the memory bandwidth. It exceeds the caches.
const READ: usize = 1 << 28;

/// The results of the measurement.
struct Measured {
    model: String,
    device: String,
    compiled: Duration,
    /// The numbers of tokens in the prompt and in the continuation.
    tokens: [usize; 2],
    /// The seconds of each run, for the prompt and for the continuation.
    times: [Times; 2],
    /// The number of bytes that the token in the middle of the continuation has to read.
    read: usize,
    /// The measured memory bandwidth in bytes per second.
    bandwidth: f64,
}

/// Measures a language model.
///
/// # Errors
/// If the file is no supported language model, if it was trained for fewer tokens, or if the backend cannot run it.
pub fn run(args: &Args) -> Result<(), Fault> {
    let path = &args.job.program.model;
    let model = open(path)?;
    let tokens = [args.language.prompt, args.language.generate];
    let tokens: [usize; 2] = std::array::from_fn(|at| tokens[at].map_or(TOKENS[at], |n| n as usize));
    let (room, trained) = (tokens[0].saturating_add(tokens[1]), model.trained());
    if room > trained {
        let problem = format!("cannot measure {room} tokens because {} was trained for {trained}", path.display());
        return Err(input(problem, "give smaller numbers with --prompt and --generate"));
    }
    let cache = cache(args.language.cache);
    let decoder = model.decoder(room).map_err(Fault::input)?.with_cache(cache);
    let read = decoder.read_bytes(tokens[0] + tokens[1] / 2);
    let compiler = args.job.compile.compiler()?;
    let bar = progress("compiling", None);
    let start = Instant::now();
    let mut generator = Generator::with_cache(model, &compiler, room, cache)?;
    let compiled = start.elapsed();
    drop(bar);
    let times = times(args, &mut generator, tokens)?;
    let measured = Measured {
        model: path.display().to_string(),
        device: compiler.backend().describe(),
        compiled,
        tokens,
        times,
        read,
        bandwidth: bandwidth(&compiler)?,
    };
    let mut out = stdout().lock();
    match args.job.format {
        Format::Json => print_json(&mut out, &measured.json()),
        Format::Table => measured.print(&mut out),
    }
}

/// Measures runs: each one reads a prompt of arbitrary tokens, and continues it by the likeliest tokens. A token that
/// ends a text does not end the continuation.
fn times(args: &Args, generator: &mut Generator, tokens: [usize; 2]) -> Result<[Times; 2], Fault> {
    let runs = args.measure.runs(RUNS[0], RUNS[1]);
    let known = generator.model().vocabulary().len() as u64;
    let mut times = [Times::default(), Times::default()];
    let bar = progress("measuring", runs.shown());
    let begin = Instant::now();
    for run in 0..runs.warmup.saturating_add(runs.iters) {
        let counted = run.saturating_sub(runs.warmup);
        if counted >= 3 && runs.limit.is_some_and(|limit| begin.elapsed() > limit) {
            break;
        }
        // Each prompt starts with another token than the one before it, whose keys and values are still in the cache.
        let first = args.job.program.seed.wrapping_add(run as u64 * 7907) % known;
        let mut ids: Vec<u32> = (0..tokens[0] as u64).map(|n| ((first + n * 104_729) % known) as u32).collect();
        let start = Instant::now();
        let mut logits = generator.logits(&ids)?;
        let read = Instant::now();
        for _ in 0..tokens[1] {
            let likeliest = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
            ids.push(likeliest.map_or(0, |(id, _)| id as u32));
            logits = generator.logits(&ids)?;
        }
        if run >= runs.warmup {
            times[0].0.push((read - start).as_secs_f64());
            times[1].0.push(read.elapsed().as_secs_f64());
        }
        bar.inc(1);
    }
    Ok(times)
}

/// Returns the most bytes per second that a kernel of the backend reads in a few runs.
fn bandwidth(compiler: &Compiler) -> Result<f64, Fault> {
    const COLUMNS: usize = 1 << 12;
    let rows = READ / (4 * COLUMNS);
    // The result depends on an input. Otherwise the kernel would be part of the load program, and not run again.
    let text = format!(
        "(graph \"read\" (input n f32[]) (param x f32[{rows} {COLUMNS}]) (output y (reduce-max (min x n) :axes [0 1] :keep false)))"
    );
    let graph: Graph = parse(&Source::new("read", text)).map_err(|e| Fault::Input(e.into()))?;
    let mut session = compiler.compile(&graph)?;
    let ones = Tensor::new(DType::F32, &[rows, COLUMNS], vec![1_u8; READ]).map_err(Fault::input)?;
    session.load_named(|_| Some(ones.clone()))?;
    let mut best = f64::INFINITY;
    let mut result = [0; 4];
    for _ in 0..8 {
        let start = Instant::now();
        session.run_into(&[&1_f32.to_le_bytes()], &mut [&mut result])?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    Ok(READ as f64 / best)
}

impl Measured {
    /// Returns the tokens per second of a phase, at a quantile of the times.
    fn speed(&self, phase: usize, share: f64) -> f64 {
        self.tokens[phase] as f64 / self.times[phase].quantile(share)
    }

    /// Returns the bytes per second that the continuation reads.
    fn reads(&self) -> f64 {
        self.read as f64 * self.speed(1, 0.5)
    }

    fn json(&self) -> Value {
        let phase = |at: usize| {
            json!({
                "tokens": self.tokens[at],
                "times_ms": self.times[at].0.iter().map(|s| s * 1e3).collect::<Vec<_>>(),
                "tokens_per_second": self.speed(at, 0.5),
            })
        };
        json!({
            "model": self.model,
            "device": self.device,
            "compile_ms": self.compiled.as_secs_f64() * 1e3,
            "prompt": phase(0),
            "generate": phase(1),
            "bytes_per_token": self.read,
            "read_bytes_per_second": self.reads(),
            "bandwidth_bytes_per_second": self.bandwidth,
            "share_of_bandwidth": self.reads() / self.bandwidth,
        })
    }

    fn print(&self, out: &mut impl Write) -> Result<(), Fault> {
        writeln!(out, "{}", heading(&self.model))?;
        writeln!(out, "on        {}", self.device)?;
        writeln!(out, "compiled  in {}, with packing", duration(self.compiled))?;
        let mut rows = table(&["phase", ">tokens", ">runs", ">tokens/s", ">slowest tenth", ">fastest tenth"]);
        for (at, name) in ["prompt", "generate"].into_iter().enumerate() {
            let speed = |share| format!("{:.1}", self.speed(at, share));
            let counts = [thousands(self.tokens[at]), thousands(self.times[at].0.len())];
            rows.add_row([name.into(), counts[0].clone(), counts[1].clone(), speed(0.5), speed(0.9), speed(0.1)]);
        }
        writeln!(out, "{rows}")?;
        let share = 100.0 * self.reads() / self.bandwidth;
        let (read, speed, limit) = (bytes(self.read as f64), bytes(self.reads()), bytes(self.bandwidth));
        writeln!(
            out,
            "A generated token reads {read}: {speed}/s, {share:.0} % of the {limit}/s that one kernel reads."
        )?;
        Ok(())
    }
}
