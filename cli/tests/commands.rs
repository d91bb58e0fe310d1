//! Tests the output of commands: help with examples, valid JSON, and rules from a directory that change a plan.

mod common;

use common::{Dir, eutectic};
use serde_json::Value;

const COMMANDS: [&[&str]; 16] = [
    &["demo"],
    &["run"],
    &["opt"],
    &["compare"],
    &["costs"],
    &["costs", "diff"],
    &["explain"],
    &["bench"],
    &["tune"],
    &["rules", "list"],
    &["rules", "lint"],
    &["rules", "check"],
    &["rules", "ablate"],
    &["rules", "why"],
    &["ops"],
    &["devices"],
];

const HALF: &str = r#"
(graph "half"
  (input x f32[4 8])
  (let y (tanh (mul x (const f32[] { 0.5 }))))
  (output y (add (tanh (sub (exp y) (exp y))) y)))
"#;

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&eutectic(args).good()).expect("it is JSON")
}

#[test]
fn help_teaches() {
    let help = eutectic(["--help"]).good();
    assert!(
        help.contains("Exit codes: 0 success; 1 what was checked is wrong, or a failure while running; 2 wrong usage"),
        "{help}"
    );
    for command in COMMANDS {
        let help = eutectic(command.iter().chain([&"--help"])).good();
        assert!(help.contains("Examples:") && help.contains(&format!("eutectic {}", command.join(" "))), "{help}");
    }
}

#[test]
fn tables_have_no_colour_where_there_is_no_terminal() {
    for args in [vec!["ops", "matmul"], vec!["rules", "list"], vec!["devices"], vec!["ops", "no-such-op"]] {
        let run = eutectic(&args);
        assert!(!run.out.contains('\x1b') && !run.err.contains('\x1b'), "{args:?}: {}{}", run.out, run.err);
    }
}

#[test]
fn data_is_valid_json() {
    assert_eq!(json(&["ops", "matmul", "--format", "json"])[0]["class"], "anchor");
    assert_eq!(json(&["devices", "--format", "json"])[0]["name"], "cpu");
    assert!(json(&["rules", "list", "legalize/*", "--format", "json"])[0]["doc"].is_string());
    let bench =
        json(&["bench", "demo", "--seq", "8", "--iters", "3", "--warmup", "1", "--explain", "--format", "json"]);
    assert_eq!(bench["times_ms"].as_array().map(Vec::len), Some(3), "{bench}");
    assert_eq!(bench["steps"].as_array().map(Vec::len), bench["kernels"].as_u64().map(|n| n as usize));
    let opt = json(&["opt", "demo", "--seq", "8", "--format", "json"]);
    assert_eq!(opt["run_kernels"], bench["kernels"]);
    assert!(opt["phases"].as_array().is_some_and(|p| p.iter().all(|p| p["saturated"] == true)), "{}", opt["phases"]);
    let explain = json(&["explain", "demo", "*attention*", "--seq", "8", "--quick", "--format", "json"]);
    assert!(explain.as_array().is_some_and(|kernels| !kernels.is_empty()));
}

#[test]
fn a_graph_in_text_form_runs() {
    let dir = Dir::new();
    let graph = dir.file("half.graph", HALF).display().to_string();
    let output = dir.path("y.npy").display().to_string();
    let run = json(&["run", &graph, "--seed", "3", "--output", &output, "--format", "json"]);
    let values: Vec<f64> =
        run["outputs"][0]["values"].as_array().expect("values").iter().filter_map(Value::as_f64).collect();
    assert_eq!((values.len(), run["outputs"][0]["type"].as_str()), (32, Some("f32[4 8]")));
    assert!(values.iter().all(|x| x.abs() < 0.5));
    let bytes = std::fs::read(output).expect("it was written");
    let stored = bytes[bytes.len() - 4..].try_into().map(f32::from_le_bytes).expect("four bytes");
    assert_eq!(stored, values[31] as f32);
    assert_eq!(json(&["run", &graph, "--seed", "3", "--format", "json"]), run);
    assert_ne!(json(&["run", &graph, "--seed", "4", "--format", "json"]), run);
    // The text form can be parsed again and gives the same graph.
    let printed = eutectic(["opt", &graph, "--print", "graph"]).good();
    let again = dir.file("again.graph", &printed).display().to_string();
    assert_eq!(eutectic(["opt", &again, "--print", "graph"]).good(), printed);
    assert!(eutectic(["opt", &graph, "--dot"]).good().starts_with("digraph"));
}

