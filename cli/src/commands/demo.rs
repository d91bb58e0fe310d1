//! `demo`: an introduction. It rewrites, plans, runs and checks a small transformer.

use std::{
    io::{Write, stdout},
    path::PathBuf,
    time::Duration,
};

use eutectic::{
    Compiler, Graph, Planned, Session, Strategy, Tensor,
    engine::ir::{interpret, ops::eval::Element},
};

use crate::{
    args::Compile,
    fault::Fault,
    profile::hint,
    program::ProgramArgs,
    report::{self, Size},
    table::{bytes, duration, faint, hanging, heading, prose, seconds, several, table, thousands},
    timing::{Contender, Times, Warmup, interleaved, progress},
    values::NamedTensors,
};

const EXAMPLES: &str = "\
Examples:
  eutectic demo
  # what the fusion rules are worth
  eutectic demo --without 'fuse/*'
  eutectic demo --threads 1 --seq 64

Next: eutectic explain demo; eutectic opt demo; eutectic run minilm --weights DIR --text \"hello\"";

/// Shows how Eutectic rewrites, plans and runs a small transformer encoder
///
/// Builds a post-norm encoder of 4 layers with weights from a fixed seed. Shows the rules that fired, the plan with its
/// kernels and memory, the measured gain of fusion, and the difference from the reference interpreter. Takes half a
/// minute.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    compile: Compile,
    /// Tokens of the text
    #[arg(help_heading = None, long, value_name = "N", default_value_t = 128)]
    seq: usize,
}

/// The strategies whose plans are compared.
const CONTENDERS: [(&str, Strategy); 3] =
    [("unfused: every op a kernel", Strategy::Unfused), ("greedy", Strategy::Greedy), ("chosen", Strategy::Local)];

/// The allowed difference from the reference interpreter, relative to the largest number. Tests of the golden
/// embeddings allow the same.
const TOLERANCE: f64 = 2e-5;

/// The number of timed runs of each plan. `WARMUP` is the number of runs before them.
const ROUNDS: usize = 30;
const WARMUP: usize = 3;

/// The limit on the time of all measurements.
const LIMIT: Duration = Duration::from_secs(12);

/// The number of listed rules.
const RULES: usize = 16;

/// Runs the command.
///
/// # Errors
/// If the encoder cannot be compiled with these rules, or stdout cannot be written.
pub fn run(args: &Args) -> Result<(), Fault> {
    let program = ProgramArgs { seq: Some(args.seq), ..ProgramArgs::random(PathBuf::from("demo")) };
    let compiler = args.compile.compiler()?;
    let graph = program.graph()?;
    let (params, _) = program.params(&graph)?;
    let inputs = program.inputs(&graph, NamedTensors::new())?;
    let chosen = {
        let _bar = progress("planning", None);
        compiler.plan(&graph)?
    };
    let size = Size::of(&graph);
    let mut out = stdout().lock();
    introduce(&mut out, &compiler, &size, args.seq)?;
    rules(&mut out, &compiler, &chosen)?;
    plan(&mut out, &compiler, &chosen)?;
    memory(&mut out, &chosen, &size)?;
    let mut contest = Contest::new(&compiler, &graph, &params, &inputs, chosen)?;
    let times = contest.time()?;
    let reference = reference(&graph, &params, &inputs)?;
    let errors = contest.errors(&reference)?;
    contest.print(&mut out, &times, &errors)?;
    judge(&mut out, &reference, &errors)?;
    let chosen = contest.planned.last().map_or(f64::NAN, Planned::seconds);
    if let Some(hint) = times.last().and_then(|times| hint(compiler.backend(), chosen, times.median())) {
        writeln!(out, "{}", faint(prose(hint)))?;
    }
    let next =
        "next: eutectic explain demo, eutectic explain demo --html demo.html, eutectic opt demo, eutectic --help";
    writeln!(out, "\n{}", faint(prose(next)))?;
    Ok(())
}

