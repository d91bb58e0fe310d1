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
const BITS: usize = 220;
const PROVED: usize = 360;

#[test]
fn no_wrong_rule_is_proved() {
    let rules = folder("wrong");
    assert!(rules.len() > 500);
    let probes: Vec<Probe> = rules.probes().collect();
    for (probe, verdict) in probes.iter().zip(judge_all(&probes)) {
        let rule = probe.rule();
        match verdict {
            Verdict::Proved(Claim::Bits) => panic!("{} is proved", rule.name),
            // These leave the range, or change infinities and NaN: the checker refutes each of them.
            Verdict::Proved(Claim::Reals) => {
                assert!(OF_RANGES.contains(&&*rule.name), "{} is proved for finite values", rule.name);
                assert!(rule.contract == Contract::Reassoc, "{}", rule.name);
            }
            Verdict::NotProved(_) | Verdict::Refuted(_) => {}
        }
    }
}

/// Wrong rules whose sides are one real function: what is wrong is how they round, or what they do to numbers that are not finite.
const OF_RANGES: &[&str] = &[];

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
                (eq reassoc))";
    let rules = RuleSet::read(&[Source::new("cut.rules", text)]).unwrap();
    let probes: Vec<Probe> = rules.probes().collect();
    let Verdict::Refuted(found) = judge_all(&probes).remove(0) else { panic!("it is wrong from 65 on") };
    let sum = |n: usize| found.tensors[0].1.to_f64()[..n].iter().sum::<f64>();
    assert!(found.tensors[0].1.dims()[0] > 64);
    assert!((found.left - sum(found.tensors[0].1.dims()[0])).abs() < 1e-2 && (found.right - sum(64)).abs() < 1e-2);
}
