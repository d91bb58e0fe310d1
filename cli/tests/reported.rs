//! Cases that users reported: each command gives the answer that they expected.

mod common;

use common::{Dir, eutectic};

const OPEN: &str = "(graph \"g\" (input x f32[B 8]) (param w f32[8 4]) (output y (matmul x w)))";
const VARYING: &str = "(graph \"g\" (dim S :most 64) (input x f32[S 8]) (output y (softmax x :axis -1)))";

fn rule(body: &str) -> String {
    format!(";; a law\n(rule {body} (=> (neg (neg ?x)) ?x) (eq exact))\n")
}

#[test]
fn a_sweep_goes_over_extents_at_run_time() {
    let dir = Dir::new();
    let file = dir.file("g.graph", VARYING);
    let file = file.to_str().expect("UTF-8");
    let out = eutectic(["bench", file, "--sweep", "S=8,64", "--iters", "1"]).good();
    assert!(out.contains("64"), "{out}");
    eutectic(["bench", file, "--sweep", "S=128", "--iters", "1"]).refused(&["S is 0 to 64"]);
    eutectic(["bench", file, "--sweep", "T=8", "--iters", "1"]).refused(&["no such dimension", "threads, S"]);
}

#[test]
fn tune_binds_dimensions() {
    let dir = Dir::new();
    let file = dir.file("g.graph", OPEN);
    let out = dir.path("costs.toml");
    let tune = |more: &[&str]| {
        let paths = [file.to_str().expect("UTF-8"), out.to_str().expect("UTF-8")];
        eutectic([&["tune", paths[0], "--out", paths[1], "--iters", "1", "--shape", "B=4"], more].concat())
    };
    tune(&[]).good();
    assert!(out.exists());
    tune(&["--shape", "C=4"]).refused(&["--shape C: no file has such a dimension"]);
}

#[test]
fn files_of_other_kinds_are_recognised() {
    let dir = Dir::new();
    let run = |name: &str, bytes: &[u8]| eutectic(["run", dir.file(name, bytes).to_str().expect("UTF-8")]);
    run("m.bin", b"GGUF\x03\0\0\0").refused(&["a language model in GGUF", "NAME.gguf"]);
    run("m.pt", b"PK\x03\x04rest").refused(&["a checkpoint of torch", "ONNX"]);
    run("m.safetensors", b"\x02\0\0\0\0\0\0\0{}").refused(&["weights in safetensors", "--weights"]);
}

#[test]
fn numbers_of_kernels_go_up_to_the_last_one() {
    let dir = Dir::new();
    let file = dir.file("g.graph", OPEN);
    let missing = eutectic(["explain", file.to_str().expect("UTF-8"), "9", "--shape", "B=2"]);
    missing.refused(&["no kernel has the number", "numbers go up to 1, for 1 different kernel"]);
}

#[test]
fn no_rule_that_fires_is_said_in_words() {
    let dir = Dir::new();
    let file = dir.file("g.graph", "(graph \"g\" (input x f32[2]) (output y x))");
    let out = eutectic(["opt", file.to_str().expect("UTF-8"), "--print", "rules"]).good();
    assert!(out.contains("none changes the program"), "{out}");
}

#[test]
fn a_name_without_a_pack_is_told_from_none() {
    let dir = Dir::new();
    dir.file("a.rules", rule("nopack (forall (F float) (?x F[A..]))"));
    let list = || eutectic(["rules", "list", "--rules", dir.path("").to_str().expect("UTF-8")]);
    list().refused(&["the name of this rule has no pack", "pack/name"]);
    dir.file("a.rules", rule("(forall (F float) (?x F[A..]))"));
    list().refused(&["this rule has no name"]);
}

#[test]
fn numbers_lie_between_any_two() {
    let dir = Dir::new();
    let text =
        ";; c·x = x·c\n(rule mine/turned (forall (F float) (?x F[A..]) (?c float)) (where (between ?c -0.001 1000.5))
      (=> (mul (neg (neg ?x)) ?c) (mul ?x ?c)) (eq exact))\n";
    dir.file("a.rules", text);
    let path = dir.path("");
    let rules = path.to_str().expect("UTF-8");
    eutectic(["rules", "check", "mine/*", "--backend", "none", "--rules", rules]).good();
    let fires = |c: &str| {
        let graph =
            format!("(graph \"g\" (input x f32[2]) (const c f32[] {{ {c} }}) (output y (mul (neg (neg x)) c)))");
        let file = dir.file("g.graph", graph);
        let out = eutectic(["rules", "why", "mine/turned", file.to_str().expect("UTF-8"), "--rules", rules]).good();
        !out.contains("does not match")
    };
    assert!(fires("-0.0005") && fires("1000.25") && !fires("1001.0"));
}
