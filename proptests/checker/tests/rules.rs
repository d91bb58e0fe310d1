//! Every embedded rule holds, and every rule that is wrong on purpose is refuted.

use std::path::Path;

use eutectic::{Compiler, Cpu, CpuOptions, RuleSet};
use eutectic_checker::{Check, Checker, Options, Report};
use eutectic_rewrites::Probe;

fn check(rules: &RuleSet, options: Options) -> Vec<Report> {
    let probes: Vec<Probe> = rules.probes().collect();
    Checker::new(options).unwrap().check_all(&probes).unwrap()
}

fn cpu() -> Vec<Compiler> {
    vec![Compiler::new(Cpu::new(CpuOptions { threads: 1, ..CpuOptions::default() })).unwrap()]
}

#[test]
fn embedded_rules_hold() {
    let options = Options { backend_cases: 4, backends: cpu(), ..Options::default() };
    let reports = check(&RuleSet::embedded().unwrap(), options);
    let wrong: String = reports.iter().map(|r| r.explain(&format!("eutectic rules check '{}'", r.rule))).collect();
    assert!(wrong.is_empty(), "{wrong}");
    for report in &reports {
        assert!(report.cases >= 10 && report.judged > 0, "too few cases or judged elements: {report:#?}");
        assert!(report.fired > 0, "the rule never fired: {report:#?}");
    }
}

/// A broken guard must change a shared tensor in all members of a group. Otherwise the checker judges a program that
/// cannot exist.
#[test]
fn a_changed_tensor_is_shared_by_all_members_of_a_group() {
    let packs = RuleSet::embedded().unwrap();
    let probes: Vec<Probe> = packs.probes().filter(|p| p.rule().group).collect();
    assert!(!probes.is_empty());
    for seed in 5..=11 {
        for report in Checker::new(Options { seed, ..Options::default() }).unwrap().check_all(&probes).unwrap() {
            assert!(report.holds(), "{}", report.explain(""));
        }
    }
}

fn set(name: &str) -> RuleSet {
    RuleSet::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests").join(name)).unwrap()
}

/// The seed of the draws. The example `seeds` takes any number of seeds, which takes minutes each.
const SEED: u64 = 1;

#[test]
fn wrong_rules_are_refuted() {
    let rules = set("wrong");
    assert!(rules.len() >= 340, "{}", rules.len());
    let reports = check(&rules, Options { seed: SEED, ..Options::default() });
    let missed: Vec<_> = reports.iter().filter(|r| r.holds()).map(|r| &r.rule).collect();
    assert!(missed.is_empty(), "not refuted: {missed:#?}");
    for report in &reports {
        let failure = &report.failures[0];
        assert!(failure.difference.is_some() || failure.check == Check::Types, "{report:#?}");
    }
}

#[test]
fn right_rules_are_not_refuted() {
    let rules = set("right");
    assert!(rules.len() >= 100, "{}", rules.len());
    let reports = check(&rules, Options { seed: SEED, backends: cpu(), ..Options::default() });
    let wrong: String = reports.iter().map(|r| r.explain("")).collect();
    assert!(wrong.is_empty(), "{wrong}");
}

/// Rules with mutants that differ on few values only: rows that are all −∞, scores far below the others, and numbers
/// that f16 rounds.
const SUBTLE: [&str; 5] = [
    "fuse/attention-guarded-bias",
    "fuse/mask-where-finite",
    "fuse/mask-where-ten-thousand",
    "f16/attention",
    "unfuse/split-extremum[reduce-max]",
];

#[test]
fn subtle_mutants_are_detected() {
    let rules = RuleSet::embedded().unwrap();
    let probes: Vec<Probe> = rules.probes().filter(|p| SUBTLE.contains(&&*p.rule().name)).collect();
    let reports = Checker::new(Options { mutants: true, ..Options::default() }).unwrap().check_all(&probes).unwrap();
    assert_eq!(reports.len(), SUBTLE.len());
    for report in &reports {
        let mutants = report.mutants.as_ref().expect("mutants were requested");
        assert!(mutants.killed > 0 && mutants.survivors.is_empty(), "{}: {mutants:#?}", report.rule);
    }
}
