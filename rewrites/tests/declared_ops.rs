//! Tests ops that are declared in files: their results, where declarations may occur, and the errors for wrong
//! declarations.

use std::fmt::Write;

use eutectic_ir::{
    Attr, DType, Graph, NodeId, Op, Ops, Tensor, Type, interpret,
    lang::{Errors, Source},
    text,
};
use eutectic_rewrites::{Choice, Options, RewriteError, RuleSet, optimize, read_graph};
use miette::{GraphicalReportHandler, GraphicalTheme};

const SQUARED_RELU: &str = "\
(op my/squared-relu (forall (F float) (?x F[A..])) (result F[A..])
  (is (mul (act ?x :kind relu) (act ?x :kind relu))))
";

const SCALED: &str = "\
;; k·x + shift, at each place of the last axis
(op my/scaled (forall (F float) (?x F[A.. N]) (?b F[N]) (?k float :default 2.0) (?how (one-of none relu) :default none))
  (result F[A.. N])
  (is (act (add (mul ?x ?k) ?b) :kind ?how)))
";

fn source(text: &str) -> Source {
    Source::new("mine.rules", text)
}

fn rules(text: &str) -> RuleSet {
    RuleSet::read(&[source(text)]).unwrap_or_else(|errors| panic!("{}", shown(&errors)))
}

fn shown(errors: &Errors) -> String {
    let handler = GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor()).with_width(120);
    let mut text = String::new();
    for error in &errors.0 {
        handler.render_report(&mut text, error).unwrap();
        writeln!(text).unwrap();
    }
    text
}

/// Returns the error message for a wrong rule file.
fn told(text: &str) -> String {
    shown(&RuleSet::read(&[source(text)]).expect_err("the file is wrong"))
}

fn graph(text: &str) -> Graph {
    read_graph(&source(text), &Ops::default()).unwrap_or_else(|errors| panic!("{}", shown(&errors)))
}

fn results(graph: &Graph, given: &[(&str, &[usize], &[f64])]) -> Vec<f64> {
    let value = |name: &str| {
        let (_, dims, elements) = given.iter().find(|(known, ..)| *known == name)?;
        Some(Tensor::from_f64(DType::F32, dims, elements.iter().copied()))
    };
    interpret::<f64>(graph, &value).unwrap().remove(0).to_tensor().to_f64()
}

fn matrix(graph: &mut Graph) -> NodeId {
    graph.input("x", Type::tensor(DType::F32, &[2, 3])).unwrap()
}

#[test]
fn a_graph_declares_and_uses_an_op_that_is_evaluated_by_its_definition() {
    let graph = graph(&format!("{SQUARED_RELU}(graph \"g\" (input x f32[4]) (output y (my/squared-relu x)))"));
    assert_eq!(results(&graph, &[("x", &[4], &[-2.0, 0.5, 3.0, -0.0])]), [0.0, 0.25, 9.0, 0.0]);
    // The flops are one maximum and one product for each of four elements.
    assert!(graph.nodes().any(|(_, n)| n.op.flops(&n.attrs, &[graph.ty(NodeId(0))], &n.ty) >= 8.0));
}

#[test]
fn attributes_have_defaults() {
    let of = |call: &str| graph(&format!("{SCALED}(graph \"g\" (input x f32[2]) (input b f32[2]) (output y {call}))"));
    let run = |call| results(&of(call), &[("x", &[2], &[1.0, -3.0]), ("b", &[2], &[0.5, 1.0])]);
    assert_eq!(run("(my/scaled x b)"), [2.5, -5.0]);
    assert_eq!(run("(my/scaled x b :k 3.0)"), [3.5, -8.0]);
    assert_eq!(run("(my/scaled x b :how relu :k 3.0)"), [3.5, 0.0]);
    let text = format!("{SCALED}(graph \"g\" (input x f32[2]) (input b f32[3]) (output y (my/scaled x b :how tanh)))");
    let wrong = shown(&read_graph(&source(&text), &Ops::default()).unwrap_err());
    assert!(wrong.contains("one of none, relu"), "{wrong}");
    let wrong = shown(&read_graph(&source(&text.replace(" :how tanh", "")), &Ops::default()).unwrap_err());
    assert!(wrong.contains("my/scaled of f32[2], f32[3]"), "{wrong}");
}

