//! Checks rules at many seeds, like `eutectic rules check` at one seed: verdicts must not depend on a seed. Lists
//! unexpected verdicts with their seeds, and exits with 1 if there are any.

use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    path::PathBuf,
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use clap::Parser;
use eutectic::{Compiler, Cpu, CpuOptions};
use eutectic_checker::{Checker, Mutants, Options, Outcome, Progress, Report};
use eutectic_rewrites::{LoadError, Probe, RuleSet};

/// The number of the slowest rules that are listed.
const SLOWEST: usize = 8;

/// Checks a set of rules at many seeds
#[derive(Parser)]
struct Args {
    /// A directory of rules (*.rules), or `packs` for the embedded rules
    #[arg(value_name = "DIR")]
    rules: PathBuf,
    /// Expects that each rule is refuted, instead of that it holds
    #[arg(long)]
    wrong: bool,
    /// The number of seeds
    #[arg(long, value_name = "N", default_value_t = 20)]
    seeds: u64,
    /// The first seed
    #[arg(long, value_name = "S", default_value_t = 1)]
    first: u64,
    /// Only rules whose names contain this
    #[arg(long, value_name = "TEXT", default_value = "")]
    part: String,
    /// Threads that check rules [default: one for each core]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Starts no rule after this time; rules that were not reached are counted, and the exit code is 1
    #[arg(long, value_name = "SECONDS")]
    budget: Option<u64>,
    /// Tries the mutants of each rule; 99.9 % must be detected
    #[arg(long)]
    mutants: bool,
    /// Compares both sides in the interpreter only, and does not compile them for the CPU
    #[arg(long)]
    interpreter_only: bool,
}

/// The least share of the mutants that must be detected.
const KILLED: f64 = 0.999;

/// Unexpected verdicts or undetected mutants: for each name, the seeds and a description.
type Found = BTreeMap<String, (Vec<u64>, String)>;

