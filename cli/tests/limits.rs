//! Tests input that asks for too much or for nothing: it is refused immediately with the reason, and no file is lost.

mod common;

use std::path::Path;

use common::{Dir, Run, eutectic};

fn on(command: &str, file: &Path, more: &[&str]) -> Run {
    let file = file.to_str().expect("a path in UTF-8");
    eutectic([&[command, file][..], more].concat())
}

/// Runs the command with a limit on its address space, in bytes.
#[cfg(target_os = "linux")]
fn with_memory(bytes: u64, command: &str, file: &Path) -> Run {
    let mut limited = std::process::Command::new("prlimit");
    limited
        .env("HOME", common::home())
        .arg(format!("--as={bytes}"))
        .args([env!("CARGO_BIN_EXE_eutectic"), command])
        .arg(file);
    Run::of(&mut limited)
}

fn small(dir: &Dir) -> std::path::PathBuf {
    dir.file("small.graph", "(graph \"s\" (input x f32[4]) (output y (neg x)))")
}

#[test]
fn more_memory_than_the_machine_has_is_refused() {
    let dir = Dir::new();
    for count in ["10000000000000", "9000000000000000000"] {
        let text = format!("(graph \"e\" (input x f32[1]) (output y (expand x :shape [{count}])))");
        on("run", &dir.file("large.graph", text), &[]).refused(&["memory"]);
    }
    // The model is below the limit of graphs, but exceeds the memory of any machine.
    let text = "(graph \"e\" (input x f32[1]) (output y (expand x :shape [60000000000])))";
    on("run", &dir.file("large.graph", text), &[]).refused(&["bytes of memory"]);
}

#[test]
fn more_threads_than_any_machine_has_are_refused() {
    let dir = Dir::new();
    for threads in ["1000000000", "18446744073709551615"] {
        on("run", &small(&dir), &["--threads", threads]).refused(&["threads", "1024"]);
    }
}

#[test]
fn what_computes_nothing_is_refused() {
    let dir = Dir::new();
    let nothing = dir.file("nothing.graph", "(graph \"nothing\" (input x f32[4]))");
    for command in ["run", "opt", "bench"] {
        on(command, &nothing, &[]).refused(&["nothing.graph", "no output"]);
    }
}

#[test]
fn more_steps_than_a_program_may_have_are_refused() {
    let dir = Dir::new();
    let text = "(graph \"g\" (input x f32[4]) (sub s (input s f32[4]) (output s (mul s (const f32[] { 0.5 }))))
                (let r (loop x :body s :times 1000000000000 :carried 1)) (output y (get r :index 0)))";
    on("run", &dir.file("loop.graph", text), &[]).refused(&["use fewer iterations"]);
}

#[test]
fn rules_that_were_left_out_are_named_where_an_op_needs_them() {
    let dir = Dir::new();
    let graph = dir.file("tanh.graph", "(graph \"s\" (input x f32[2 4]) (output y (softmax x :axis -1)))");
    for choice in [["--without", "decompose/*"], ["--only", "fuse/*"]] {
        on("opt", &graph, &choice).refused(&[
            "are not among the chosen rules",
            "decompose/softmax",
            "--without, --only and --fp",
        ]);
    }
    let broadcast = dir.file("add.graph", "(graph \"a\" (input x f32[2 4]) (input b f32[4]) (output y (add x b)))");
    on("opt", &broadcast, &["--without", "legalize/*"]).refused(&["add(f32[2 4], f32[4])", "--without and --only"]);
}

