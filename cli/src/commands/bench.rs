//! `bench`: measures how long a program and its kernels take.

mod against;
mod args;
#[cfg_attr(not(feature = "text"), path = "bench/no_language.rs")]
mod language;
mod prepared;
mod sweep;

use std::{
    fmt::Write as _,
    io::{Write, stdout},
    path::PathBuf,
};

use eutectic::{
    Compiler, DeviceBuffer, Memory, Planned, Session, Tensor,
    noise::{self, ThreadTimes},
};
use serde_json::{Value, json};

pub use self::args::Args;
use self::{prepared::Prepared, sweep::Point};
use crate::{
    args::print_json,
    difference::LargestError,
    fault::{Fault, input},
    files,
    format::Format,
    npy, output,
    profile::{self, KernelStep},
    report,
    table::{bytes, duration, faint, heading, prose, seconds, table, thousands},
    timing::{Contender, Times, Warmup, interleaved, progress},
    values::NamedTensors,
};

/// Runs the command.
///
/// # Errors
/// If the program cannot be compiled or run, or if a file cannot be read or written.
pub fn run(args: &Args) -> Result<(), Fault> {
    let files = [("--ids", &args.ids), ("--reference", &args.reference), ("--plan", &args.plan)];
    let files = files.iter().filter_map(|(flag, path)| Some((flag.to_string(), path.as_deref()?)));
    files::read_stdin_once(args.job.reads().chain(args.inputs.reads()).chain(files))?;
    let to_stdout = |path: &Option<PathBuf>| path.as_ref().is_some_and(|path| output::is_standard(path));
    let written = [("--csv -", &args.csv), ("--output -", &args.output), ("--save-plan -", &args.save_plan)];
    let written = written.map(|(flag, path)| (flag.to_string(), to_stdout(path)));
    output::one_on_stdout(written.into_iter().chain([args.job.json()]))?;
    if args.job.program.is_gguf() {
        return run_language_model(args);
    }
    if let Some(flag) = args.language.given().next() {
        let problem = format!("{flag}: {} is no language model", args.job.program.model.display());
        return Err(input(problem, "name a GGUF file, *.gguf"));
    }
    if !args.against.is_empty() {
        return against::run(args);
    }
    let points = sweep::points(&args.measure.sweep);
    let single = [
        ("--output", args.output.is_some()),
        ("--reference", args.reference.is_some()),
        ("--plan", args.plan.is_some()),
        ("--save-plan", args.save_plan.is_some()),
    ];
    if let Some((flag, _)) = single.iter().find(|(_, given)| *given && points.len() > 1) {
        let problem = format!("{flag} takes one program, but a sweep has several");
        return Err(input(problem, format!("leave out --sweep or {flag}")));
    }
    if !args.measure.sweep.is_empty() {
        // The dimensions of a file depend on its ops, which the rules may declare.
        args.job.compile.compiler_for(&args.job.program)?;
    }
    sweep::check(&args.measure.sweep, &args.job.program)?;
    let mut benches = Vec::new();
    for point in points {
        benches.push(Bench::at(args, point)?);
    }
    if let Some(path) = &args.csv {
        let text = csv(&benches);
        output::write(path, &[text.as_bytes()])?;
    }
    if [&args.csv, &args.output, &args.save_plan].into_iter().any(to_stdout) {
        return Ok(());
    }
    let mut out = stdout().lock();
    match (args.job.format, &benches[..]) {
        (Format::Json, [bench]) => print_json(&mut out, &bench.json())?,
        (Format::Json, all) => print_json(&mut out, &all.iter().map(Bench::json).collect::<Vec<_>>())?,
        (Format::Table, [bench]) => bench.print(&mut out)?,
        (Format::Table, all) => print_sweep(&mut out, all)?,
    }
    drop(out);
    benches.iter().try_for_each(Bench::verdict)
}

fn run_language_model(args: &Args) -> Result<(), Fault> {
    let others = [
        ("--input", !args.inputs.files.is_empty()),
        ("--ids", args.ids.is_some()),
        ("--output", args.output.is_some()),
        ("--reference", args.reference.is_some()),
        ("--explain", args.explain),
        ("--against", !args.against.is_empty()),
        ("--plan", args.plan.is_some()),
        ("--save-plan", args.save_plan.is_some()),
        ("--csv", args.csv.is_some()),
        ("--sweep", !args.measure.sweep.is_empty()),
    ];
    let others = others.into_iter().filter_map(|(flag, given)| given.then_some(flag));
    let unfit: Vec<&str> = others.chain(args.job.program.for_other_models()).collect();
    if unfit.is_empty() {
        return language::run(args);
    }
    let problem = format!("{}: {} is a language model", unfit.join(", "), args.job.program.model.display());
    Err(input(problem, "leave out the options of other models; a language model takes --prompt and --generate"))
}

