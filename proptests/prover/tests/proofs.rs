//! What is proved of the packs, and that nothing wrong is.

use std::path::Path;

use eutectic_ir::lang::Source;
use eutectic_prover::{Claim, Verdict, judge_all, prove};
use eutectic_rewrites::{Contract, Probe, RuleSet};

fn folder(name: &str) -> RuleSet {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests").join(name);
    RuleSet::load_dir_partly(&folder).unwrap().0
}

#[test]
fn most_rules_of_the_packs_are_proved_and_none_is_refuted() {
    let probes: Vec<Probe> = RuleSet::embedded().unwrap().probes().collect();
    let verdicts = judge_all(&probes);
    let judged = || probes.iter().map(Probe::rule).zip(&verdicts);
    let refuted: Vec<_> = judged().filter(|(_, v)| matches!(v, Verdict::Refuted(_))).collect();
    assert!(refuted.is_empty(), "{:?}", refuted.iter().map(|(r, v)| (&r.name, v)).collect::<Vec<_>>());
    let proved = |claim: Claim| judged().filter(|(_, v)| **v == Verdict::Proved(claim)).count();
    let (bits, reals) = (proved(Claim::Bits), proved(Claim::Reals));
    // Below what is proved today: a law that is lost shows.
    assert!(bits >= BITS && bits + reals >= PROVED, "{bits} rules are proved to the bit, {reals} for finite values");
}

/// How many rules are proved to the bit at least, and how many in all.
const BITS: usize = 190;
const PROVED: usize = 365;

#[test]
fn no_wrong_rule_is_proved() {
    let rules = folder("wrong");
    assert!(rules.len() > 500);
    let probes: Vec<Probe> = rules.probes().collect();
    let mut finite = Vec::new();
    for (probe, verdict) in probes.iter().zip(judge_all(&probes)) {
        let rule = probe.rule();
        match verdict {
            Verdict::Proved(Claim::Bits) => panic!("{} is proved", rule.name),
            Verdict::Proved(Claim::Reals) => {
                assert!(matches!(rule.contract, Contract::Reassoc | Contract::Fast), "{}", rule.name);
                finite.push(rule.name.to_string());
            }
            Verdict::NotProved(_) | Verdict::Refuted(_) => {}
        }
    }
    // These leave the range, or change infinities and NaN, which that claim does not speak of: the checker refutes each of them.
    let unknown: Vec<_> = finite.iter().filter(|name| !OF_RANGES.contains(&name.as_str())).collect();
    assert!(unknown.is_empty(), "proved for finite values: {unknown:?}");
}

/// Wrong rules whose sides are one real function: what is wrong is how they round, or what they do to numbers that are not finite.
const OF_RANGES: &[&str] = &[
    "wrong/attention-empty",
    "wrong/masks-added-instead",
    "wrong/overflow-log-softmax-without-max",
    "wrong/overflow-ratio-of-exps",
    "wrong/overflow-sigmoid-by-exp",
    "wrong/overflow-silu-by-exp",
    "wrong/overflow-softmax-without-max",
    "wrong/overflow-tanh-by-exp",
    "wrong/ranges-divide-twice",
    "wrong/ranges-guard-by-mul",
    "wrong/ranges-mask-by-mul",
    "wrong/ranges-product-of-three",
    "wrong/ranges-seven",
    "wrong/ranges-square-of-sum",
    "wrong/retired-add-constants",
    "wrong/retired-add-number-twice",
    "wrong/retired-add-two-numbers",
    "wrong/retired-attention-bias-zeros",
    "wrong/retired-common-factor[add]",
    "wrong/retired-common-factor[sub]",
    "wrong/retired-div-div",
    "wrong/retired-div-exp",
    "wrong/retired-gelu-tanh-inside",
    "wrong/retired-lora-into-weights",
    "wrong/retired-mask-where",
    "wrong/retired-norm-gain-first",
    "wrong/retired-pow-half",
    "wrong/retired-pow-minus-half",
    "wrong/retired-product-to-the-left",
    "wrong/retired-product-to-the-left-in-f16",
    "wrong/retired-product-to-the-right",
    "wrong/retired-product-to-the-right-in-f16",
    "wrong/retired-safe-softmax",
    "wrong/retired-scale-product",
    "wrong/retired-scale-sum",
    "wrong/retired-shift-into-bias-in-f16",
    "wrong/retired-sigmoid-exp",
    "wrong/retired-softmax-shift",
    "wrong/retired-sum-of-sums",
    "wrong/softmax-overflow",
];

/// Rules that are wrong at sizes, ranks or multiples that tests may not draw.
const AT_SIZES: &str = include_str!("sizes.rules");

#[test]
fn rules_that_are_wrong_at_some_size_only_are_not_proved() {
    let rules = RuleSet::read(&[Source::new("sizes.rules", AT_SIZES)]).unwrap();
    assert!(rules.len() >= 20);
    let proved: Vec<_> = rules.iter().filter(|r| matches!(prove(r), Verdict::Proved(_))).map(|r| &r.name).collect();
    assert!(proved.is_empty(), "{proved:?}");
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
