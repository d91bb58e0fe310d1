//! XLA's algebraic simplifications, as a pack: which are expressed, and which are proved.

use std::{collections::BTreeSet, path::Path};

use eutectic_prover::{falsify, prove_all};
use eutectic_rewrites::{Claim, Probe, Proof, RuleSet};

/// The simplifications, one a line: the function of XLA, the rewrite, and the rule or the reason why there is none.
const LIST: &str = include_str!("../../tests/xla/simplifications.txt");

/// How many the list has, and how many of them are rules.
const LISTED: [usize; 2] = [269, 231];
/// How many rules are proved to the bit at least, and how many for every size and rank in all.
const PROVED: [usize; 2] = [170, 220];

fn pack() -> RuleSet {
    RuleSet::load_dir(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/xla")).unwrap()
}

#[test]
fn each_simplification_is_a_rule_or_says_why_not() {
    let rows: Vec<Vec<&str>> =
        LIST.lines().filter(|line| !line.starts_with(';')).map(|line| line.split(" | ").collect()).collect();
    assert!(rows.iter().all(|row| row.len() == 3 && row.iter().all(|part| !part.is_empty())));
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
    // XLA promises equality over the reals, so how these rules round and where they overflow is not judged.
    for (probe, proof) in probes.iter().zip(prove_all(&probes)) {
        let name = &probe.rule().name;
        if let Proof::Every(claim) = proof {
            proved[0] += usize::from(claim == Claim::Bits);
            proved[1] += 1;
            continue;
        }
        let found = falsify(probe);
        assert!(found.is_none(), "{name} is refuted by {found:?}");
        open.push(format!("{name}: {proof}"));
    }
    println!("{proved:?} of {} rules are proved; the others:\n{}", probes.len(), open.join("\n"));
    assert!(proved.iter().zip(PROVED).all(|(is, least)| *is >= least), "{proved:?}: {}", open.join("\n"));
}
