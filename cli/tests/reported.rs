//! Cases that users reported: each command gives the answer that they expected.

mod common;

use std::{
    io::{BufRead, BufReader, Read},
    process::{Command, Stdio},
};

use common::{Dir, Run, command, eutectic};

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
        eutectic([&["tune", paths[0], "--out", paths[1], "--iters", "1", "--anyway", "--shape", "B=4"], more].concat())
    };
    tune(&[]).good();
    assert!(out.exists());
    tune(&["--shape", "C=4"]).refused(&["--shape C: no file has a dimension of that name"]);
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

#[test]
fn the_ratio_fits_into_80_columns() {
    let dir = Dir::new();
    let file = dir.file("g.graph", OPEN);
    let args = ["bench", file.to_str().expect("UTF-8"), "--shape", "B=4", "--iters", "2", "--explain"];
    let shown = Run::of(command().args(args).env("COLUMNS", "80")).good();
    assert!(shown.lines().any(|line| line.contains("measured") && line.contains("ratio")), "{shown}");
}

#[test]
fn greedy_search_alone_is_never_a_little_less() {
    let dir = Dir::new();
    let costs = dir.file("fast.toml", "[product]\nf32 = 2.1e12\n");
    let costs = costs.to_str().expect("UTF-8");
    let shown = eutectic(["opt", "demo", "--costs", costs, "--print", "kernels"]).good();
    assert!(shown.contains("greedy alone: ") && !shown.contains("-0.0 %"), "{shown}");
}

#[test]
fn counterexamples_are_small() {
    let dir = Dir::new();
    let rules = ";; a cast there and back
(rule mine/there-and-back (forall (?x f32[A..])) (=> (cast (cast ?x :to i8) :to f32) ?x) (eq exact))
;; the maximum of multiples
(rule mine/multiples (forall (F float) (?x F[A.. N]) (?c float))
  (=> (reduce-max (mul ?x ?c) :axes [-1] :keep true) (mul (reduce-max ?x :axes [-1] :keep true) ?c)) (eq reassoc))
";
    dir.file("a.rules", rules);
    let path = dir.path("");
    let args = ["rules", "check", "--rules", path.to_str().expect("UTF-8"), "--backend", "none", "--format", "json"];
    let checked = eutectic(args);
    let reports: serde_json::Value = serde_json::from_str(&checked.out).expect("JSON");
    let failure = |rule: &str| {
        let report =
            reports.as_array().expect("reports").iter().find(|report| report["rule"] == rule).expect("a report");
        report["failures"][0].clone()
    };
    // One element suffices to distinguish a cast in both directions from no cast.
    let cast = failure("mine/there-and-back");
    let elements = cast["tensors"]["?x"].to_string();
    assert!(elements.matches(',').count() == 0, "{cast}");
    // The factor is small and negative, and the input has two elements.
    let factor = failure("mine/multiples");
    let number = factor["variables"]["?c"].to_string();
    assert!(["-1.0", "-2.0", "-0.5", "-1", "-2"].iter().any(|plain| number.trim_matches('"') == *plain), "{factor}");
}

/// Starts `tune`, and sends Ctrl-C as soon as it reports that it measures.
#[cfg(unix)]
fn stopped(args: &[&str], after: std::time::Duration) -> (Option<i32>, String) {
    let mut tune = command().args(args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(tune.stderr.take().expect("it is piped"));
    let mut said = String::new();
    while !said.contains("Ctrl-C") {
        assert!(lines.read_line(&mut said).expect("it can be read") > 0, "{said}");
    }
    std::thread::sleep(after);
    let sent = Command::new("kill").args(["-INT", &tune.id().to_string()]).status().expect("kill is there");
    assert!(sent.success());
    lines.read_to_string(&mut said).expect("UTF-8");
    (tune.wait().expect("it ends").code(), said)
}

#[cfg(unix)]
#[test]
fn tune_stops_at_ctrl_c_and_writes_nothing_that_is_not_sound() {
    let dir = Dir::new();
    // One run of this program takes longer than the time until the test stops it.
    let large = "(graph \"g\" (input x f32[2048 2048]) (param w f32[2048 2048]) (output y (matmul x w)) (output z (exp (exp x))))";
    let (graph, out) = (dir.file("g.graph", large), dir.path("costs.toml"));
    let [graph, path] = [&graph, &out].map(|path| path.to_str().expect("UTF-8"));
    let args = ["tune", graph, "--out", path, "--anyway", "--iters", "5"];
    let (code, said) = stopped(&args, std::time::Duration::from_millis(300));
    assert_eq!(code, Some(1), "{said}");
    for part in ["nothing was written because the measurement was stopped after 0 of 1 program", "--quick"] {
        assert!(said.contains(part), "{part:?} is not in: {said}");
    }
    assert!(!out.exists() && std::fs::read_dir(dir.path("")).expect("it is there").count() == 1, "it leaves no file");
}

#[cfg(unix)]
#[test]
fn tune_has_one_bar_on_a_terminal() {
    let dir = Dir::new();
    let (graph, out) =
        (dir.file("g.graph", "(graph \"g\" (input x f32[64]) (output y (exp x)))"), dir.path("costs.toml"));
    let [graph, out] = [&graph, &out].map(|path| path.to_str().expect("UTF-8"));
    let tune = format!("'{}' tune '{graph}' --out '{out}' --anyway --iters 1", env!("CARGO_BIN_EXE_eutectic"));
    // The program `script` runs a command on a terminal.
    let Ok(shown) = Command::new("script").args(["-qec", &tune, "/dev/null"]).env("TERM", "xterm").output() else {
        return;
    };
    let shown = String::from_utf8_lossy(&shown.stdout);
    assert!(shown.contains("measuring kernels") && !shown.contains("making random"), "{shown}");
}
