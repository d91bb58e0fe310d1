//! `rules check`: tests rules on generated instances.

use std::{
    io::{Write, stdout},
    num::NonZeroUsize,
    time::Instant,
};

use eutectic::{BACKENDS, Compiler, Error, Listed, RuleSet, Setup, engine::rewrites::Probe, packs, rules_of};
use eutectic_checker::{Checker, Failure, Options, Outcome, Progress, Report};
use serde_json::{Value, json};

use crate::{
    args::{LoadedRules, OwnRules, pattern, print_json},
    fault::Fault,
    format::Format,
    table::{duration, lines, several, table, thousands},
    values::whole,
};

/// The argument that selects the reference interpreter only.
const NONE: &str = "none";

/// A backend that runs both sides of a rule. `None` stands for the reference interpreter only.
pub type On = Option<&'static Listed>;

/// Parses the name of a backend, or `none`.
///
/// # Errors
/// If there is no such backend.
pub fn on(name: &str) -> Result<On, Error> {
    if name == NONE { Ok(None) } else { Listed::named(name).map(Some) }
}

/// The arguments of `rules check`.
#[derive(clap::Args)]
pub struct Args {
    /// Checks only rules of these names [default: those of --rules if given, else all]
    #[arg(value_name = "GLOB")]
    pub globs: Vec<String>,
    #[command(flatten)]
    pub own: OwnRules,
    /// The backends that run both sides, separated by commas; `none` for the interpreter only
    #[arg(long, value_name = "NAME", value_parser = on, value_delimiter = ',', default_value = BACKENDS[0].name)]
    pub backend: Vec<On>,
    /// The number of instances of each rule [default: enough for all pairs of element type, kind of values and extents]
    #[arg(long, value_name = "N", value_parser = cases)]
    pub cases: Option<usize>,
    /// The seed of the instances; the same seed gives the same instances
    #[arg(long, value_name = "S", default_value_t = Options::default().seed, value_parser = whole::<u64>)]
    pub seed: u64,
    /// Also changes each rule's right side in every simple way, and reports changes that the instances do not detect
    #[arg(long)]
    pub mutants: bool,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

fn cases(text: &str) -> Result<usize, String> {
    let most = 1_000_000;
    let few = || format!("expected a number from 1 to {most}, because memory holds all cases of a rule");
    text.parse().ok().filter(|cases| (1..=most).contains(cases)).ok_or_else(few)
}

/// Runs the command.
///
/// # Errors
/// If rules do not load, if no rule matches a glob, or if a rule is wrong or cannot be checked. Rules that load are
/// checked even if others do not.
pub fn run(args: &Args) -> Result<(), Fault> {
    let start = Instant::now();
    let (probes, mut faults) = args.probes()?;
    if probes.is_empty() && !faults.is_empty() {
        return Fault::all(faults);
    }
    let reports = args.check(&probes)?;
    let mut out = stdout().lock();
    match args.format {
        Format::Json => print_json(&mut out, &reports.iter().map(|r| args.json(r)).collect::<Vec<_>>())?,
        Format::Table => args.print(&reports, start, &mut out)?,
    }
    drop(out);
    faults.splice(0..0, unfit(&reports));
    Fault::all(faults)
}

/// Returns errors with the number of wrong rules and the number of rules that could not be checked.
pub fn unfit(reports: &[Report]) -> Vec<Fault> {
    let outcomes = [(Outcome::Wrong, "wrong"), (Outcome::NotChecked, "not checked")];
    let fault = |(outcome, what)| match count(reports, outcome) {
        0 => None,
        1 => Some(Fault::run(format!("1 rule is {what}"))),
        n => Some(Fault::run(format!("{n} rules are {what}"))),
    };
    outcomes.into_iter().filter_map(fault).collect()
}

/// Reports the activity of a rule that takes long.
fn tell(progress: &Progress<'_>) {
    eprintln!("{progress}");
}

/// Returns the number of rules with this outcome.
fn count(reports: &[Report], outcome: Outcome) -> usize {
    reports.iter().filter(|report| report.outcome() == outcome).count()
}

impl Args {
    /// Returns the rules to check, and the errors of rules that do not load.
    ///
    /// # Errors
    /// If rules cannot be read, or if a glob is invalid.
    pub fn probes(&self) -> Result<(Vec<Probe>, Vec<Fault>), Fault> {
        let mut rules = RuleSet::embedded().map_err(Error::from)?;
        for listed in self.backend.iter().flatten() {
            rules = rules.and(rules_of(&*listed.open(&Setup::default())?)?).map_err(Error::from)?;
        }
        let LoadedRules { rules, own, mut faults } = self.own.after(rules)?;
        // Without a single rule of the user, there is nothing to check.
        if self.globs.is_empty() && own.is_empty() && !faults.is_empty() {
            return Ok((Vec::new(), faults));
        }
        let globs = self.globs.iter().map(|g| Ok((g, pattern(g)?))).collect::<Result<Vec<_>, Fault>>()?;
        if let Some((glob, _)) = globs.iter().find(|(_, wanted)| !rules.iter().any(|r| wanted.is_match(&r.name))) {
            // The glob may mean a rule that did not load, so its error is reported as well.
            faults.push(crate::args::no_rule(glob, &rules));
            return Ok((Vec::new(), faults));
        }
        let chosen = |p: &Probe| {
            let name = &p.rule().name;
            match (globs.is_empty(), own.is_empty()) {
                (false, _) => globs.iter().any(|(_, g)| g.is_match(name)),
                (true, true) => true,
                (true, false) => own.contains(name),
            }
        };
        Ok((rules.probes().filter(chosen).collect(), faults))
    }