#[test]
fn a_graph_prints_with_its_ops_and_reads_back() {
    let bodies = "(graph \"g\" (input x f32[4]) (sub body (input c f32[4]) (output d (my/twice c)))
      (let r (loop x :body body :times 2 :carried 1)) (output y (get 0 r)))";
    let twice =
        "(op my/twice (forall (F float) (?x F[A..])) (result F[A..]) (is (my/squared-relu (my/squared-relu ?x))))\n";
    let text = format!("{twice}{SQUARED_RELU}{bodies}");
    let wrong = read_graph(&source(&text), &Ops::default()).map_err(|errors| shown(&errors));
    // The body of the loop is a graph, and may use the file's ops.
    let graph = wrong.unwrap();
    let printed = text::print(&graph, text::Style::default());
    assert!(printed.find("(op my/squared-relu").unwrap() < printed.find("(op my/twice").unwrap(), "{printed}");
    assert_eq!(read_graph(&source(&printed), &Ops::default()).unwrap(), graph);
    assert_eq!(results(&graph, &[("x", &[4], &[1.0, -1.0, 2.0, 0.5])])[2], 65536.0);
}

#[test]
fn a_graph_expands_to_what_its_ops_are_made_of() {
    let twice =
        "(op my/twice (forall (F float) (?x F[A..])) (result F[A..]) (is (my/squared-relu (my/squared-relu ?x))))";
    let text = format!("{twice}{SQUARED_RELU}(graph \"g\" (input x f32[4]) (output y (neg (my/twice x))))");
    let graph = graph(&text);
    let expanded = graph.expanded().unwrap();
    let ops: Vec<&str> = expanded.nodes().map(|(_, node)| node.op.name()).collect();
    assert_eq!(ops, ["input", "act", "mul", "act", "mul", "neg"]);
    let given: [(&str, &[usize], &[f64]); 1] = [("x", &[4], &[-1.0, 0.5, 2.0, 3.0])];
    assert_eq!(results(&expanded, &given), results(&graph, &given));
}

#[test]
fn an_op_is_applied_from_rust() {
    let ops = rules(SQUARED_RELU).ops().clone();
    let op = ops.named("my/squared-relu").unwrap();
    let mut graph = Graph::new("g");
    let x = matrix(&mut graph);
    let y = graph.apply(op, &[x], &[]).unwrap();
    assert_eq!(graph.ty(y), graph.ty(x));
    let wrong = graph.apply(op, &[x, x], &[]).unwrap_err().to_string();
    assert!(wrong.contains("my/squared-relu") && wrong.contains("the op takes 1 operands, but 2 are given"), "{wrong}");
    let by_name = graph.apply("my/squared-relu", &[x], &[]).unwrap_err().to_string();
    assert!(by_name.contains("there is no such op"), "{by_name}");
    assert!(Op::named("my/squared-relu").is_none() && Op::all().all(|op| op.declared().is_none()));
}

/// Returns the names of the rules that changed something, and the ops of the output's e-class.
fn rewritten(graph: &Graph, rules: &RuleSet) -> (Vec<String>, Vec<String>) {
    let all = RuleSet::embedded().unwrap().and(rules.clone()).unwrap().choose(&Choice::default()).unwrap();
    let rewritten = optimize(graph, &all, &Options::default()).unwrap();
    let fired = rewritten.statistics.iter().filter(|rule| rule.changes > 0).map(|rule| rule.name.to_string());
    let output = &rewritten.classes.classes[rewritten.classes.outputs[0]];
    (fired.collect(), output.nodes.iter().map(|node| node.op.name().to_string()).collect())
}

