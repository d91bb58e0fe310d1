//! Where rules are kept from: backends, multiples, what must not hold, groups whose members differ, and right sides without a type.

use eutectic_ir::{Graph, Ops, lang::Source};
use eutectic_rewrites::{Choice, Options, RuleSet, RuleStatistics, optimize, read_graph, why};

fn graph(text: &str) -> Graph {
    let text = format!("(graph \"g\" {text})");
    read_graph(&Source::new("g.graph", text), &Ops::default()).unwrap_or_else(|e| panic!("{:?}", e.0))
}

fn all(rule: &str) -> RuleSet {
    let own = RuleSet::read(&[Source::new("mine.rules", format!(";; a law\n(rule mine/law {rule})\n"))]);
    let own = own.unwrap_or_else(|e| panic!("{:?}", e.0));
    RuleSet::embedded().unwrap().and(own).unwrap().choose(&Choice::default()).unwrap()
}

fn statistics(rule: &str, text: &str, options: &Options) -> RuleStatistics {
    let rewritten = optimize(&graph(text), &all(rule), options).unwrap();
    rewritten.statistics.into_iter().find(|one| &*one.name == "mine/law").unwrap()
}

fn changes(rule: &str, text: &str) -> usize {
    statistics(rule, text, &Options::default()).changes
}

#[test]
fn a_rule_runs_for_its_backends() {
    let rule =
        "(forall (F float) (?x F[A..])) (=> (neg (abs ?x)) (sub 0.0 (abs ?x))) (backend cuda vulkan) (eq reassoc)";
    let text = "(input x f32[4]) (output y (neg (abs x)))";
    let on = |backend: Option<&str>| {
        let options = Options { backend: backend.map(Into::into), ..Options::default() };
        statistics(rule, text, &options).changes
    };
    assert_eq!((on(Some("cpu")), on(Some("vulkan")) > 0, on(None) > 0), (0, true, true));
    let options = Options { backend: Some("cpu".into()), ..Options::default() };
    let why = why(&graph(text), &all(rule), &options, |name| name == "mine/law").unwrap();
    assert_eq!(why[0].idle, Some("it runs for other backends only"));
}

#[test]
fn multiples_and_what_is_none() {
    let rule = |guard: &str| {
        format!("(forall (F float) (?x F[A.. K])) (where {guard}) (=> (neg (neg (abs ?x))) (abs (abs ?x))) (eq exact)")
    };
    let text = |k: usize| format!("(input x f32[2 {k}]) (output y (neg (neg (abs x))))");
    let fires = |guard: &str, k: usize| changes(&rule(guard), &text(k)) > 0;
    assert!(fires("(divides 8 K)", 16) && !fires("(divides 8 K)", 12));
    assert!(!fires("(not (divides 8 K))", 16) && fires("(not (divides 8 K))", 12));
    assert!(fires("(not (at-most K 8))", 9) && !fires("(not (at-most K 8))", 8));
    assert!(fires("(not (not (divides 8 K)))", 16));
    // Of lengths at run time neither is certain, unless it holds for each.
    let varying = |dim: &str| format!("(dim S :most 64) (input x f32[2 {dim}]) (output y (neg (neg (abs x))))");
    let fires = |guard: &str, dim: &str| changes(&rule(guard), &varying(dim)) > 0;
    assert!(!fires("(divides 8 K)", "S") && !fires("(not (divides 8 K))", "S"));
    assert!(fires("(divides 8 K)", "(* 16 S)"));
}

const LOOKUPS: &str = "(forall (F float) (I int) (?t F[V D] const) (?ids I[S]))
  (group ?y (gather ?t ?ids :axis -2))
  (let ?all (gather (concat ?t.. :axis -1) ?ids :axis -2))
  (=> ?y (slice ?all :axis -1 :at (offset ?y) :len D :step 1))
  (eq exact)";

#[test]
fn the_members_of_a_group_agree_in_dims_that_the_right_side_does_not_name() {
    let lookups = |heights: &[usize]| {
        let each = heights.iter().enumerate().map(|(n, height)| {
            let width = 32 * (n + 1);
            format!("(param t{n} f32[{height} {width}]) (output y{n} (exp (gather t{n} ids :axis 0)))")
        });
        format!("(input ids i64[512]) {}", each.collect::<Vec<_>>().join(" "))
    };
    assert!(changes(LOOKUPS, &lookups(&[1000, 1000])) > 0);
    assert_eq!(changes(LOOKUPS, &lookups(&[1000, 500])), 0);
    // The others are one group.
    assert!(changes(LOOKUPS, &lookups(&[1000, 500, 1000])) > 0);
}

#[test]
fn a_match_whose_right_side_has_no_type_is_refused_and_the_program_is_not() {
    // The right side names V, so that each member has its own.
    let named = LOOKUPS.replace(":len D", ":len (- (+ D V) V)");
    let text = "(input ids i64[512]) (param t f32[1000 64]) (param u f32[500 32])
      (output y (exp (gather t ids :axis 0))) (output z (neg (gather u ids :axis 0)))";
    let refused = statistics(&named, text, &Options::default());
    assert_eq!((refused.changes, refused.refused), (0, 1));
    assert!(refused.refusal.unwrap().contains("concat"), "it says what does not fit");
}

#[test]
fn guards_that_are_wrong_say_so() {
    let told = |rule: &str| {
        let text = format!(
            ";; a law\n(rule mine/law (forall (F float) (?x F[A.. K])) {rule} (=> (neg (neg ?x)) ?x) (eq exact))"
        );
        let errors = RuleSet::read(&[Source::new("mine.rules", text)]).unwrap_err();
        errors.0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    assert!(told("(backend)").contains("this names no backend"));
    assert!(told("(where (not (divide 8 K)))").contains("there is no relation `divide`"));
    assert!(told("(where (not (divides 8 Q)))").contains("cannot be solved from the left side"));
    assert!(told("(where (divides 8))").contains("`divides` takes 2 arguments, 1 given"));
}
