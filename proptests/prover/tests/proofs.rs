//! Tests the verdicts on the embedded packs, and that no wrong rule is proved.

use std::path::Path;

use eutectic_ir::lang::Source;
use eutectic_prover::{Verdict, judge_all, prove_all};
use eutectic_rewrites::{Claim, Probe, Proof, Proofs, RuleSet};

fn folder(name: &str) -> RuleSet {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests").join(name);
    RuleSet::load_partly(&folder, &RuleSet::default()).unwrap().0
}

#[test]
fn verdicts_of_the_packs_are_those_of_the_prover_and_most_are_proofs() {
    let proofs = verdicts();
    let rules = RuleSet::embedded().unwrap();
    let judged = || rules.iter().map(|rule| (rule, proofs.of(rule).unwrap()));
    let count = |is: fn(&Proof) -> bool| judged().filter(|(_, proof)| is(proof)).count();
    let bits = count(|p| matches!(p, Proof::Every(Claim::Bits)));
    let contract = count(|p| matches!(p, Proof::Every(Claim::Contract)));
    let bounded = count(|p| matches!(p, Proof::UpTo(..)));
    println!(
        "{bits} proved to the bit, {contract} as their contracts say, {bounded} up to a bound, of {}",
        rules.len()
    );
    for (rule, proof) in judged().filter(|(_, proof)| !proof.is_proof()) {
        println!("{}: {proof}", rule.name);
    }
    // The minimal counts are slightly below the current ones. The assertion fails if the prover loses an algebraic law.
    assert!(
        bits >= BITS && bits + contract >= PROVED,
        "{bits} rules are proved to the bit, {contract} as their contracts say"
    );
    assert!((bits + contract + bounded) * 100 >= rules.len() * 80);
    let stale: Vec<_> =
        judged().filter(|(rule, proof)| rule.proof.as_ref() != Some(*proof)).map(|(r, _)| &r.name).collect();
    let again = "`cargo test --workspace --all-features --test proofs -- --ignored write_the_verdicts` writes them";
    assert!(stale.is_empty(), "verdicts in rewrites/rules/proofs.txt are others for {stale:?}: {again}");
}

const VERDICTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../rewrites/rules/proofs.txt");

/// Judges the embedded packs. The result has the form of `proofs.txt`.
fn verdicts() -> Proofs {
    let probes: Vec<Probe> = RuleSet::embedded().unwrap().probes().collect();
    let mut proofs = Proofs::default();
    for (probe, verdict) in probes.iter().zip(judge_all(&probes)) {
        match verdict {
            Verdict::Shown(proof) => proofs.insert(probe.rule(), proof),
            Verdict::Refuted(found) => panic!("{} is refuted: {found:?}", probe.rule().name),
        }
    }
    proofs
}

#[test]
#[ignore = "it writes the file that another test compares"]
fn write_the_verdicts() {
    std::fs::write(VERDICTS, verdicts().to_string()).unwrap();
}

/// The least number of wrong rules that are refuted by an instance.
const REFUTED: usize = 300;
/// The least number of rules that are proved to the bit, and of rules that are proved in any sense of their contract.
const BITS: usize = 205;
const PROVED: usize = 379;

#[test]
fn no_wrong_rule_is_proved() {
    let rules = folder("wrong");
    assert!(rules.len() > 500);
    let probes: Vec<Probe> = rules.probes().collect();
    let (mut reals, mut refuted, mut open) = (Vec::new(), 0, 0);
    for (probe, verdict) in probes.iter().zip(judge_all(&probes)) {
        let rule = probe.rule();
        match verdict {
            Verdict::Shown(Proof::Reals(why)) => reals.push(format!("{}: {why}", rule.name)),
            Verdict::Shown(Proof::Tested(_)) => open += 1,
            Verdict::Shown(proof) => panic!("{}: {proof}", rule.name),
            Verdict::Refuted(_) => refuted += 1,
        }
    }
    println!("{refuted} refuted, {open} not proved, over the reals only: {reals:#?}");
    assert!(refuted >= REFUTED, "{refuted} wrong rules are refuted");
    // If the sides are one real function, the verdict names the obligation that the rule breaks. The checker refutes
    // each of these rules.
    let causes = ["range", "infinities and NaN", "rounding"];
    assert!(reals.iter().all(|text| causes.iter().any(|cause| text.contains(&format!(": {cause}: ")))), "{reals:#?}");
}

#[test]
fn no_right_rule_is_refuted() {
    let probes: Vec<Probe> = folder("right").probes().collect();
    let judged = probes.iter().zip(judge_all(&probes));
    let refuted: Vec<_> = judged
        .filter(|(_, verdict)| matches!(verdict, Verdict::Refuted(_)))
        .map(|(p, v)| (&p.rule().name, v))
        .collect();
    assert!(probes.len() > 20 && refuted.is_empty(), "{} rules: {refuted:#?}", probes.len());
}