#[test]
fn rules_match_and_make_the_op_before_it_is_decomposed() {
    let more = "\
;; the square of max(x, 0) is one op
(rule my/find (forall (F float) (?x F[A..]))
  (=> (mul (act ?x :kind relu) (act ?x :kind relu)) (my/squared-relu ?x)) (eq exact))
;; max(0, |x|) = |x|
(rule my/of-absolute (forall (F float) (?x F[A..])) (=> (my/squared-relu (abs ?x)) (mul ?x ?x)) (eq exact))
";
    let rules = rules(&format!("{SQUARED_RELU}{more}"));
    assert_eq!(rules.len(), 3);
    let rule = rules.get("decompose/my/squared-relu").unwrap();
    assert!(rule.defines_an_op() && rule.place() == "mine.rules:1", "{}", rule.place());
    let written =
        read_graph(&source("(graph \"g\" (input x f32[4]) (output y (my/squared-relu (abs x))))"), rules.ops());
    let (fired, ops) = rewritten(&written.unwrap(), &rules);
    for name in ["my/of-absolute", "decompose/my/squared-relu"] {
        assert!(fired.iter().any(|rule| rule == name), "{name}: {fired:?}");
    }
    assert!(ops.iter().any(|op| op == "mul") && ops.iter().any(|op| op == "my/squared-relu"), "{ops:?}");
    let found = graph("(graph \"g\" (input x f32[4]) (let a (act x :kind relu)) (output y (mul a a)))");
    let (fired, ops) = rewritten(&found, &rules);
    assert!(
        fired.iter().any(|rule| rule == "my/find") && ops.iter().any(|op| op == "my/squared-relu"),
        "{fired:?} {ops:?}"
    );
}

#[test]
fn the_ops_of_a_graph_bring_their_rules() {
    let own = graph(&format!("{SQUARED_RELU}(graph \"g\" (input x f32[4]) (output y (my/squared-relu x)))"));
    let (fired, _) = rewritten(&own, &RuleSet::default());
    assert!(fired.iter().any(|rule| rule == "decompose/my/squared-relu"), "{fired:?}");
    // An equal declaration in a rule file is the same op, but a different one is an error.
    let (fired, _) = rewritten(&own, &rules(SQUARED_RELU));
    assert!(fired.iter().any(|rule| rule == "decompose/my/squared-relu"), "{fired:?}");
    let other = rules(&SQUARED_RELU.replace("relu)))", "tanh)))"));
    let clash = optimize(&own, &other, &Options::default()).unwrap_err();
    assert!(matches!(clash, RewriteError::Ops(_)), "{clash}");
    assert!(clash.to_string().contains("give one of the two another name"), "{clash}");
}

#[test]
fn an_observed_op_hands_observation_on_as_its_definition_does() {
    let observer = |definition: &str| {
        let text = format!(
            "(op my/part (forall (F float) (?x F[A.. N])) (result F[A.. N]) (is {definition}))
             (graph \"g\" (input x f32[4 4]) (const c f32[] {{ 7.0 }}) (output y (floor (my/part (div x c)))))"
        );
        let graph = graph(&text);
        let graph = graph.observed();
        graph.nodes().find(|(_, n)| n.op.name() == "div").unwrap().1.observer.map(|op| op.name().to_string())
    };
    assert_eq!(observer("(mul ?x ?x)").as_deref(), Some("floor"));
    assert_eq!(observer("(softmax ?x :axis -1)"), None);
    assert_eq!(observer("(sub ?x (floor ?x))").as_deref(), Some("my/part"));
}

#[test]
fn the_declared_type_is_that_of_the_definition() {
    // A declared type may not be narrower or wider than the definition's type.
    let op = |forall: &str, result: &str, is: &str| {
        told(&format!(";; wrong\n(op my/wrong (forall {forall})\n  (result {result})\n  (is {is}))\n"))
    };
    let text = op("(F float) (?x F[A.. N])", "F[A..]", "(neg ?x)");
    assert!(text.contains("my/wrong: ") && text.contains("mine.rules:4:7") && text.contains("one type"), "{text}");
    let text = op("(F float) (?x F[A.. N])", "F[A.. N]", "(reduce-sum ?x :axes [-1] :keep false)");
    assert!(text.contains("mine.rules:4:7") && text.contains("one type"), "{text}");
    let text = op("(F any) (?x F[A..])", "F[A..]", "(act ?x :kind relu)");
    assert!(text.contains("my/wrong: ") && text.contains("mine.rules:4:7"), "{text}");
    let text = op("(F float) (?x F[A..])", "F[A.. N]", "(neg ?x)");
    assert!(text.contains("my/wrong: ") && text.contains("mine.rules:"), "{text}");
    // If the definition of an op holds only for some operands, an application to other operands is an error.
    let halves = "(op my/halves (forall (F float) (?x F[A.. N])) (result F[A.. N])
      (is (concat (slice ?x :axis -1 :at 0 :len (/ N 2) :step 1) (slice ?x :axis -1 :at (/ N 2) :len (/ N 2) :step 1) :axis -1)))";
    let made = |n: usize| {
        let text = format!("{halves}(graph \"g\" (input x f32[{n}]) (output y (my/halves x)))");
        read_graph(&source(&text), &Ops::default()).map_err(|errors| shown(&errors))
    };
    assert!(made(4).is_ok(), "{:?}", made(4));
    let wrong = made(5).unwrap_err();
    assert!(wrong.contains("my/halves of f32[5]"), "{wrong}");
}

