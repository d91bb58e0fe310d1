//! Tests that rules over ops that files declare are proved by the definitions of these ops.

use eutectic_ir::lang::Source;
use eutectic_prover::{Verdict, judge_all};
use eutectic_rewrites::{Claim, Probe, Proof, RuleSet};

/// The op k·max(x, 0)², a scaled row, and an op that is composed of these.
const OPS: &str = "
;; k·max(x, 0)²
(op mine/squared (forall (F float) (?x F[A..]) (?k float :default 1.0))
  (result F[A..])
  (is (mul (mul (act ?x :kind relu) (act ?x :kind relu)) ?k)))
;; a row times a weight for each column
(op mine/row (forall (F float) (?x F[B.. D]) (?g F[D]))
  (result F[B.. D])
  (is (mul ?x ?g)))
;; both
(op mine/both (forall (F float) (?x F[B.. D]) (?g F[D]))
  (result F[B.. D])
  (is (mine/row (mine/squared ?x) ?g)))
";

fn judged(rules: &str) -> Vec<(String, Verdict)> {
    let text = format!("{OPS}{rules}");
    let rules = RuleSet::read(&[Source::new("mine.rules", text.as_str())]).unwrap_or_else(|e| panic!("{e:?}"));
    let own = |probe: &Probe| probe.rule().pack() == "mine";
    let probes: Vec<Probe> = rules.probes().filter(own).collect();
    probes.iter().map(|p| p.rule().name.to_string()).zip(judge_all(&probes)).collect()
}

#[test]
fn rules_over_declared_ops_are_proved_by_their_definitions() {
    let right = ";; 1·max(x, 0)²·2
        (rule mine/twice (forall (F float) (?x F[A..]))
          (=> (mine/squared ?x :k 2.0) (mul (mine/squared ?x :k 1.0) 2.0)) (eq exact))
        ;; an op of ops
        (rule mine/apart (forall (F float) (?x F[B.. D]) (?g F[D]))
          (=> (mine/both ?x ?g) (mine/row (mine/squared ?x :k 1.0) ?g)) (eq exact))
        ;; the gains of two rows
        (rule mine/gains (forall (F float) (?x F[B.. D]) (?g F[D] const varied) (?h F[D] const varied))
          (=> (mine/row (mine/row ?x ?g) ?h) (mine/row ?x (mul ?g ?h))) (eq reassoc))";
    let all = judged(right);
    assert_eq!(all.len(), 3);
    let claims: Vec<_> = all
        .iter()
        .map(|(name, verdict)| match verdict {
            Verdict::Shown(Proof::Every(claim)) => *claim,
            other => panic!("{name}: {other:?}"),
        })
        .collect();
    // The claims are in the order of the rules' names: apart, gains, twice.
    assert_eq!(claims, [Claim::Bits, Claim::Contract, Claim::Bits]);
}

#[test]
fn wrong_rules_over_declared_ops_are_refuted() {
    let wrong = ";; the scale is not squared
        (rule mine/scaled (forall (F float) (?x F[A..]))
          (=> (mine/squared (mul ?x 2.0) :k 1.0) (mine/squared ?x :k 2.0)) (eq exact))
        ;; columns are no rows
        (rule mine/turned (forall (F float) (?x F[D D]) (?g F[D]))
          (=> (transpose (mine/row ?x ?g) :perm [-1 -2]) (mine/row (transpose ?x :perm [-1 -2]) ?g)) (eq exact) (once))";
    for (name, verdict) in judged(wrong) {
        assert!(matches!(verdict, Verdict::Refuted(_)), "{name}: {verdict:?}");
    }
}
