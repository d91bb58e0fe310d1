//! Tests how many of XLA's algebraic simplifications are expressed as rules, and how many of these are proved.

use std::{collections::BTreeSet, path::Path};

use eutectic_prover::{falsify, prove_all};
use eutectic_rewrites::{Claim, Probe, Proof, RuleSet};

/// The simplifications, one per line: XLA's function, the rewrite, and the rule or the reason why there is none.
const LIST: &str = include_str!("../../tests/xla/simplifications.txt");

/// The length of the list, and the number of entries that are rules.
const LISTED: [usize; 2] = [269, 232];
/// The least numbers of rules that are proved to the bit, and that are one real function for every size and rank.
const PROVED: [usize; 2] = [174, 227];

/// The rewrites of TensorRight's artifact, one per line: its group and number there, and the rule or the reason why
/// there is none.
const TENSORRIGHT: &str = include_str!("../../tests/xla/tensorright.txt");
/// The numbers of rewrites, of those that are rules, and of those that are proved.
const OF_TENSORRIGHT: [usize; 3] = [120, 113, 111];

fn pack() -> RuleSet {
    RuleSet::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/xla")).unwrap()
}

/// Splits the lines of a list into their parts.
fn rows(list: &str, parts: usize) -> Vec<Vec<&str>> {
    let rows: Vec<Vec<&str>> =
        list.lines().filter(|line| !line.starts_with(';')).map(|line| line.split(" | ").collect()).collect();
    assert!(rows.iter().all(|row| row.len() == parts && row.iter().all(|part| !part.is_empty())));
    rows
}

#[test]
fn each_simplification_is_a_rule_or_says_why_not() {
    let rows = rows(LIST, 3);
    let named: BTreeSet<&str> = rows.iter().map(|row| row[2]).filter(|name| !name.starts_with("- ")).collect();
    let rules = pack();
    let loaded: BTreeSet<&str> = rules.iter().map(|rule| &*rule.name).collect();
    assert_eq!(named, loaded);
    assert_eq!([rows.len(), named.len()], LISTED);
}

#[test]
fn simplifications_are_proved_and_none_is_refuted() {
    let rules = pack();
    let probes: Vec<Probe> = rules.probes().collect();
    let mut open = Vec::new();
    let mut proved = [0, 0];
    let mut names = BTreeSet::new();
    // XLA promises equality over the reals only, so rounding and overflow are not judged.
    for (probe, proof) in probes.iter().zip(prove_all(&probes)) {
        let name = &probe.rule().name;
        if matches!(proof, Proof::Every(_) | Proof::Reals(_)) {
            proved[0] += usize::from(proof == Proof::Every(Claim::Bits));
            proved[1] += 1;
            names.insert(&**name);
            continue;
        }
        let found = falsify(probe);
        assert!(found.is_none(), "{name} is refuted by {found:?}");
        open.push(format!("{name}: {proof}"));
    }
    println!("{proved:?} of {} rules are proved; the others:\n{}", probes.len(), open.join("\n"));
    assert!(proved.iter().zip(PROVED).all(|(is, least)| *is >= least), "{proved:?}: {}", open.join("\n"));
    let named: Vec<&str> = rows(TENSORRIGHT, 2).iter().map(|row| row[1]).collect();
    let rules: Vec<&&str> = named.iter().filter(|name| !name.starts_with("- ")).collect();
    let open: Vec<_> = rules.iter().filter(|name| !names.contains(***name)).collect();
    println!("of TensorRight's {} rewrites {} are rules; not proved: {open:?}", named.len(), rules.len());
    assert_eq!([named.len(), rules.len()], OF_TENSORRIGHT[..2]);
    assert!(rules.len() - open.len() >= OF_TENSORRIGHT[2], "{open:?}");
}
