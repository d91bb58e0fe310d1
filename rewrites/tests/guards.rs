//! Tests the conditions that prevent a rule from firing: backends, divisibility, negated relations, groups with
//! different members, and right sides without a type.

use eutectic_ir::{Graph, Ops, lang::Source};
use eutectic_rewrites::{Choice, Device, Options, RuleSet, RuleStatistics, optimize, read_graph, why};

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
        let device = Device { backend: backend.map(Into::into), ..Device::default() };
        let options = Options { device, ..Options::default() };
        statistics(rule, text, &options).changes
    };
    assert_eq!((on(Some("cpu")), on(Some("vulkan")) > 0, on(None) > 0), (0, true, true));
    let device = Device { backend: Some("cpu".into()), ..Device::default() };
    let options = Options { device, ..Options::default() };
    let why = why(&graph(text), &all(rule), &options, |name| name == "mine/law").unwrap();
    assert_eq!(why[0].idle.as_deref(), Some("it runs only for other backends"));
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
    // A relation holds for an extent that is known only at run time if it holds for each possible value of the
    // extent.
    let varying = |dim: &str| format!("(dim S :most 64) (input x f32[2 {dim}]) (output y (neg (neg (abs x))))");
    let fires = |guard: &str, dim: &str| changes(&rule(guard), &varying(dim)) > 0;
    assert!(!fires("(divides 8 K)", "S") && !fires("(not (divides 8 K))", "S"));
    assert!(fires("(divides 8 K)", "(* 16 S)"));
}