fn introduce(out: &mut impl Write, compiler: &Compiler, size: &Size, seq: usize) -> Result<(), Fault> {
    writeln!(out, "{}", heading("A transformer encoder: 4 layers, hidden 256, post-norm"))?;
    writeln!(out, "{}", hanging(format!("graph     {}", size.describe()), 10))?;
    writeln!(out, "input     one text of {seq} tokens; weights from a fixed seed")?;
    writeln!(out, "device    {}", compiler.backend().describe())?;
    writeln!(out, "costs     {}", report::origin_of_costs(compiler.backend()))?;
    Ok(())
}

fn rules(out: &mut impl Write, compiler: &Compiler, planned: &Planned) -> Result<(), Fault> {
    let fired = report::rules(compiler, planned);
    let total: usize = fired.iter().map(|r| r.changes).sum();
    writeln!(out, "\n{}", heading(format!("Rules: {} fired, {} times", fired.len(), thousands(total))))?;
    let mut table = table(&["rule", ">times", "?>took", "says"]);
    for rule in fired.iter().take(RULES) {
        table.add_row([rule.name.clone(), thousands(rule.changes), duration(rule.time), rule.doc.clone()]);
    }
    writeln!(out, "{table}")?;
    if let Some(more) = fired.len().checked_sub(RULES).filter(|more| *more > 0) {
        writeln!(out, "{}", faint(format!("and {more} more; eutectic opt demo lists all")))?;
    }
    Ok(())
}

fn plan(out: &mut impl Write, compiler: &Compiler, planned: &Planned) -> Result<(), Fault> {
    let kernels = planned.lowered.program.run.len();
    let times = planned.times;
    let title = format!("The plan: {}, predicted {}", several(kernels, "kernel"), seconds(planned.seconds()));
    writeln!(out, "\n{}", heading(title))?;
    writeln!(
        out,
        "{}",
        faint(prose(format!(
            "found in {}: outlining {}, rewriting {}, planning {}, lowering {}",
            duration(times.total()),
            duration(times.outline),
            duration(times.rewrite),
            duration(times.plan),
            duration(times.lower),
        )))
    )?;
    for (title, table) in report::kernels(compiler, planned) {
        writeln!(out, "\n{title}\n{table}")?;
    }
    Ok(())
}

fn memory(out: &mut impl Write, planned: &Planned, size: &Size) -> Result<(), Fault> {
    let peak = planned.lowered.program.arena_bytes;
    let ratio = size.intermediate_bytes as f64 / peak.max(1) as f64;
    writeln!(out, "\n{}", heading("Memory of a run"))?;
    let (peak, all) = (bytes(peak as f64), bytes(size.intermediate_bytes as f64));
    let text =
        format!("{peak} at its peak; the results of all ops of the graph together take {all}, {ratio:.1} times that");
    Ok(writeln!(out, "{}", prose(text))?)
}

/// The plan of each strategy, compiled and loaded.
struct Contest {
    planned: Vec<Planned>,
    sessions: Vec<Session>,
    inputs: Vec<Tensor>,
    warm_up: Duration,
}

impl Contest {
    fn new(
        compiler: &Compiler,
        graph: &Graph,
        params: &NamedTensors,
        inputs: &NamedTensors,
        chosen: Planned,
    ) -> Result<Contest, Fault> {
        let _bar = progress("compiling the unfused, the greedy and the chosen plan", None);
        let mut planned = Vec::new();
        for (_, strategy) in &CONTENDERS[..CONTENDERS.len() - 1] {
            planned.push(compiler.clone().with_strategy(*strategy).plan(graph)?);
        }
        planned.push(chosen);
        let mut sessions = Vec::new();
        for planned in &planned {
            let mut session = compiler.build(planned)?;
            session.load_named(|name| params.get(name).cloned())?;
            sessions.push(session);
        }
        let names = planned[0].lowered.program.inputs.iter();
        let inputs = names.filter_map(|(name, _)| inputs.get(name).cloned()).collect();
        Ok(Contest { planned, sessions, inputs, warm_up: compiler.backend().warm_up() })
    }

