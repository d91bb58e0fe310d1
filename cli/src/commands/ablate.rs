//! `rules ablate`: measures the effect of each rule on a program, and finds the rules that change its result.

use std::io::{Write, stdout};

use eutectic::{
    Compiler, Error, Graph, RuleSet, Session, Tensor,
    engine::{lowering::print, rewrites::Choice},
    verify::minimal,
};
use serde_json::{Value, json};

use crate::{
    args::{Compile, print_json},
    fault::{Fault, in_one_line, input},
    files,
    format::Format,
    inputs::InputFiles,
    program::ProgramArgs,
    table::{lines, seconds, several, table},
    timing::{Contender, Times, Warmup, interleaved, progress},
    values::{NamedTensors, whole},
};

/// The arguments of `rules ablate`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    program: ProgramArgs,
    #[command(flatten)]
    inputs: InputFiles,
    #[command(flatten)]
    compile: Compile,
    /// Searches for the smallest set of rules that changes the result by more than --tolerance
    #[arg(help_heading = None, long)]
    bisect: bool,
    /// The smallest difference that counts, relative to the largest element of the result
    #[arg(help_heading = None, long, value_name = "X", default_value_t = 1e-3, value_parser = tolerance)]
    tolerance: f64,
    /// Timed runs of each program (0 for none); a change that a tenth of the runs contradicts is reported as noise
    #[arg(help_heading = None, long, value_name = "N", default_value_t = 11, value_parser = whole::<usize>)]
    iters: usize,
    /// How to print
    #[arg(help_heading = None, long, value_enum, default_value_t)]
    format: Format,
}

fn tolerance(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|x: &f64| x.is_finite() && *x >= 0.0);
    number.ok_or("expected a number that is not negative, as in 1e-3".into())
}

/// The effect of leaving out a rule.
struct AblationRow {
    rule: String,
    /// The reason why the program has no plan without the rule, if it has none.
    needed: Option<String>,
    kernels: usize,
    predicted: f64,
    /// Whether the kernels are the same with and without the rule. If so, a measured difference is noise.
    same: bool,
    /// The times with the rule and without it, measured in alternation.
    measured: Option<[Times; 2]>,
    /// The largest difference between the results, relative to the largest element.
    difference: f64,
}

/// Runs the command.
///
/// # Errors
/// If the program cannot be compiled or run with all rules.
pub fn run(args: &Args) -> Result<(), Fault> {
    let reads = args.program.reads().chain(args.inputs.reads());
    files::read_stdin_once(reads.chain(args.compile.device.reads()))?;
    let compiler = args.compile.compiler_for(&args.program)?;
    let given = args.inputs.read()?;
    let mut program = args.program.clone();
    program.infer(&given)?;
    let graph = program.graph()?;
    let compiler = compiler.with_ops_of(&graph)?;
    let (params, _) = program.params(&graph)?;
    let inputs = program.inputs(&graph, given)?;
    let ablation = Ablation { args, compiler, graph, params, inputs };
    if args.bisect { ablation.bisect() } else { ablation.each() }
}

struct Ablation<'a> {
    args: &'a Args,
    compiler: Compiler,
    graph: Graph,
    params: NamedTensors,
    inputs: NamedTensors,
}

/// A loaded program, its predicted time in seconds, and its results.
struct Trial {
    session: Session,
    predicted: f64,
    kernels: usize,
    /// The text of the kernels, to compare two plans.
    plan: String,
    results: Vec<Tensor>,
    /// The rules that changed the e-graph.
    fired: Vec<String>,
}

