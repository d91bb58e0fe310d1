//! `tune`: measures kernels on this machine, and writes the costs that predict their times best.

mod meter;
mod plans;
mod spread;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, btree_map::Entry},
    fs,
    io::{self, Write, stdout},
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

use eutectic::{
    Backend, Compiler, Dim, Graph, Setup,
    engine::{
        backend::{
            costs::MeasuredBy,
            file_name,
            fit::{Fitted, Freedom, Measured, median_off, off, rank_correlation},
        },
        ir::{lang::Source, text},
    },
    noise::{self, ThreadTimes},
    tuned_costs,
};
use serde_json::json;

use self::{
    meter::{Meter, Timed},
    plans::Contest,
};
use crate::{
    args::{BackendArg, Precision, Rules, named_programs, print_json},
    calibration::described,
    fault::{Fault, input},
    files,
    format::Format,
    interrupt::Interrupt,
    output::{self, OutputFile},
    program::ProgramArgs,
    table::{prose, seconds, several, table, thousands},
    timing::Reported,
    values::shape,
};

const EXAMPLES: &str = "\
Examples:
  # a spread of kernels, for all commands on this machine; takes a minute
  eutectic tune
  # the kernels of a model of yours, into a file
  eutectic tune model.onnx --out costs.toml
  # a run that is planned by what was measured
  eutectic bench model.onnx --costs costs.toml
  # the costs that commands use, and how two files differ
  eutectic costs
  eutectic costs diff default costs.toml
  # on a GPU: each kernel as a part of a recorded run
  eutectic tune --backend cuda --also tf32,f16 --out gpu.toml

Each coefficient is moved until predictions are as near to what was measured as can be; one that no kernel speaks of stays. Then, with \
these costs, each program's plans are measured that are predicted to be the cheapest: the chosen one's regret is by what factor it takes \
longer than the best of them. Tune on a machine that does nothing else: where threads had to wait for a processor, nothing is written. \
Ctrl-C ends with the kernels that were measured, once there are some of every kind; before, nothing is written.";

/// `--quick` measures one in this many programs of the spread. `QUICK_ITERS` is its number of runs of each kernel.
const QUICK_SHARE: usize = 6;
const QUICK_ITERS: u32 = 4;
/// The number of runs of each kernel without `--quick`.
const ITERS: u32 = 12;

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
    /// The file of the costs [default: the file of this device in ~/.config/eutectic/costs, which all commands use]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Measures a few kernels in about ten seconds
    #[arg(long, conflicts_with = "models")]
    quick: bool,
    /// Writes the costs even if other processes disturbed the measurement
    #[arg(long)]
    anyway: bool,
    /// The number of runs of each kernel, of which the fastest counts, because other processes only slow runs down
    /// [default: 12; 4 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    iters: Option<u32>,
    #[command(flatten)]
    on: BackendArg,
    #[command(flatten)]
    rules: Rules,
    /// Also measures the programs in these precisions, in addition to --precision, to fit the costs of matrix units
    #[arg(help_heading = "Rules", long, value_name = "TYPE", value_enum, value_delimiter = ',')]
    also: Vec<Precision>,
    /// How to print
    #[arg(help_heading = None, long, value_enum, default_value_t)]
    format: Format,
}

/// The measured kernels.
#[derive(Default)]
struct Sample {
    measured: Vec<Measured>,
    /// The index of the program that each kernel belongs to, and its anchor.
    groups: Vec<(usize, &'static str)>,
    /// The share of the measured time in which threads waited for a processor. `None` if the system does not count it.
    waiting: Option<f64>,
    /// The number of measured programs, and the number of all programs. They differ if Ctrl-C stopped the measurement.
    programs: [usize; 2],
    /// The number of completed rounds.
    rounds: usize,
}

impl Sample {
    /// Returns which kernels are held out of the fit, and only predicted. They are those of every fourth group, so that
    /// no fitted kernel is similar to them. With few groups, they are every fourth kernel.
    fn held_out(&self) -> Vec<bool> {
        let mut groups: Vec<_> = self.groups.clone();
        groups.sort_unstable();
        groups.dedup();
        let number = |group| groups.partition_point(|other| other < group);
        let all = self.groups.iter().enumerate();
        all.map(|(n, group)| (if groups.len() < 4 { n } else { number(group) }) % 4 == 3).collect()
    }

