//! `rules prove`: proves rules for every size and rank.

use std::{
    collections::BTreeMap,
    fs,
    io::{Write, stdout},
    time::Instant,
};

use eutectic::{
    Error, RuleSet,
    engine::rewrites::{PROOFS, Probe, Proof, Proofs},
};
use eutectic_prover::{Counterexample, Solved, Verdict, judge_all, judge_all_with_z3};
use serde_json::{Value, json};

use crate::{
    args::{LoadedRules, OwnRules, no_rule, pattern, print_json},
    fault::{Fault, input},
    format::Format,
    table::{duration, hanging, lines, several, table},
};

/// The rules to prove, and how to print the verdicts.
#[derive(clap::Args)]
pub struct Args {
    /// Proves only rules of these names [default: those of --rules if given, else all]
    #[arg(value_name = "GLOB")]
    globs: Vec<String>,
    #[command(flatten)]
    own: OwnRules,
    /// Writes the verdicts into the folder of --rules, next to the rule files: `rules list` and `explain` show them
    #[arg(long, requires = "paths", conflicts_with = "globs")]
    write: bool,
    /// Asks an SMT solver about unproved rules, and compares the prover's answers with the solver's; a disagreement is
    /// an error
    #[arg(long, value_enum)]
    solver: Option<SolverName>,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// A supported solver.
#[derive(Clone, Copy, clap::ValueEnum)]
enum SolverName {
    /// Microsoft's Z3, as `z3` in PATH
    Z3,
}

/// Runs the command.
///
/// # Errors
/// If rules do not load, if no rule matches a glob, or if a rule is refuted. Rules that load are proved even if others
/// do not.
pub fn run(args: &Args) -> Result<(), Fault> {
    let start = Instant::now();
    if let Some(file) = args.own.paths().iter().find(|path| args.write && !path.is_dir()) {
        let problem = format!("cannot write verdicts for --rules {} because it is not a folder", file.display());
        return Err(input(problem, "name the folder of the rule files; `rules pack` puts its verdicts into the pack"));
    }
    let (probes, mut faults) = args.probes()?;
    if probes.is_empty() && !faults.is_empty() {
        return Fault::all(faults);
    }
    let solved = match args.solver {
        Some(SolverName::Z3) => Some(judge_all_with_z3(&probes).map_err(Fault::run)?),
        None => None,
    };
    let verdicts = match &solved {
        Some(solved) => solved.iter().map(|s| s.verdict.clone()).collect(),
        None => judge_all(&probes),
    };
    let judged: Vec<(&Probe, Verdict)> = probes.iter().zip(verdicts).collect();
    let mut out = stdout().lock();
    match args.format {
        Format::Json => print_json(&mut out, &judged.iter().map(|(p, v)| row(p, v)).collect::<Vec<_>>())?,
        Format::Table => print(&judged, start, &mut out)?,
    }
    if args.write {
        args.keep(&judged)?;
    }
    if let Some(solved) = &solved {
        if args.format == Format::Table {
            compared(solved, &mut out)?;
        }
        let wrong = probes.iter().zip(solved).filter_map(|(p, s)| Some((p, s.disagreements.first()?)));
        faults.extend(wrong.map(|(probe, why)| {
            Fault::run(format!(
                "z3 contradicts the prover on {} because {why}; report this, because one of the two is wrong",
                probe.rule().name
            ))
        }));
    }
    let refuted = judged.iter().filter(|(_, v)| matches!(v, Verdict::Refuted(_))).count();
    if refuted > 0 {
        faults.insert(0, Fault::run(format!("{refuted} rule{} refuted", if refuted == 1 { " is" } else { "s are" })));
    }
    Fault::all(faults)
}

impl Args {
    /// Writes the verdicts on the rules of each folder into that folder.
    fn keep(&self, judged: &[(&Probe, Verdict)]) -> Result<(), Fault> {
        let mut known = RuleSet::default();
        for folder in self.own.paths() {
            let (rules, _) = RuleSet::load_partly(folder, &known).map_err(Error::from)?;
            let mut proofs = Proofs::default();
            for (probe, verdict) in judged {
                if let (Some(rule), Verdict::Shown(proof)) = (rules.get(&probe.rule().name), verdict) {
                    proofs.insert(rule, proof.clone());
                }
            }
            let path = folder.join(PROOFS);
            fs::write(&path, proofs.to_string())
                .map_err(|e| Fault::run(format!("cannot write {}: {e}", path.display())))?;
            known = known.and_partly(rules).0;
        }
        Ok(())
    }