impl Ablation<'_> {
    fn load(&self, rules: RuleSet) -> Result<Trial, Error> {
        let compiler = self.compiler.clone().with_rules(rules);
        let (planned, mut session) = compiler.compile_planned(&self.graph)?;
        session.load_named(|name| self.params.get(name).cloned())?;
        let results = session.run_named(|name| self.inputs.get(name).cloned())?;
        let statistics = planned.rewritten.iter().flat_map(|r| &r.statistics);
        let mut fired: Vec<String> = statistics.filter(|s| s.changes > 0).map(|s| s.name.to_string()).collect();
        fired.sort();
        fired.dedup();
        let program = &planned.lowered.program;
        let (kernels, plan) = (program.run.len(), print::program(program));
        Ok(Trial { session, predicted: planned.seconds(), kernels, plan, results, fired })
    }

    fn chosen(&self, choice: &Choice) -> Result<RuleSet, Fault> {
        Ok(self.compiler.rules().choose(choice).map_err(Error::from)?)
    }

    fn each(&self) -> Result<(), Fault> {
        let mut all = self.load(self.compiler.rules().clone())?;
        let bar = progress("leaving rules out", Some(all.fired.len() as u64));
        let mut rows = Vec::new();
        for rule in all.fired.clone() {
            rows.push(self.without(&rule, &mut all)?);
            bar.inc(1);
        }
        drop(bar);
        // Rules without which there is no plan come first, then the others by decreasing predicted time without them.
        let worth = |row: &AblationRow| if row.needed.is_some() { f64::INFINITY } else { row.predicted };
        rows.sort_by(|a, b| worth(b).total_cmp(&worth(a)).then_with(|| a.rule.cmp(&b.rule)));
        let mut out = stdout().lock();
        match self.args.format {
            Format::Json => print_json(&mut out, &rows.iter().map(|r| r.json(&all)).collect::<Vec<_>>()),
            Format::Table => print(&rows, &all, &mut out),
        }
    }

    fn without(&self, rule: &str, all: &mut Trial) -> Result<AblationRow, Fault> {
        let rules = self.chosen(&Choice {
            without: vec![rule.into()],
            fp: self.args.compile.rules.fp.into(),
            precision: self.args.compile.rules.precision.into(),
            ..Choice::default()
        })?;
        let mut row = AblationRow {
            rule: rule.into(),
            needed: None,
            kernels: 0,
            predicted: f64::NAN,
            same: false,
            measured: None,
            difference: f64::NAN,
        };
        let mut less = match self.load(rules) {
            Ok(less) => less,
            Err(error) => {
                row.needed = Some(in_one_line(&error));
                return Ok(row);
            }
        };
        (row.kernels, row.predicted) = (less.kernels, less.predicted);
        row.difference = difference(&all.results, &less.results);
        row.same = all.plan == less.plan;
        if self.args.iters > 0 && !row.same {
            let inputs = |session: &Session| -> Vec<Tensor> {
                session.program().inputs.iter().filter_map(|(name, _)| self.inputs.get(name).cloned()).collect()
            };
            let given = [inputs(&all.session), inputs(&less.session)];
            let mut contenders: [Contender<'_>; 2] = [
                Box::new(|| Ok(all.session.run(&given[0]).map(|_| ())?)),
                Box::new(|| Ok(less.session.run(&given[1]).map(|_| ())?)),
            ];
            let warmup = Warmup { rounds: 2, time: self.compiler.backend().warm_up() };
            let times = interleaved(&mut contenders, warmup, self.args.iters, None, &indicatif::ProgressBar::hidden())?;
            row.measured = times.try_into().ok();
        }
        Ok(row)
    }

    /// Finds the smallest set of rules that changes the result. Rules that legalize and decompose ops are always
    /// applied.
    fn bisect(&self) -> Result<(), Fault> {
        let all = self.load(self.compiler.rules().clone())?;
        let (base, others): (Vec<String>, Vec<String>) =
            all.fired.iter().cloned().partition(|r| r.starts_with("legalize/") || r.starts_with("decompose/"));
        let results = |some: &[String]| -> Result<Option<Vec<Tensor>>, Fault> {
            let only: Vec<String> = base.iter().chain(some).cloned().collect();
            // An empty list of rules would select all rules.
            let only = if only.is_empty() { vec!["legalize/*".into()] } else { only };
            let rules = self.chosen(&Choice {
                only,
                fp: self.args.compile.rules.fp.into(),
                precision: self.args.compile.rules.precision.into(),
                ..Choice::default()
            })?;
            Ok(self.load(rules).ok().map(|l| l.results))
        };
        let Some(plain) = results(&[])? else {
            let problem =
                "cannot bisect because the program cannot be compiled with the rules legalize/* and decompose/* only";
            return Err(input(problem, "leave out --bisect to see the effect of each rule"));
        };
        let differs = |some: &[String]| -> Result<bool, Fault> {
            Ok(results(some)?.is_some_and(|r| difference(&plain, &r) > self.args.tolerance))
        };
        let mut out = stdout().lock();
        if !differs(&others)? {
            let largest = results(&others)?.map_or(f64::NAN, |r| difference(&plain, &r));
            if self.args.format == Format::Json {
                return print_json(&mut out, &json!({ "rules": [], "difference": largest }));
            }
            let (rules, change) = (several(others.len(), "rule"), if others.len() == 1 { "changes" } else { "change" });
            return Ok(writeln!(out, "no difference: {rules} {change} the result by {largest:.1e}")?);
        }
        let smallest = minimal(others, &differs)?;
        let by = results(&smallest)?.map_or(f64::NAN, |r| difference(&plain, &r));
        match self.args.format {
            Format::Json => print_json(&mut out, &json!({ "rules": smallest, "difference": by })),
            Format::Table => {
                Ok(writeln!(out, "{}", lines(format!("the result changes by {by:.1e} with {}", smallest.join(", "))))?)
            }
        }
    }
}

