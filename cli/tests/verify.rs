//! Tests `run --verify`: its exit codes, and its reports on right and wrong programs.

mod common;

use common::{Dir, Run, eutectic};
use serde_json::Value;

const LAYERS: &str = r#"
(graph "layers"
  (input x f32[4 16])
  (param w f32[16 16])
  (param v f32[16 16])
  (let a (tanh (matmul x w)) :origin first)
  (let b (softmax (mul a (const f32[] { 2.0 })) :axis -1) :origin second)
  (output y (matmul b v)))"#;

/// Returns a directory with one wrong rule.
fn wrong(dir: &Dir) -> String {
    let rule = r#"
;; softmax is not linear
(rule mine/softmax-of-scaled
  (forall (F float) (?x F[A..]))
  (=> (softmax (mul ?x 2.0) :axis -1) (mul (softmax ?x :axis -1) 2.0))
  (eq reassoc))

;; a rule that is right, and fires as well
(rule mine/product-of-product
  (forall (F float) (?x F[B M K]) (?y F[B K N]) (?z F[B N P]))
  (=> (matmul (matmul ?x ?y) ?z) (matmul ?x (matmul ?y ?z)))
  (eq reassoc))
"#;
    let file = dir.file("mine/softmax.rules", rule);
    file.parent().expect("it has a parent").to_str().expect("UTF-8").to_string()
}

fn json(run: &Run) -> Value {
    serde_json::from_str(&run.out).unwrap_or_else(|e| panic!("{e}: {} {}", run.out, run.err))
}

#[test]
fn a_right_plan_passes_and_a_wrong_rule_is_named() {
    let dir = Dir::new();
    let (graph, rules) = (dir.file("layers.graph", LAYERS), wrong(&dir));
    let graph = graph.to_str().expect("UTF-8");
    let out = eutectic(["run", graph, "--verify"]).good();
    assert!(out.contains("agree up to rounding") && out.contains("error bounds"), "{out}");

    let run = eutectic(["run", graph, "--verify", "--rules", &rules]);
    assert_eq!(run.code, Some(1), "{}\n{}", run.out, run.err);
    for part in ["rule mine/softmax-of-scaled: softmax is not linear", "first to differ: kernel", "eutectic explain"] {
        assert!(run.out.contains(part), "{part:?} is not in: {}", run.out);
    }
    assert!(run.err.contains("mine/softmax-of-scaled is at fault"), "{}", run.err);

    let run = eutectic(["run", graph, "--verify", "--rules", &rules, "--format", "json"]);
    assert_eq!(run.code, Some(1));
    let value = json(&run);
    assert_eq!(value["right"], false);
    assert_eq!(value["blame"]["cause"], "rules");
    assert_eq!(value["blame"]["rules"], serde_json::json!([["mine/softmax-of-scaled"]]));
    assert!(value["blame"]["kernel"]["kernel"].as_str().is_some_and(|n| n.parse::<usize>().is_ok()), "{value}");

    // Without the rule, the same command passes.
    let value = json(&eutectic(["run", graph, "--verify", "--format", "json", "--fp", "exact", "--seed", "7"]));
    assert_eq!((&value["right"], &value["blame"]), (&Value::Bool(true), &Value::Null));
}

#[test]
fn onnx_files_are_verified_on_given_inputs_in_each_contract() {
    let dir = Dir::new();
    let rules = dir.file(
        "mine/relu.rules",
        ";; not of a negative number\n(rule mine/norm-of-sum (forall (F float) (?x F[B.. D]) (?r F[B.. D]) (?g F[D]) (?b F[D]) (?e f32))\n  \
         (=> (layernorm (add ?x ?r) ?g ?b :eps ?e) (layernorm ?x ?g ?b :eps ?e)) (eq reassoc))",
    );
    let rules = rules.parent().expect("it has a parent").to_str().expect("UTF-8");
    let fixture = |name: &str| format!("{}/../models/golden/onnx/{name}.onnx", env!("CARGO_MANIFEST_DIR"));
    let mlp = fixture("mlp-new");
    let verify =
        |model: &str, more: &[&str]| eutectic([&["run", model, "--verify", "--format", "json"][..], more].concat());
    let contracts = [&[][..], &["--fp", "exact"], &["--precision", "bf16"], &["--strategy", "unfused"]];
    let networks = contracts.map(|more| ("mlp-new", [&["--shape", "batch=3"][..], more].concat()));
    let others = [("cnn-old", vec!["--shape", "batch=2"]), ("recurrent", Vec::new()), ("control", Vec::new())];
    for (name, more) in networks.into_iter().chain(others) {
        let run = verify(&fixture(name), &more);
        assert_eq!(run.code, Some(0), "{name} {more:?}: {}\n{}", run.out, run.err);
        assert_eq!(json(&run)["right"], true);
    }
    let run = verify(&mlp, &["--shape", "batch=3", "--rules", rules]);
    assert_eq!(run.code, Some(1), "{}\n{}", run.out, run.err);
    let value = json(&run);
    assert_eq!(value["blame"]["cause"], "rules", "{value}");
    assert!(value["blame"]["rules"].to_string().contains("mine/norm-of-sum"), "{value}");
}

#[test]
fn what_cannot_be_verified_is_refused() {
    let dir = Dir::new();
    let graph = dir.file("layers.graph", LAYERS);
    let graph = graph.to_str().expect("UTF-8");
    eutectic(["run", graph, "--verify", "--input", "z=@nothing.npy"]).refused(&["nothing.npy"]);
    eutectic(["run", "minilm", "--verify", "--text", "a"]).refused(&["--verify", "leave out --text"]);
    // Outputs are written to the requested files.
    let y = dir.path("y.npy");
    eutectic(["run", graph, "--verify", "--output", y.to_str().expect("UTF-8")]).good();
    assert_eq!(std::fs::read(y).expect("it is written").len() % 64, 0);
}

#[test]
fn bisection_takes_inputs() {
    let dir = Dir::new();
    let (graph, rules) = (dir.file("layers.graph", LAYERS), wrong(&dir));
    let graph = graph.to_str().expect("UTF-8");
    let bisect = |more: &[&str]| {
        eutectic([&["rules", "ablate", graph, "--bisect", "--rules", &rules, "--format", "json"][..], more].concat())
    };
    assert_eq!(json(&bisect(&[]))["rules"], serde_json::json!(["mine/softmax-of-scaled"]));
    let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 16), }\n";
    let length = (header.len() as u16).to_le_bytes();
    let data: Vec<u8> = [0.25_f32; 64].iter().flat_map(|x| x.to_le_bytes()).collect();
    let x = dir.file("x.npy", [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), &data].concat());
    let given = format!("x=@{}", x.display());
    assert_eq!(json(&bisect(&["--input", &given]))["rules"], serde_json::json!(["mine/softmax-of-scaled"]));
    bisect(&["--input", "z=@nothing.npy"]).refused(&["nothing.npy"]);
}
