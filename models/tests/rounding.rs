//! Tiny models whose results hang on how numbers are rounded (`models/golden/make_rounding.py`): the reference, op by op in the element types, gives
//! the right bits, whether inputs are constants when the model is read or not.

#![cfg(feature = "onnx")]

use std::{collections::BTreeMap, path::Path};

use eutectic_ir::{Tensor, interp::interpret_rounded};
use eutectic_models::{Weights, onnx::Model};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/rounding");

/// Whether the bits of two results are the same, all NaN being one.
fn same(got: &Tensor, want: &Tensor) -> bool {
    let elements = |t: &Tensor| -> Vec<u64> {
        let float = |x: f64| if x.is_nan() { f64::NAN.to_bits() } else { x.to_bits() };
        match t.dtype().is_float() {
            true => t.to_f64().into_iter().map(float).collect(),
            false => t.to_i64().into_iter().map(|n| n as u64).collect(),
        }
    };
    got.ty() == want.ty() && elements(got) == elements(want)
}

#[test]
fn the_reference_gives_the_right_bits_of_constants_and_of_inputs() {
    let values = Weights::open(Path::new(GOLDEN).join("values.safetensors")).expect("the golden values");
    let mut names: Vec<String> = std::fs::read_dir(GOLDEN)
        .expect("the models")
        .map(|file| file.expect("a file").path())
        .filter(|path| path.extension().is_some_and(|e| e == "onnx"))
        .map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert!(names.len() >= 30);
    let mut wrong = Vec::new();
    for name in &names {
        let model = Model::open(Path::new(GOLDEN).join(format!("{name}.onnx"))).unwrap_or_else(|e| panic!("{e}"));
        let value = |way: &str, port: &str| {
            values.get(&format!("{name}.{way}.{port}")).cloned().unwrap_or_else(|| panic!("{name} has no {way}.{port}"))
        };
        let (mut shapes, mut inputs) = (BTreeMap::new(), BTreeMap::new());
        for (input, port) in model.inputs() {
            let (port, tensor) = (port.expect("a tensor"), value("in", input));
            for (dim, extent) in port.shape.iter().flat_map(|s| s.iter()).zip(tensor.dims()) {
                shapes.extend(dim.symbols().into_iter().map(|symbol| (symbol.to_string(), *extent as i64)));
            }
            inputs.insert(input.to_string(), tensor);
        }
        for folded in [true, false] {
            let fixed = if folded { inputs.clone() } else { BTreeMap::new() };
            let imported = match model.import_with(&shapes, &fixed) {
                Ok(imported) => imported,
                // How long a range is must be known when the model is read.
                Err(_) if !folded && name.contains("range_") => continue,
                Err(error) => {
                    wrong.push(format!("{name}, folded {folded}: {error}"));
                    continue;
                }
            };
            let params = imported.params().expect("the values are in the file");
            let given = |name: &str| inputs.get(name).or_else(|| params.get(name)).cloned();
            let results = interpret_rounded(&imported.graph, &given).unwrap_or_else(|e| panic!("{name}: {e}"));
            for ((output, _), got) in imported.graph.outputs().iter().zip(&results) {
                let (got, want) = (got.to_tensor(), value("out", output));
                if !same(&got, &want) {
                    wrong.push(format!("{name}, folded {folded}: {output} is {got}, not {want}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
