//! The embedded packs load, all of them.

use eutectic_rewrites::{Choice, RuleSet, lint};

fn embedded() -> RuleSet {
    match RuleSet::embedded() {
        Ok(rules) => rules,
        Err(errors) => panic!("{:?}", miette::Report::new(errors)),
    }
}

#[test]
fn the_packs_load() {
    let start = std::time::Instant::now();
    let rules = embedded();
    println!("{} rules in {:?}", rules.len(), start.elapsed());
    assert!(rules.len() > 100);
}

#[test]
fn the_packs_are_clean() {
    let lints = lint(&embedded());
    assert!(lints.is_empty(), "{lints:#?}");
}

#[test]
fn patterns_choose_rules() {
    let rules = embedded();
    let choice = |without: &[&str], only: &[&str]| Choice {
        without: without.iter().map(|s| s.to_string()).collect(),
        only: only.iter().map(|s| s.to_string()).collect(),
        ..Choice::default()
    };
    let without = rules.choose(&choice(&["fuse/attention*"], &[])).unwrap();
    assert!(rules.get("fuse/attention").is_some() && without.get("fuse/attention").is_none());
    let only = rules.choose(&choice(&[], &["simplify/*"])).unwrap();
    assert!(only.iter().all(|r| r.pack() == "simplify" || r.pack() == "legalize"));
    let error = rules.choose(&choice(&["fuse/atention"], &[])).unwrap_err().to_string();
    assert!(error.contains("did you mean `fuse/attention`?"), "{error}");
}