#[test]
fn a_rule_runs_for_devices_of_some_size() {
    let rule = |guard: &str| {
        format!("(forall (F float) (?x F[A..])) (=> (neg (abs ?x)) (sub 0.0 (abs ?x))) (device {guard}) (eq reassoc)")
    };
    let text = "(input x f32[4]) (output y (neg (abs x)))";
    let fires = |guard: &str, limits: &[(&'static str, u64)]| {
        let device = Device { limits: limits.to_vec(), ..Device::default() };
        statistics(&rule(guard), text, &Options { device, ..Options::default() }).changes > 0
    };
    let device = &[("memory", 8_000_000_000), ("axes", 6)];
    assert!(fires("(least memory 8e9)", device) && !fires("(least memory 8000000001)", device));
    assert!(fires("(most axes 6)", device) && !fires("(most axes 5)", device));
    assert!(!fires("(least memory 1) (most axes 5)", device));
    // A device without this limit does not prevent the rule.
    assert!(fires("(most stores 1)", device));
    let options = Options { device: Device { limits: device.to_vec(), ..Device::default() }, ..Options::default() };
    let why = why(&graph(text), &all(&rule("(most axes 5)")), &options, |name| name == "mine/law").unwrap();
    assert_eq!(why[0].idle.as_deref(), Some("it runs only on devices with axes ≤ 5"));
}

#[test]
fn floors_and_remainders_of_dims() {
    let rule = |guard: &str| {
        format!("(forall (F float) (?x F[A.. K])) (where {guard}) (=> (neg (neg (abs ?x))) (abs (abs ?x))) (eq exact)")
    };
    let text = |k: usize| format!("(input x f32[2 {k}]) (output y (neg (neg (abs x))))");
    let fires = |guard: &str, k: usize| changes(&rule(guard), &text(k)) > 0;
    assert!(fires("(equal (mod K 8) 4)", 12) && !fires("(equal (mod K 8) 4)", 13));
    assert!(fires("(at-most (floor K 8) 2)", 23) && !fires("(at-most (floor K 8) 2)", 24));
    assert!(fires("(not (equal (mod K 8) 0))", 9) && !fires("(not (equal (mod K 8) 0))", 16));
    // There is no remainder for a division by 0, so nothing matches.
    let by_zero = format!(";; a law\n(rule mine/law {})", rule("(equal (mod K 0) 0)"));
    assert!(told(&by_zero).contains("the left side is well typed in no sample"));
    // The remainder of a length at run time is unknown.
    let varying = "(dim S :most 64) (input x f32[2 (* 16 S)]) (output y (neg (neg (abs x))))";
    assert_eq!(changes(&rule("(equal (mod K 8) 0)"), varying), 0);
    assert_eq!(changes(&rule("(not (equal (mod K 8) 1))"), varying), 0);
}

#[test]
fn a_remainder_says_how_much_is_padded() {
    // The product over K equals the product over K padded to a multiple of 8.
    let rule = "(forall (F float) (?x F[M K]) (?w F[K N] const)) (where (not (divides 8 K)) (equal P (- 8 (mod K 8))))
      (=> (matmul ?x ?w) (matmul (pad ?x :axis -1 :before 0 :after P :value 0.0) (pad ?w :axis -2 :before 0 :after P :value 0.0)))
      (canonical) (eq reassoc)";
    let text = |k: usize| format!("(input x f32[3 {k}]) (param w f32[{k} 4]) (output y (matmul x w))");
    assert!(changes(rule, &text(13)) > 0);
    assert_eq!(changes(rule, &text(16)), 0);
}

/// Returns the errors of a rule file.
fn told(text: &str) -> String {
    let errors = RuleSet::read(&[Source::new("mine.rules", text)]).unwrap_err();
    errors.0.iter().map(|e| format!("{e} {}", e.help.as_deref().unwrap_or_default())).collect::<Vec<_>>().join("\n")
}

#[test]
fn phases_of_ones_own_have_an_order() {
    let law = |name: &str, part: &str| {
        format!(
            ";; a law\n(rule mine/{name} (forall (F float) (?x F[A..])) (=> (neg (neg (abs ?x))) (abs (abs ?x))) {part} (eq exact))\n"
        )
    };
    let declared = "(phase mine/last (after mine/late))\n(phase mine/late (after main))\n";
    let text = [
        declared,
        &law("a", "(phase mine/last)"),
        &law("b", ""),
        &law("c", "(phase algebra)"),
        &law("d", "(phase mine/late)"),
    ];
    let rules = RuleSet::read(&[Source::new("mine.rules", text.concat())]).unwrap_or_else(|e| panic!("{:?}", e.0));
    let names: Vec<String> = rules.phases().iter().map(ToString::to_string).collect();
    assert_eq!(names, ["legalize", "main", "mine/late", "mine/last", "algebra", "templates", "fold"]);
    // Rewriting stops after the phase `until`. A rule fires only if its own phase is this one or an earlier one.
    let all = RuleSet::embedded().unwrap().and(rules).unwrap().choose(&Choice::default()).unwrap();
    let graph = graph("(input x f32[4]) (output y (neg (neg (abs x))))");
    let fired = |name: &str, until: &str| {
        let until = all.phases().into_iter().find(|phase| phase.to_string() == until);
        assert!(until.is_some());
        let rewritten = optimize(&graph, &all, &Options { until, ..Options::default() }).unwrap();
        rewritten.statistics.iter().any(|one| one.name.as_ref() == name && one.matches > 0)
    };
    assert!(fired("mine/b", "main") && !fired("mine/d", "main"));
    assert!(fired("mine/d", "mine/late") && !fired("mine/a", "mine/late"));
    assert!(fired("mine/a", "mine/last") && !fired("mine/c", "mine/last"));
    assert!(fired("mine/c", "algebra"));
    // Wrong declarations of phases are errors.
    assert!(told(&law("a", "(phase mine/none)")).contains("there is no phase `mine/none`"));
    assert!(told(&law("a", "(phase algebr)")).contains("did you mean `algebra`"));
    assert!(told("(phase late (after main))").contains("this does not declare a phase"));
    assert!(told("(phase mine/a (after mine/b))\n(phase mine/b (after mine/a))").contains("comes after it"));
    assert!(told("(phase mine/a (after fold))").contains("no phase can come after `fold`"));
    assert!(told("(phase mine/a (after main))\n(phase mine/a (after algebra))").contains("already"));
    assert!(told(&law("a", "(phase legalize)")).contains("pack `legalize`"));
}

#[test]
fn a_price_is_told_to_the_search() {
    let rule = |part: &str| {
        format!("(forall (F float) (?x F[A..])) (=> (neg (abs ?x)) (sub 0.0 (abs ?x))) {part} (eq reassoc)")
    };
    let hints = |part: &str| {
        let graph = graph("(input x f32[4]) (output y (exp (neg (abs x))))");
        optimize(&graph, &all(&rule(part)), &Options::default()).unwrap().classes.hints
    };
    assert!(hints("").is_empty());
    let given = hints("(price 0.5)");
    assert!(!given.is_empty() && given.iter().all(|hint| hint.factor == 0.5), "{given:?}");
    for wrong in ["(price)", "(price 0)", "(price -1)", "(price 1e9)", "(price x)", "(price 1 2)"] {
        let text = format!(";; a law\n(rule mine/law {})", rule(wrong));
        assert!(told(&text).contains("this is not a factor"), "{wrong}");
    }
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
    // Tables with equal numbers of rows form a group.
    assert!(changes(LOOKUPS, &lookups(&[1000, 500, 1000])) > 0);
}

#[test]
fn a_match_whose_right_side_has_no_type_is_refused_and_the_program_is_not() {
    // The right side names V, so each member needs its own V.
    let named = LOOKUPS.replace(":len D", ":len (- (+ D V) V)");
    let text = "(input ids i64[512]) (param t f32[1000 64]) (param u f32[500 32])
      (output y (exp (gather t ids :axis 0))) (output z (neg (gather u ids :axis 0)))";
    let refused = statistics(&named, text, &Options::default());
    assert_eq!((refused.changes, refused.refused), (0, 1));
    assert!(refused.refusal.unwrap().contains("concat"), "the message does not name the op that has no type");
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
    assert!(told("(backend)").contains("this does not name a backend"));
    assert!(told("(device)").contains("`device` occurs twice or has the wrong number of arguments"));
    for wrong in
        ["(device (least memry 8))", "(device (memory 8))", "(device (least memory -1))", "(device (least memory 0.5))"]
    {
        assert!(told(wrong).contains("this is not a bound on a limit of the device"), "{wrong}");
    }
    assert!(told("(where (not (divide 8 K)))").contains("there is no relation `divide`"));
    assert!(told("(where (not (divides 8 Q)))").contains("from the left side"));
    assert!(told("(where (divides 8))").contains("`divides` takes 2 arguments, but 1 are given"));
}
