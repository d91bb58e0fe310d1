//! Tests arrays on the command line: inferred dimensions, parameters, stdin and stdout, and misspelt names.

mod common;

use std::{io::Write, process::Stdio};

use common::{Dir, eutectic};
use serde_json::Value;

const SCALE: &str = r#"
(graph "scale"
  (input x f32[B (* 2 H)])
  (param w f32[(* 2 H)])
  (output y (mul x w)))
"#;

/// Returns an f32 array in row-major order as the bytes of a `.npy` file.
fn npy(dims: &[usize], values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    let dims: String = dims.iter().map(|d| format!("{d}, ")).collect();
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}), }}", dims.trim_end());
    header.push_str(&" ".repeat(117 - header.len()));
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.bytes());
    bytes.extend(values.into_iter().flat_map(f32::to_le_bytes));
    bytes
}

#[test]
fn dimensions_follow_from_arrays() {
    let dir = Dir::new();
    let utf8 = |path: std::path::PathBuf| path.into_os_string().into_string().expect("UTF-8");
    let graph = utf8(dir.file("scale.graph", SCALE));
    let x = format!("x=@{}", utf8(dir.file("x.npy", npy(&[3, 4], (0..12).map(|n| n as f32)))));
    let w = format!("w=@{}", utf8(dir.file("w.npy", npy(&[4], [1.0, 2.0, 3.0, 4.0]))));
    let run = eutectic(["run", &graph, "--input", &x, "--param", &w, "--format", "json"]).good();
    let run: Value = serde_json::from_str(&run).expect("JSON");
    assert_eq!(run["outputs"][0]["type"], "f32[3 4]");
    assert_eq!(run["outputs"][0]["values"][11].as_f64(), Some(44.0));
    assert_eq!(run["parameters"], "each from its own file");
    // Arguments take precedence, and arrays must not contradict each other.
    eutectic(["run", &graph, "--input", &x, "--shape", "B=2"]).refused(&["input `x` is f32[2 4]"]);
    let odd = format!("w=@{}", utf8(dir.file("odd.npy", npy(&[6], [0.0; 6]))));
    eutectic(["run", &graph, "--input", &x, "--param", &odd]).refused(&["`H` is 2 in `x`, but 3 in `w`"]);
    eutectic(["run", &graph, "--shape", "B=1", "--shape", "H=1", "--param", &w]).refused(&["parameter `w` is f32[2]"]);

    let onnx = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/golden/onnx/mlp-new.onnx");
    let x = format!("x=@{}", utf8(dir.file("x12.npy", npy(&[7, 12], [0.5; 84]))));
    assert!(eutectic(["run", onnx, "--input", &x]).good().contains("f32[7 5]"));
    assert!(eutectic(["bench", onnx, "--input", &x, "--iters", "1"]).good().contains("f32[7 12]"));
}

const KEYS: &str = r#"
(graph "keys"
  (dim S :least 2 :most 9)
  (input keys f32[2 S 4])
  (input mask f32[S])
  (output y (add (mul keys (const f32[] { 2.0 })) (reshape mask :shape [S 1]))))
"#;

