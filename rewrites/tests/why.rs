//! Tests that `why` names each cause that prevents a rule from firing, and the part of the rule that requires it.

use std::collections::BTreeMap;

use eutectic_ir::{Graph, lang::Source, text};
use eutectic_rewrites::{Options, RuleSet, Why, why};

/// Returns what `why` says about the only rule, given the rule and the graph as text.
fn of(rule: &str, graph: &str) -> Why {
    let rule = format!("; a file\n\n;; under test\n(rule test/it {rule})");
    let rules =
        RuleSet::read(&[Source::new("it.rules", rule)]).unwrap_or_else(|e| panic!("{:?}", miette::Report::new(e)));
    let graph: Graph = text::parse(&Source::new("g.graph", format!("(graph \"g\" {graph})")))
        .map(|graph| graph.bind(&BTreeMap::new()).expect("the graph has no open extents"))
        .unwrap_or_else(|e| panic!("{:?}", miette::Report::new(e)));
    let mut all =
        why(&graph, &rules, &Options::default(), |name| name == "test/it").expect("the graph can be rewritten");
    assert_eq!(all.len(), 1);
    all.remove(0)
}

/// Returns the nearest miss: how many ops matched, how many the rule has, the part of the rule that did not match,
/// and the value there.
fn nearest(rule: &str, graph: &str) -> (usize, usize, String, String) {
    let found = of(rule, graph);
    assert_eq!(found.statistics.matches, 0);
    let miss = found.misses.first().expect("the rule has a near miss");
    assert!(matches!(&*miss.place, "it.rules:4" | "it.rules:5"), "{}", miss.place);
    (miss.matched, miss.ops, miss.part.clone(), miss.reason.clone())
}

const BIAS: &str = "(forall (F float) (?x F[M K]) (?w F[K N] const) (?b F[N] const))
                    (=> (add (matmul ?x ?w) ?b) (linear ?x ?w ?b :act none)) (eq reassoc)";

#[test]
fn what_is_not_constant() {
    let graph =
        "(input x f32[4 8]) (input w f32[8 3]) (param b f32[3]) (output y (add (matmul x w) (expand b :shape [4 3])))";
    let (matched, ops, part, reason) = nearest(BIAS, graph);
    assert_eq!((matched, ops, &*part), (2, 3, "(?w F[K N] const)"));
    assert_eq!(reason, "f32[8 3] by input depends on an input");
}

#[test]
fn the_number_of_axes_an_op_and_an_attribute() {
    let graph = "(input x f32[2 4 8]) (param w f32[8 3]) (param b f32[3])
                 (output y (add (matmul x w) (expand b :shape [2 4 3])))";
    let (.., part, reason) = nearest(BIAS, graph);
    assert_eq!((&*part, &*reason), ("(?x F[M K])", "f32[2 4 8] by input has another number of axes"));
    let graph = "(input x f32[4 8]) (input b f32[8]) (output y (add (tanh x) (expand b :shape [4 8])))";
    let (.., part, reason) = nearest(BIAS, graph);
    assert_eq!((&*part, &*reason), ("(matmul ?x ?w)", "there is f32[4 8] by tanh"));
    let softmax = "(forall (F float) (?x F[A..])) (=> (softmax (neg ?x) :axis -1) (softmax ?x :axis -1)) (eq fast)";
    let (.., reason) = nearest(softmax, "(input x f32[4 8]) (output y (softmax (neg x) :axis -2))");
    assert_eq!(reason, "there with :axis -2");
}

#[test]
fn what_the_guard_refuses() {
    let square =
        "(forall (F float) (?x F[N N])) (=> (transpose (neg ?x) :perm [-1 -2]) (transpose ?x :perm [-1 -2])) (eq fast)";
    let (matched, ops, part, reason) =
        nearest(square, "(input x f32[4 8]) (output y (transpose (neg x) :perm [-1 -2]))");
    assert_eq!((matched, ops, &*part), (2, 2, "(?x F[N N])"));
    assert_eq!(reason, "N is 4 in one place and 8 in another");
    let long = "(forall (F float) (?x F[A.. N])) (where (at-most 16 N)) (=> (neg (neg ?x)) ?x) (eq exact)";
    let (.., part, _) = nearest(long, "(input x f32[8]) (output y (neg (neg x)))");
    assert_eq!(part, "(at-most 16 N)");
    let one = "(forall (F float) (?x F[A..])) (=> (mul ?x 2.0) (add ?x ?x)) (eq exact)";
    let (.., part, reason) = nearest(one, "(input x f32[8]) (output y (mul x (const f32[] { 3 })))");
    assert_eq!((&*part, &*reason), ("the number 2", "f32[] by const is another number"));
}

#[test]
fn one_variable_for_two_values() {
    let rule = "(forall (F float) (?x F[A..])) (=> (mul (exp ?x) (neg ?x)) (exp ?x)) (eq fast)";
    let graph = "(input x f32[8]) (input z f32[8]) (output y (mul (exp x) (neg z)))";
    let (matched, ops, part, reason) = nearest(rule, graph);
    assert_eq!((matched, ops, &*part), (3, 3, "(?x F[A..])"));
    assert!(reason.contains("another value"), "{reason}");
}

#[test]
fn matches_without_effect() {
    let group = "(forall (F float) (?x F[M K]) (?w F[K N] const)) (group ?y (matmul ?x ?w))
                 (=> ?y (slice (matmul ?x (concat ?w.. :axis -1)) :axis -1 :at (offset ?y) :len N)) (eq reassoc)";
    let graph = "(input x f32[4 8]) (param w f32[8 3]) (output y (matmul x w))";
    let alone = of(group, graph);
    assert!(
        alone.statistics.matches > 0
            && alone.idle.as_deref().is_some_and(|why| why.contains("no two matches have equal values")),
        "{alone:?}"
    );
    let once = "(forall (F float) (?a F[M K]) (?b F[M K]) (?w F[K N])) (=> (matmul (add ?a ?b) ?w)
                (add (matmul ?a ?w) (matmul ?b ?w))) (eq reassoc) (once)";
    let graph = "(input a f32[4 8]) (input b f32[4 8]) (input w f32[8 3]) (output y (matmul (add a b) w))";
    assert!(of(once, graph).idle.is_some_and(|why| why.contains("cheaper")));
}

#[test]
fn an_op_that_is_nowhere_has_no_near_misses() {
    let found = of(BIAS, "(input x f32[4]) (output y (neg x))");
    assert!((found.misses.is_empty(), &*found.entry, found.idle.as_deref()) == (true, "add", None), "{found:?}");
}
