//! Tests the prover with z3, which must be in PATH.

use std::path::Path;

use eutectic_ir::lang::Source;
use eutectic_prover::{Verdict, judge_all_with_z3, refuted_by_z3};
use eutectic_rewrites::{Probe, Proof, RuleSet};

fn rules(name: &str, text: &str) -> Vec<Probe> {
    RuleSet::read(&[Source::new(name, text)]).unwrap_or_else(|e| panic!("{e:?}")).probes().collect()
}

#[test]
#[ignore = "z3 must be installed"]
fn the_solver_contradicts_no_answer_about_the_packs() {
    let probes: Vec<Probe> = RuleSet::embedded().unwrap().probes().collect();
    let solved = judge_all_with_z3(&probes).unwrap();
    let wrong: Vec<_> =
        probes.iter().zip(&solved).filter_map(|(p, s)| Some((&p.rule().name, s.disagreements.first()?))).collect();
    let sum = |of: fn(&eutectic_prover::Solved) -> usize| solved.iter().map(of).sum::<usize>();
    println!("{} agreed, {} undecided, {} shown by z3", sum(|s| s.agreed), sum(|s| s.undecided), sum(|s| s.shown));
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(sum(|s| s.agreed) > 500 && sum(|s| s.undecided) * 10 < sum(|s| s.agreed));
    assert!(!solved.iter().any(|s| matches!(s.verdict, Verdict::Refuted(_))));
}

#[test]
#[ignore = "z3 must be installed"]
fn rules_that_are_wrong_at_some_size_only_are_refuted_at_sizes_that_the_solver_names() {
    let probes = rules("sizes.rules", include_str!("sizes.rules"));
    let open: Vec<_> = probes.iter().filter(|p| refuted_by_z3(p).unwrap().is_none()).map(|p| &p.rule().name).collect();
    println!("{} of {} are refuted; open: {open:?}", probes.len() - open.len(), probes.len());
    assert!(probes.len() > 20 && open.is_empty(), "{open:?}");
}

#[test]
#[ignore = "z3 must be installed"]
fn no_wrong_rule_is_proved_by_the_solver_and_integers_of_the_right_ones_are() {
    let folder = |name: &str| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests").join(name);
        RuleSet::load_partly(&folder, &RuleSet::default()).unwrap().0.probes().collect::<Vec<Probe>>()
    };
    for (name, most, least) in [("wrong", 0, 0), ("right", usize::MAX, 80)] {
        let probes = folder(name);
        let solved = judge_all_with_z3(&probes).unwrap();
        let proved: Vec<_> = probes
            .iter()
            .zip(&solved)
            .filter(|(_, s)| matches!(&s.verdict, Verdict::Shown(proof) if proof.is_proof()))
            .map(|(p, _)| &p.rule().name)
            .collect();
        println!("{name}: {} of {} are proved with z3", proved.len(), probes.len());
        assert!((least..=most).contains(&proved.len()), "{proved:?}");
        assert!(solved.iter().all(|s| s.disagreements.is_empty()));
    }
}

#[test]
#[ignore = "z3 must be installed"]
fn integers_are_bit_vectors() {
    let text = ";; x − x mod 2ᵏ, in another way
        (rule mine/nibbles (forall (?x u8[A..])) (=> (add (mul (shift-right ?x 4) 16) (bit-and ?x 15)) ?x) (eq exact))
        ;; max(a, b) + min(a, b) = a + b
        (rule mine/extrema (forall (F int) (?a F[A..]) (?b F[A..])) (=> (add (max ?a ?b) (min ?a ?b)) (add ?a ?b)) (eq exact))
        ;; not for the least one
        (rule mine/abs (forall (F i8 i32) (?a F[A..])) (=> (abs ?a) (max ?a (bit-and ?a 127))) (eq exact))";
    let probes = rules("mine.rules", text);
    let solved = judge_all_with_z3(&probes).unwrap();
    let proved: Vec<&str> = probes
        .iter()
        .zip(&solved)
        .filter(|(_, s)| matches!(&s.verdict, Verdict::Shown(Proof::Every(_))))
        .map(|(p, _)| &*p.rule().name)
        .collect();
    assert_eq!(proved, ["mine/extrema", "mine/nibbles"], "{solved:?}");
}