#[test]
fn an_extent_at_run_time_is_that_of_the_arrays() {
    let dir = Dir::new();
    let utf8 = |path: std::path::PathBuf| path.into_os_string().into_string().expect("UTF-8");
    let graph = utf8(dir.file("keys.graph", KEYS));
    let json = |args: &[&str]| -> Value {
        let run = eutectic([&["run", &graph, "--format", "json"], args].concat()).good();
        serde_json::from_str(&run).expect("JSON")
    };
    for length in [2, 7, 9] {
        let keys = utf8(dir.file("keys.npy", npy(&[2, length, 4], (0..8 * length).map(|n| n as f32))));
        let mask = utf8(dir.file("mask.npy", npy(&[length], (0..length).map(|n| 100.0 * n as f32))));
        let (keys, mask) = (format!("keys=@{keys}"), format!("mask=@{mask}"));
        let shape = format!("S={length}");
        for args in
            [&["--input", &keys, "--input", &mask][..], &["--input", &keys, "--input", &mask, "--shape", &shape]]
        {
            let output = &json(args)["outputs"][0];
            assert_eq!(output["type"], format!("f32[2 {length} 4]"));
            let last = 2.0 * (8 * length - 1) as f64 + 100.0 * (length - 1) as f64;
            assert_eq!(output["values"][8 * length - 1].as_f64(), Some(last), "{args:?}");
        }
        // Extents that no array gives are equal to those of given arrays.
        assert_eq!(json(&["--input", &keys])["outputs"][0]["type"], format!("f32[2 {length} 4]"));
        assert_eq!(json(&["--shape", &shape])["outputs"][0]["type"], format!("f32[2 {length} 4]"));
        eutectic(["bench", &graph, "--input", &keys, "--iters", "1"]).good();
    }
    assert_eq!(json(&[])["outputs"][0]["type"], "f32[2 9 4]");
    eutectic(["bench", &graph, "--shape", "S=3", "--iters", "1"]).good();
    let [keys, long, mask] =
        [("keys", vec![2, 7, 4]), ("keys", vec![2, 10, 4]), ("mask", vec![3])].map(|(name, dims)| {
            let count = dims.iter().product();
            let file = format!("{name}{count}.npy");
            format!("{name}=@{}", utf8(dir.file(&file, npy(&dims, vec![1.0; count]))))
        });
    eutectic(["run", &graph, "--input", &long])
        .refused(&["input `keys` is f32[2 S 4], but f32[2 10 4]", "S is 2 to 9"]);
    eutectic(["run", &graph, "--input", &keys, "--input", &mask]).refused(&["input `mask` is f32[7], but f32[3]"]);
    eutectic(["run", &graph, "--shape", "S=10"]).refused(&["--shape S=10", "S is 2 to 9"]);
    eutectic(["run", &graph, "--shape", "T=3"]).refused(&["--shape T", "no dimension of that name", "it has S"]);
}

#[test]
fn a_dimension_has_one_number() {
    let dir = Dir::new();
    let graph = dir.file("scale.graph", SCALE).into_os_string().into_string().expect("UTF-8");
    let onnx = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/golden/onnx/mlp-new.onnx");
    for (file, dim) in [(graph.as_str(), "B"), (onnx, "batch")] {
        let of = |number: usize| format!("{dim}={number}");
        let contradiction = format!("cannot set {dim} to both 3 and 4 (--shape)");
        eutectic(["opt", file, "--shape", &of(3), "--shape", &of(4), "--shape", "H=2"]).refused(&[&contradiction]);
    }
    eutectic(["opt", &graph, "--shape", "B=3", "--shape", "H=2", "--shape", "B=3"]).good();
}

#[test]
fn files_are_what_they_end_in() {
    let dir = Dir::new();
    let graph = dir.file("scale.graph", SCALE).into_os_string().into_string().expect("UTF-8");
    let bound = ["--shape", "B=3", "--shape", "H=2"];
    for command in ["run", "bench"] {
        for file in ["y.npz", "y.csv"] {
            let path = dir.path(file);
            let run = [&[command, &graph, "--output", path.to_str().expect("UTF-8")], &bound[..]].concat();
            eutectic(run).refused(&[&format!("cannot write .{} files", &file[2..]), "name a .npy file"]);
            assert!(!path.exists(), "{file}");
        }
    }
    for file in ["y.npy", "y.NPY", "y"] {
        let to = format!("y={}", dir.path(file).display());
        eutectic([&["run", &graph, "--output", &to], &bound[..]].concat()).good();
        assert!(dir.path(file).exists(), "{file}");
    }
}

#[test]
fn arrays_and_graphs_come_and_go_by_pipes() {
    let dir = Dir::new();
    let path = |path: std::path::PathBuf| path.into_os_string().into_string().expect("UTF-8");
    let graph = path(dir.file("scale.graph", SCALE));
    let w = format!("w=@{}", path(dir.file("w.npy", npy(&[2], [10.0, 100.0]))));
    let piped = |args: &[&str], stdin: &[u8]| {
        let mut child =
            common::command().args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        child.stdin.take().expect("a pipe").write_all(stdin).expect("it reads");
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success());
        output.stdout
    };
    let y = piped(&["run", &graph, "--input", "x=@-", "--param", &w, "--output", "-"], &npy(&[1, 2], [1.0, 2.0]));
    assert_eq!(y, npy(&[1, 2], [10.0, 200.0]));
    let shown = piped(&["opt", "-", "--shape", "B=1", "--shape", "H=4", "--print", "graph"], SCALE.as_bytes());
    assert!(String::from_utf8_lossy(&shown).contains("(graph \"scale\""));
}

