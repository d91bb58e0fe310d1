//! Tests `bench`: sweeps, durations, CSV files, references, and saved plans.

mod common;

use common::{Dir, eutectic};
use serde_json::Value;

const LAYER: &str = r#"
(graph "layer"
  (input x f32[B 32])
  (param w f32[32 64])
  (output y (softmax (tanh (matmul x w)) :axis -1)))
"#;

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&eutectic(args).good()).expect("it is JSON")
}

fn utf8(path: std::path::PathBuf) -> String {
    path.into_os_string().into_string().expect("UTF-8")
}

#[test]
fn sweeps_measure_each_combination() {
    let dir = Dir::new();
    let (graph, csv) = (utf8(dir.file("layer.graph", LAYER)), utf8(dir.path("times.csv")));
    let args = ["bench", &graph, "--sweep", "threads=1,2", "--sweep", "B=4,8", "--iters", "2", "--csv", &csv];
    let all = json(&[&args[..], &["--format", "json"]].concat());
    let points: Vec<String> = all.as_array().expect("points").iter().map(|point| point["at"].to_string()).collect();
    assert_eq!(points.len(), 4, "{points:?}");
    assert_eq!((&*points[0], &*points[3]), ("{\"B\":4,\"threads\":1}", "{\"B\":8,\"threads\":2}"));
    assert_eq!(all[3]["inputs"]["x"], "f32[8 32]");
    let text = std::fs::read_to_string(&csv).expect("it was written");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() == 5 && lines[0].starts_with("threads,B,runs,predicted_ms,p50_ms,p90_ms,p99_ms"), "{text}");
    let fields = |line: &str| line.split(',').count();
    assert!(lines.iter().all(|line| fields(line) == fields(lines[0])), "{text}");
    assert!(eutectic(args).good().contains("threads"));
    // Stdout (`-`) receives nothing else.
    let stdout = eutectic(["bench", &graph, "--shape", "B=4", "--iters", "2", "--csv", "-"]).good();
    assert!(stdout.starts_with("runs,predicted_ms,") && stdout.lines().count() == 2, "{stdout}");
    eutectic(["bench", &graph, "--sweep", "B"]).refused(&["--sweep", "threads=1,2,4"]);
    eutectic(["bench", &graph, "--sweep", "C=1,2"]).refused(&["--sweep C", "threads, B"]);
}

#[test]
fn a_duration_ends_and_kernels_have_rates() {
    let run = json(&["bench", "demo", "--seq", "8", "--duration", "0.2", "--explain", "--format", "json"]);
    assert!(run["times_ms"].as_array().is_some_and(|times| times.len() >= 3), "{run}");
    for rate in ["gflop_s", "gbyte_s", "p90_us", "p99_us"] {
        let known = run["steps"].as_array().expect("steps").iter().filter(|step| step[rate].as_f64() > Some(0.0));
        assert!(known.count() > 0, "{rate}: {run}");
    }
    assert!(run["p99_ms"].as_f64() >= run["p50_ms"].as_f64());
    eutectic(["bench", "demo", "--duration", "0"]).refused(&["--duration", "seconds"]);
}

#[test]
fn a_result_is_held_against_a_reference() {
    let dir = Dir::new();
    let (graph, y) = (utf8(dir.file("layer.graph", LAYER)), utf8(dir.path("y.npy")));
    let of = |extra: &[&str]| {
        json(&[&["bench", &graph, "--shape", "B=4", "--iters", "1", "--format", "json"], extra].concat())
    };
    of(&["--output", &y]);
    assert_eq!(of(&["--reference", &y])["largest_error"]["absolute"], 0.0);
    let other = of(&["--reference", &y, "--seed", "2"]);
    assert!(other["largest_error"]["relative"].as_f64() > Some(1e-3), "{other}");
    eutectic(["bench", &graph, "--shape", "B=5", "--reference", &y]).refused(&["--reference has type f32[4 64]"]);
}