    /// Rejects a measurement that was stopped before the end of the first round. Costs that are fitted to some kinds of
    /// kernels would price them on another scale than the remaining kinds.
    fn is_sound(&self) -> Result<(), Fault> {
        let [measured, all] = self.programs;
        if measured == all || self.rounds > 0 {
            return Ok(());
        }
        Err(Fault::run(format!(
            "nothing was written because the measurement was stopped after {measured} of {}; costs that are fitted to some \
             kinds of kernels price these on another scale than the rest; let it run longer, or try --quick",
            several(all, "program")
        )))
    }

    /// Returns the kernels that are held out, or those that are not.
    fn part(&self, held_out: bool) -> Vec<Measured> {
        let chosen = self.measured.iter().zip(self.held_out()).filter(|(_, is)| *is == held_out);
        chosen.map(|(measured, _)| measured.clone()).collect()
    }
}

/// Runs the command.
///
/// # Errors
/// If a program cannot be compiled or run, if other processes disturbed the measurement, or if the file cannot be
/// written.
pub fn run(args: &Args) -> Result<(), Fault> {
    let models = args.models.iter().map(|path| ("MODEL".to_string(), path.as_path()));
    files::read_stdin_once(models)?;
    let backend = args.on.open()?;
    let path = args.target(&*backend)?;
    let unwritable = |e: io::Error| output::unwritable(&path, e);
    let json = ("--format json".into(), args.format == Format::Json);
    output::one_on_stdout([("--out -".into(), output::is_standard(&path)), json])?;
    // The file is opened before the measurement, which takes a minute, so that an error comes early. An existing file
    // is replaced at the end.
    let mut file = OutputFile::new(&path).map_err(unwritable)?;
    let programs = args.programs()?;
    let interrupt = Interrupt::listen();
    let mut meter = Meter {
        interrupt: interrupt.clone(),
        iters: args.iters.unwrap_or(if args.quick { QUICK_ITERS } else { ITERS }),
        known: HashMap::new(),
    };
    let sample = args.sample(&programs, &mut meter)?;
    sample.is_sound()?;
    if sample.measured.is_empty() {
        let problem = format!("--backend {}: none of the kernels has a time", args.on.backend.name);
        return Err(input(problem, "the device needs a clock, and programs at least one kernel"));
    }
    if sample.waiting.is_none() {
        output::warn("this system does not count how long threads wait for a processor: tune when the machine is idle");
    }
    if let Some(remark) = noise::remark(sample.waiting).filter(|_| !args.anyway) {
        return Err(Fault::run(format!(
            "cannot fit costs because {remark}; tune when the machine is idle, or write them all the same with --anyway"
        )));
    }
    let none = || {
        let problem = format!("--backend {}: its costs have no coefficients to fit", backend.name());
        input(problem, "`eutectic devices` lists the backends")
    };
    let pairs =
        args.predicted(&backend.fit(&sample.part(false), Freedom::Each).ok_or_else(none)?, &sample.part(true))?;
    let fitted = backend.fit(&sample.measured, Freedom::Each).ok_or_else(none)?;
    file.write_all(described(&*backend, &fitted, sample.measured.len(), MeasuredBy::Tune).as_bytes())
        .map_err(unwritable)?;
    file.done().map_err(unwritable)?;
    if output::is_standard(&path) {
        return Ok(());
    }
    if interrupt.came() {
        output::warn(&format!(
            "the costs are fitted to the {} that were measured before Ctrl-C, of {} programs; how good plans are by them was not measured",
            several(sample.measured.len(), "kernel"),
            sample.programs[1],
        ));
        return args.print(&path, &fitted, &sample, &pairs, &[]);
    }
    let contests = args.contests(&programs, &fitted, &mut meter)?;
    args.print(&path, &fitted, &sample, &pairs, &contests)
}

impl Args {
    /// Returns the file of the costs: that of `--out`, or that of the device.
    fn target(&self, backend: &dyn Backend) -> Result<PathBuf, Fault> {
        if let Some(path) = &self.out {
            return Ok(path.clone());
        }
        let Some(folder) = tuned_costs() else {
            return Err(input("cannot keep costs because the user has no home folder", "name a file: --out FILE"));
        };
        fs::create_dir_all(&folder).map_err(|e| output::unwritable(&folder, e))?;
        Ok(folder.join(file_name(backend.name(), &backend.device())))
    }