#[test]
fn what_is_misspelt_is_guessed() {
    let dir = Dir::new();
    let graph = dir.file("scale.graph", SCALE).into_os_string().into_string().expect("UTF-8");
    let onnx = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/golden/onnx/mlp-new.onnx");
    let x = format!("xx=@{}", dir.file("x.npy", npy(&[3, 4], [0.0; 12])).display());
    let bound = ["--shape", "B=3", "--shape", "H=2"];
    for (args, meant) in [
        (vec!["opt", "minilmm"], "minilm"),
        (vec!["opt", "sam", "--preset", "vit-bb"], "vit-b"),
        (vec!["opt", onnx, "--shape", "batsch=1"], "batch"),
        (vec!["opt", &graph, "--shape", "b=1", "--shape", "BB=2"], "B"),
        ([&["run", &graph, "--input", &x], &bound[..]].concat(), "x"),
        ([&["run", &graph, "--output", "yy=y.npy"], &bound[..]].concat(), "y"),
        (vec!["ops", "matmull"], "matmul"),
        (vec!["explain", "demo", "matmull", "--seq", "8", "--quick"], "matmul"),
        (vec!["opt", "demo", "--without", "fuse/linear-bia"], "fuse/linear-bias"),
        (vec!["rules", "list", "fuse/linear-bia"], "fuse/linear-bias"),
        (vec!["devices", "--backend", "cqu"], "--"),
        (vec!["opt", "demo", "--backend", "cqu"], "cpu"),
        (vec!["bensh"], "bench"),
        (vec!["opt", "demo", "--stratgy", "local"], "--strategy"),
    ] {
        eutectic(&args).refused(&[meant]);
    }
    let said = |args: &[&str]| eutectic(args).err;
    assert!(said(&["opt", "minilmm"]).contains("did you mean `minilm`?"), "{}", said(&["opt", "minilmm"]));
    assert!(said(&["opt", onnx, "--shape", "batsch=1"]).contains("did you mean `batch`?"));
}

#[test]
fn errors_are_json_where_json_is_asked_for() {
    let dir = Dir::new();
    let wrong = dir.file("wrong.graph", "(graph \"g\"\n  (input x f32[4])\n  (output y (tanhh x)))");
    let wrong = wrong.to_str().expect("UTF-8");
    let error = |args: &[&str]| -> Value {
        let run = eutectic(args);
        assert_eq!((run.code, run.out.as_str()), (Some(2), ""), "{}", run.err);
        serde_json::from_str(&run.err).expect("it is JSON")
    };
    let one = error(&["opt", wrong, "--format", "json"]);
    assert_eq!((&one["exit_code"], &one["errors"][0]["line"]), (&2.into(), &3.into()), "{one}");
    assert!(one["errors"][0]["column"].as_u64() > Some(1) && one["errors"][0]["file"] == wrong, "{one}");
    assert!(one["errors"][0]["help"].as_str().is_some_and(|help| help.contains("tanh")), "{one}");
    assert!(error(&["opt", "--format=json", "no-such-file"])["errors"][0]["message"].is_string());
    let usage = error(&["opt", "demo", "--format", "json", "--no-such-option"]);
    assert!(usage["errors"][0]["message"].as_str().is_some_and(|m| m.contains("--no-such-option")), "{usage}");
}

#[test]
fn shells_complete() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = eutectic(["completions", shell]).good();
        assert!(script.contains("explain") && script.contains("precision"), "{shell}");
    }
}

#[test]
fn help_has_headings_that_fit() {
    let help = eutectic(["bench", "--help"]).good();
    let section = |title: &str| {
        let (_, rest) = help.split_once(&format!("\n{title}:\n")).unwrap_or_else(|| panic!("{title}: {help}"));
        let end = rest.lines().position(|line| !line.is_empty() && !line.starts_with(' '));
        rest.lines().take(end.unwrap_or(usize::MAX)).collect::<Vec<_>>().join("\n")
    };
    for (title, option) in [
        ("Arguments", "<MODEL|FILE>"),
        ("Options", "--format"),
        ("Program", "--shape"),
        ("Device", "--threads"),
        ("Compilation", "--strategy"),
        ("Rules", "--fp"),
        ("Measuring", "--iters"),
        ("Inputs", "--input"),
        ("Results", "--csv"),
    ] {
        assert!(section(title).contains(option), "{option} is not under {title}: {help}");
    }
    assert!(!section("Rules").contains("--iters") && !section("Rules").contains("--format"), "{help}");
}
