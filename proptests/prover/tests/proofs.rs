//! What is proved of the packs, and that nothing wrong is.

use std::path::Path;

use eutectic_ir::lang::Source;
use eutectic_prover::{Verdict, judge_all};
use eutectic_rewrites::{Claim, Contract, Probe, Proof, Proofs, RuleSet};

fn folder(name: &str) -> RuleSet {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests").join(name);
    RuleSet::load_dir_partly(&folder, &eutectic_ir::Ops::default()).unwrap().0
}

#[test]
fn verdicts_of_the_packs_are_those_of_the_prover_and_most_are_proofs() {
    let proofs = verdicts();
    let rules = RuleSet::embedded().unwrap();
    let judged = || rules.iter().map(|rule| (rule, proofs.of(rule).unwrap()));
    let count = |is: fn(&Proof) -> bool| judged().filter(|(_, proof)| is(proof)).count();
    let bits = count(|p| matches!(p, Proof::Every(Claim::Bits)));
    let reals = count(|p| matches!(p, Proof::Every(Claim::Reals)));
    let bounded = count(|p| matches!(p, Proof::UpTo(..)));
    println!("{bits} proved, {reals} equal over the reals, {bounded} up to a bound, of {}", rules.len());
    for (rule, proof) in judged().filter(|(_, proof)| matches!(proof, Proof::Tested(_))) {
        println!("{}: {proof}", rule.name);
    }
    // Below what is proved today: a law that is lost shows.
    assert!(bits >= BITS && bits + reals >= PROVED, "{bits} rules are proved to the bit, {reals} over the reals");
    let stale: Vec<_> =
        judged().filter(|(rule, proof)| rule.proof.as_ref() != Some(*proof)).map(|(r, _)| &r.name).collect();
    let again = "`cargo test --workspace --all-features --test proofs -- --ignored write_the_verdicts` writes them";
    assert!(stale.is_empty(), "verdicts in rewrites/rules/proofs.txt are others for {stale:?}: {again}");
}

const VERDICTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../rewrites/rules/proofs.txt");

/// The verdicts on the packs, as files have them.
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

/// How many wrong rules are refuted by an instance at least.
const REFUTED: usize = 300;
/// How many rules are proved to the bit at least, and how many in all.
const BITS: usize = 196;
const PROVED: usize = 370;

#[test]
fn no_wrong_rule_is_proved() {
    let rules = folder("wrong");
    assert!(rules.len() > 500);
    let probes: Vec<Probe> = rules.probes().collect();
    let (mut finite, mut bounded, mut refuted, mut open) = (Vec::new(), Vec::new(), 0, 0);
    for (probe, verdict) in probes.iter().zip(judge_all(&probes)) {
        let rule = probe.rule();
        match verdict {
            Verdict::Shown(Proof::Every(Claim::Bits)) => panic!("{} is proved", rule.name),
            Verdict::Shown(Proof::Every(Claim::Reals)) => {
                assert!(rule.contract != Contract::Exact, "{}", rule.name);
                finite.push(rule.name.to_string());
            }
            Verdict::Shown(Proof::UpTo(..)) => bounded.push(rule.name.to_string()),
            Verdict::Shown(Proof::Tested(_)) => open += 1,
            Verdict::Refuted(_) => refuted += 1,
        }
    }
    println!("{refuted} refuted, {open} not proved, up to a bound {bounded:?}, over the reals {finite:#?}");
    assert!(refuted >= REFUTED, "{refuted} wrong rules are refuted");
    // That claim does not speak of what is wrong with these: the checker refutes each of them.
    let unknown: Vec<_> = finite.iter().filter(|name| !OF_RANGES.contains(&name.as_str())).collect();
    assert!(unknown.is_empty(), "proved for finite values: {unknown:?}");
}

/// Wrong rules whose sides are one real function. Their contract is broken by numbers of a program that round ordinary values coarsely or leave the range (`add`,
/// `scale`, `product`, `lora`), by what is hidden and read nevertheless (masks and biases), in the last digits, or at values that instances here do not have.
const OF_RANGES: &[&str] = &[
    "wrong/ranges-divide-twice",
    "wrong/ranges-mask-by-mul",
    "wrong/retired-add-constants",
    "wrong/retired-bf16-attention-bias",
    "wrong/retired-add-number-twice",
    "wrong/retired-add-two-numbers",
    "wrong/retired-attention-bias-zeros",
    "wrong/retired-gelu-tanh-inside",
    "wrong/retired-lora-into-weights",
    "wrong/retired-mask-where",
    "wrong/retired-product-to-the-left",
    "wrong/retired-product-to-the-left-in-f16",
    "wrong/retired-product-to-the-right",
    "wrong/retired-product-to-the-right-in-f16",
    "wrong/retired-safe-softmax",
    "wrong/retired-scale-product",
    "wrong/retired-scale-sum",
    "wrong/retired-shift-into-bias-in-f16",
    "wrong/retired-softmax-shift",
    "wrong/retired-sum-of-sums",
];

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

/// Rules that are wrong at sizes, ranks or multiples that tests may not draw.
const AT_SIZES: &str = include_str!("sizes.rules");

#[test]
fn rules_that_are_wrong_at_some_size_only_are_refuted() {
    let rules = RuleSet::read(&[Source::new("sizes.rules", AT_SIZES)]).unwrap();
    assert!(rules.len() >= 20);
    let probes: Vec<Probe> = rules.probes().collect();
    let judged = probes.iter().zip(judge_all(&probes));
    let open: Vec<_> =
        judged.filter(|(_, v)| !matches!(v, Verdict::Refuted(_))).map(|(p, v)| (&p.rule().name, v)).collect();
    // It is wrong for no repetition at all, which is not drawn yet; it is not proved.
    let others: Vec<_> = open.iter().filter(|(name, _)| &***name != "sizes/sum-of-repeated").collect();
    assert!(others.is_empty(), "{others:?}");
    assert!(!open.iter().any(|(_, verdict)| matches!(verdict, Verdict::Shown(Proof::Every(_)))), "{open:?}");
}

#[test]
fn a_counterexample_is_what_the_interpreter_computes() {
    let text = ";; terms beyond the 64th\n(rule mine/cut (forall (F float) (?x F[D])) \
                (=> (reduce-sum ?x :axes [-1] :keep true) (reduce-sum (slice ?x :axis -1 :at 0 :len (min D 64)) :axes [-1] :keep true)) \
                (eq reassoc) (once))";
    let rules = RuleSet::read(&[Source::new("cut.rules", text)]).unwrap();
    let probes: Vec<Probe> = rules.probes().collect();
    let Verdict::Refuted(found) = judge_all(&probes).remove(0) else { panic!("it is wrong from 65 on") };
    let sum = |n: usize| found.tensors[0].1.to_f64()[..n].iter().sum::<f64>();
    assert!(found.tensors[0].1.dims()[0] > 64);
    assert!((found.left - sum(found.tensors[0].1.dims()[0])).abs() < 1e-2 && (found.right - sum(64)).abs() < 1e-2);
}