    /// Checks rules on the backends.
    ///
    /// # Errors
    /// If a backend is not available, or if a rule is broken.
    pub fn check(&self, probes: &[Probe]) -> Result<Vec<Report>, Fault> {
        let checker = Checker::new(self.options()?).map_err(Error::from)?;
        Ok(checker.check_all(probes).map_err(Error::from)?)
    }

    fn options(&self) -> Result<Options, Fault> {
        let mut backends = Vec::new();
        // Instances are so small that more threads would only wait for each other.
        let setup = Setup { threads: Some(NonZeroUsize::MIN), ..Setup::default() };
        for listed in self.backend.iter().flatten() {
            let backend = listed.open(&setup)?;
            let rules = packs(&*backend)?;
            backends.push(Compiler::from_arc(backend, rules));
        }
        let (cases, seed, mutants) = (self.cases, self.seed, self.mutants);
        let progress = Some(tell as fn(&Progress<'_>));
        Ok(Options { cases, seed, backends, mutants, progress, ..Options::default() })
    }

    /// Returns the command that checks a rule again on the same instances.
    fn replay(&self, report: &Report) -> String {
        let paths: String = self.own.paths().iter().map(|d| format!(" --rules {}", d.display())).collect();
        let cases = self.cases.map_or(String::new(), |cases| format!(" --cases {cases}"));
        format!("eutectic rules check '{}'{paths} --seed {}{cases}", report.rule, self.seed)
    }

    /// Prints reports as tables.
    ///
    /// # Errors
    /// If stdout cannot be written.
    pub fn print(&self, reports: &[Report], start: Instant, out: &mut dyn Write) -> Result<(), Fault> {
        let mut titles = vec!["rule", "promises", ">cases", "?>elements", "?>fired", "?>guards", "?>ran"];
        if self.mutants {
            titles.push(">mutants killed");
        }
        titles.push("result");
        let mut rows = table(&titles);
        for report in reports {
            let mut row = vec![report.rule.clone(), report.contract.to_string()];
            row.extend([report.cases, report.judged, report.fired, report.guarded, report.ran].map(thousands));
            if self.mutants {
                row.push(
                    report
                        .mutants
                        .as_ref()
                        .map_or(String::new(), |m| format!("{} of {}", m.killed, m.killed + m.survivors.len())),
                );
            }
            row.push(report.outcome().to_string());
            rows.add_row(row);
        }
        writeln!(out, "{rows}\n")?;
        for report in reports {
            let mut line = |text: String| writeln!(out, "{}", lines(format!("{}: {text}", report.rule)));
            for note in &report.notes {
                line(note.clone())?;
            }
            if let Some((count, why)) = &report.refused {
                line(format!("a backend refused {count} instances: {why}"))?;
            }
            for survivor in report.mutants.iter().flat_map(|m| &m.survivors) {
                line(format!("its instances do not detect this mutant: {survivor}"))?;
            }
            if !report.holds() {
                writeln!(out, "\n{}\n", lines(report.explain(&self.replay(report))))?;
            }
        }
        let [wrong, unchecked] = [Outcome::Wrong, Outcome::NotChecked].map(|outcome| count(reports, outcome));
        let sum = |f: fn(&Report) -> usize| thousands(reports.iter().map(f).sum());
        let rules = several(reports.len(), "rule");
        let mut sums = format!("{rules}, {} cases, {} elements, ", sum(|r| r.cases), sum(|r| r.judged));
        if self.mutants {
            let all = || reports.iter().filter_map(|r| r.mutants.as_ref());
            let killed: usize = all().map(|m| m.killed).sum();
            let equivalent: usize = all().map(|m| m.equivalent.len()).sum();
            let survivors: usize = all().map(|m| m.survivors.len()).sum();
            sums += &format!("{} mutants killed, {survivors} not, {equivalent} equivalent, ", thousands(killed));
        }
        if unchecked > 0 {
            sums += &format!("{unchecked} not checked, ");
        }
        Ok(writeln!(out, "{}", lines(format!("{sums}{wrong} wrong; {}", duration(start.elapsed()))))?)
    }

    fn json(&self, report: &Report) -> Value {
        let failures: Vec<Value> = report.failures.iter().map(failure).collect();
        let mutants = report.mutants.as_ref().map(|m| {
            let equivalent = m.equivalent.iter().map(|(what, why)| json!({ "mutant": what, "reason": why }));
            json!({ "killed": m.killed, "survivors": m.survivors, "equivalent": equivalent.collect::<Vec<_>>() })
        });
        json!({
            "rule": report.rule, "place": report.place, "contract": report.contract.to_string(), "holds": report.holds(),
            "outcome": report.outcome().to_string(),
            "cases": report.cases, "elements": report.judged, "fired": report.fired, "guards": report.guarded, "neighbours": report.neighbours,
            "ran": report.ran, "refused": report.refused.as_ref().map(|(n, why)| json!({ "count": n, "reason": why })),
            "mutants": mutants, "failures": failures, "notes": report.notes, "seconds": report.time.as_secs_f64(),
            "replay": self.replay(report),
        })
    }
}

fn failure(failure: &Failure) -> Value {
    let pairs =
        |of: &[(String, String)]| of.iter().map(|(k, v)| (k.clone(), json!(v))).collect::<serde_json::Map<_, _>>();
    let difference = failure.difference.as_ref().map(|d| {
        // JSON has no infinities, so numbers become strings.
        json!({ "root": d.root, "at": d.at, "left": d.left.to_string(), "right": d.right.to_string(), "allowed": d.allowed })
    });
    json!({
        "check": failure.check.to_string(), "what": failure.what, "variables": pairs(&failure.variables),
        "tensors": pairs(&failure.tensors), "difference": difference,
    })
}