/// The rules that define random numbers.
const RANDOM: &str = include_str!("../../../rewrites/rules/decompose/random.rules");
/// One in this number of changes of the Philox rule is tried, because each of the proofs takes a second.
const WORDS: usize = 5;

/// Returns the rules of a text with one number changed, for each number in the rules' sides, with a description of the
/// change.
fn with_another_number(text: &str) -> Vec<(String, String)> {
    let sides = text.lines().scan(0, |from, line| {
        let at = *from;
        *from += line.len() + 1;
        Some((at, line))
    });
    let code = sides.filter(|(_, line)| !line.starts_with(';') && !line.trim_start().starts_with("(where (count"));
    let mut all = Vec::new();
    for (from, line) in code {
        for word in line.split([' ', '(', ')', '[', ']']).filter(|word| !word.is_empty()) {
            let start = from + (word.as_ptr() as usize - line.as_ptr() as usize);
            let other = match (word.parse::<i64>(), word.parse::<f64>()) {
                (Ok(n), _) if n >= 0 => (n + 1).to_string(),
                (Err(_), Ok(x)) => format!("{:?}", x * 2.0),
                _ => continue,
            };
            let changed = format!("{}{other}{}", &text[..start], &text[start + word.len()..]);
            all.push((format!("{}: {word} is {other}", line.trim()), changed));
        }
    }
    all
}

#[test]
fn rules_of_random_numbers_are_not_proved_with_any_other_number() {
    let read = |text: &str| RuleSet::read(&[Source::new("random.rules", text)]).ok();
    let mut own = Proofs::default();
    read(RANDOM).unwrap().iter().for_each(|rule| own.insert(rule, Proof::Tested(String::new())));
    let (mut probes, mut of, mut words) = (Vec::new(), Vec::new(), 0);
    for (what, text) in with_another_number(RANDOM) {
        // A text that no longer parses is rejected anyway.
        let Some(rules) = read(&text) else { continue };
        for probe in rules.probes().filter(|probe| own.of(probe.rule()).is_none()) {
            words += usize::from(&*probe.rule().name == "decompose/random-bits");
            if &*probe.rule().name != "decompose/random-bits" || words.is_multiple_of(WORDS) {
                probes.push(probe);
                of.push(what.clone());
            }
        }
    }
    let proofs = prove_all(&probes);
    let unseen: Vec<_> = of.iter().zip(&proofs).filter(|(_, proof)| proof.is_proof()).map(|(what, _)| what).collect();
    println!("{} of {} rules with another number are proved: {unseen:#?}", unseen.len(), probes.len());
    assert!(probes.len() > 30 && unseen.is_empty(), "{unseen:#?}");
}

/// Rules that are wrong only at sizes, ranks or multiples that tests rarely draw.
const AT_SIZES: &str = include_str!("sizes.rules");

#[test]
fn rules_that_are_wrong_at_some_size_only_are_refuted() {
    let rules = RuleSet::read(&[Source::new("sizes.rules", AT_SIZES)]).unwrap();
    assert!(rules.len() >= 20);
    let probes: Vec<Probe> = rules.probes().collect();
    let judged = probes.iter().zip(judge_all(&probes));
    let open: Vec<_> =
        judged.filter(|(_, v)| !matches!(v, Verdict::Refuted(_))).map(|(p, v)| (&p.rule().name, v)).collect();
    // This rule is wrong only for 0 repetitions, which are never drawn. The solver refutes it (`solver.rs`).
    let others: Vec<_> = open.iter().filter(|(name, _)| &***name != "sizes/sum-of-repeated").collect();
    assert!(others.is_empty(), "{others:?}");
    assert!(!open.iter().any(|(_, verdict)| matches!(verdict, Verdict::Shown(proof) if proof.is_proof())), "{open:?}");
}

#[test]
fn a_counterexample_has_the_values_that_the_interpreter_computes() {
    let text = ";; terms beyond the 64th\n(rule mine/cut (forall (F float) (?x F[D])) \
                (=> (reduce-sum ?x :axes [-1] :keep true) (reduce-sum (slice ?x :axis -1 :at 0 :len (min D 64)) :axes [-1] :keep true)) \
                (eq reassoc) (once))";
    let rules = RuleSet::read(&[Source::new("cut.rules", text)]).unwrap();
    let probes: Vec<Probe> = rules.probes().collect();
    let Verdict::Refuted(found) = judge_all(&probes).remove(0) else { panic!("the rule is wrong from 65 elements on") };
    let sum = |n: usize| found.tensors[0].1.to_f64()[..n].iter().sum::<f64>();
    assert!(found.tensors[0].1.dims()[0] > 64);
    assert!((found.left - sum(found.tensors[0].1.dims()[0])).abs() < 1e-2 && (found.right - sum(64)).abs() < 1e-2);
}
