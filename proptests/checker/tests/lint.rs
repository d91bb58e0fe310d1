//! `rules lint` accepts the predicted times of the embedded rules, and reports rules that cannot make a program faster.

use eutectic::{Compiler, Cpu, CpuOptions, RuleSet, engine::ir::lang::Source};
use eutectic_checker::worth;
use eutectic_rewrites::{Choice, Lint};

fn found(rules: &RuleSet, threads: usize) -> Vec<Lint> {
    let cpu = Compiler::new(Cpu::new(CpuOptions { threads, ..CpuOptions::default() })).unwrap();
    worth::lint(rules, &[cpu.with_rules(rules.clone())]).unwrap()
}

#[test]
fn the_shipped_rules_pay() {
    let rules = RuleSet::embedded().unwrap().choose(&Choice::default()).unwrap();
    // The gain of parallel loops depends on the number of threads.
    for threads in [1, 16] {
        let found = found(&rules, threads);
        assert!(found.is_empty(), "{threads} threads: {found:#?}");
    }
}

#[test]
fn rules_that_do_not_pay_are_found() {
    let text = "\
        ;; two passes over the rows for one\n\
        (rule dear/softmax (forall (F float) (?x F[A.. N])) (=> (neg (softmax ?x :axis -1)) (neg (exp (log-softmax (softmax ?x :axis -1) :axis -1)))) (eq fast))\n\
        ;; a product by as many columns for none\n\
        (rule dear/square (forall (F float) (?x F[A.. N N])) (=> (neg (mul ?x ?x)) (neg (matmul ?x ?x))) (eq fast))\n\
        ;; said to be dear, and cheap\n\
        (rule dear/none (forall (F float) (?x F[A.. N N])) (=> (neg (matmul ?x ?x)) (neg (mul ?x ?x))) (eq fast) (canonical))\n\
        ;; as dear as before\n\
        (rule same/sum (forall (F float) (?x F[A..]) (?y F[A..])) (=> (sub ?x (neg ?y)) (add ?x ?y)) (eq exact))\n";
    let rules = RuleSet::read(&[Source::new("dear.rules", text)]).unwrap();
    let found = found(&rules, 1);
    let of =
        |rule: &str| found.iter().filter(|lint| &*lint.rule == rule).map(|l| l.message.clone()).collect::<Vec<_>>();
    assert!(of("dear/softmax").iter().chain(&of("dear/square")).all(|m| m.contains("times as long")), "{found:#?}");
    assert!(of("dear/none").iter().all(|m| m.contains("remove (canonical)")), "{found:#?}");
    let dear = ["dear/none", "dear/softmax", "dear/square"];
    assert_eq!(found.iter().map(|l| &*l.rule).collect::<Vec<_>>(), dear, "{found:#?}");
}