    /// Returns the rules to prove, and the errors of rules that do not load.
    fn probes(&self) -> Result<(Vec<Probe>, Vec<Fault>), Fault> {
        let embedded = RuleSet::embedded().map_err(Error::from)?;
        let LoadedRules { rules, own, mut faults } = self.own.after(embedded)?;
        let globs = self.globs.iter().map(|g| Ok((g, pattern(g)?))).collect::<Result<Vec<_>, Fault>>()?;
        if let Some((glob, _)) = globs.iter().find(|(_, wanted)| !rules.iter().any(|r| wanted.is_match(&r.name))) {
            faults.push(no_rule(glob, &rules));
            return Ok((Vec::new(), faults));
        }
        let chosen = |probe: &Probe| {
            let name = &probe.rule().name;
            match globs.is_empty() {
                false => globs.iter().any(|(_, g)| g.is_match(name)),
                true => self.own.is_empty() || own.contains(name),
            }
        };
        Ok((rules.probes().filter(chosen).collect(), faults))
    }
}

/// Returns a verdict in words, and its details.
fn words(verdict: &Verdict) -> (&'static str, String) {
    match verdict {
        Verdict::Shown(Proof::Every(_)) => ("proved", String::new()),
        Verdict::Shown(proof @ Proof::UpTo(..)) => ("proved up to a bound", proof.to_string()),
        Verdict::Shown(Proof::Reals(why)) => ("equal over the reals only", why.clone()),
        Verdict::Shown(Proof::Tested(why)) => ("not proved", why.clone()),
        Verdict::Refuted(found) => ("refuted", shown(found)),
    }
}

/// Describes an instance that refutes a rule, with the results of both sides.
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
    let shown = if let Verdict::Shown(proof) = verdict { Some(proof) } else { None };
    let refuted = matches!(verdict, Verdict::Refuted(_)).then_some(more);
    json!({
        "rule": &*rule.name, "place": rule.place(), "contract": rule.contract.to_string(), "verdict": word,
        "shown": shown.map(ToString::to_string), "cause": shown.and_then(Proof::cause),
        "reason": shown.and_then(Proof::reason), "counterexample": refuted,
    })
}

/// The number of rules for each kind of verdict: proved, proved up to a bound, equal over the reals only, not proved,
/// refuted.
type Counts = [usize; 5];

fn kind(verdict: &Verdict) -> usize {
    match verdict {
        Verdict::Shown(Proof::Every(_)) => 0,
        Verdict::Shown(Proof::UpTo(..)) => 1,
        Verdict::Shown(Proof::Reals(_)) => 2,
        Verdict::Shown(Proof::Tested(_)) => 3,
        Verdict::Refuted(_) => 4,
    }
}

fn print(judged: &[(&Probe, Verdict)], start: Instant, out: &mut dyn Write) -> Result<(), Fault> {
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
    let all = by_pack(judged, out)?;
    by_cause(judged, out)?;
    let text = format!(
        "{} of {} proved for every size and rank, {} more up to a bound: every obligation of their contracts. A rule that is equal over the reals only is not proved: \
         `rules check` tests its range, infinities and NaN; {}",
        all[0],
        several(judged.len(), "rule"),
        all[1],
        duration(start.elapsed())
    );
    Ok(writeln!(out, "{}", lines(text))?)
}

fn by_pack(judged: &[(&Probe, Verdict)], out: &mut dyn Write) -> Result<Counts, Fault> {
    let (mut packs, mut all) = (BTreeMap::<&str, Counts>::new(), Counts::default());
    for (probe, verdict) in judged {
        packs.entry(probe.rule().pack()).or_default()[kind(verdict)] += 1;
        all[kind(verdict)] += 1;
    }
    let titles =
        ["pack", ">rules", ">proved", ">to a bound", ">reals only", ">not proved", ">refuted", ">share proved"];
    let mut rows = table(&titles);
    for (pack, counts) in packs.iter().chain([(&"all", &all)]) {
        let sum: usize = counts.iter().sum();
        let share = 100 * counts[..2].iter().sum::<usize>() / sum.max(1);
        let numbers = std::iter::once(&sum).chain(counts).map(usize::to_string);
        rows.add_row([pack.to_string()].into_iter().chain(numbers).chain([format!("{share} %")]));
    }
    writeln!(out, "\n{rows}\n")?;
    Ok(all)
}

/// Prints how the solver's answers compare with the prover's.
fn compared(solved: &[Solved], out: &mut dyn Write) -> Result<(), Fault> {
    let sum = |of: fn(&Solved) -> usize| solved.iter().map(of).sum::<usize>();
    let text = format!(
        "z3 agrees with {} of the prover's answers on indices, extents and guards, does not decide {} in time, and contradicts {}; it shows {} obligations that the prover leaves open",
        sum(|s| s.agreed),
        sum(|s| s.undecided),
        sum(|s| s.disagreements.len()),
        sum(|s| s.shown),
    );
    Ok(writeln!(out, "{}", lines(text))?)
}

/// Prints a table of unproved obligations and limits of the prover, with the number of rules for each.
fn by_cause(judged: &[(&Probe, Verdict)], out: &mut dyn Write) -> Result<(), Fault> {
    let mut causes = BTreeMap::<&str, [usize; 2]>::new();
    for (_, verdict) in judged {
        if let Verdict::Shown(proof) = verdict
            && let Some(cause) = proof.cause()
        {
            causes.entry(cause).or_default()[kind(verdict) - 2] += 1;
        }
    }
    if causes.is_empty() {
        return Ok(());
    }
    let mut causes: Vec<_> = causes.into_iter().collect();
    causes.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.iter().sum::<usize>()));
    let mut rows = table(&["what is not proved", ">reals only", ">not proved"]);
    for (cause, counts) in causes {
        rows.add_row([cause.to_string(), counts[0].to_string(), counts[1].to_string()]);
    }
    Ok(writeln!(out, "{rows}\n")?)
}