    /// Measures all plans in alternation.
    fn time(&mut self) -> Result<Vec<Times>, Fault> {
        let bar = progress("measuring", Some((WARMUP + ROUNDS) as u64));
        let inputs = &self.inputs;
        let run = |session| -> Contender<'_> {
            let session: &mut Session = session;
            Box::new(move || Ok(session.run(inputs).map(drop)?))
        };
        let mut contenders: Vec<_> = self.sessions.iter_mut().map(run).collect();
        let warmup = Warmup { rounds: WARMUP, time: self.warm_up };
        interleaved(&mut contenders, warmup, ROUNDS, Some(LIMIT), &bar)
    }

    /// Returns the largest absolute error of each plan, or NaN if a result is NaN.
    fn errors(&mut self, reference: &[Vec<f64>]) -> Result<Vec<f64>, Fault> {
        let mut errors = Vec::new();
        for session in &mut self.sessions {
            let results = session.run(&self.inputs)?;
            let pairs = reference.iter().flatten().copied().zip(results.iter().flat_map(Tensor::to_f64));
            errors.push(pairs.map(|(want, got)| (want - got).abs()).fold(0.0, largest));
        }
        Ok(errors)
    }

    fn print(&self, out: &mut impl Write, times: &[Times], errors: &[f64]) -> Result<(), Fault> {
        let rounds = times[0].0.len();
        writeln!(out, "\n{}", heading(format!("Measured: {rounds} rounds, in turn")))?;
        let mut table =
            table(&["plan", ">kernels", "?>memory", ">predicted", ">p50", "?>p10", "?>p90", ">faster", ">error"]);
        for (at, ((name, _), planned)) in CONTENDERS.iter().zip(&self.planned).enumerate() {
            let (program, measured) = (&planned.lowered.program, &times[at]);
            table.add_row([
                name.to_string(),
                thousands(program.run.len()),
                bytes(program.arena_bytes as f64),
                seconds(planned.seconds()),
                seconds(measured.median()),
                seconds(measured.quantile(0.1)),
                seconds(measured.quantile(0.9)),
                format!("{:.2} x", times[0].median() / measured.median()),
                format!("{:.2e}", errors[at]),
            ]);
        }
        Ok(writeln!(out, "{table}")?)
    }
}

/// Returns the larger of two numbers, or NaN if one is NaN.
fn largest(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

/// Evaluates the graph with the reference interpreter in `f64`.
fn reference(graph: &Graph, params: &NamedTensors, inputs: &NamedTensors) -> Result<Vec<Vec<f64>>, Fault> {
    let _bar = progress("computing the same with the reference interpreter", None);
    let given = |name: &str| params.get(name).or_else(|| inputs.get(name)).cloned();
    let values = interpret::<f64>(graph, &given).map_err(Fault::run)?;
    let number = |element| match element {
        Element::Real(x) => x,
        Element::Int(n) => n.map_or(f64::NAN, |n| n as f64),
    };
    Ok(values.iter().map(|value| (0..value.count()).map(|at| number(value.get(at))).collect()).collect())
}

/// Compares the error of the chosen plan with the tolerance.
fn judge(out: &mut impl Write, reference: &[Vec<f64>], errors: &[f64]) -> Result<(), Fault> {
    let error = errors.last().copied().unwrap_or(f64::NAN);
    let size = reference.iter().flatten().map(|x| x.abs()).fold(0.0, largest);
    let share = error / (TOLERANCE * size);
    writeln!(
        out,
        "{}",
        faint(prose(format!(
            "errors are differences from the interpreter in f64. The chosen plan's largest error is {:.0} % of the \
             tolerance: {TOLERANCE:.0e} times the largest result, {size:.2}",
            100.0 * share
        )))
    )?;
    if share.is_nan() || share > 1.0 {
        return Err(Fault::run("the chosen plan's result is wrong; please report this"));
    }
    Ok(())
}
