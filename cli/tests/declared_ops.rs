//! Tests declared ops on the command line: they are listed, checked, run, explained, and part of saved plans.

mod common;

use common::{Dir, Run, eutectic};

const OWN: &str = "\
;; max(x, 0)²
(op my/squared-relu (forall (F float) (?x F[A..])) (result F[A..])
  (is (mul (act ?x :kind relu) (act ?x :kind relu)))
  (onnx com.me SquaredRelu))
";

const GRAPH: &str = "(graph \"g\" (input x f32[3]) (output y (my/squared-relu x)))";

/// Returns a folder with a rule file that declares an op, and a graph that uses the op.
struct Own {
    dir: Dir,
    rules: String,
    graph: String,
}

impl Own {
    fn new() -> Own {
        let dir = Dir::new();
        let name = |path: std::path::PathBuf| path.to_str().expect("UTF-8").to_string();
        dir.file("rules/own.rules", OWN);
        let (rules, graph) = (name(dir.path("rules")), name(dir.file("g.graph", GRAPH)));
        Own { dir, rules, graph }
    }

    fn with_rules(&self, args: &[&str]) -> Run {
        eutectic([args, &["--rules", &self.rules]].concat())
    }
}

#[test]
fn ops_lists_what_rule_files_declare() {
    let own = Own::new();
    let out = own.with_rules(&["ops", "my/squared-relu"]).good();
    for part in [
        "composite",
        "my/squared-relu",
        "(F float) F[A..] -> F[A..]",
        "max(x, 0)²",
        "is: (mul",
        "own.rules:2",
        "com.me",
    ] {
        assert!(out.contains(part), "{part} is not in: {out}");
    }
    assert!(own.with_rules(&["ops"]).good().contains("my/squared-relu"));
    let json: serde_json::Value =
        serde_json::from_str(&own.with_rules(&["ops", "my/*", "--format", "json"]).good()).expect("JSON");
    assert_eq!(json[0]["declared"]["onnx"][0][1], "SquaredRelu");
    eutectic(["ops", "my/squared-relu"]).refused(&["no op is named"]);
}

#[test]
fn rules_check_and_lint_take_the_definition() {
    let own = Own::new();
    let out = own.with_rules(&["rules", "check"]).good();
    assert!(out.contains("decompose/my/squared-relu"), "{out}");
    let lint = own.with_rules(&["rules", "lint", "decompose/my/*"]);
    assert!(lint.out.contains("1 rule"), "{} {}", lint.out, lint.err);
    // The reference rounds each intermediate result of the definition, like the decomposed program.
    let scaled = "(op my/scaled (forall (F float) (?x F[A..]) (?k float :default 3.0)) (result F[A..]) (is (mul (mul ?x ?x) ?k)))
;; (−x)²·k = x²·k
(rule my/of-negated (forall (F float) (?x F[A..]) (?k float))
  (=> (my/scaled (neg ?x) :k ?k) (mul (mul ?x ?x) ?k)) (eq exact))
";
    own.dir.file("rules/scaled.rules", scaled);
    let out = own.with_rules(&["rules", "check"]).good();
    assert!(out.contains("decompose/my/scaled") && out.contains("my/of-negated"), "{out}");
    own.dir.file("rules/own.rules", OWN.replace(":kind relu", ":kind rleu"));
    for command in ["check", "lint"] {
        own.with_rules(&["rules", command]).refused(&["my/squared-relu: ", "own.rules:3", "did you mean `relu`?"]);
    }
}

#[test]
fn a_graph_that_names_the_op_runs_and_is_explained() {
    let own = Own::new();
    let out = own.with_rules(&["run", &own.graph, "--verify"]).good();
    assert!(out.contains("agree up to rounding"), "{out}");
    let out = own.with_rules(&["explain", &own.graph]).good();
    assert!(out.contains("decompose/my/squared-relu"), "{out}");
    let out = own.with_rules(&["opt", &own.graph, "--print", "graph"]).good();
    assert!(out.contains("(op my/squared-relu") && out.contains("(my/squared-relu x"), "{out}");
    let out = own.with_rules(&["rules", "why", "decompose/my/squared-relu", &own.graph]).good();
    assert!(out.contains("own.rules:2"), "{out}");
    eutectic(["run", &own.graph]).refused(&["there is no op `my/squared-relu`"]);
    let without = own.with_rules(&["opt", &own.graph, "--without", "decompose/my/*"]);
    without.refused(&["my/squared-relu", "decompose/my/squared-relu"]);
}

#[test]
fn a_graph_file_may_declare_the_op_itself() {
    let own = Own::new();
    let file = own.dir.file("own.graph", format!("{OWN}{GRAPH}"));
    let file = file.to_str().expect("UTF-8");
    let out = eutectic(["run", file, "--verify"]).good();
    assert!(out.contains("agree up to rounding"), "{out}");
    let out = eutectic(["explain", file]).good();
    assert!(out.contains("decompose/my/squared-relu"), "{out}");
    own.with_rules(&["run", file]).good();
    let other = own.dir.file("other.graph", format!("{}{GRAPH}", OWN.replace(":kind relu", ":kind tanh")));
    let other = other.to_str().expect("UTF-8");
    own.with_rules(&["run", other]).refused(&["there is an op of this name already", "other.graph:2"]);
    let broken = own.dir.file("wrong.graph", format!("{}{GRAPH}", OWN.replace("(result F[A..])", "(result F[A.. 2])")));
    eutectic(["run", broken.to_str().expect("UTF-8")]).refused(&["my/squared-relu: ", "wrong.graph:"]);
}

#[test]
fn a_plan_of_a_program_with_the_op_is_kept_and_used_again() {
    let own = Own::new();
    let plan = own.dir.path("own.plan");
    let plan = plan.to_str().expect("UTF-8");
    own.with_rules(&["bench", &own.graph, "--iters", "1", "--save-plan", plan]).good();
    own.with_rules(&["bench", &own.graph, "--iters", "1", "--plan", plan]).good();
    own.dir.file("rules/own.rules", OWN.replace(":kind relu", ":kind tanh"));
    let changed = own.dir.file("g.graph", GRAPH);
    own.with_rules(&["bench", changed.to_str().expect("UTF-8"), "--iters", "1", "--plan", plan])
        .refused(&["the plan does not fit"]);
}

#[test]
fn later_folders_may_name_the_ops_of_earlier_ones() {
    let own = Own::new();
    own.dir.file(
        "more/more.rules",
        ";; max(|x|, 0)² = x²\n(rule more/of-absolute (forall (F float) (?x F[A..]))\n  \
         (=> (my/squared-relu (abs ?x)) (mul ?x ?x)) (eq exact))\n",
    );
    let more = own.dir.path("more");
    let more = more.to_str().expect("UTF-8");
    let out = own.with_rules(&["rules", "check", "more/*", "--backend", "none"]);
    assert_eq!(out.code, Some(2), "{}", out.err);
    let out =
        eutectic(["rules", "check", "more/*", "--backend", "none", "--rules", &own.rules, "--rules", more]).good();
    assert!(out.contains("more/of-absolute"), "{out}");
    eutectic(["rules", "list", "--rules", more]).refused(&["there is no op `my/squared-relu`"]);
}