fn main() -> ExitCode {
    let args = Args::parse();
    let (rules, not_loaded) = rules(&args);
    let probes: Vec<Probe> = rules.probes().filter(|p| p.rule().name.contains(&args.part)).collect();
    let cpu = Compiler::new(Cpu::new(CpuOptions { threads: 1, ..CpuOptions::default() })).expect("the packs load");
    let backends = if args.interpreter_only { Vec::new() } else { vec![cpu] };
    let progress: fn(&Progress<'_>) = |progress| eprintln!("{progress}");
    let options = Options { mutants: args.mutants, backends, progress: Some(progress), ..Options::default() };
    let seeds: Vec<u64> = (args.first..args.first + args.seeds).collect();
    let checkers: Vec<Checker> = (seeds.iter())
        .map(|&seed| Checker::new(Options { seed, ..options.clone() }).expect("the packs load"))
        .collect();
    let start = Instant::now();
    let reports = checked(&args, &checkers, &probes);
    let (reached, all) = (reports.iter().flatten().count(), probes.len() * seeds.len());
    println!("{} rules at {} seeds in {:.1?}", probes.len(), seeds.len(), start.elapsed());
    let (mut unexpected, mut survivors) = (Found::new(), Found::new());
    let (mut killed, mut survived) = (0, 0);
    for (&seed, reports) in seeds.iter().zip(&reports) {
        let mut count = 0;
        for report in reports.iter().filter(|r| !as_expected(r, args.wrong)) {
            count += 1;
            note(&mut unexpected, &report.rule, seed, || format!("{}\n{}", report.outcome(), report.explain("-")));
        }
        let cases: usize = reports.iter().map(|r| r.cases).sum();
        let took: f64 = reports.iter().map(|r| r.time.as_secs_f64()).sum();
        print!("seed {seed}: {cases} cases, {count} unexpected");
        if args.mutants {
            let all: Vec<(&Report, &Mutants)> = reports.iter().filter_map(|r| Some((r, r.mutants.as_ref()?))).collect();
            for (report, mutants) in &all {
                for what in &mutants.survivors {
                    note(&mut survivors, &format!("{}: {what}", report.rule), seed, String::new);
                }
            }
            let sum = |f: fn(&Mutants) -> usize| all.iter().map(|(_, m)| f(m)).sum::<usize>();
            let (dead, alive) = (sum(|m| m.killed), sum(|m| m.survivors.len()));
            print!(", {dead} mutants found out, {alive} not, {} equivalent", sum(|m| m.equivalent.len()));
            (killed, survived) = (killed + dead, survived + alive);
        }
        println!("; {took:.1} s of a thread");
    }
    let mut slow: Vec<_> = reports.iter().flatten().map(|r| (r.time, &r.rule, r.cases)).collect();
    slow.sort_by_key(|(time, ..)| std::cmp::Reverse(*time));
    slow.iter().take(SLOWEST).for_each(|(time, rule, cases)| println!("  {rule}: {cases} cases in {time:.1?}"));
    for (mutant, (at, _)) in &survivors {
        println!("not found out at {} of {} seeds {at:?}: {mutant}", at.len(), args.seeds);
    }
    for (rule, (at, text)) in &unexpected {
        println!("\n== {rule} at {} of {} seeds {at:?}: {text}", at.len(), args.seeds);
    }
    if args.mutants {
        let share = f64::from(killed as u32) / f64::from((killed + survived).max(1) as u32);
        println!("{killed} of {} mutants found out: {:.3} %", killed + survived, 100.0 * share);
        survived = if share >= KILLED { 0 } else { survived };
    }
    let failed: usize = unexpected.values().map(|(at, _)| at.len()).sum();
    println!(
        "summary of {}: {reached} of {all} checks done in {:.0?}, {} as expected, {failed} not (of {} rules)",
        args.rules.display(),
        start.elapsed(),
        reached - failed,
        unexpected.len(),
    );
    ExitCode::from(u8::from(not_loaded || reached < all || !unexpected.is_empty() || survived > 0))
}

/// Checks the rules at each seed in turn. Returns the reports of each seed, for the rules that were reached.
fn checked(args: &Args, checkers: &[Checker], probes: &[Probe]) -> Vec<Vec<Report>> {
    let threads = args.threads.or(thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
    let deadline = args.budget.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let next = AtomicUsize::new(0);
    let reports = Mutex::new(checkers.iter().map(|_| Vec::new()).collect::<Vec<Vec<(usize, Report)>>>());
    let work = || {
        while deadline.is_none_or(|deadline| Instant::now() < deadline) {
            let n = next.fetch_add(1, Ordering::Relaxed);
            let (seed, rule) = (n / probes.len().max(1), n % probes.len().max(1));
            let (Some(checker), Some(probe)) = (checkers.get(seed), probes.get(rule)) else { break };
            let report = checker.check(probe).expect("the packs make programs computable");
            reports.lock().expect("no thread panicked").get_mut(seed).expect("seed is in range").push((rule, report));
        }
    };
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let mut reports = reports.into_inner().expect("no thread panicked");
    reports.iter_mut().for_each(|reports| reports.sort_by_key(|(rule, _)| *rule));
    reports.into_iter().map(|reports| reports.into_iter().map(|(_, report)| report).collect()).collect()
}

fn as_expected(report: &Report, wrong: bool) -> bool {
    report.holds() != wrong && report.outcome() != Outcome::NotChecked
}

fn note(found: &mut Found, what: &str, seed: u64, text: impl FnOnce() -> String) {
    found.entry(what.to_string()).or_insert_with(|| (Vec::new(), text())).0.push(seed);
}

/// Returns the rules, and whether some of them do not load.
fn rules(args: &Args) -> (RuleSet, bool) {
    if args.rules.as_os_str() == "packs" {
        return (RuleSet::embedded().expect("the packs load"), false);
    }
    let (rules, errors) = RuleSet::load_partly(&args.rules, &RuleSet::default()).expect("the directory is readable");
    for error in &errors {
        match error {
            LoadError::Rules(errors) => errors.0.iter().for_each(|e| println!("does not load: {e}")),
            other => println!("does not load: {other}"),
        }
    }
    (rules, !errors.is_empty())
}
