//! Tiny models whose results hang on how numbers are rounded (`models/golden/make_rounding.py`), with inputs that are given at run time and with
//! inputs that are constants: what is folded is what would have been computed.

use std::{collections::BTreeMap, path::Path};

use eutectic::{
    Compiler, Cpu, CpuOptions, RuleSet, Tensor,
    engine::{
        models::{Weights, onnx::Model},
        rewrites::{Choice, Fp},
    },
};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/golden/rounding");

fn compiler(fp: Fp) -> Compiler {
    let cpu = Cpu::new(CpuOptions { threads: 1, ..CpuOptions::default() });
    let rules = RuleSet::embedded().unwrap().choose(&Choice { fp, ..Choice::default() });
    Compiler::new(cpu).expect("the rules load").with_rules(rules.expect("the rules load"))
}

/// The bits of two results differ; NaN is NaN.
fn differ(got: &Tensor, want: &Tensor) -> bool {
    let nan = |t: &Tensor| t.to_f64().iter().map(|x| x.is_nan()).collect::<Vec<_>>();
    if got.dtype().is_float() && nan(got).contains(&true) {
        let bits = |t: &Tensor| t.to_f64().iter().filter(|x| !x.is_nan()).map(|x| x.to_bits()).collect::<Vec<_>>();
        return got.ty() != want.ty() || nan(got) != nan(want) || bits(got) != bits(want);
    }
    got != want
}

#[test]
fn constants_and_inputs_give_the_right_bits() {
    let values = Weights::open(Path::new(GOLDEN).join("values.safetensors")).expect("the golden values");
    let compilers = [Fp::Exact, Fp::Reassoc].map(|fp| (fp, compiler(fp)));
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
                Err(error) => panic!("{name}: {error}"),
            };
            let params = imported.params().expect("the values are in the file");
            for (fp, compiler) in &compilers {
                let mut session = compiler.compile(&imported.graph).unwrap_or_else(|e| panic!("{name}: {e}"));
                session.load_named(|name| params.get(name).cloned()).expect("every parameter has a value");
                let results =
                    session.run_named(|name| inputs.get(name).cloned()).unwrap_or_else(|e| panic!("{name}: {e}"));
                for ((output, _), got) in imported.graph.outputs().iter().zip(&results) {
                    let want = value("out", output);
                    if differ(got, &want) {
                        wrong.push(format!("{name}, folded {folded}, {fp:?}: {output} is {got}, not {want}"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
