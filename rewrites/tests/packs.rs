//! Tests the embedded packs: loading, checks on samples, lints and rewrite cycles. Also tests the selection of rules by
//! patterns.

use std::path::Path;

use eutectic_ir::lang::Source;
use eutectic_rewrites::{Choice, RuleSet, circles, lint};

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

/// Embedded packs are not checked when they are loaded, but packs from files are.
#[test]
fn the_packs_work() {
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("rules");
    let tried = RuleSet::load(&files).unwrap_or_else(|e| panic!("{e}"));
    assert!(tried.iter().map(|rule| &rule.name).eq(embedded().iter().map(|rule| &rule.name)));
}

#[test]
fn the_packs_are_clean() {
    let lints = lint(&embedded());
    assert!(lints.is_empty(), "{lints:#?}");
}

#[test]
fn the_packs_come_to_rest() {
    let found = circles(&embedded().choose(&Choice::default()).unwrap(), |_| true);
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn rules_that_turn_in_a_circle_are_found() {
    let text = "\
        ;; tanh x = sin(cos x), a wrong rule that terminates alone\n\
        (rule test/there (forall (F float) (?x F[A..])) (=> (tanh ?x) (sin (cos ?x))) (eq fast))\n\
        ;; sin x = tanh(exp x), a wrong rule whose result the rule before it rewrites\n\
        (rule test/back (forall (F float) (?x F[A..])) (=> (sin ?x) (tanh (exp ?x))) (eq fast))\n";
    let found = circles(&RuleSet::read(&[Source::new("test.rules", text)]).unwrap(), |_| true);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].message.contains("test/there") && found[0].message.contains("test/back"), "{found:#?}");
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
