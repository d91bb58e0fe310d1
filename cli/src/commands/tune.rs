//! `tune`: measures kernels on this machine and writes the costs that predict them best.

mod meter;
mod plans;
mod spread;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, btree_map::Entry},
    io::{self, Write, stdout},
    num::NonZeroUsize,
    path::PathBuf,
    sync::Arc,
    thread,
};

use eutectic::{
    Backend, Compiler, Dim, Graph, RuleSet, Setup,
    engine::{
        backend::fit::{Fitted, Measured, median_off, off, rank_correlation},
        ir::{lang::Source, text},
    },
};
use serde_json::json;

use self::{
    meter::{Meter, Timed},
    plans::Contest,
};
use crate::{
    args::{BackendArg, LoadedRules, Precision, Rules, print_json, with_directories},
    fault::{Fault, input},
    files,
    format::Format,
    output::{self, OutputFile},
    program::ProgramArgs,
    table::{seconds, several, table, thousands},
    timing::progress,
    values::shape,
};

const EXAMPLES: &str = "\
Examples:
  # a spread of kernels; takes a minute on an idle machine
  eutectic tune --out costs.toml
  # the kernels of a model of yours
  eutectic tune model.onnx --out costs.toml
  # a run that is planned by what was measured
  eutectic bench model.onnx --costs costs.toml
  # on a GPU: each kernel as a part of a recorded run
  eutectic tune --backend cuda --also tf32,f16 --out gpu.toml

Each coefficient is moved until predictions are as near to what was measured as can be; one that no kernel speaks of stays. Then, with \
these costs, each program's plans are measured that are predicted to be the cheapest: the chosen one's regret is by what factor it takes \
longer than the best of them. Tune on a machine that does nothing else.";

/// Measures kernels on this machine and writes costs that predict them
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// Models and graph files whose kernels are measured [default: a spread of products, passes, rows, views and attention]
    #[arg(value_name = "MODEL|FILE")]
    models: Vec<PathBuf>,
    /// Binds a symbolic dimension of the files that have it to a number; may be repeated
    #[arg(long, value_name = "NAME=N", value_parser = shape)]
    shape: Vec<(String, Dim)>,
    /// Where the costs are written
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Runs of each kernel; the fastest counts, because what else the machine does only adds
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..))]
    iters: u32,
    #[command(flatten)]
    on: BackendArg,
    #[command(flatten)]
    rules: Rules,
    /// Measures the programs in these precisions besides --precision: costs of matrix units are fitted to kernels that use them
    #[arg(help_heading = "Rules", long, value_name = "TYPE", value_enum, value_delimiter = ',')]
    also: Vec<Precision>,
    /// How to print
    #[arg(help_heading = None, long, value_enum, default_value_t)]
    format: Format,
}

/// Runs the command.
///
/// # Errors
/// When a program cannot be compiled or run, or the file cannot be written.
pub fn run(args: &Args) -> Result<(), Fault> {
    let unwritable = |e: io::Error| output::unwritable(&args.out, e);
    let models = args.models.iter().map(|path| ("MODEL".to_string(), path.as_path()));
    files::read_stdin_once(models)?;
    let json = ("--format json".into(), args.format == Format::Json);
    output::one_on_stdout([("--out -".into(), output::is_standard(&args.out)), json])?;
    // Better now than after a minute. What is there stays until the new one is whole.
    let mut file = OutputFile::new(&args.out).map_err(unwritable)?;
    let programs = args.programs()?;
    let precisions: Vec<Precision> = [args.rules.precision].into_iter().chain(args.also.iter().copied()).collect();
    let most = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let mut meter = Meter { iters: args.iters, known: HashMap::new() };
    // With one thread and with all, where that makes a difference.
    let mut described = BTreeSet::new();
    let (mut kinds, mut measured) = (Vec::new(), Vec::new());
    for threads in [most, 1] {
        let backend = args.on.backend.open(&Setup { threads: NonZeroUsize::new(threads), ..Setup::default() })?;
        if !described.insert(backend.describe()) {
            continue;
        }
        let bar = progress("measuring kernels", Some((programs.len() * precisions.len()) as u64));
        for &precision in &precisions {
            let rules = Rules { precision, ..args.rules.clone() }.load(&*backend)?;
            let compiler = Compiler::on(backend.clone(), rules);
            for (program, graph) in &programs {
                for Timed { kernel, seconds } in meter.run(&compiler, program, graph, threads)?.1 {
                    kinds.push(kernel.kind().to_string());
                    measured.push(Measured { kernel, threads, seconds });
                }
                bar.inc(1);
            }
        }
    }
    if measured.is_empty() {
        let problem = format!("--backend {}: none of the kernels has a time", args.on.backend.name);
        return Err(input(problem, "the device needs a clock, and programs at least one kernel"));
    }
    let backend = args.on.open()?;
    // Every fourth kernel is only predicted.
    let is_held_out = |n: usize| n % 4 == 3;
    let part = |held_out: bool| -> Vec<Measured> {
        measured.iter().enumerate().filter(|(n, _)| is_held_out(*n) == held_out).map(|(_, m)| m.clone()).collect()
    };
    let none = || {
        let problem = format!("--backend {}: its costs have no coefficients to fit", backend.name());
        input(problem, "`eutectic devices` lists the backends")
    };
    let fitted = backend.fit(&part(false)).ok_or_else(none)?;
    let mut fitted_for: BTreeMap<usize, Arc<dyn Backend>> = BTreeMap::new();
    let mut pairs = Vec::new();
    for m in part(true) {
        let by = match fitted_for.entry(m.threads) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let (threads, costs) = (NonZeroUsize::new(m.threads), Some(fitted.file.clone()));
                let setup = Setup { threads, costs, ..Setup::default() };
                new.insert(args.on.backend.open(&setup)?)
            }
        };
        pairs.push((by.cost(&m.kernel).seconds, m.seconds));
    }
    let fitted = backend.fit(&measured).ok_or_else(none)?;
    let text = format!(
        "# Fitted by `eutectic tune` to {} kernels, on {}.\n# What each is: the backend's own file in its folder costs/.\n\n{}",
        measured.len(),
        backend.describe(),
        fitted.file,
    );
    file.write_all(text.as_bytes()).map_err(unwritable)?;
    file.done().map_err(unwritable)?;
    if output::is_standard(&args.out) {
        return Ok(());
    }
    let backend = args.on.backend.open(&Setup { costs: Some(fitted.file.clone()), ..Setup::default() })?;
    let bar = progress("measuring plans", Some((programs.len() * precisions.len()) as u64));
    let mut contests = Vec::new();
    for &precision in &precisions {
        let rules = Rules { precision, ..args.rules.clone() };
        for (program, graph) in &programs {
            contests.extend(plans::contest(&backend, &rules, &mut meter, (program, graph), most)?);
            bar.inc(1);
        }
    }
    drop(bar);
    args.print(&fitted, &kinds, &measured, &pairs, &contests)
}

