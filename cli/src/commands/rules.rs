//! `rules`: lists, lints, formats, checks and proves rules, and measures their effect.

use std::{
    io::{Write, stdout},
    sync::Arc,
};

use clap::Subcommand;
use eutectic::{
    Backend, RuleSet,
    engine::rewrites::{LANGUAGE, Proof, Rule, glob::Glob},
};
use serde_json::json;

use crate::{
    args::{BackendArg, Rules, no_rule, pattern, print_json},
    fault::Fault,
    findings::{finding, findings},
    format::Format,
    table::{heading, prose, several, table},
};

/// The verdict on a rule that has changed since `rules prove` judged it.
const NOT_JUDGED: &str = "not judged by `rules prove` as it stands";

const EXAMPLES: &str = "\
Examples:
  # all rules
  eutectic rules list
  # a pack
  eutectic rules list 'fuse/*'
  # with the files of a directory, and approximations
  eutectic rules list --rules DIR --fp fast
  # a rule's text
  eutectic rules show fuse/rmsnorm
  # the language that rules are written in
  eutectic rules language
  # looks for what is doubtful in rules of your own
  eutectic rules lint --rules DIR
  # tests them on instances of themselves
  eutectic rules check --rules DIR
  # lays out the files of a directory
  eutectic rules fmt DIR
  # tests a pack, and how good its tests are
  eutectic rules check 'fuse/*' --mutants
  # checks a folder with a pack.toml, and writes it as one file
  eutectic rules pack DIR
  # proves a pack for every size and rank
  eutectic rules prove 'simplify/*'
  # what each rule is worth to a model
  eutectic rules ablate demo
  # the fewest rules that make its result another
  eutectic rules ablate demo --bisect
  # where a rule fires, or comes nearest, and what it lacks there
  eutectic rules why fuse/rmsnorm demo

A rule is data: a file NAME.rules in any directory. This one is complete:

  ;; √(x·x) = |x|
  (rule mine/root-of-square
    (forall (F float) (?x F[A..]))
    (=> (sqrt (mul ?x ?x)) (abs ?x))
    (eq reassoc))";

/// Lists or tests the rewrite rules
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    action: RulesCommand,
}

#[derive(Subcommand)]
enum RulesCommand {
    /// Lists rules with their phase, their contract, their verdict and their place in a file
    #[command(after_long_help = EXAMPLES)]
    List(Selection),
    /// Shows the text of rules, with their place in a file, their contract and their verdict
    #[command(after_long_help = EXAMPLES)]
    Show(Selection),
    /// Explains the rule language: variables, terms, relations, contracts and flags
    Language,
    /// Loads rules and reports suspicious ones; exit code 1 if any rule is suspicious, 2 if one does not load
    #[command(after_long_help = EXAMPLES)]
    Lint(Selection),
    /// Writes rule files and graph files in the common layout; with --check, exit code 1 if one has another
    Fmt(super::fmt::Args),
    /// Lints and checks a folder of rules with a pack.toml, and writes it as one file that --rules takes
    Pack(super::pack::Args),
    /// Tests rules on instances of themselves; exit code 1 if one is wrong or cannot be checked, 2 if one does not load
    #[command(after_long_help = EXAMPLES)]
    Check(super::check::Args),
    /// Proves rules for every size and rank, or says why not; exit code 1 if one is refuted, 2 if one does not load
    #[command(after_long_help = EXAMPLES)]
    Prove(super::prove::Args),
    /// Leaves out each rule that fires on a program, and shows the kernels, time and result without it
    #[command(after_long_help = EXAMPLES)]
    Ablate(super::ablate::Args),
    /// Shows where a rule fires on a program, and where it nearly fires: the part of its left side that does not match
    #[command(after_long_help = EXAMPLES)]
    Why(super::why::Args),
}

#[derive(clap::Args)]
struct Selection {
    /// Selects only rules of this name or glob
    #[arg(default_value = "*")]
    glob: String,
    #[command(flatten)]
    on: BackendArg,
    #[command(flatten)]
    rules: Rules,
    /// How to print
    #[arg(help_heading = None, long, value_enum, default_value_t)]
    format: Format,
}

/// Runs the command.
///
/// # Errors
/// If rules do not load, or if no rule matches the glob. In addition, `lint` fails if a rule is suspicious, and `check`
/// if a rule is wrong.
pub fn run(args: &Args) -> Result<(), Fault> {
    match &args.action {
        RulesCommand::List(selection) => list(selection),
        RulesCommand::Show(selection) => show(selection),
        RulesCommand::Language => Ok(write!(stdout().lock(), "{LANGUAGE}")?),
        RulesCommand::Lint(selection) => find(selection),
        RulesCommand::Fmt(args) => super::fmt::run(args),
        RulesCommand::Pack(args) => super::pack::run(args),
        RulesCommand::Check(args) => super::check::run(args),
        RulesCommand::Prove(args) => super::prove::run(args),
        RulesCommand::Ablate(args) => super::ablate::run(args),
        RulesCommand::Why(args) => super::why::run(args),
    }
}

/// The result of loading the rules of a selection.
struct Selected {
    backend: Arc<dyn Backend>,
    rules: RuleSet,
    wanted: Glob,
    /// The errors of rules that do not load.
    faults: Vec<Fault>,
}

