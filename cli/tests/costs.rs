//! Tests files of costs: printing, comparison, partial files, files found by device, and files of another device.

mod common;

use std::path::Path;

use common::{Dir, Run, command, eutectic};

/// A program whose plan has one kernel.
const SUM: &str = "(graph \"sum\" (input x f32[64 64]) (output y (add x (exp x))))";

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Runs the command with this home folder.
fn at_home<'a>(home: &Path, args: impl IntoIterator<Item = &'a str>) -> Run {
    Run::of(command().env("HOME", home).args(args))
}

#[test]
fn printed_costs_are_a_file_with_the_same_costs() {
    let dir = Dir::new();
    let printed = eutectic(["costs", "--costs", "default"]).good();
    assert!(
        printed.contains("dram = \"20 GB/s\"")
            && printed.contains("# The bandwidth of one thread for larger working sets."),
        "{printed}"
    );
    let file = dir.file("costs.toml", &printed);
    assert_eq!(eutectic(["costs", "--costs", text(&file)]).good(), printed);
    let compared = eutectic(["costs", "diff", "default", text(&file)]).good();
    assert!(compared.contains("coefficients are equal"), "{compared}");
}

#[test]
fn files_state_some_coefficients_and_are_compared() {
    let dir = Dir::new();
    let file = dir.file("costs.toml", "launch = \"1 ms\"\n[memory]\ndram = \"1 TB/s\"");
    let graph = dir.file("sum.graph", SUM);
    let compared = eutectic(["costs", "diff", "default", text(&file), text(&graph)]).good();
    for part in ["memory.dram", "20 GB/s", "1 TB/s", "50.00", "launch", "2 of ", "old plan, new costs", "sum.graph"] {
        assert!(compared.contains(part), "{part} in {compared}");
    }
    let json = eutectic(["costs", "diff", "default", text(&file), text(&graph), "--format", "json"]).good();
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["coefficients"].as_array().map(Vec::len), Some(2), "{json}");
    assert!(json["plans"][0]["old_plan_by_new"].as_f64() > Some(1e-3), "{json}");
    let predicted = eutectic(["opt", text(&graph), "--costs", text(&file), "--print", "kernels"]).good();
    assert!(predicted.contains("1.00 ms"), "{predicted}");

    let wrong = dir.file("wrong.toml", "lunch = 1\n[memory]\ndram = \"3 ms\"\nl3_bytes = -1");
    let problems = ["lunch", "did you mean `launch`?", "memory.dram", "bytes per second", "memory.l3_bytes"];
    eutectic(["costs", "--costs", text(&wrong)]).refused(&problems);
}

#[test]
fn costs_are_calibrated_at_first_use_and_kept() {
    let (home, dir) = (Dir::new(), Dir::new());
    let graph = dir.file("sum.graph", SUM);
    let home = home.path("");
    let default = at_home(&home, ["costs", "--costs", "default"]).good();
    // If other processes disturb the measurement, nothing is written, and the backend's own costs stay in use.
    let kept = (0..20).find_map(|_| {
        let run = at_home(&home, ["costs"]);
        let noted = run.err.contains("were calibrated by");
        let costs = run.good();
        assert_eq!(noted, costs != default, "{costs}");
        noted.then_some(costs)
    });
    let Some(kept) = kept else { return };
    assert!(kept.contains("[device]"), "{kept}");
    let again = at_home(&home, ["costs"]);
    assert_eq!((again.err.as_str(), &again.out), ("", &kept));
    let shown = at_home(&home, ["bench", text(&graph), "--iters", "1"]).good();
    assert!(shown.contains("costs     calibrated on 20"), "{shown}");
}

#[test]
fn tuned_costs_are_found_again_on_their_device() {
    let (home, dir) = (Dir::new(), Dir::new());
    let graph = dir.file("sum.graph", SUM);
    let home = home.path("");
    let before = at_home(&home, ["costs", "--costs", "default"]).good();
    at_home(&home, ["tune", text(&graph), "--iters", "1", "--anyway"]).good();
    let tuned = at_home(&home, ["costs"]).good();
    assert!(tuned.contains("[device]") && tuned != before, "{tuned}");
    assert_eq!(at_home(&home, ["costs", "--costs", "default"]).good(), before);
    let bench = ["bench", text(&graph), "--iters", "1"];
    let shown = at_home(&home, bench).good();
    assert!(shown.contains("costs     tuned on 20") && !shown.contains("`eutectic tune`"), "{shown}");
    assert!(at_home(&home, bench.into_iter().chain(["--costs", "default"])).good().contains("costs     default"));

    let device = tuned.lines().find(|line| line.starts_with("device = ")).expect("the device");
    let foreign = dir.file("foreign.toml", tuned.replace(device, "device = \"another processor\""));
    eutectic(["costs", "--costs", text(&foreign)]).refused(&["another processor", "[device]"]);
    let unnamed = dir.file("unnamed.toml", "[device]\nbackend = \"cpu\"");
    eutectic(["costs", "--costs", text(&unnamed)]).refused(&["[device]", "device"]);

    // A damaged file of costs is an error.
    let folder = home.join(".config/eutectic/costs");
    let kept = std::fs::read_dir(folder).expect("the folder").next().expect("a file").expect("a file").path();
    std::fs::write(&kept, "launch = -1").expect("it is written");
    at_home(&home, ["opt", "demo"]).refused(&["launch", "--costs default"]);
}
