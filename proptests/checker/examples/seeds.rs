//! Checks a set of rules at many seeds: verdicts must not depend on one. `seeds packs|wrong|right|DIR SEEDS [FIRST [GLOB]]`: rules
//! of the packs and of `right` are to hold, those of `wrong` and of a directory to be refuted.

use std::{collections::BTreeMap, env, path::Path, time::Instant};

use eutectic_checker::{Checker, Options, Outcome};
use eutectic_rewrites::{LoadError, Probe, RuleSet};

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    let set = args.first().map_or("packs", String::as_str);
    let number = |at: usize, or: u64| args.get(at).and_then(|n| n.parse().ok()).unwrap_or(or);
    let (seeds, first, part) = (number(1, 20), number(2, 1), args.get(3).map_or("", String::as_str));
    let (rules, right) = match set {
        "packs" => (RuleSet::embedded().expect("they load"), true),
        "wrong" | "right" => {
            let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests").join(set);
            (RuleSet::load_dir(&directory).expect("they load"), set == "right")
        }
        directory => {
            let (rules, errors) = RuleSet::load_dir_partly(Path::new(directory)).expect("a directory");
            for error in errors {
                match error {
                    LoadError::Rules(errors) => errors.0.iter().for_each(|e| println!("does not load: {e}")),
                    other => println!("does not load: {other}"),
                }
            }
            (rules, false)
        }
    };
    let probes: Vec<Probe> = rules.probes().filter(|p| p.rule().name.contains(part)).collect();
    let mut unexpected: BTreeMap<String, (Vec<u64>, String)> = BTreeMap::new();
    for seed in first..first + seeds {
        let start = Instant::now();
        let checker = Checker::new(Options { seed, ..Options::default() }).expect("the packs load");
        let reports = checker.check_all(&probes).expect("the packs make programs computable");
        let mut count = 0;
        for report in &reports {
            if report.holds() != right || report.outcome() == Outcome::NotChecked {
                count += 1;
                println!("  {}: {}", report.outcome(), report.rule);
                let text = format!("{}\n{}", report.outcome(), report.explain("-"));
                unexpected.entry(report.rule.clone()).or_insert((Vec::new(), text)).0.push(seed);
            }
        }
        let cases: usize = reports.iter().map(|r| r.cases).sum();
        println!("seed {seed}: {} rules, {cases} cases, {count} unexpected; {:.1?}", reports.len(), start.elapsed());
        if seed == first {
            let mut slow: Vec<_> = reports.iter().map(|r| (r.time, &r.rule, r.cases)).collect();
            slow.sort_by_key(|(time, ..)| std::cmp::Reverse(*time));
            slow.iter().take(8).for_each(|(time, rule, cases)| println!("  {rule}: {cases} cases in {time:.1?}"));
        }
    }
    for (rule, (at, text)) in &unexpected {
        println!("\n== {rule} at {} of {seeds} seeds {at:?}: {text}", at.len());
    }
}