impl Selection {
    /// Loads the rules of the selection.
    ///
    /// # Errors
    /// If a file cannot be read, or if no rule that loads matches the glob.
    fn load(&self) -> Result<Selected, Fault> {
        let wanted = pattern(&self.glob)?;
        let backend = self.on.open()?;
        let (rules, mut faults) = self.rules.load_partly(&*backend)?;
        if !rules.iter().any(|rule| wanted.is_match(&rule.name)) {
            faults.push(no_rule(&self.glob, &rules));
            Fault::all(std::mem::take(&mut faults))?;
        }
        Ok(Selected { backend, rules, wanted, faults })
    }
}

impl Selected {
    /// Returns the rules that match the glob.
    fn chosen(&self) -> Vec<&Rule> {
        self.rules.iter().filter(|rule| self.wanted.is_match(&rule.name)).collect()
    }
}

fn show(selection: &Selection) -> Result<(), Fault> {
    let selected = selection.load()?;
    let chosen = selected.chosen();
    let mut out = stdout().lock();
    if selection.format == Format::Json {
        let rule = |r: &&Rule| json!({ "name": &*r.name, "place": r.place(), "doc": r.doc, "text": r.text(), "proof": shown(r) });
        print_json(&mut out, &chosen.iter().map(rule).collect::<Vec<_>>())?;
        return Fault::all(selected.faults);
    }
    // The rules that stand for one rule over several ops have the same text, so it is printed once.
    for same in chosen.chunk_by(|a, b| a.place() == b.place()) {
        let rule = same[0];
        writeln!(out, "{}", heading(format!("{}, phase {}, {}", rule.place(), rule.phase, shown(rule))))?;
        for line in rule.doc.lines() {
            writeln!(out, ";; {line}")?;
        }
        writeln!(out, "{}\n", rule.text())?;
    }
    Fault::all(selected.faults)
}

fn list(selection: &Selection) -> Result<(), Fault> {
    let selected = selection.load()?;
    let chosen = selected.chosen();
    let mut out = stdout().lock();
    if selection.format == Format::Json {
        let rule = |r: &&Rule| {
            json!({
                "name": &*r.name, "doc": r.doc, "phase": r.phase.to_string(), "contract": r.contract.to_string(),
                "once": r.once, "backends": r.backends, "place": r.place(), "proof": shown(r),
            })
        };
        print_json(&mut out, &chosen.iter().map(rule).collect::<Vec<_>>())?;
        return Fault::all(selected.faults);
    }
    for pack in chosen.chunk_by(|a, b| a.pack() == b.pack()) {
        let rules = several(pack.len(), "rule");
        writeln!(out, "{}", heading(format!("{}: {rules}, phase {}", pack[0].pack(), pack[0].phase)))?;
        let mut table = table(&["rule", "says", "promises", "known", "?where"]);
        for rule in pack {
            let once = if rule.once { ", once" } else { "" };
            let on =
                if rule.backends.is_empty() { String::new() } else { format!(", on {}", rule.backends.join(", ")) };
            let promises = format!("{}{once}{on}", rule.contract);
            table.add_row([rule.name.to_string(), rule.doc.clone(), promises, brief(rule), rule.place()]);
        }
        writeln!(out, "{table}\n")?;
    }
    writeln!(out, "{}", account(&chosen))?;
    for pack in selected.rules.packs() {
        writeln!(out, "{}", prose(pack))?;
    }
    Fault::all(selected.faults)
}

/// Returns the verdict on a rule in full.
pub fn shown(rule: &Rule) -> String {
    rule.proof.as_ref().map_or_else(|| NOT_JUDGED.into(), ToString::to_string)
}

/// Returns the verdict on a rule, short enough for a table.
fn brief(rule: &Rule) -> String {
    rule.proof.as_ref().map_or_else(|| NOT_JUDGED.into(), Proof::brief)
}

/// Returns the number of rules, and the number with each verdict.
fn account(rules: &[&Rule]) -> String {
    let count = |is: &dyn Fn(Option<&Proof>) -> bool| rules.iter().filter(|rule| is(rule.proof.as_ref())).count();
    let of = [
        (count(&|p| matches!(p, Some(Proof::Every(_)))), "proved"),
        (count(&|p| matches!(p, Some(Proof::UpTo(..)))), "proved up to a bound"),
        (count(&|p| matches!(p, Some(Proof::Reals(_)))), "equal over the reals only"),
        (count(&|p| matches!(p, Some(Proof::Tested(_)))), "tested"),
        (count(&|p| p.is_none()), "not judged"),
    ];
    let known: Vec<String> = of.iter().filter(|(n, _)| *n > 0).map(|(n, how)| format!("{n} {how}")).collect();
    format!("{}: {}", several(rules.len(), "rule"), known.join(", "))
}

fn find(selection: &Selection) -> Result<(), Fault> {
    let mut selected = selection.load()?;
    let mut found = findings(&selected.rules, selected.backend.clone())?;
    found.retain(|l| selected.wanted.is_match(&l.rule));
    let mut out = stdout().lock();
    match selection.format {
        Format::Json => {
            let rows = found.iter().map(|l| json!({ "rule": &*l.rule, "place": l.place, "message": l.message }));
            print_json(&mut out, &rows.collect::<Vec<_>>())?;
        }
        Format::Table => {
            for lint in &found {
                writeln!(out, "{}", finding(lint))?;
            }
            writeln!(out, "{}; {}", account(&selected.chosen()), several(found.len(), "finding"))?;
        }
    }
    if !found.is_empty() {
        selected.faults.insert(0, Fault::run(several(found.len(), "suspicious rule")));
    }
    Fault::all(selected.faults)
}
