//! `rules`: what rules there are, what is suspicious about them, whether they are right, and what they are worth.

use std::io::{Write, stdout};

use clap::Subcommand;
use eutectic::{
    BACKENDS, Compiler, Error, RuleSet,
    engine::{
        ir::lang::sexp::suggestion,
        rewrites::{Claim, Lint, Proof, Rule, circles, lint},
    },
};
use eutectic_checker::worth;
use serde_json::json;

use crate::{
    args::{BackendArg, Rules, no_rule, pattern, print_json},
    fault::Fault,
    format::Format,
    table::{hanging, heading, several, table},
};

const EXAMPLES: &str = "\
Examples:
  # all rules
  eutectic rules list
  # a pack
  eutectic rules list 'fuse/*'
  # with the files of a directory, and approximations
  eutectic rules list --rules DIR --fp fast
  # looks for what is doubtful in rules of your own
  eutectic rules lint --rules DIR
  # tests them on instances of themselves
  eutectic rules check --rules DIR
  # tests a pack, and how good its tests are
  eutectic rules check 'fuse/*' --mutants
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
    /// Lists rules: when they run, what they promise, where they stand
    #[command(after_long_help = EXAMPLES)]
    List(Selection),
    /// Loads rules and points out what is suspicious; exit code 1 if anything is, 2 if one does not load
    #[command(after_long_help = EXAMPLES)]
    Lint(Selection),
    /// Tests rules on instances of themselves; exit code 1 if one is wrong or cannot be checked, 2 if one does not load
    #[command(after_long_help = EXAMPLES)]
    Check(super::check::Args),
    /// Proves rules for every size and rank, or says why not; exit code 1 if one is refuted, 2 if one does not load
    #[command(after_long_help = EXAMPLES)]
    Prove(super::prove::Args),
    /// Leaves out each rule that fires on a program: what its kernels, time and result are without it
    #[command(after_long_help = EXAMPLES)]
    Ablate(super::ablate::Args),
    /// Says where a rule fires on a program, and where it nearly does: which part of its left side finds what instead
    #[command(after_long_help = EXAMPLES)]
    Why(super::why::Args),
}

#[derive(clap::Args)]
struct Selection {
    /// Only rules of that name
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
/// When rules do not load, or no rule has such a name; for `lint`, when something is suspicious; for `check`, when a rule is
/// wrong.
pub fn run(args: &Args) -> Result<(), Fault> {
    match &args.action {
        RulesCommand::List(selection) => list(selection),
        RulesCommand::Lint(selection) => find(selection),
        RulesCommand::Check(args) => super::check::run(args),
        RulesCommand::Prove(args) => super::prove::run(args),
        RulesCommand::Ablate(args) => super::ablate::run(args),
        RulesCommand::Why(args) => super::why::run(args),
    }
}

fn list(selection: &Selection) -> Result<(), Fault> {
    let wanted = pattern(&selection.glob)?;
    let (rules, mut faults) = selection.rules.load_partly(&*selection.on.open()?)?;
    let chosen: Vec<&Rule> = rules.iter().filter(|r| wanted.is_match(&r.name)).collect();
    if chosen.is_empty() {
        faults.push(no_rule(&selection.glob, &rules));
        return Fault::all(faults);
    }
    let mut out = stdout().lock();
    if selection.format == Format::Json {
        let rule = |r: &&Rule| {
            json!({
                "name": &*r.name, "doc": r.doc, "phase": r.phase.to_string(), "contract": r.contract.to_string(),
                "once": r.once, "backends": r.backends, "place": r.place(), "proof": shown(r),
            })
        };
        print_json(&mut out, &chosen.iter().map(rule).collect::<Vec<_>>())?;
        return Fault::all(faults);
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
            table.add_row([rule.name.to_string(), rule.doc.clone(), promises, shown(rule), rule.place()]);
        }
        writeln!(out, "{table}\n")?;
    }
    writeln!(out, "{}", account(&chosen))?;
    Fault::all(faults)
}

/// What is known of a rule.
pub fn shown(rule: &Rule) -> String {
    rule.proof.as_ref().map_or_else(|| "not judged by `rules prove` as it stands".into(), ToString::to_string)
}

/// How many rules there are, and of how many what is known.
fn account(rules: &[&Rule]) -> String {
    let count = |is: &dyn Fn(Option<&Proof>) -> bool| rules.iter().filter(|rule| is(rule.proof.as_ref())).count();
    let of = [
        (count(&|p| matches!(p, Some(Proof::Every(Claim::Bits)))), "proved"),
        (count(&|p| matches!(p, Some(Proof::Every(Claim::Reals)))), "equal over the reals"),
        (count(&|p| matches!(p, Some(Proof::UpTo(..)))), "shown up to a bound"),
        (count(&|p| matches!(p, Some(Proof::Tested(_)))), "tested"),
        (count(&|p| p.is_none()), "not judged"),
    ];
    let known: Vec<String> = of.iter().filter(|(n, _)| *n > 0).map(|(n, how)| format!("{n} {how}")).collect();
    format!("{}: {}", several(rules.len(), "rule"), known.join(", "))
}

/// The rules that name a backend that there is none of: it may be one of another program, and is more likely misspelt.
fn unknown_backends(rules: &RuleSet) -> Vec<Lint> {
    let known = |name: &str| BACKENDS.iter().any(|backend| backend.name == name);
    let finding = |rule: &Rule| {
        let name = rule.backends.iter().find(|name| !known(name))?;
        let help = suggestion(name, "there are", BACKENDS.iter().map(|backend| backend.name));
        let message = format!("there is no backend `{name}`: {help}");
        Some(Lint { rule: rule.name.clone(), place: rule.place(), message })
    };
    rules.iter().filter_map(finding).collect()
}

fn find(selection: &Selection) -> Result<(), Fault> {
    let backend = selection.on.open()?;
    let wanted = pattern(&selection.glob)?;
    let (rules, mut faults) = selection.rules.load_partly(&*backend)?;
    if !rules.iter().any(|r| wanted.is_match(&r.name)) {
        faults.push(no_rule(&selection.glob, &rules));
        return Fault::all(faults);
    }
    let backends = [Compiler::on(backend, rules.clone())];
    let mut found = lint(&rules);
    found.extend(circles(&rules));
    found.extend(unknown_backends(&rules));
    found.extend(worth::lint(&rules, &backends).map_err(Error::from)?);
    found.retain(|l| wanted.is_match(&l.rule));
    let mut out = stdout().lock();
    match selection.format {
        Format::Json => {
            let rows = found.iter().map(|l| json!({ "rule": &*l.rule, "place": l.place, "message": l.message }));
            print_json(&mut out, &rows.collect::<Vec<_>>())?;
        }
        Format::Table => {
            for lint in &found {
                writeln!(out, "{}", hanging(format!("{}: {}: {}", lint.place, lint.rule, lint.message), 4))?;
            }
            let checked: Vec<&Rule> = rules.iter().filter(|r| wanted.is_match(&r.name)).collect();
            writeln!(out, "{}; {}", account(&checked), several(found.len(), "finding"))?;
        }
    }
    if !found.is_empty() {
        faults.insert(0, Fault::run(several(found.len(), "suspicious rule")));
    }
    Fault::all(faults)
}