#[cfg(feature = "text")]
#[test]
fn texts_become_embeddings() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/golden/tiny-bert");
    let args = ["run", "minilm", "--weights", dir, "--text", "a cat", "--text", "", "--text", "a cat"];
    let run = json(&[&args[..], &["--format", "json"]].concat());
    let similar = |a: usize, b: usize| run["similarities"][a][b].as_f64().expect("a number");
    assert!((similar(0, 0) - 1.0).abs() < 1e-5 && (similar(0, 2) - 1.0).abs() < 1e-5 && similar(0, 1) < 0.999);
    assert_eq!(run["embeddings"][1]["text"], "");
    assert!(eutectic(args).good().contains("cosine similarities"));
}

#[test]
fn a_rule_from_a_directory_changes_a_plan() {
    let dir = Dir::new();
    let graph = dir.file("half.graph", HALF).display().to_string();
    let rule = ";; tanh(e^x − e^x) = 0 where nothing overflows\n(rule mine/nothing\n  (forall (F float) (?x F[A..]))\n  (=> (tanh (sub (exp ?x) (exp ?x))) (mul ?x 0.0))\n  (eq fast))\n";
    dir.file("rules/mine.rules", rule);
    let rules = dir.path("rules").display().to_string();
    let plan = |extra: &[&str]| eutectic(["opt", &graph, "--print", "plan"].iter().chain(extra)).good();
    let before = plan(&[]);
    assert!(before.contains("exp:f32"), "{before}");
    // Approximations are off by default.
    assert_eq!(plan(&["--rules", &rules]), before);
    let after = plan(&["--rules", &rules, "--fp", "fast"]);
    assert!(!after.contains("exp:f32"), "{after}");
    let explained = eutectic(["explain", &graph, "--rules", &rules, "--fp", "fast"]).good();
    assert!(explained.contains("mine/nothing"), "{explained}");
    assert_eq!(plan(&["--rules", &rules, "--fp", "fast", "--without", "mine/*"]), before);
}

#[test]
fn the_rules_in_the_documents_are_sound() {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md")).expect("it is there");
    let help = eutectic(["rules", "--help"]).good();
    for (name, text) in [("readme", readme), ("help", help)] {
        let rules: String = text
            .lines()
            .skip_while(|line| !line.trim_start().starts_with(";; "))
            .take_while(|line| !line.trim().is_empty() && !line.starts_with("```"))
            .map(|line| format!("{line}\n"))
            .collect();
        assert!(rules.contains("(rule mine/"), "{name}: {text}");
        let dir = Dir::new();
        dir.file("mine.rules", rules);
        let path = dir.path("").display().to_string();
        assert!(eutectic(["rules", "list", "mine/*", "--rules", &path]).good().contains("mine/"), "{name}");
        eutectic(["rules", "lint", "mine/*", "--rules", &path]).good();
    }
}

#[test]
fn programs_are_shown_after_each_phase() {
    let dir = Dir::new();
    let graph = dir.file("half.graph", HALF).display().to_string();
    let printed = eutectic(["opt", &graph, "--print-after-phase", "all", "--print", "plan"]).good();
    for phase in ["legalize", "main", "algebra", "templates", "fold"] {
        assert!(printed.contains(&format!("; after {phase}")), "{printed}");
    }
}

#[test]
fn the_gap_to_the_best_plan_is_shown() {
    let dir = Dir::new();
    let graph = dir.file("half.graph", HALF).display().to_string();
    let opt = json(&["opt", &graph, "--gap", "--format", "json"]);
    let gap = &opt["gap"][0];
    assert!(gap["best_s"].as_f64() <= gap["chosen_s"].as_f64(), "{gap}");
}