#[test]
fn wrong_declarations_say_what_where_and_what_to_do() {
    let op = |text: &str| told(&format!(";; wrong\n{text}\n"));
    let sound = "(op my/a (forall (F float) (?x F[A..]))\n  (result F[A..])\n  (is (neg ?x)))";
    rules(sound);
    for (from, to, says) in [
        (
            "my/a",
            "neg",
            &["cannot declare an op without a name of the form pack/name", "mine.rules:2:5", "my/squared-relu"][..],
        ),
        ("(neg ?x)", "(negate ?x)", &["my/a: there is no op `negate`", "mine.rules:4:8", "did you mean `neg`?"]),
        (
            "(neg ?x)",
            "(my/a ?x)",
            &["cannot define my/a because its definition uses itself: my/a → my/a", "mine.rules:4:7"],
        ),
        ("(neg ?x)", "(add ?x ?y)", &["`?y` is not known", "mine.rules:4:15"]),
        (
            "(?x F[A..])",
            "(?x F[A..]) (?y F[A..])",
            &["`?y` is declared but never used", "mine.rules:2:40", "remove it"],
        ),
        ("(?x F[A..])", "(?x F[A..]) (?k float)", &["`?k` is declared but never used", "remove it"]),
        ("(F float)", "(F float) (G any)", &["`G` is declared but never used"]),
        ("(?x F[A..])", "", &["the op has no operand"]),
        ("(?x F[A..])", "(?x F[A..] const)", &["the declaration of an operand has only a type"]),
        ("(?x F[A..])", "(?x F[A..]) (?k folat)", &["this is not a kind of attribute", "did you mean `float`?"]),
        ("(?x F[A..])", "(?x F[A..]) (?k float :default soon)", &["this is not a value of the attribute"]),
        ("(?x F[A..])", "(?x F[A..]) (?k float 2.0)", &["only a default may follow the kind", ":default"]),
        ("(?x F[A..])", "(?x F[A..]) (?k axes :default [-1])", &["cannot give this attribute a default"]),
        ("(?x F[A..])", "(near ?x 1.0)", &["an op declares only element types, operands and attributes"]),
        ("(F float)", "(F flaot)", &["this is not a class of element types", "did you mean `float`?"]),
        ("(result F[A..])", "", &["the declaration has no `result`"]),
        ("(result F[A..])", "(resutl F[A..])", &["this is not a part of an op", "did you mean `result`?"]),
        (
            "(result F[A..])",
            "(result F[A..]) (onnx com.me)",
            &["cannot read `onnx` because it occurs twice or has the wrong number of arguments"],
        ),
        (
            "(is (neg ?x))",
            "(is (neg ?x) ?x)",
            &["cannot read `is` because it occurs twice or has the wrong number of arguments"],
        ),
    ] {
        let text = op(&sound.replace(from, to));
        for part in says {
            assert!(text.contains(part), "{to}: {part} is not in\n{text}");
        }
    }
}

