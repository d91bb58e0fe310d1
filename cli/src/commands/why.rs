//! `rules why`: shows where a rule fires in a program, and where it nearly fires, with the reasons.

use std::io::{Write, stdout};

use eutectic::{
    Compiler, Error, ForcedPlan, Graph, NotForced, Planned,
    engine::rewrites::{Choice, NearMiss, Why},
    report::applied,
};
use serde_json::{Value, json};

use super::opt::force::{beside, reason};
use crate::{
    args::{CommonArgs, no_rule, pattern, print_json},
    fault::{Fault, in_one_line},
    files,
    format::Format,
    table::{faint, hanging, heading, several},
};

/// The arguments of `rules why`.
#[derive(clap::Args)]
pub struct Args {
    /// The rules of this name or glob
    #[arg(value_name = "RULE|GLOB")]
    rule: String,
    #[command(flatten)]
    job: CommonArgs,
    /// The largest number of near misses to show for each rule
    #[arg(help_heading = None, long, value_name = "N", default_value_t = 5)]
    most: usize,
}

/// Runs the command.
///
/// # Errors
/// If no rule matches the glob, or if the program cannot be rewritten.
pub fn run(args: &Args) -> Result<(), Fault> {
    files::read_stdin_once(args.job.reads())?;
    let wanted = pattern(&args.rule)?;
    let compiler = args.job.compile.compiler_for(&args.job.program)?;
    let graph = args.job.program.graph()?;
    let compiler = compiler.with_ops_of(&graph)?;
    let found = compiler.why(&graph, |rule| wanted.is_match(rule))?;
    if found.is_empty() {
        return Err(no_rule(&args.rule, compiler.rules()));
    }
    // Rules can be explained even if the program has no plan.
    let planned = compiler.plan(&graph).ok();
    let kernels = planned.as_ref().map(kernels).unwrap_or_default();
    let worth = |why: &Why| -> Result<Worth, Fault> {
        let uses = kernels.iter().filter(|rules| rules.contains(&&*why.rule)).count();
        let without = match &planned {
            Some(planned) if why.statistics.changes > 0 => Some(args.without(&why.rule, &compiler, &graph, planned)?),
            _ => None,
        };
        let with = match &planned {
            Some(planned) if why.statistics.changes > 0 && uses == 0 => {
                Some((compiler.forced(planned, |name| name == &*why.rule), planned.seconds()))
            }
            _ => None,
        };
        Ok(Worth { uses, kernels: kernels.len(), without, with })
    };
    let mut out = stdout().lock();
    if args.job.format == Format::Json {
        let all = found.iter().map(|why| Ok(to_json(why, &worth(why)?))).collect::<Result<Vec<_>, Fault>>()?;
        return print_json(&mut out, &all);
    }
    for why in &found {
        let place = compiler.rules().get(&why.rule).map(|rule| rule.place()).unwrap_or_default();
        writeln!(out, "{}", hanging(format!("{} {}", heading(&why.rule), faint(format!("({place})"))), 2))?;
        print(why, &worth(why)?, args.most, &mut out)?;
    }
    Ok(())
}

/// The effect on the plan of a rule that changes the e-graph.
struct Worth {
    /// The number of kernels that the rule led to.
    uses: usize,
    /// The number of kernels of the plan. Repeated blocks count once.
    kernels: usize,
    /// The effect of leaving out the rule.
    without: Option<Without>,
    /// If the rule led to no kernel: the cheapest plan with a kernel of it, and the predicted seconds of the chosen
    /// plan.
    with: Option<(Result<ForcedPlan, NotForced>, f64)>,
}

/// The effect of leaving out a rule. A rule can matter although it led to no kernel, because other rules start from its
/// results.
enum Without {
    /// There is no plan without the rule. The field is the reason.
    Nothing(String),
    /// The predicted time without the rule divided by that with the rule, and the increase in the number of kernels.
    Plan(f64, i64),
}

impl Args {
    fn without(&self, rule: &str, compiler: &Compiler, graph: &Graph, with: &Planned) -> Result<Without, Fault> {
        let choice = Choice {
            without: vec![rule.into()],
            fp: self.job.compile.rules.fp.into(),
            precision: self.job.compile.rules.precision.into(),
            ..Choice::default()
        };
        let rules = compiler.rules().choose(&choice).map_err(Error::from)?;
        Ok(match compiler.clone().with_rules(rules).plan(graph) {
            Err(error) => Without::Nothing(in_one_line(&error)),
            Ok(plan) => {
                let kernels = |planned: &Planned| planned.lowered.program.run.len() as i64;
                Without::Plan(plan.seconds() / with.seconds(), kernels(&plan) - kernels(with))
            }
        })
    }
}

impl Worth {
    /// Describes the loss without the rule. Returns `None` if the plan stays the same.
    fn lost(&self) -> Option<String> {
        match self.without.as_ref()? {
            Without::Nothing(why) => Some(format!("without it there is no program: {why}")),
            Without::Plan(ratio, 0) if (ratio - 1.0).abs() < 5e-4 => None,
            Without::Plan(ratio, more) => {
                Some(format!("without it {:+.1} % time predicted, {more:+} kernels", 100.0 * (ratio - 1.0)))
            }
        }
    }