impl Args {
    fn programs(&self) -> Result<Vec<(ProgramArgs, Graph)>, Fault> {
        if self.models.is_empty() {
            return spread::spread()
                .iter()
                .map(|text| Ok((ProgramArgs::random("tune".into()), parsed(text)?)))
                .collect();
        }
        let LoadedRules { rules, .. } = with_directories(RuleSet::default(), &self.rules.directories)?;
        let mut unknown: Vec<&str> = self.shape.iter().map(|(name, _)| name.as_str()).collect();
        let mut programs = Vec::new();
        for model in &self.models {
            let mut program = ProgramArgs::random(model.clone());
            program.ops.get_or_init(|| rules.ops().clone());
            if !self.shape.is_empty() && !program.is_built_in() {
                let known = program.symbols()?;
                program.shape = self.shape.iter().filter(|(name, _)| known.contains(name)).cloned().collect();
                unknown.retain(|name| !known.iter().any(|known| known == name));
            }
            let graph = program.graph()?;
            programs.push((program, graph));
        }
        match unknown.first() {
            Some(name) => Err(input(format!("--shape {name}: no file has such a dimension"), "leave it out")),
            None => Ok(programs),
        }
    }

    fn print(
        &self,
        fitted: &Fitted,
        kinds: &[String],
        measured: &[Measured],
        held_out: &[(f64, f64)],
        contests: &[Contest],
    ) -> Result<(), Fault> {
        let mut out = stdout().lock();
        let factor = |predicted: &[f64]| off(predicted.iter().copied().zip(measured.iter().map(|m| m.seconds))).exp();
        let (before, after) = (factor(&fitted.before), factor(&fitted.after));
        let (order, median) = (rank_correlation(held_out), median_off(held_out));
        let predictions = fitted.before.iter().zip(&fitted.after);
        let all = kinds.iter().zip(measured).zip(predictions);
        if self.format == Format::Json {
            let kernels: Vec<_> = all
                .map(|((kind, m), (before, after))| {
                    json!({ "kernel": kind, "threads": m.threads, "domain": m.kernel.body.domain, "measured": m.seconds,
                            "before": before, "after": after })
                })
                .collect();
            let held_out = json!({ "kernels": held_out.len(), "rank_correlation": order, "median_factor": median });
            let plans = plans::json(contests);
            return print_json(
                &mut out,
                &json!({ "kernels": kernels, "before": before, "after": after, "held_out": held_out, "plans": plans,
                         "costs": fitted.file }),
            );
        }
        let mut rows = table(&["kernel", ">domain", ">threads", ">measured", ">before", ">after"]);
        for ((kind, m), (before, after)) in all {
            let domain: Vec<String> = m.kernel.body.domain.iter().map(usize::to_string).collect();
            rows.add_row([
                kind.clone(),
                domain.join(" "),
                m.threads.to_string(),
                seconds(m.seconds),
                seconds(*before),
                seconds(*after),
            ]);
        }
        writeln!(out, "{rows}")?;
        writeln!(
            out,
            "{}: predictions were off by a factor of {before:.2}, and are by {after:.2}; the costs are in {}",
            several(measured.len(), "kernel"),
            self.out.display()
        )?;
        if !held_out.is_empty() {
            writeln!(
                out,
                "{} of them, predicted by costs that were fitted to the others: rank correlation {order:.3}, half are off by at most {median:.2}",
                thousands(held_out.len())
            )?;
        }
        plans::print(contests, &mut out)
    }
}

fn parsed(program: &str) -> Result<Graph, Fault> {
    text::parse(&Source::new("tune", program)).map_err(|e| Fault::Input(e.into()))
}
