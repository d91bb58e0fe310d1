//! Tests ONNX files on the command line: their contents, plans without weights, and runs with and without inputs.

mod common;

use common::{Dir, eutectic};

fn fixture(name: &str) -> String {
    format!("{}/../models/golden/onnx/{name}.onnx", env!("CARGO_MANIFEST_DIR"))
}

/// Returns an f32 array in the format of NumPy.
fn npy(dims: &str, values: &[f32]) -> Vec<u8> {
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({dims}), }}\n");
    let length = (header.len() as u16).to_le_bytes();
    let data: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
    [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), &data].concat()
}

#[test]
fn inspect_says_what_is_in_a_file() {
    let out = eutectic(["inspect", &fixture("bert-eager-old")]).good();
    for part in ["opset       13", "pytorch", "ids i64[batch seq]", "MatMul", "batch, seq"] {
        assert!(out.contains(part), "{part} is not in: {out}");
    }
    let out = eutectic(["inspect", &fixture("mlp-new"), "--shape", "batch=2", "--format", "json"]).good();
    let value: serde_json::Value = serde_json::from_str(&out).expect("it is JSON");
    assert_eq!(value["opset"], 20);
    assert_eq!(value["ops"]["Gemm"].as_u64().or(value["ops"]["MatMul"].as_u64()).map(|n| n > 0), Some(true), "{out}");
    assert_eq!(value["unsupported"].as_array().map(Vec::len), Some(0));
}

#[test]
fn a_model_runs_on_given_and_on_random_inputs() {
    let dir = Dir::new();
    let x = dir.file("x.npy", npy("2, 12", &[0.25; 24]));
    let y = dir.path("y.npy");
    let given = format!("x=@{}", x.display());
    let run = |more: &[&str]| {
        let model = fixture("mlp-old");
        eutectic([&["run", &model, "--shape", "batch=2"][..], more].concat())
    };
    let out = run(&["--input", &given, "--output", y.to_str().expect("UTF-8"), "--format", "json"]).good();
    let value: serde_json::Value = serde_json::from_str(&out).expect("it is JSON");
    let row = |at: usize| value["outputs"][0]["values"].as_array().expect("values")[at * 5..][..5].to_vec();
    assert_eq!(row(0), row(1));
    let sum: f64 = row(0).iter().map(|x| x.as_f64().expect("a number")).sum();
    assert!((sum - 1.0).abs() < 1e-6, "{sum}");
    assert_eq!(std::fs::read(y).expect("it is written").len() % 64, 40);
    assert!(run(&[]).good().contains("f32[2 5]"));
    // Random token ids are in the range of the embedding table.
    eutectic(["run", &fixture("llama-sdpa-new"), "--shape", "batch=1", "--shape", "seq=5"]).good();
    eutectic(["opt", &fixture("bert-sdpa-new"), "--shape", "batch=1", "--shape", "seq=5"]).good();
}

#[test]
fn one_program_serves_every_length() {
    let dir = Dir::new();
    let x = dir.file("x.npy", npy("3, 12", &[0.25; 36]));
    let given = format!("x=@{}", x.display());
    let run = |file: &str, length: &str| eutectic(["run", file, "--shape", length, "--input", &given]);
    assert!(run(&fixture("mlp-old"), "batch=1..8").good().contains("f32[3 5]"));
    run(&fixture("mlp-old"), "batch=4..8").refused(&["batch is 4 to 8", "f32[3 12] was given"]);
    run(&fixture("mlp-old"), "batch=8..4").refused(&["NAME=A..B"]);
    let graph = dir.file("open.graph", "(graph \"open\" (input x f32[B 12]) (output y (exp x)))");
    let graph = graph.to_str().expect("UTF-8");
    assert!(run(graph, "B=1..8").good().contains("f32[3 12]"));
    let graph = dir.file("dim.graph", "(graph \"dim\" (dim B :most 8) (input x f32[B 12]) (output y (exp x)))");
    assert!(run(graph.to_str().expect("UTF-8"), "B=2..4").good().contains("f32[3 12]"));
    // The error names each node that needs a number.
    let llama = [fixture("llama-sdpa-new"), fixture("bert-sdpa-new")];
    for file in llama {
        eutectic(["opt", &file, "--shape", "batch=1..4", "--shape", "seq=1..8"])
            .refused(&["GatherND", "`batch`, `seq`"]);
    }
}

