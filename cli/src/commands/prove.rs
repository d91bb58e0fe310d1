//! `rules prove`: proves rules for every size and rank.

use std::{
    collections::BTreeMap,
    fs,
    io::{Write, stdout},
    path::PathBuf,
    time::Instant,
};

use eutectic::{
    Error, RuleSet,
    engine::{
        ir::Ops,
        rewrites::{Claim, PROOFS, Probe, Proof, Proofs},
    },
};
use eutectic_prover::{Counterexample, Verdict, judge_all};
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
    /// Writes the verdicts into the directory of --rules, beside the rule files: `rules list` and `explain` show them
    #[arg(long, requires = "directories", conflicts_with = "globs")]
    write: bool,
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
    if args.write {
        args.keep(&judged)?;
    }
    let refuted = judged.iter().filter(|(_, v)| matches!(v, Verdict::Refuted(_))).count();
    if refuted > 0 {
        faults.insert(0, Fault::run(format!("{refuted} rule{} refuted", if refuted == 1 { " is" } else { "s are" })));
    }
    Fault::all(faults)
}

impl Args {
    /// Writes the verdicts on the rules of each directory into it.
    fn keep(&self, judged: &[(&Probe, Verdict)]) -> Result<(), Fault> {
        let mut known = Ops::default();
        for directory in &self.directories {
            let (rules, _) = RuleSet::load_dir_partly(directory, &known).map_err(Error::from)?;
            known = rules.ops().clone();
            let mut proofs = Proofs::default();
            for (probe, verdict) in judged {
                if let (Some(rule), Verdict::Shown(proof)) = (rules.get(&probe.rule().name), verdict) {
                    proofs.insert(rule, proof.clone());
                }
            }
            let path = directory.join(PROOFS);
            fs::write(&path, proofs.to_string())
                .map_err(|e| Fault::run(format!("cannot write {}: {e}", path.display())))?;
        }
        Ok(())
    }

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
        Verdict::Shown(Proof::Every(Claim::Bits)) => ("proved", String::new()),
        Verdict::Shown(Proof::Every(Claim::Reals)) => ("equal over the reals", String::new()),
        Verdict::Shown(proof @ Proof::UpTo(..)) => ("bounded", proof.to_string()),
        Verdict::Shown(Proof::Tested(why)) => ("not proved", why.clone()),
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
    let shown = if let Verdict::Shown(proof) = verdict { Some(proof.to_string()) } else { None };
    let reason = if let Verdict::Shown(Proof::Tested(why)) = verdict { Some(why) } else { None };
    let refuted = matches!(verdict, Verdict::Refuted(_)).then_some(more);
    json!({
        "rule": &*rule.name, "place": rule.place(), "contract": rule.contract.to_string(), "verdict": word,
        "shown": shown, "reason": reason, "counterexample": refuted,
    })
}

fn print(judged: &[(&Probe, Verdict)], start: Instant, out: &mut dyn Write) -> Result<(), Fault> {
    let mut packs: BTreeMap<&str, [usize; 5]> = BTreeMap::new();
    for (probe, verdict) in judged {
        let at = match verdict {
            Verdict::Shown(Proof::Every(Claim::Bits)) => 0,
            Verdict::Shown(Proof::Every(Claim::Reals)) => 1,
            Verdict::Shown(Proof::UpTo(..)) => 2,
            Verdict::Shown(Proof::Tested(_)) => 3,
            Verdict::Refuted(_) => 4,
        };
        packs.entry(probe.rule().pack()).or_default()[at] += 1;
    }
    for (probe, verdict) in judged {
        let (word, more) = words(verdict);
        let more = if more.chars().count() > 600 { more.chars().take(600).collect::<String>() + " …" } else { more };
        match verdict {
            Verdict::Shown(Proof::Every(_)) => {}
            Verdict::Shown(_) => {
                writeln!(out, "{}", hanging(format!("{}: {word}: {more}", probe.rule().name), 4))?;
            }
            Verdict::Refuted(_) => writeln!(out, "{}", lines(format!("{}: {word} {more}", probe.rule().name)))?,
        }
    }
    let titles = ["pack", ">rules", ">proved", ">over the reals", ">bounded", ">not proved", ">refuted", ">shown"];
    let mut rows = table(&titles);
    let mut sum = [0; 5];
    for (pack, counts) in &packs {
        rows.add_row(line(pack, counts));
        sum.iter_mut().zip(counts).for_each(|(all, n)| *all += n);
    }
    rows.add_row(line("all", &sum));
    writeln!(out, "\n{rows}\n")?;
    let of = [(sum[0], "proved to the last bit"), (sum[1], "equal over the reals"), (sum[2], "shown up to a bound")];
    let shown: Vec<String> = of.iter().map(|(n, how)| format!("{} {how}", several(*n, "rule"))).collect();
    let rest = "the first two for every size and rank. Equality over the reals is no proof of a rule's contract: `rules check` tests rounding, range, infinities and NaN";
    Ok(writeln!(out, "{}", lines(format!("{}: {rest}; {}", shown.join(", "), duration(start.elapsed()))))?)
}

fn line(pack: &str, counts: &[usize; 5]) -> Vec<String> {
    let all: usize = counts.iter().sum();
    let share = 100 * counts[..3].iter().sum::<usize>() / all.max(1);
    let numbers = std::iter::once(&all).chain(counts).map(usize::to_string);
    [pack.to_string()].into_iter().chain(numbers).chain([format!("{share} %")]).collect()
}
