//! Tests `compare`: its verdicts on backends and references, and the rule or kernel at fault.

mod common;

use std::path::Path;

use common::{Dir, eutectic};

const PROGRAM: &str =
    "(graph \"it\" (input x f32[8 8]) (input w f32[8 8]) (output y (exp (matmul x w))) (output z (abs x)))";
/// A wrong rule: the square root of x² is |x|, not x.
const WRONG: &str = ";; |x| = x\n(rule mine/sign (forall (F float) (?x F[A..])) (=> (abs ?x) ?x) (eq exact))";

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn backends_and_references_are_compared() {
    let dir = Dir::new();
    let (graph, y) = (dir.file("it.graph", PROGRAM), dir.path("y.npy"));
    eutectic(["run", text(&graph), "--output", &format!("y={}", y.display())]).good();
    let reference = format!("y=@{}", y.display());
    let shown = eutectic(["compare", text(&graph), "--reference", &reference]).good();
    assert!(shown.contains("cpu") && shown.contains("right") && !shown.contains("wrong"), "{shown}");

    // Other inputs give other results, which do not equal the reference.
    let other = eutectic(["compare", text(&graph), "--reference", &reference, "--seed", "2"]);
    assert_eq!(other.code, Some(1), "{}", other.err);
    assert!(other.out.contains("wrong") && other.err.contains("--tol is 1.0e-4"), "{}{}", other.out, other.err);
    let wide = ["compare", text(&graph), "--reference", &reference, "--seed", "2", "--tol", "1e9", "--format", "json"];
    let json: serde_json::Value = serde_json::from_str(&eutectic(wide).good()).expect("JSON");
    assert_eq!(
        (&json[0]["results"][0]["right"], &json[0]["fault"]),
        (&true.into(), &serde_json::Value::Null),
        "{json}"
    );

    eutectic(["compare", text(&graph), "--reference", &reference.replace("y=", "q=")]).refused(&["q", "y, z"]);
    eutectic(["compare", text(&graph), "--tol", "-1"]).refused(&["--tol"]);
    eutectic(["compare", text(&graph), "--with", "cpu,vulcan"]).refused(&["did you mean `vulkan`?"]);
    eutectic(["compare", "it.gguf"]).refused(&["language model"]);
}

#[test]
fn a_wrong_rule_and_the_first_kernel_are_named() {
    let dir = Dir::new();
    let (graph, _) = (dir.file("it.graph", PROGRAM), dir.file("rules/own.rules", WRONG));
    let found = eutectic(["compare", text(&graph), "--rules", text(&dir.path("rules"))]);
    assert_eq!(found.code, Some(1), "{}", found.err);
    assert!(found.err.contains("mine/sign") && found.err.contains("differs first"), "{}", found.err);
}

#[test]
fn bench_judges_by_a_tolerance() {
    let dir = Dir::new();
    let (graph, y) = (dir.file("it.graph", PROGRAM), dir.path("y.npy"));
    let bench = ["bench", text(&graph), "--iters", "1"];
    eutectic(bench.into_iter().chain(["--output", text(&y)])).good();
    let judged = bench.into_iter().chain(["--reference", text(&y), "--tol", "1e-5"]);
    eutectic(judged.clone()).good();
    let wrong = eutectic(judged.chain(["--seed", "7"]));
    assert_eq!(wrong.code, Some(1), "{}", wrong.err);
    assert!(wrong.err.contains("--tol allows 1.0e-5"), "{}", wrong.err);
    eutectic(bench.into_iter().chain(["--tol", "1e-5"])).refused(&["--reference"]);
}
