//! `bench`: how long a program takes, as a whole and kernel by kernel.

use std::{
    io::{Write, stdout},
    path::PathBuf,
};

use eutectic::{Compiler, DeviceBuffer, Memory, Planned, Session, Tensor};
use serde_json::{Value, json};

use crate::{
    args::{CommonArgs, Format, print_json},
    fault::{Fault, input},
    npy,
    program::{InputFiles, NamedTensors},
    table::{bytes, duration, heading, seconds, table, thousands},
    timing::{Contender, Times, interleaved, progress},
};

const EXAMPLES: &str = "\
Examples:
  eutectic bench minilm --weights DIR --threads 1             the last hidden state, 1 x 128 tokens
  eutectic bench bert-base --batch 4 --seq 64 --iters 50      random weights
  eutectic bench model.graph --shape B=8 --explain            predicted beside measured time of each kernel
  eutectic bench minilm --weights DIR --ids ids.npy --output hidden.npy --format json

--ids takes an i64 array [batch seq] without padding. JSON holds `times_ms`, one number an iteration.";

/// Measures how long a program takes
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    job: CommonArgs,
    /// Runs that are timed
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    iters: u32,
    /// Runs before them
    #[arg(long, value_name = "N", default_value_t = 5)]
    warmup: u32,
    #[command(flatten)]
    inputs: InputFiles,
    /// Token ids of a built-in model, i64[batch seq]
    #[arg(long, value_name = "FILE.npy")]
    ids: Option<PathBuf>,
    /// Where the first output goes
    #[arg(long, value_name = "FILE.npy")]
    output: Option<PathBuf>,
    /// Shows predicted and measured time of each kernel
    #[arg(long)]
    explain: bool,
}

/// Runs the command.
///
/// # Errors
/// When the program cannot be compiled or run, or a file cannot be read or written.
pub fn run(args: &Args) -> Result<(), Fault> {
    let compiler = args.job.compile.compiler()?;
    let graph = args.job.program.graph()?;
    let (params, source) = args.job.program.params(&graph)?;
    let inputs = args.job.program.inputs(&graph, args.given()?)?;
    let bar = progress("compiling", None);
    let (planned, mut session) = compiler.compile_planned(&graph)?;
    session.load_named(|name| params.get(name).cloned())?;
    drop(bar);
    // In a file, numbers begin anywhere.
    let placed = inputs.into_iter().map(|(name, value)| Ok((name, session.placed(&value)?)));
    let inputs = placed.collect::<Result<NamedTensors, eutectic::Error>>()?;
    let mut bench = Bench { args, compiler: &compiler, planned: &planned, inputs, source, times: Times::default() };
    let first = bench.measure(&mut session)?;
    if let (Some(path), Some(tensor)) = (&args.output, first) {
        npy::write(path, &tensor)?;
    }
    let steps = if args.explain { bench.profile(&mut session)? } else { Vec::new() };
    match args.job.format {
        Format::Json => print_json(&mut stdout().lock(), &bench.json(&steps)),
        Format::Table => bench.print(&steps),
    }
}

impl Args {
    fn given(&self) -> Result<NamedTensors, Fault> {
        let mut given = self.inputs.read()?;
        if let Some(path) = &self.ids {
            if self.job.program.builtin().is_none() {
                return Err(input(
                    "--ids is for built-in models",
                    "give the inputs of a graph file with --input NAME=@FILE.npy",
                ));
            }
            given.insert("ids".into(), npy::read(path)?);
        }
        Ok(given)
    }
}

struct Bench<'a> {
    args: &'a Args,
    compiler: &'a Compiler,
    planned: &'a Planned,
    inputs: NamedTensors,
    source: String,
    times: Times,
}

/// A step of the run program: the kernel, its place, and what it takes.
struct StepTime {
    kernel: String,
    origin: String,
    predicted: Option<f64>,
    measured: f64,
}