#[test]
fn numbers_that_no_extent_can_be_are_no_names() {
    let dir = Dir::new();
    for extent in ["18446744073709551615", "9223372036854775808"] {
        let text = format!("(graph \"e\" (input x f32[{extent}]) (output y (neg x)))");
        on("opt", &dir.file("large.graph", text), &[]).refused(&[extent, "not an extent"]);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn results_that_do_not_fit_into_what_is_left_are_refused() {
    let dir = Dir::new();
    let graph = dir.file("large.graph", "(graph \"e\" (input x f32[1]) (output y (expand x :shape [700000000])))");
    // With the first limit, the session's output does not fit. With the second one, the caller's copy of it does not
    // fit.
    for (bytes, says) in [
        (2_500_000_000, "cannot allocate 2800000000 bytes because too little memory is left"),
        (5_000_000_000, "cannot allocate 2800000000 bytes of memory"),
    ] {
        with_memory(bytes, "run", &graph).refused(&[says]);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn what_has_no_room_is_refused_before_its_inputs_are_made() {
    let dir = Dir::new();
    let text = "(graph \"e\" (input x f32[20000 20000]) (output y (expand (exp x) :shape [100 20000 20000])))";
    let graph = dir.file("large.graph", text);
    for command in ["run", "bench"] {
        // The input would take 1.6 GB.
        with_memory(1_000_000_000, command, &graph).refused(&["a session needs"]);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn nothing_is_made_for_an_input_that_nothing_reads() {
    let dir = Dir::new();
    let text = "(graph \"u\" (input x f32[20000 20000]) (input z f32[4]) (let dead (neg x)) (output y (neg z)))";
    // The input has an address range, but its pages are not touched: filling it would take half a minute.
    let start = std::time::Instant::now();
    on("run", &dir.file("unused.graph", text), &["--threads", "1"]).good();
    assert!(start.elapsed().as_secs() < 3, "{:?}", start.elapsed());
}

#[test]
fn json_says_what_is_no_number() {
    let dir = Dir::new();
    let text = "(graph \"s\" (const z f32[1] { 0.0 }) (const o f32[1] { 1.0 })
                 (output y (concat (concat (div z z) (div o z) :axis 0) (div (neg o) z) :axis 0)))";
    let out = on("run", &dir.file("nan.graph", text), &["--format", "json"]).good();
    assert!(out.contains("[\"NaN\",\"Infinity\",\"-Infinity\"]"), "{out}");
}

#[test]
fn terminals_get_no_control_characters_of_files() {
    let dir = Dir::new();
    let text = "(graph \"\u{1b}[2Jevil\" (input x f32[4]) (output y (neg x)))";
    let refused = on("run", &dir.file("evil.graph", text), &[]);
    assert!(!refused.err.contains("[2J") || !refused.err.contains("\u{1b}[2J"), "{:?}", refused.err);
    refused.refused(&["U+001B"]);
    // Errors quote only the start and the end of long texts in a file.
    let long = [&b"\x93NUMPY\x01\x00\x60\xea{'descr':"[..], &[b'('; 59_991]].concat();
    let given = format!("x=@{}", dir.file("long.npy", long).display());
    let refused = on("run", &small(&dir), &["--input", &given]);
    assert!(refused.err.len() < 1500, "{}", refused.err.len());
    refused.refused(&["long.npy", "characters …", "supported are"]);
    let costs = dir.file("costs.toml", "\u{1b}]0;evil\u{7} = 1");
    let refused = on("run", &small(&dir), &["--costs", costs.to_str().unwrap()]);
    assert!(!refused.err.contains('\u{7}'), "{:?}", refused.err);
    refused.refused(&["costs.toml"]);
}

#[cfg(unix)]
#[test]
fn links_in_circles_end_and_pipes_are_not_waited_for() {
    let dir = Dir::new();
    let rule = ";; −(−x) = x\n(rule mine/twice (forall (F float) (?x F[A..])) (=> (neg (neg ?x)) ?x) (eq exact))\n";
    dir.file("rules/part/mine.rules", rule);
    std::os::unix::fs::symlink("..", dir.path("rules/part/up")).unwrap();
    let rules = dir.path("rules");
    let listed = eutectic(["rules", "list", "mine/*", "--rules", rules.to_str().unwrap()]).good();
    assert_eq!(listed.matches("mine/twice").count(), 1, "{listed}");
    let made = std::process::Command::new("mkfifo").arg(dir.path("rules/pipe.rules")).status().unwrap();
    assert!(made.success());
    eutectic(["rules", "list", "mine/*", "--rules", rules.to_str().unwrap()]).refused(&["pipe.rules", "regular file"]);
}

#[test]
fn what_cannot_be_fitted_leaves_the_file_of_costs() {
    let dir = Dir::new();
    let costs = dir.file("costs.toml", "mine");
    let args = ["tune", "no-such-model.onnx", "--out", costs.to_str().unwrap()];
    eutectic(args).refused(&["no-such-model"]);
    assert_eq!(std::fs::read_to_string(costs).unwrap(), "mine");
}