/// Runs a model of `make_forms.py` on inputs. Returns the type and the elements of its result.
fn form(name: &str, args: &[&str]) -> (String, Vec<f64>) {
    let out = eutectic([&["run", &fixture(&format!("forms/{name}")), "--format", "json"][..], args].concat()).good();
    let value: serde_json::Value = serde_json::from_str(&out).expect("it is JSON");
    let output = &value["outputs"][0];
    let elements = output["values"].as_array().expect("values").iter().map(|x| x.as_f64().expect("a number"));
    (output["type"].as_str().expect("a type").into(), elements.collect())
}

#[test]
fn arrays_decide_about_a_model() {
    let dir = Dir::new();
    let file = |name: &str, bytes: Vec<u8>| {
        let (input, _) = name.split_once('-').expect("NAME-NUMBER");
        format!("{input}=@{}", dir.file(&format!("{name}.npy"), bytes).display())
    };
    // A default applies if no value is given.
    let (x, w) = (file("x-1", npy("2,", &[1.0, 2.0])), file("w-1", npy("2,", &[-1.0, 0.5])));
    assert_eq!(form("default", &["--input", &x]).1, [11.0, 22.0]);
    assert_eq!(form("default", &["--input", &x, "--input", &w]).1, [0.0, 2.5]);
    let other = file("w-2", npy("3,", &[0.0; 3]));
    eutectic(["run", &fixture("forms/default"), "--input", &other]).refused(&["input `w` is f32[2], but f32[3]"]);
    // Shapes depend on the condition.
    let x = file("x-2", npy("2, 3", &[0.5; 6]));
    let truth = |value: u8| {
        let header = "{'descr': '|b1', 'fortran_order': False, 'shape': (), }\n";
        let length = (header.len() as u16).to_le_bytes();
        file(&format!("c-{value}"), [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), &[value]].concat())
    };
    assert_eq!(form("branch", &["--input", &x, "--input", &truth(1)]), ("f32[]".into(), vec![3.0]));
    assert_eq!(form("branch", &["--input", &x, "--input", &truth(0)]), ("f32[2 3]".into(), vec![0.5; 6]));
    let unknown = eutectic(["run", &fixture("forms/branch"), "--input", &x]);
    unknown.refused(&["If (opset 17) at y", "f32[] if its condition holds, and f32[2 3] otherwise", "--input"]);
    // A condition ends the loop.
    for (start, end) in [(3.0, 96.0), (100.0, 200.0), (24.5, 98.0)] {
        let x = file("x-3", npy("", &[start]));
        assert_eq!(form("while", &["--input", &x]), ("f32[]".into(), vec![end]));
    }
    let x = file("x-4", npy("", &[0.0]));
    let endless = eutectic(["run", &fixture("forms/while"), "--input", &x, "--most-times", "30"]);
    assert!(endless.err.contains("the condition of the loop is still true after 30 iterations"), "{}", endless.err);
}

#[test]
fn what_is_wrong_is_said() {
    let dir = Dir::new();
    let mlp = fixture("mlp-old");
    eutectic(["run", &mlp]).refused(&["batch", "--shape batch=N"]);
    eutectic(["run", &mlp, "--shape", "batch=1", "--shape", "width=1"]).refused(&["width", "it has batch"]);
    eutectic(["opt", &mlp, "--seq", "1"]).refused(&["--seq", "built-in"]);
    eutectic(["inspect", "nowhere.onnx"]).refused(&["nowhere.onnx"]);
    eutectic(["inspect", "demo"]).refused(&["demo because it is a built-in model", "eutectic opt demo"]);
    let text = dir.file("text.onnx", "(graph \"no protobuf\")");
    eutectic(["inspect".as_ref(), text.as_os_str()]).refused(&["not a valid ONNX model"]);
    let mut unknown = std::fs::read(&mlp).expect("the fixture");
    while let Some(at) = unknown.windows(7).position(|w| w == b"Softmax") {
        unknown[at..at + 7].copy_from_slice(b"Softmux");
    }
    let unknown = dir.file("unknown.onnx", unknown);
    let unknown = unknown.to_str().expect("UTF-8");
    eutectic(["run", unknown, "--shape", "batch=1"]).refused(&[
        "Softmux (opset 17)",
        "this op is not supported",
        "inspect",
    ]);
    assert!(eutectic(["inspect", unknown]).good().contains("Softmux (opset 17)"));
}
