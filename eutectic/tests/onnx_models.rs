//! Tiny models from torch's exporters, compiled and run, compared with torch (`models/golden/make_onnx.py`).

use std::{collections::BTreeMap, path::Path};

use eutectic::{
    Compiler, Cpu, CpuOptions, Dim, Tensor,
    engine::models::{Weights, onnx::Model},
};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/golden/onnx");

/// Returns the largest difference between our outputs and torch's.
fn difference(compiler: &Compiler, name: &str) -> f64 {
    let golden = Weights::open(Path::new(GOLDEN).join(format!("{name}.safetensors"))).expect("the golden values");
    let model = Model::open(Path::new(GOLDEN).join(format!("{name}.onnx"))).unwrap_or_else(|e| panic!("{e}"));
    let value = |name: &str| golden.get(name).cloned().unwrap_or_else(|| panic!("no {name}"));
    let mut shapes = BTreeMap::new();
    let mut inputs = BTreeMap::new();
    for (name, port) in model.inputs() {
        let (port, tensor) = (port.expect("a tensor"), value(&format!("in.{name}")));
        for (dim, extent) in port.shape.iter().flat_map(|s| s.iter()).zip(tensor.dims()) {
            shapes.extend(dim.symbols().into_iter().map(|symbol| (symbol.to_string(), Dim::from(*extent))));
        }
        inputs.insert(name.to_string(), tensor);
    }
    let imported = model.import(&shapes).unwrap_or_else(|e| panic!("{e}"));
    let mut session = compiler.compile(&imported.graph).unwrap_or_else(|e| panic!("{name}: {e}"));
    let params = imported.params().expect("the values are in the file");
    session.load_named(|name| params.get(name).cloned()).expect("every parameter has a value");
    let results = session.run_named(|name| inputs.get(name).cloned()).unwrap_or_else(|e| panic!("{name}: {e}"));
    let (got, want): (&Tensor, Tensor) = (&results[0], value("out.y"));
    assert_eq!(got.ty(), want.ty(), "{name}");
    got.to_f64().iter().zip(want.to_f64()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

#[test]
fn exported_models_compute_what_torch_computes() {
    let compiler = Compiler::new(Cpu::new(CpuOptions { threads: 2, ..CpuOptions::default() })).expect("the rules load");
    let files = std::fs::read_dir(GOLDEN).expect("the fixtures");
    let mut names: Vec<_> =
        files.map(|f| f.expect("a file").path()).filter(|p| p.extension().is_some_and(|e| e == "onnx")).collect();
    names.sort();
    assert!(names.len() >= 6);
    for path in names {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let worst = difference(&compiler, &name);
        // Values are around 1 and are rounded to `f32` a few dozen times.
        assert!(worst < 2e-5, "{name}: {worst:e}");
    }
}