    /// Describes the price of the cheapest plan with a kernel of the rule, or the reason why there is none.
    fn price(&self) -> String {
        match &self.with {
            Some((Ok(plan), chosen)) => format!("; the cheapest plan with it is {}", beside(plan.seconds, *chosen)),
            Some((Err(why), _)) => format!(", because {}", reason(why)),
            None => ", because kernels without it cost less".into(),
        }
    }

    fn text(&self) -> String {
        match (self.uses, self.lost()) {
            (0, None) => format!("it led to no kernel of the plan{}", self.price()),
            (0, Some(lost)) => {
                format!("other rules, which start from its results, led to the plan's kernels: {lost}")
            }
            (n, lost) => {
                let lost = lost.unwrap_or_else(|| "without it, other rules lead to an equally good plan".into());
                format!("it led to {n} of the plan's {}; {lost}", several(self.kernels, "kernel"))
            }
        }
    }
}

/// Returns the rules that led to each kernel. Repeated blocks count once.
fn kernels(planned: &Planned) -> Vec<Vec<&str>> {
    let kernels = |block: usize| (0..planned.blocks[block].searched.priced.kernels.len()).map(move |k| (block, k));
    let all = (0..planned.blocks.len()).flat_map(kernels);
    all.map(|(block, kernel)| applied(planned, block, kernel).into_iter().map(|a| &*a.rule).collect()).collect()
}

fn print(why: &Why, worth: &Worth, most: usize, out: &mut impl Write) -> Result<(), Fault> {
    let statistics = &why.statistics;
    let mut line = |text: String, indent| writeln!(out, "{}", hanging(text, indent));
    match (statistics.matches, &why.idle) {
        (0, Some(idle)) => line(format!("  is not tried: {idle}"), 4)?,
        (0, None) => line("  does not match".into(), 4)?,
        (matches, Some(idle)) => line(format!("  {}, without effect: {idle}", several(matches, "match")), 4)?,
        (matches, None) => {
            let changes = several(statistics.changes, "change");
            line(format!("  {}, {changes} of the e-graph; {}", several(matches, "match"), worth.text()), 4)?;
        }
    }
    if let Some(refusal) = &statistics.refusal {
        line(format!("  {} refused: {refusal}", several(statistics.refused, "match")), 4)?;
    }
    if why.misses.is_empty() && statistics.matches == 0 {
        line(format!("  no `{}` is in the program, nor do other rules make one", why.entry), 4)?;
    }
    for miss in why.misses.iter().take(most) {
        let NearMiss { matched, ops, part, place, reason, .. } = miss;
        line(format!("  nearly {}: {matched} of {} match, but", places(miss), several(*ops, "op")), 4)?;
        line(format!("    {} {}", shortened(part), faint(format!("({place})"))), 6)?;
        line(format!("    {reason}"), 6)?;
    }
    if why.misses.len() > most {
        line(format!("  {}", faint(format!("{} more; --most N shows them", why.misses.len() - most))), 4)?;
    }
    Ok(writeln!(out)?)
}

/// The number of characters that are shown of a part of a rule.
const LONGEST: usize = 100;

/// Shortens a long part of a rule. The part's position is printed next to it.
fn shortened(part: &str) -> String {
    match part.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{} …", &part[..end]),
        None => part.to_string(),
    }
}

/// Returns the first position of a near miss, and the number of further positions.
fn places(miss: &NearMiss) -> String {
    let first = miss.origins.first().map_or(String::new(), |origin| format!("in {origin}"));
    match miss.origins.len() {
        0 | 1 => first,
        n => format!("{first} and {} more", several(n - 1, "place")),
    }
}

fn to_json(why: &Why, worth: &Worth) -> Value {
    let miss = |m: &NearMiss| {
        json!({
            "matched": m.matched, "ops": m.ops, "part": m.part, "place": m.place, "reason": m.reason,
            "origins": m.origins.iter().map(|o| o.path()).collect::<Vec<_>>(),
        })
    };
    json!({
        "rule": *why.rule, "matches": why.statistics.matches, "applications": why.statistics.applications,
        "refused": why.statistics.refused, "refusal": why.statistics.refusal.as_deref(),
        "changes": why.statistics.changes, "idle": why.idle, "kernels": worth.kernels, "kernels_by_it": worth.uses,
        "without_it": worth.without.as_ref().map(|without| match without {
            Without::Nothing(why) => json!({ "needed": why }),
            Without::Plan(ratio, more) => json!({ "predicted_ratio": ratio, "more_kernels": more }),
        }),
        "with_it": worth.with.as_ref().map(|(forced, chosen)| match forced {
            Ok(plan) => json!({ "predicted_s": plan.seconds, "chosen_s": chosen, "predicted_ratio": plan.seconds / chosen }),
            Err(why) => json!({ "impossible": reason(why) }),
        }),
        "misses": why.misses.iter().map(miss).collect::<Vec<_>>(),
    })
}