    /// Measures the kernels of all programs with one thread, and with all threads if the device uses several. Each
    /// kernel is measured once. The programs of the spread are measured in rounds. The first round has the programs of
    /// `--quick`, so that its costs are sound if Ctrl-C ends the measurement after it.
    fn sample(&self, programs: &[(ProgramArgs, Graph)], meter: &mut Meter) -> Result<Sample, Fault> {
        let mut sample = Sample::default();
        let mut seen = HashSet::new();
        let precisions = self.precisions();
        let mut compilers: Vec<(usize, Vec<Compiler>)> = Vec::new();
        let mut described = BTreeSet::new();
        for threads in [all_threads(), 1] {
            let backend = self.on.backend.open(&Setup { threads: NonZeroUsize::new(threads), ..Setup::default() })?;
            if !described.insert(backend.describe()) {
                continue;
            }
            let compiler = |precision: &Precision| {
                let rules = Rules { precision: *precision, ..self.rules.clone() }.load(&*backend)?;
                Ok(Compiler::from_arc(backend.clone(), rules))
            };
            compilers.push((threads, precisions.iter().map(compiler).collect::<Result<_, Fault>>()?));
        }
        let rounds = if self.models.is_empty() && !self.quick { QUICK_SHARE } else { 1 };
        let start = ThreadTimes::now();
        let mut bar = Reported::new("measuring kernels", programs.len() * precisions.len() * compilers.len());
        let mut done = vec![0; programs.len()];
        for round in 0..rounds {
            for (threads, compilers) in &compilers {
                for compiler in compilers {
                    for (n, (program, graph)) in programs.iter().enumerate().skip(round).step_by(rounds) {
                        for Timed { kernel, seconds } in meter.run(compiler, program, graph, *threads)?.1 {
                            if seen.insert((*threads, kernel.clone())) {
                                sample.groups.push((n, kernel.kind()));
                                sample.measured.push(Measured { kernel, threads: *threads, seconds });
                            }
                        }
                        done[n] += usize::from(!meter.interrupt.came());
                        bar.step();
                    }
                }
            }
            sample.rounds += usize::from(!meter.interrupt.came());
        }
        sample.waiting = ThreadTimes::waiting(start);
        let each = compilers.len() * precisions.len();
        sample.programs = [done.iter().filter(|times| **times == each).count(), programs.len()];
        Ok(sample)
    }

