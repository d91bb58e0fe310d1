//! `opt --force`: finds the cheapest plan with kernels that a rule led to, and compares its price with that of the
//! chosen plan.

use std::io::Write;

use eutectic::{Compiler, ForcedPlan, Graph, NotForced, Planned};
use serde_json::{Value, json};

use crate::{
    args::no_rule,
    fault::{Fault, input},
    table::{hanging, seconds, several},
};

/// The cheapest plan with a kernel that a rule led to, and the price of the chosen plan.
pub struct Forced {
    rule: String,
    plan: ForcedPlan,
    /// The predicted seconds of a run with the chosen plan. `forced` is the same for the forced plan.
    chosen: f64,
    forced: f64,
}

/// Returns whether a rule has this name, or is one of the rules `name[op]` that stand for one rule over several ops.
pub fn is_named(rule: &str, name: &str) -> bool {
    rule.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('['))
}

/// Plans a graph with at least one kernel that a rule led to.
///
/// # Errors
/// If there is no such rule, or if no plan has such a kernel.
pub fn forced(rule: &str, compiler: &Compiler, graph: &Graph, planned: Planned) -> Result<(Planned, Forced), Fault> {
    if !compiler.rules().iter().any(|known| is_named(&known.name, rule)) {
        return Err(no_rule(rule, compiler.rules()));
    }
    let plan = compiler.forced(&planned, |name| is_named(name, rule)).map_err(|why| {
        let help = format!("`eutectic rules why '{rule}' MODEL` says where it matches, and where nearly");
        input(format!("cannot force {rule} because {}", reason(&why)), help)
    })?;
    let chosen = planned.seconds();
    let planned = if plan.chosen { planned } else { compiler.plan_forced(graph, &planned, &plan)? };
    let forced = planned.seconds();
    Ok((planned, Forced { rule: rule.into(), plan, chosen, forced }))
}

/// Returns the reason why no plan has a kernel of a rule, as the end of a sentence.
pub fn reason(why: &NotForced) -> String {
    match why {
        NotForced::Idle => "it does not change the program".into(),
        NotForced::NoResult => {
            "no kernel can come from it: the program already had its results, or kernels do not take their form".into()
        }
        NotForced::Impossible(problems) => {
            let more = problems.len().saturating_sub(1);
            let more = if more == 0 { String::new() } else { format!(", and {} more", several(more, "reason")) };
            format!("the backend cannot compute its result: {}{more}", problems[0])
        }
        NotForced::Unreachable => {
            "no plan has its result: the backend has no kernel for it, or the plan would be cyclic".into()
        }
    }
}

/// Compares two prices in words: `3.3 % dearer: 53.1 µs instead of 51.4 µs`.
pub fn beside(seconds_with: f64, seconds_without: f64) -> String {
    let more = 100.0 * (seconds_with / seconds_without - 1.0);
    let difference = match more {
        more if more.abs() < 0.05 => "as dear".into(),
        more if more > 0.0 => format!("{more:.1} % dearer"),
        more => format!("{:.1} % cheaper", -more),
    };
    format!("{difference}: {} instead of {}", seconds(seconds_with), seconds(seconds_without))
}

impl Forced {
    /// Prints both prices.
    ///
    /// # Errors
    /// If stdout cannot be written.
    pub fn print(&self, out: &mut impl Write) -> Result<(), Fault> {
        let place = self.plan.origin.to_string();
        let place = if place.is_empty() { String::new() } else { format!(" in {place}") };
        let text = match self.plan.chosen {
            true => format!("{}: the chosen plan has kernels of it{place}", self.rule),
            false => format!("{} is forced{place}: {}", self.rule, beside(self.forced, self.chosen)),
        };
        writeln!(out, "{}", hanging(text, 4))?;
        if self.plan.untried > 0 {
            writeln!(out, "it was not tried in {} more", several(self.plan.untried, "value"))?;
        }
        Ok(())
    }

    /// Returns both prices as JSON.
    pub fn json(&self) -> Value {
        json!({
            "rule": self.rule, "origin": self.plan.origin.path(), "is_chosen": self.plan.chosen, "predicted_s": self.forced,
            "chosen_s": self.chosen, "untried": self.plan.untried,
        })
    }
}