impl Bench<'_> {
    /// Times runs into buffers that are reused; gives the first output.
    fn measure(&mut self, session: &mut Session) -> Result<Option<Tensor>, Fault> {
        let first = session.run_named(|name| self.inputs.get(name).cloned())?.into_iter().next();
        let program = session.program();
        let names: Vec<String> = program.inputs.iter().map(|(name, _)| name.clone()).collect();
        let sizes: Vec<usize> = program.outputs.iter().map(|(_, ty)| ty.bytes()).collect();
        let host = |bytes: usize| session.buffer(bytes, Memory::Host);
        let mut outputs: Vec<Box<dyn DeviceBuffer>> = sizes.into_iter().map(host).collect::<Result<_, _>>()?;
        let bytes: Vec<&[u8]> = names.iter().filter_map(|name| self.inputs.get(name)).map(Tensor::bytes).collect();
        let mut outputs: Vec<&mut [u8]> = outputs.iter_mut().filter_map(|buffer| buffer.host_mut()).collect();
        let (warmup, iters) = (self.args.warmup as usize, self.args.iters as usize);
        let bar = progress("measuring", Some((warmup + iters) as u64));
        let run: Contender<'_> = Box::new(|| Ok(session.run_into(&bytes, &mut outputs)?));
        self.times = interleaved(&mut [run], warmup, iters, None, &bar)?.remove(0);
        drop(bar);
        Ok(first)
    }

    /// The median time of each step.
    fn profile(&self, session: &mut Session) -> Result<Vec<StepTime>, Fault> {
        let inputs: Vec<Tensor> =
            session.program().inputs.iter().filter_map(|(name, _)| self.inputs.get(name).cloned()).collect();
        let program = &self.planned.lowered.program;
        let mut times = vec![Times::default(); program.run.len()];
        let (warmup, iters) = (self.args.warmup as usize, self.args.iters as usize);
        for run in session.profile(&inputs, warmup + iters)?.iter().skip(warmup) {
            times.iter_mut().zip(run).for_each(|(times, &seconds)| times.0.push(seconds));
        }
        let costs = self.planned.step_costs();
        let step = |((step, times), cost): ((&eutectic::engine::backend::Step, &Times), &Option<_>)| StepTime {
            kernel: program.kernels[step.kernel].kind().into(),
            origin: step.origin.to_string(),
            predicted: cost.map(|c: eutectic::engine::backend::Cost| c.seconds),
            measured: times.median(),
        };
        Ok(program.run.iter().zip(&times).zip(&costs).map(step).collect())
    }

    fn json(&self, steps: &[StepTime]) -> Value {
        let program = &self.planned.lowered.program;
        let times: Vec<f64> = self.times.0.iter().map(|s| s * 1e3).collect();
        let dims: serde_json::Map<_, _> =
            self.inputs.iter().map(|(name, tensor)| (name.clone(), json!(tensor.ty().to_string()))).collect();
        let mut value = json!({
            "model": self.args.job.program.model.to_string_lossy(),
            "device": self.compiler.backend().describe(),
            "weights": self.source,
            "inputs": dims,
            "warmup": self.args.warmup,
            "times_ms": times,
            "predicted_ms": self.planned.seconds() * 1e3,
            "kernels": program.run.len(),
            "arena_bytes": program.arena_bytes,
            "compile_ms": self.planned.times.total().as_secs_f64() * 1e3,
        });
        let spread = json!(self.times.spread());
        if let (Some(value), Some(spread)) = (value.as_object_mut(), spread.as_object()) {
            value.extend(spread.clone());
            if self.args.explain {
                let step = |s: &StepTime| json!({ "kernel": s.kernel, "origin": s.origin, "predicted_us": s.predicted.map(|p| p * 1e6), "measured_us": s.measured * 1e6 });
                value.insert("steps".into(), steps.iter().map(step).collect());
            }
        }
        value
    }

    fn print(&self, steps: &[StepTime]) -> Result<(), Fault> {
        let mut out = stdout().lock();
        let program = &self.planned.lowered.program;
        let inputs: Vec<_> = self.inputs.iter().map(|(name, tensor)| format!("{name} {}", tensor.ty())).collect();
        writeln!(out, "{}", heading(self.args.job.program.model.display()))?;
        writeln!(out, "on        {}", self.compiler.backend().describe())?;
        writeln!(out, "inputs    {}", inputs.join(", "))?;
        writeln!(out, "weights   {}", self.source)?;
        writeln!(out, "compiled  in {}, packing aside", duration(self.planned.times.total()))?;
        let mut table = table(&[">kernels", ">peak memory", ">predicted", ">median", ">10 % below", ">90 % below"]);
        table.add_row([
            thousands(program.run.len()),
            bytes(program.arena_bytes as f64),
            seconds(self.planned.seconds()),
            seconds(self.times.median()),
            seconds(self.times.quantile(0.1)),
            seconds(self.times.quantile(0.9)),
        ]);
        writeln!(out, "{table}")?;
        if self.args.explain {
            writeln!(out, "\n{}", self.steps(steps))?;
        }
        Ok(())
    }

    fn steps(&self, steps: &[StepTime]) -> crate::table::Table {
        let total: f64 = steps.iter().map(|s| s.measured).sum();
        let mut table = table(&[">#", "kernel", "where", ">predicted", ">measured", ">ratio", ">share"]);
        for (at, step) in steps.iter().enumerate() {
            table.add_row([
                (at + 1).to_string(),
                step.kernel.clone(),
                step.origin.clone(),
                step.predicted.map_or("–".into(), seconds),
                seconds(step.measured),
                step.predicted.map_or("–".into(), |p| format!("{:.2}", step.measured / p)),
                format!("{:.1} %", 100.0 * step.measured / total),
            ]);
        }
        let predicted: f64 = steps.iter().filter_map(|s| s.predicted).sum();
        let ratio = format!("{:.2}", total / predicted);
        table.add_row(["", "all", "", &seconds(predicted), &seconds(total), &ratio, ""]);
        table
    }
}