#[test]
fn a_plan_is_kept_and_runs_without_a_search() {
    let dir = Dir::new();
    let (graph, plan, y) = (utf8(dir.file("layer.graph", LAYER)), utf8(dir.path("it.plan")), utf8(dir.path("y.npy")));
    let of = |extra: &[&str]| {
        json(&[&["bench", &graph, "--shape", "B=4", "--iters", "1", "--format", "json"], extra].concat())
    };
    // The search would not choose this op-by-op plan.
    let saved = of(&["--strategy", "unfused", "--save-plan", &plan, "--output", &y]);
    let fused = of(&[]);
    assert!(saved["kernels"].as_u64() > fused["kernels"].as_u64(), "{saved} {fused}");
    let again = of(&["--plan", &plan, "--reference", &y]);
    assert_eq!((&again["kernels"], &again["largest_error"]["absolute"]), (&saved["kernels"], &Value::from(0.0)));
    assert_eq!(again["predicted_ms"], saved["predicted_ms"]);
    // Equal plans have equal text.
    let (first, second) = (std::fs::read(&plan).expect("a plan"), utf8(dir.path("other.plan")));
    of(&["--strategy", "unfused", "--save-plan", &second]);
    assert_eq!(std::fs::read(second).expect("a plan"), first);

    let refused = |extra: &[&str], says: &[&str]| eutectic([&["bench", &graph], extra].concat()).refused(says);
    refused(&["--shape", "B=5", "--plan", &plan], &["another graph"]);
    refused(&["--shape", "B=4", "--plan", &plan, "--without", "simplify/*"], &["another graph, other rules"]);
    let text = String::from_utf8(first).expect("UTF-8");
    for (from, to) in [("\"eutectic_plan\": 1", "\"eutectic_plan\": 2"), ("\"choice\"", "\"choices\""), ("{", "[")] {
        let damaged = utf8(dir.file("damaged.plan", text.replacen(from, to, 1)));
        refused(&["--shape", "B=4", "--plan", &damaged], &["--plan", "--save-plan"]);
    }
    // A file whose listed kernels are not those that run is refused.
    let edited = utf8(dir.file("edited.plan", text.replacen("tanh:f32", "exp:f32", 1)));
    refused(&["--shape", "B=4", "--plan", &edited], &["edited.plan: line", "exp:f32", "but its choices give"]);
    // Impossible numbers are refused without a panic.
    let value: Value = serde_json::from_str(&text).expect("JSON");
    for (field, number) in [("choice", 1_000_000), ("stored", 1_000_000), ("choice", 0)] {
        let mut value = value.clone();
        let list = value["blocks"][0][field].as_array_mut().expect("a list");
        list.iter_mut().for_each(|n| *n = number.into());
        let damaged = utf8(dir.file("damaged.plan", value.to_string()));
        let run = eutectic(["bench", &graph, "--shape", "B=4", "--iters", "1", "--plan", &damaged]);
        assert!(matches!(run.code, Some(0 | 2)) && !run.err.contains("panicked"), "{field}: {}", run.err);
    }
}

#[test]
fn settings_are_compared_in_turns() {
    let dir = Dir::new();
    let graph = utf8(dir.file("layer.graph", LAYER));
    let own = ";; −(−x) = x, as the engine knows\n(rule mine/twice (forall (F float) (?x F[A..])) (=> (neg (neg ?x)) ?x) (eq exact))\n";
    let rules = utf8(dir.file("own.rules", own));
    let base =
        ["bench", &graph, "--shape", "B=8", "--rules", &rules, "--iters", "8", "--warmup", "1", "--format", "json"];
    let settings = ["--against", "--threads 1", "--against", "--rules none --without 'simplify/neg-*'"];
    let all = json(&[&base[..], &settings].concat());
    let [settings, against] = ["settings", "against"].map(|name| all[name].as_array().expect("a list").clone());
    assert_eq!((settings.len(), against.len()), (3, 2), "{all}");
    assert_eq!(settings[0]["options"], "");
    assert!(settings.iter().all(|one| one["times_ms"].as_array().map(Vec::len) == Some(8)), "{all}");
    for one in &against {
        let [least, most] = [0, 1].map(|end| one["interval"][end].as_f64().expect("an end"));
        assert!(least <= most && one["confidence"].as_f64() > Some(0.95), "{one}");
        assert_eq!((one["turns"].as_u64(), one["largest_difference"].as_f64()), (Some(8), Some(0.0)), "{one}");
    }
    // Text for people, and refused settings of --against.
    let text = |more: &[&str]| eutectic([&["bench", &graph, "--shape", "B=8", "--warmup", "0"], more].concat());
    let said = text(&["--iters", "6", "--against", "--threads 1"]).good();
    assert!(said.contains("--threads 1: ") && said.contains("% confidence"), "{said}");
    let few = text(&["--iters", "5", "--against", "--threads 1"]).good();
    assert!(few.contains("5 turns are too few for an interval"), "{few}");
    text(&["--against", "--iters 9"]).refused(&["--iters applies to all settings"]);
    text(&["--against", "--threds 1"]).refused(&["--against \"--threds 1\"", "--threds"]);
    text(&["--against", "--threads 0"]).refused(&["--threads"]);
    text(&["--against", "'--threads 1"]).refused(&["a quote is not closed"]);
    text(&["--against", ""]).refused(&["there are no options"]);
    text(&["--against", "--threads 1", "--explain"]).refused(&["--explain"]);
}

#[test]
fn a_binary_is_compared_in_processes() {
    let dir = Dir::new();
    let graph = utf8(dir.file("layer.graph", LAYER));
    let other = format!("{} --threads 1", env!("CARGO_BIN_EXE_eutectic"));
    let args = [
        "bench",
        &graph,
        "--shape",
        "B=8",
        "--iters",
        "3",
        "--warmup",
        "0",
        "--seed",
        "7",
        "--format",
        "json",
        "--against",
    ];
    let all = json(&[&args[..], &[&other]].concat());
    assert_eq!(all["settings"][1]["times_ms"].as_array().map(Vec::len), Some(10), "{all}");
    assert!(all["against"][0]["interval"][0].as_f64() > Some(0.0), "{all}");
    let missing = utf8(dir.path("missing"));
    eutectic([&args[..], &[&missing]].concat()).refused(&["cannot run", "missing"]);
}