#[test]
fn names_clash_and_circles_are_told_once() {
    let twice = told(&format!("{SQUARED_RELU}{SQUARED_RELU}"));
    for part in ["my/squared-relu: there is an op of this name already", "mine.rules:3:5", "mine.rules:1 declares it"] {
        assert!(twice.contains(part), "{twice}");
    }
    let circle = told(
        "(op my/a (forall (F float) (?x F[A..])) (result F[A..]) (is (my/b ?x)))
(op my/b (forall (F float) (?x F[A..])) (result F[A..]) (is (my/a ?x)))
;; a rule that uses a wrong op
(rule my/rule (forall (F float) (?x F[A..])) (=> (my/a (neg ?x)) (my/a ?x)) (eq exact))",
    );
    assert!(circle.contains("cannot define my/b because its definition uses itself: my/a → my/b → my/a"), "{circle}");
    assert_eq!(circle.matches("×").count(), 1, "{circle}");
    let bound = SQUARED_RELU.replace("(result", "(onnx com.me Square) (result");
    let both = told(&format!("{bound}{}", bound.replace("my/squared", "my/other")));
    assert!(both.contains("my/other-relu: `Square` of `com.me` stands for another op already"), "{both}");
    let known = rules(SQUARED_RELU).ops().clone();
    RuleSet::read_with(&[source(SQUARED_RELU)], &known).expect("an equal declaration can be read again");
    let other = source(&SQUARED_RELU.replace(":kind relu", ":kind tanh"));
    let later = shown(&RuleSet::read_with(&[other], &known).unwrap_err());
    assert!(later.contains("there is an op of this name already"), "{later}");
}

/// Returns declarations of a chain of ops. The definition of each op uses the previous op in `body`.
fn chain(length: usize, body: &str) -> String {
    let op = |n: usize| {
        let before = if n == 0 { "neg".into() } else { format!("my/a{}", n - 1) };
        format!("(op my/a{n} (forall (F float) (?x F[A..])) (result F[A..]) (is {}))", body.replace("before", &before))
    };
    (0..length).map(op).collect()
}

#[test]
fn a_chain_of_definitions_takes_time_in_proportion_to_its_length() {
    let text = format!("{} (graph \"g\" (input x f32[2]) (output y (my/a29 x)))", chain(30, "(before (neg ?x))"));
    assert_eq!(results(&graph(&text), &[("x", &[2], &[1.0, -2.0])]), [-1.0, 2.0]);
}

#[test]
fn a_definition_that_expands_to_very_many_ops_is_refused() {
    let text = told(&chain(40, "(add (before ?x) (before ?x))"));
    assert!(text.contains("cannot declare `my/a12` because it expands to"), "{text}");
}

#[test]
fn a_graph_without_the_rule_language_refuses_declarations() {
    let text = format!("{SQUARED_RELU}(graph \"g\" (input x f32[4]) (output y (my/squared-relu x)))");
    let wrong = shown(&text::parse(&source(&text)).unwrap_err());
    assert!(wrong.contains("this reader knows built-in ops only"), "{wrong}");
}

#[test]
fn the_same_declaration_is_one_op() {
    let [first, again] = [rules(SCALED), rules(SCALED)].map(|rules| rules.ops().named("my/scaled").unwrap());
    let other = rules(&SCALED.replace("2.0", "4.0")).ops().named("my/scaled").unwrap();
    assert!(first == again && first != other);
    assert_eq!(first.def().attrs.len(), 2);
    assert_eq!(first.def().doc, "k·x + shift, at each place of the last axis");
    assert_eq!(first.def().signature, "(F float) F[A.. N] F[N] -> F[A.. N]");
    let mut graph = Graph::new("g");
    let x = matrix(&mut graph);
    let b = graph.input("b", Type::tensor(DType::F32, &[3])).unwrap();
    let y = graph.apply(first, &[x, b], &[("k", Attr::from(1.5))]).unwrap();
    assert_eq!(graph.node(y).attrs.len(), 2);
}