/// The measurements for one point of a sweep.
struct Bench<'a> {
    args: &'a Args,
    point: Point,
    compiler: Compiler,
    planned: Planned,
    inputs: NamedTensors,
    source: String,
    times: Times,
    steps: Vec<KernelStep>,
    error: Option<LargestError>,
    /// The share of the measured time in which threads waited for a processor. `None` if the system does not count it.
    waiting: Option<f64>,
}

impl<'a> Bench<'a> {
    fn at(args: &'a Args, point: Point) -> Result<Bench<'a>, Fault> {
        let mut job = args.job.clone();
        point.set(&mut job);
        let Prepared { compiler, planned, mut session, inputs, source, .. } = Prepared::of(args, job)?;
        let (times, steps) = (Times::default(), Vec::new());
        let mut bench =
            Bench { args, point, compiler, planned, inputs, source, times, steps, error: None, waiting: None };
        let first = bench.measure(&mut session)?;
        if let (Some(path), Some(tensor)) = (&args.output, &first) {
            npy::write(path, tensor)?;
        }
        if let (Some(path), Some(tensor)) = (&args.reference, &first) {
            bench.error = Some(LargestError::of("the first output", tensor, &npy::read(path)?)?);
        }
        if args.explain {
            let runs = [args.runs().warmup, bench.times.0.len()];
            bench.steps = profile::measured(&bench.compiler, &bench.planned, &mut session, &bench.inputs, runs)?;
        }
        Ok(bench)
    }

    /// Measures runs into buffers that are reused. Returns the first output.
    fn measure(&mut self, session: &mut Session) -> Result<Option<Tensor>, Fault> {
        let results = session.run_named(|name| self.inputs.get(name).cloned())?;
        // The extents of outputs depend on those of inputs, so a first run finds the sizes of the buffers.
        let sizes: Vec<usize> = results.iter().map(|tensor| tensor.bytes().len()).collect();
        let first = results.into_iter().next();
        let names: Vec<String> = session.program().inputs.iter().map(|(name, _)| name.clone()).collect();
        let host = |bytes: usize| session.buffer(bytes, Memory::Host);
        let mut outputs: Vec<Box<dyn DeviceBuffer>> = sizes.into_iter().map(host).collect::<Result<_, _>>()?;
        let bytes: Vec<&[u8]> = names.iter().filter_map(|name| self.inputs.get(name)).map(Tensor::bytes).collect();
        let mut outputs: Vec<&mut [u8]> = outputs.iter_mut().filter_map(|buffer| buffer.host_mut()).collect();
        let runs = self.args.runs();
        let warmup = Warmup { rounds: runs.warmup, time: self.compiler.backend().warm_up() };
        let bar = progress("measuring", runs.shown());
        let run: Contender<'_> = Box::new(|| Ok(session.run_into(&bytes, &mut outputs)?));
        let start = ThreadTimes::now();
        self.times = interleaved(&mut [run], warmup, runs.iters, runs.limit, &bar)?.remove(0);
        self.waiting = ThreadTimes::waiting(start);
        drop(bar);
        Ok(first)
    }

    fn json(&self) -> Value {
        let program = &self.planned.lowered.program;
        let times: Vec<f64> = self.times.0.iter().map(|s| s * 1e3).collect();
        let dims: serde_json::Map<_, _> =
            self.inputs.iter().map(|(name, tensor)| (name.clone(), json!(tensor.ty().to_string()))).collect();
        let mut value = json!({
            "model": self.args.job.program.model.to_string_lossy(),
            "device": self.compiler.backend().describe(),
            "weights": self.source,
            "inputs": dims,
            "at": self.point.json(),
            "warmup": self.args.runs().warmup,
            "times_ms": times,
            "predicted_ms": self.planned.seconds() * 1e3,
            "waiting": self.waiting,
            "kernels": program.run.len(),
            "arena_bytes": program.arena_bytes,
            "compile_ms": self.planned.times.total().as_secs_f64() * 1e3,
        });
        let spread = json!(self.times.spread());
        if let (Some(value), Some(spread)) = (value.as_object_mut(), spread.as_object()) {
            value.extend(spread.clone());
            if let Some(LargestError { absolute, relative }) = self.error {
                value.insert("largest_error".into(), json!({ "absolute": absolute, "relative": relative }));
            }
            if self.args.explain {
                value.insert("steps".into(), self.steps.iter().zip(1..).map(|(s, n)| s.json(n)).collect());
            }
        }
        value
    }

    fn print(&self, out: &mut impl Write) -> Result<(), Fault> {
        let inputs: Vec<_> = self.inputs.iter().map(|(name, tensor)| format!("{name} {}", tensor.ty())).collect();
        writeln!(out, "{}", heading(self.args.job.program.model.display()))?;
        writeln!(out, "on        {}", self.compiler.backend().describe())?;
        writeln!(out, "costs     {}", report::origin_of_costs(self.compiler.backend()))?;
        writeln!(out, "inputs    {}", inputs.join(", "))?;
        writeln!(out, "weights   {}", self.source)?;
        writeln!(out, "compiled  in {}, packing aside", duration(self.planned.times.total()))?;
        let mut table =
            table(&[">kernels", "?>peak memory", ">runs", ">predicted", ">p50", ">p90", ">p99", "?>fastest"]);
        table.add_row(self.summary());
        writeln!(out, "{table}")?;
        if let Some(LargestError { absolute, relative }) = self.error {
            let text = format!("largest error {absolute:.2e}, {relative:.1e} of the reference's largest number");
            writeln!(out, "{}", prose(text))?;
        }
        if self.args.explain {
            writeln!(out, "\n{}", profile::as_table(&self.steps))?;
        }
        let hint = profile::hint(self.compiler.backend(), self.planned.seconds(), self.measured());
        for remark in noise::remark(self.waiting).into_iter().chain(hint) {
            writeln!(out, "{}", faint(prose(remark)))?;
        }
        Ok(())
    }

    /// Fails if the first output differs from the reference by more than `--tol`.
    fn verdict(&self) -> Result<(), Fault> {
        match (self.error, self.args.tol) {
            (Some(error), Some(tol)) if error.relative > tol => Err(Fault::run(format!(
                "the first output differs from the reference by {:.1e} of its largest number, but --tol allows {tol:.1e}",
                error.relative
            ))),
            _ => Ok(()),
        }
    }

    /// Returns the measured seconds to compare predictions with: the sum over the kernels if they were measured, and
    /// otherwise the median of the runs.
    fn measured(&self) -> f64 {
        let kernels: f64 = self.steps.iter().map(KernelStep::seconds).sum();
        if self.steps.is_empty() { self.times.median() } else { kernels }
    }

    fn summary(&self) -> Vec<String> {
        let program = &self.planned.lowered.program;
        vec![
            thousands(program.run.len()),
            bytes(program.arena_bytes as f64),
            thousands(self.times.0.len()),
            seconds(self.planned.seconds()),
            seconds(self.times.median()),
            seconds(self.times.quantile(0.9)),
            seconds(self.times.quantile(0.99)),
            seconds(self.times.quantile(0.0)),
        ]
    }
}

fn print_sweep(out: &mut impl Write, benches: &[Bench<'_>]) -> Result<(), Fault> {
    let names: Vec<String> = benches[0].point.names().map(|name| format!(">{name}")).collect();
    let rest = [">kernels", "?>peak memory", "?>runs", ">predicted", ">p50", ">p90", ">p99", "?>fastest"];
    let titles: Vec<&str> = names.iter().map(String::as_str).chain(rest).collect();
    let mut rows = table(&titles);
    for bench in benches {
        rows.add_row(bench.point.values().map(|n| n.to_string()).chain(bench.summary()));
    }
    writeln!(out, "{}", heading(benches[0].args.job.program.model.display()))?;
    writeln!(out, "{rows}")?;
    for bench in benches.iter().filter(|bench| bench.args.explain) {
        writeln!(out, "\n{}\n{}", heading(&bench.point), profile::as_table(&bench.steps))?;
    }
    Ok(())
}

/// Returns the times as comma-separated values.
fn csv(benches: &[Bench<'_>]) -> String {
    let names: String = benches[0].point.names().map(|name| format!("{},", quoted(name))).collect();
    let explain = benches[0].args.explain;
    let columns = match explain {
        true => "kernel,name,origin,predicted_us,measured_us,p90_us,p99_us,bytes,flops",
        false => "runs,predicted_ms,p50_ms,p90_ms,p99_ms,fastest_ms,kernels,arena_bytes",
    };
    let mut text = format!("{names}{columns}\n");
    for bench in benches {
        let at: String = bench.point.values().map(|n| format!("{n},")).collect();
        if !explain {
            let ms = |share| bench.times.quantile(share) * 1e3;
            let program = &bench.planned.lowered.program;
            let (runs, predicted) = (bench.times.0.len(), bench.planned.seconds() * 1e3);
            let (kernels, arena) = (program.run.len(), program.arena_bytes);
            let [p50, p90, p99, fastest] = [0.5, 0.9, 0.99, 0.0].map(ms);
            let _ = writeln!(text, "{at}{runs},{predicted},{p50},{p90},{p99},{fastest},{kernels},{arena}");
        }
        for (step, number) in bench.steps.iter().zip(1..) {
            let us = |share| step.times.quantile(share) * 1e6;
            let known = |of: fn(&eutectic::engine::backend::Cost) -> f64| {
                step.predicted.as_ref().map_or(String::new(), |cost| of(cost).to_string())
            };
            let (name, origin) = (quoted(&step.kernel), quoted(&step.origin));
            let [p50, p90, p99] = [0.5, 0.9, 0.99].map(us);
            let [predicted, bytes, flops] = [known(|c| c.seconds * 1e6), known(|c| c.bytes), known(|c| c.flops)];
            let _ = writeln!(text, "{at}{number},{name},{origin},{predicted},{p50},{p90},{p99},{bytes},{flops}");
        }
    }
    text
}

/// Quotes a field of a CSV file if necessary (RFC 4180).
fn quoted(text: &str) -> String {
    let special = text.contains([',', '"', '\n', '\r']);
    if special { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.into() }
}