/// Returns the largest difference between two results, relative to the largest finite element of the first.
fn difference(a: &[Tensor], b: &[Tensor]) -> f64 {
    let elements = |of: &[Tensor]| of.iter().flat_map(Tensor::to_f64).collect::<Vec<_>>();
    let (a, b) = (elements(a), elements(b));
    let largest = a.iter().filter(|x| x.is_finite()).fold(0.0_f64, |m, x| m.max(x.abs()));
    let apart = a.iter().zip(&b).map(|(x, y)| match (x - y).abs() {
        _ if x == y || x.is_nan() && y.is_nan() => 0.0,
        apart if apart.is_nan() => f64::INFINITY,
        apart => apart,
    });
    apart.fold(0.0, f64::max) / largest.max(f64::MIN_POSITIVE)
}

impl AblationRow {
    /// Returns the relative increase of the time without the rule: the 10th, 50th and 90th percentiles. Each run is
    /// compared with the run with the rule just before it.
    fn change(&self) -> Option<[f64; 3]> {
        let [with, without] = self.measured.as_ref()?;
        let rounds = Times(with.0.iter().zip(&without.0).map(|(with, without)| without / with - 1.0).collect());
        Some([0.1, 0.5, 0.9].map(|share| rounds.quantile(share)))
    }

    fn json(&self, all: &Trial) -> Value {
        let us = |at: usize| self.measured.as_ref().map(|times| times[at].median() * 1e6);
        json!({
            "rule": self.rule, "needed": self.needed, "kernels": self.kernels, "kernels_with": all.kernels,
            "predicted_us": self.predicted * 1e6, "predicted_with_us": all.predicted * 1e6,
            "same_kernels": self.same, "measured_us": us(1), "measured_with_us": us(0),
            "measured_change": self.change().map(|[p10, p50, p90]| json!({ "p10": p10, "p50": p50, "p90": p90 })),
            "difference": self.difference,
        })
    }
}

fn print(rows: &[AblationRow], all: &Trial, out: &mut dyn Write) -> Result<(), Fault> {
    writeln!(out, "with all rules: {}, predicted {}", several(all.kernels, "kernel"), seconds(all.predicted))?;
    let mut rows_table = table(&["without", ">kernels", ">predicted", ">measured", ">difference"]);
    for row in rows {
        if row.needed.is_some() {
            rows_table.add_row([row.rule.clone(), "–".into(), "–".into(), "–".into(), "no program".into()]);
            continue;
        }
        let percent = |share: f64| format!("{:+.1} %", 100.0 * share);
        rows_table.add_row([
            row.rule.clone(),
            format!("{:+}", row.kernels as i64 - all.kernels as i64),
            percent(row.predicted / all.predicted - 1.0),
            match row.change() {
                None if row.same => "same kernels".into(),
                None => "–".into(),
                Some([low, _, high]) if low <= 0.0 && high >= 0.0 => "within noise".into(),
                Some([_, middle, _]) => percent(middle),
            },
            format!("{:.1e}", row.difference),
        ]);
    }
    writeln!(out, "{rows_table}")?;
    for row in rows {
        if let Some(why) = &row.needed {
            writeln!(out, "{}", lines(format!("without {} there is no program: {why}", row.rule)))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_relative_and_see_nan() {
        let of = |x: &[f32]| [Tensor::from_f32(&[x.len()], x).unwrap()];
        assert_eq!(difference(&of(&[4.0, f32::NAN]), &of(&[4.0, f32::NAN])), 0.0);
        assert_eq!(difference(&of(&[4.0, 1.0]), &of(&[5.0, 1.0])), 0.25);
        assert_eq!(difference(&of(&[4.0]), &of(&[f32::NAN])), f64::INFINITY);
    }
}
