//! Judges the choice of plans: measures those plans of a program that are predicted to be cheapest.

use std::{io::Write, sync::Arc};

use eutectic::{
    Backend, Compiler, Error, Graph, Strategy,
    engine::{
        backend::fit::{median_off, rank_correlation},
        rewrites::Choice,
    },
};
use serde_json::{Value, json};

use super::meter::Meter;
use crate::{
    args::Rules,
    fault::Fault,
    program::ProgramArgs,
    table::{prose, several, thousands},
    timing::Times,
};

/// The number of measured plans of each program.
const MEASURED: usize = 4;

/// The cheapest plans of a program. Each has the predicted and the measured seconds of its kernels. The first one is
/// the chosen plan.
pub struct Contest {
    program: String,
    plans: Vec<(f64, f64)>,
}

impl Contest {
    /// Returns the measured time of the chosen plan, divided by that of the fastest plan.
    fn regret(&self) -> f64 {
        self.plans[0].1 / self.plans.iter().map(|plan| plan.1).fold(f64::INFINITY, f64::min)
    }
}

/// Measures plans of a program with different predicted times: the choice of each strategy, and the choices without one
/// of the rules that were used. Returns `None` if there is only one plan.
///
/// # Errors
/// If the program cannot be compiled with all rules, or a plan cannot be measured.
pub fn contest(
    backend: &Arc<dyn Backend>,
    rules: &Rules,
    meter: &mut Meter,
    (program, graph): (&ProgramArgs, &Graph),
    threads: usize,
) -> Result<Option<Contest>, Fault> {
    let chosen = Compiler::from_arc(backend.clone(), rules.load(&**backend)?);
    let planned = chosen.plan(graph)?;
    let fired = planned.rewritten.iter().flat_map(|r| &r.statistics).filter(|s| s.changes > 0);
    let mut others: Vec<Compiler> =
        vec![chosen.clone().with_strategy(Strategy::Greedy), chosen.clone().with_strategy(Strategy::Unfused)];
    for rule in fired {
        let (fp, precision) = (rules.fp.into(), rules.precision.into());
        let without = Choice { without: vec![rule.name.to_string()], fp, precision, ..Choice::default() };
        others.push(chosen.clone().with_rules(chosen.rules().choose(&without).map_err(Error::from)?));
    }
    // A rule without which there is no plan gives no further plan.
    let mut plans: Vec<(f64, Compiler)> =
        others.into_iter().filter_map(|other| Some((other.plan(graph).ok()?.seconds(), other))).collect();
    plans.sort_by(|a, b| a.0.total_cmp(&b.0));
    plans.insert(0, (planned.seconds(), chosen));
    let mut seen: Vec<f64> = Vec::new();
    plans.retain(|(seconds, _)| {
        let new = !seen.contains(seconds);
        seen.push(*seconds);
        new
    });
    if plans.len() < 2 {
        return Ok(None);
    }
    let mut measured = Vec::new();
    for (predicted, compiler) in plans.iter().take(MEASURED) {
        let (_, timed) = meter.run(compiler, program, graph, threads)?;
        measured.push((*predicted, timed.iter().map(|kernel| kernel.seconds).sum()));
    }
    Ok(Some(Contest { program: graph.name.clone(), plans: measured }))
}

/// Returns the predicted and the measured seconds of all plans.
fn pairs(contests: &[Contest]) -> Vec<(f64, f64)> {
    contests.iter().flat_map(|contest| &contest.plans).copied().collect()
}

/// Returns the results as JSON.
pub fn json(contests: &[Contest]) -> Value {
    let all = pairs(contests);
    let programs: Vec<Value> = contests
        .iter()
        .map(|contest| json!({ "program": contest.program, "regret": contest.regret(), "predicted_and_measured": contest.plans }))
        .collect();
    json!({ "rank_correlation": rank_correlation(&all), "median_factor": median_off(&all), "programs": programs })
}

/// Prints the results as tables.
///
/// # Errors
/// If stdout cannot be written.
pub fn print(contests: &[Contest], out: &mut impl Write) -> Result<(), Fault> {
    let Some(worst) = contests.iter().max_by(|a, b| a.regret().total_cmp(&b.regret())) else { return Ok(()) };
    let all = pairs(contests);
    let regrets = Times(contests.iter().map(Contest::regret).collect());
    let text = format!(
        "{} of {}, by the new costs: rank correlation {:.3}, half are off by at most {:.2}; what is chosen takes {:.3} times as long as the \
         best of the cheapest {MEASURED} in the median, {:.2} times in one of ten, {:.2} at most ({}: {} plans)",
        several(all.len(), "plan"),
        several(contests.len(), "program"),
        rank_correlation(&all),
        median_off(&all),
        regrets.median(),
        regrets.quantile(0.9),
        worst.regret(),
        worst.program,
        thousands(worst.plans.len()),
    );
    Ok(writeln!(out, "{}", prose(text))?)
}
