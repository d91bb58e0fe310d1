//! `rules prove`: proves rules for every size and rank.

use std::{
    collections::BTreeMap,
    io::{Write, stdout},
    path::PathBuf,
    time::Instant,
};

use eutectic::{Error, RuleSet, engine::rewrites::Probe};
use eutectic_prover::{Claim, Counterexample, Verdict, judge_all};
use serde_json::{Value, json};

use crate::{
    args::{LoadedRules, no_rule, pattern, print_json, with_directories},
    fault::Fault,
    format::Format,
    table::{duration, hanging, lines, several, table},
};

/// The rules to prove, and how to print the verdicts.
#[derive(clap::Args)]
pub struct Args {
    /// Only rules of these names [default: those of --rules if given, else all]
    #[arg(value_name = "GLOB")]
    globs: Vec<String>,
    /// Adds the rule files (*.rules) of a directory; may be repeated
    #[arg(long = "rules", value_name = "DIR")]
    directories: Vec<PathBuf>,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Runs the command.
///
/// # Errors
/// When rules do not load (the others are proved all the same), no rule has such a name, or a rule is refuted.
pub fn run(args: &Args) -> Result<(), Fault> {
    let start = Instant::now();
    let (probes, mut faults) = args.probes()?;
    if probes.is_empty() && !faults.is_empty() {
        return Fault::all(faults);
    }
    let verdicts = judge_all(&probes);
    let judged: Vec<(&Probe, Verdict)> = probes.iter().zip(verdicts).collect();
    let mut out = stdout().lock();
    match args.format {
        Format::Json => print_json(&mut out, &judged.iter().map(|(p, v)| row(p, v)).collect::<Vec<_>>())?,
        Format::Table => print(&judged, start, &mut out)?,
    }
    let refuted = judged.iter().filter(|(_, v)| matches!(v, Verdict::Refuted(_))).count();
    if refuted > 0 {
        faults.insert(0, Fault::run(format!("{refuted} rule{} refuted", if refuted == 1 { " is" } else { "s are" })));
    }
    Fault::all(faults)
}

impl Args {
    /// The rules to prove, and why others did not load.
    fn probes(&self) -> Result<(Vec<Probe>, Vec<Fault>), Fault> {
        let embedded = RuleSet::embedded().map_err(Error::from)?;
        let LoadedRules { rules, own, mut faults } = with_directories(embedded, &self.directories)?;
        let globs = self.globs.iter().map(|g| Ok((g, pattern(g)?))).collect::<Result<Vec<_>, Fault>>()?;
        if let Some((glob, _)) = globs.iter().find(|(_, wanted)| !rules.iter().any(|r| wanted.is_match(&r.name))) {
            faults.push(no_rule(glob, &rules));
            return Ok((Vec::new(), faults));
        }
        let chosen = |probe: &Probe| {
            let name = &probe.rule().name;
            match globs.is_empty() {
                false => globs.iter().any(|(_, g)| g.is_match(name)),
                true => self.directories.is_empty() || own.contains(name),
            }
        };
        Ok((rules.probes().filter(chosen).collect(), faults))
    }
}

/// The words of a verdict, and its details.
fn words(verdict: &Verdict) -> (&'static str, String) {
    match verdict {
        Verdict::Proved(claim) => ("proved", claim.to_string()),
        Verdict::NotProved(why) => ("not proved", why.clone()),
        Verdict::Refuted(found) => ("refuted", shown(found)),
    }
}

/// An instance, and the interpreter's results for it.
fn shown(found: &Counterexample) -> String {
    let variables: Vec<String> = found.variables.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    let mut text = format!("where {}", variables.join(", "));
    for (name, tensor) in &found.tensors {
        text += &format!("\n  {name} : {tensor}");
    }
    text + &format!(
        "\n  element {} of result {}: the left side gives {:?}, the right side {:?}",
        found.at, found.root, found.left, found.right
    )
}

fn row(probe: &Probe, verdict: &Verdict) -> Value {
    let rule = probe.rule();
    let (word, more) = words(verdict);
    let claim = if let Verdict::Proved(claim) = verdict { Some(claim.to_string()) } else { None };
    let reason = if let Verdict::NotProved(why) = verdict { Some(why) } else { None };
    let refuted = matches!(verdict, Verdict::Refuted(_)).then_some(more);
    json!({
        "rule": &*rule.name, "place": rule.place(), "contract": rule.contract.to_string(), "verdict": word,
        "claim": claim, "reason": reason, "counterexample": refuted,
    })
}

fn print(judged: &[(&Probe, Verdict)], start: Instant, out: &mut dyn Write) -> Result<(), Fault> {
    let mut packs: BTreeMap<&str, [usize; 4]> = BTreeMap::new();
    for (probe, verdict) in judged {
        let at = match verdict {
            Verdict::Proved(Claim::Bits) => 0,
            Verdict::Proved(Claim::Reals) => 1,
            Verdict::NotProved(_) => 2,
            Verdict::Refuted(_) => 3,
        };
        packs.entry(probe.rule().pack()).or_default()[at] += 1;
    }
    for (probe, verdict) in judged {
        let (word, more) = words(verdict);
        let more = if more.chars().count() > 600 { more.chars().take(600).collect::<String>() + " …" } else { more };
        match verdict {
            Verdict::Proved(_) => {}
            Verdict::NotProved(_) => {
                writeln!(out, "{}", hanging(format!("{}: {word}: {more}", probe.rule().name), 4))?;
            }
            Verdict::Refuted(_) => writeln!(out, "{}", lines(format!("{}: {word} {more}", probe.rule().name)))?,
        }
    }
    let titles = ["pack", ">rules", ">every bit", ">finite values", ">not proved", ">refuted", ">proved"];
    let mut rows = table(&titles);
    let mut sum = [0; 4];
    for (pack, counts) in &packs {
        rows.add_row(line(pack, counts));
        sum.iter_mut().zip(counts).for_each(|(all, n)| *all += n);
    }
    rows.add_row(line("all", &sum));
    writeln!(out, "\n{rows}\n")?;
    let proved = several(sum[0] + sum[1], "rule");
    let how =
        "for every size and rank; of rules proved for finite values, `rules check` tests ranges, infinities and NaN";
    Ok(writeln!(out, "{}", lines(format!("{proved} proved {how}; {}", duration(start.elapsed()))))?)
}

fn line(pack: &str, counts: &[usize; 4]) -> Vec<String> {
    let all: usize = counts.iter().sum();
    let share = 100 * (counts[0] + counts[1]) / all.max(1);
    let numbers = std::iter::once(&all).chain(counts).map(usize::to_string);
    [pack.to_string()].into_iter().chain(numbers).chain([format!("{share} %")]).collect()
}