#[cfg(unix)]
#[test]
fn a_reader_that_stops_is_no_failure() {
    use std::process::Stdio;
    for args in [&["ops"][..], &["bench", "demo", "--seq", "8", "--iters", "2", "--csv", "-"]] {
        let mut child =
            common::command().args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && err.is_empty(), "{args:?}: {err}");
    }
}

#[test]
fn rules_that_never_pay_are_pointed_out() {
    let dir = Dir::new();
    let rule = |name: &str, sides: &str, flags: &str| {
        format!(";; for the test\n(rule mine/{name} (forall (F float) (?x F[A B])) {sides} (eq reassoc) {flags})\n")
    };
    let dearer = "(=> (abs (neg ?x)) (sqrt (mul ?x (matmul ?x (matmul (transpose ?x :perm [-1 -2]) ?x)))))";
    let cheaper = "(=> (abs (neg ?x)) (abs ?x))";
    let rules = [
        rule("dearer", dearer, ""),
        rule("canonical", dearer, "(canonical)"),
        rule("cheaper", cheaper, ""),
        rule("not-canonical", cheaper, "(canonical)"),
    ];
    dir.file("mine.rules", rules.concat());
    let path = dir.path("");
    let run = eutectic(["rules", "lint", "mine/*", "--rules", path.to_str().expect("UTF-8"), "--format", "json"]);
    assert_eq!(run.code, Some(1), "{}", run.err);
    let found: Value = serde_json::from_str(&run.out).expect("JSON");
    // Two rules that make the same rewrite give two findings.
    let says = |l: &&Value, what: &str| l["message"].as_str().is_some_and(|m| m.contains(what));
    let found: Vec<&Value> = found.as_array().expect("a list").iter().filter(|l| says(l, "the right side")).collect();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0]["rule"] == "mine/dearer" && says(&found[0], "times as long"), "{found:?}");
    assert!(found[1]["rule"] == "mine/not-canonical" && says(&found[1], "remove (canonical)"), "{found:?}");
}

#[test]
fn what_a_rule_lacks_is_said() {
    let dir = Dir::new();
    let graph =
        dir.file("g.graph", "(graph \"g\" (input x f32[4 8]) (input w f32[8 3]) (output y (tanh (matmul x w))))");
    let graph = graph.to_str().expect("UTF-8");
    let shown = eutectic(["rules", "why", "fuse/shared-operand-matmul", graph]).good();
    assert!(shown.contains("does not match") && shown.contains("(?w F[K N] const)"), "{shown}");
    let json = json(&["rules", "why", "fuse/linear-a*", graph, "--format", "json"]);
    assert!(json.as_array().is_some_and(|all| all.iter().all(|w| w["misses"].is_array())), "{json}");
    eutectic(["rules", "why", "fuse/nothing", graph]).refused(&["fuse/nothing", "rules list"]);
}

#[test]
fn costs_are_fitted_written_and_read() {
    let dir = Dir::new();
    let utf8 = |path: std::path::PathBuf| path.into_os_string().into_string().expect("UTF-8");
    let (graph, costs) = (utf8(dir.file("half.graph", HALF)), utf8(dir.path("costs.toml")));
    let fitted = json(&["tune", &graph, "--iters", "2", "--anyway", "--out", &costs, "--format", "json"]);
    let off = |which: &str| fitted[which].as_f64().expect("a factor");
    assert!(1.0 <= off("after") && off("after") <= off("before"), "{fitted}");
    let text = std::fs::read_to_string(&costs).expect("it was written");
    assert!(text.starts_with("# Fitted by `eutectic tune`") && text.contains("\n[device]\n"), "{text}");
    eutectic(["opt", &graph, "--costs", &costs]).good();

    let negative = utf8(dir.file("negative.toml", text.replace("launch = \"", "launch = \"-")));
    eutectic(["opt", &graph, "--costs", &negative])
        .refused(&["as a coefficient because it must be positive and finite"]);
    let none = utf8(dir.path("none.toml"));
    eutectic(["opt", &graph, "--costs", &none]).refused(&["--costs", "`eutectic tune` writes such a file"]);
}