    /// Returns the predicted and the measured seconds of kernels. The predictions are by costs that were fitted to
    /// other kernels.
    fn predicted(&self, fitted: &Fitted, held_out: &[Measured]) -> Result<Vec<(f64, f64)>, Fault> {
        let mut backends: BTreeMap<usize, Arc<dyn Backend>> = BTreeMap::new();
        let mut pairs = Vec::new();
        for m in held_out {
            let by = match backends.entry(m.threads) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let (threads, costs) = (NonZeroUsize::new(m.threads), Some(fitted.file.clone()));
                    new.insert(self.on.backend.open(&Setup { threads, costs, ..Setup::default() })?)
                }
            };
            pairs.push((by.cost(&m.kernel).seconds, m.seconds));
        }
        Ok(pairs)
    }

    /// Measures the cheapest plans of all programs by the new costs.
    fn contests(
        &self,
        programs: &[(ProgramArgs, Graph)],
        fitted: &Fitted,
        meter: &mut Meter,
    ) -> Result<Vec<Contest>, Fault> {
        let backend = self.on.backend.open(&Setup { costs: Some(fitted.file.clone()), ..Setup::default() })?;
        let precisions = self.precisions();
        let mut bar = Reported::new("measuring plans", programs.len() * precisions.len());
        let mut contests = Vec::new();
        for precision in precisions {
            let rules = Rules { precision, ..self.rules.clone() };
            for (program, graph) in programs {
                let contest = plans::contest(&backend, &rules, meter, (program, graph), all_threads())?;
                if meter.interrupt.came() {
                    output::warn(
                        "the plans of some programs were not measured because of Ctrl-C; the costs are written",
                    );
                    return Ok(contests);
                }
                contests.extend(contest);
                bar.step();
            }
        }
        Ok(contests)
    }

    fn precisions(&self) -> Vec<Precision> {
        [self.rules.precision].into_iter().chain(self.also.iter().copied()).collect()
    }

    fn programs(&self) -> Result<Vec<(ProgramArgs, Graph)>, Fault> {
        if self.models.is_empty() {
            let every = if self.quick { QUICK_SHARE } else { 1 };
            return spread::spread()
                .iter()
                .step_by(every)
                .map(|text| Ok((ProgramArgs::random("tune".into()), parsed(text)?)))
                .collect();
        }
        named_programs(&self.models, &self.shape, &self.rules.own)
    }

    fn print(
        &self,
        path: &Path,
        fitted: &Fitted,
        sample: &Sample,
        held_out: &[(f64, f64)],
        contests: &[Contest],
    ) -> Result<(), Fault> {
        let mut out = stdout().lock();
        let measured = &sample.measured;
        let factor = |predicted: &[f64]| off(predicted.iter().copied().zip(measured.iter().map(|m| m.seconds))).exp();
        let (before, after) = (factor(&fitted.before), factor(&fitted.after));
        let (order, median) = (rank_correlation(held_out), median_off(held_out));
        let predictions = fitted.before.iter().zip(&fitted.after);
        let all = measured.iter().zip(predictions);
        if self.format == Format::Json {
            let kernels: Vec<_> = all
                .map(|(m, (before, after))| {
                    json!({ "kernel": m.kernel.kind(), "threads": m.threads, "domain": m.kernel.body.domain, "measured": m.seconds,
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
        for (m, (before, after)) in all {
            let domain: Vec<String> = m.kernel.body.domain.iter().map(usize::to_string).collect();
            rows.add_row([
                m.kernel.kind().into(),
                domain.join(" "),
                m.threads.to_string(),
                seconds(m.seconds),
                seconds(*before),
                seconds(*after),
            ]);
        }
        writeln!(out, "{rows}")?;
        let text = format!(
            "{}: predictions were off by a factor of {before:.2}, and are by {after:.2}; the costs are in {}",
            several(measured.len(), "kernel"),
            path.display()
        );
        writeln!(out, "{}", prose(text))?;
        if !held_out.is_empty() {
            let text = format!(
                "{} of them, predicted by costs that were fitted to the others: rank correlation {order:.3}, half are off by at most {median:.2}",
                thousands(held_out.len())
            );
            writeln!(out, "{}", prose(text))?;
        }
        plans::print(contests, &mut out)
    }
}

/// Returns the number of threads that the process may use.
fn all_threads() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

fn parsed(program: &str) -> Result<Graph, Fault> {
    text::parse(&Source::new("tune", program)).map_err(|e| Fault::Input(e.into()))
}
