//! Tiny models whose results depend on rounding (`models/golden/make_rounding.py`). Reference and kernels give the
//! right bits. It makes no difference whether inputs are given at run time or are constants that the importer folds.

use std::{collections::BTreeMap, path::Path};

use eutectic::{
    Compiler, Cpu, CpuOptions, Dim, RuleSet, Tensor,
    engine::{
        ir::interp::interpret_rounded,
        models::{
            Weights,
            onnx::{Imported, Model},
        },
        rewrites::{Choice, Fp},
    },
};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/golden/rounding");

fn compiler(fp: Fp) -> Compiler {
    let cpu = Cpu::new(CpuOptions { threads: 1, ..CpuOptions::default() });
    let rules = RuleSet::embedded().unwrap().choose(&Choice { fp, ..Choice::default() });
    Compiler::new(cpu).expect("the rules load").with_rules(rules.expect("the rules load"))
}

/// Returns whether the bits of two results are equal. All NaN count as equal.
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

/// A model of the folder with one way to import it.
struct Case<'a> {
    /// Its name, and whether its inputs are constants.
    about: String,
    imported: Imported,
    inputs: BTreeMap<String, Tensor>,
    params: BTreeMap<String, Tensor>,
    want: &'a dyn Fn(&str) -> Tensor,
}

impl Case<'_> {
    /// Describes the outputs that are wrong.
    fn wrong(&self, by: &str, results: &[Tensor]) -> Vec<String> {
        let outputs = self.imported.graph.outputs();
        let pairs = outputs.iter().zip(results).map(|((output, _), got)| (output, got, (self.want)(output)));
        pairs
            .filter(|(_, got, want)| !same(got, want))
            .map(|(output, got, want)| format!("{} {by}: {output} is {got}, not {want}", self.about))
            .collect()
    }
}

/// Imports each model with its inputs as constants and as inputs, and fails if outputs are wrong.
#[track_caller]
fn all_right(wrong: impl Fn(&Case<'_>) -> Vec<String>) {
    let values = Weights::open(Path::new(GOLDEN).join("values.safetensors")).expect("the golden values");
    let mut names: Vec<String> = std::fs::read_dir(GOLDEN)
        .expect("the models")
        .map(|file| file.expect("a file").path())
        .filter(|path| path.extension().is_some_and(|e| e == "onnx"))
        .map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert!(names.len() >= 30);
    let mut all = Vec::new();
    for name in &names {
        let model = Model::open(Path::new(GOLDEN).join(format!("{name}.onnx"))).unwrap_or_else(|e| panic!("{e}"));
        let value = |way: &str, port: &str| {
            values.get(&format!("{name}.{way}.{port}")).cloned().unwrap_or_else(|| panic!("{name} has no {way}.{port}"))
        };
        let (mut shapes, mut inputs) = (BTreeMap::new(), BTreeMap::new());
        for (input, port) in model.inputs() {
            let (port, tensor) = (port.expect("a tensor"), value("in", input));
            for (dim, extent) in port.shape.iter().flat_map(|s| s.iter()).zip(tensor.dims()) {
                shapes.extend(dim.symbols().into_iter().map(|symbol| (symbol.to_string(), Dim::from(*extent))));
            }
            inputs.insert(input.to_string(), tensor);
        }
        for folded in [true, false] {
            let about = format!("{name}, folded {folded},");
            let imported = match model.import_with(&shapes, &if folded { inputs.clone() } else { BTreeMap::new() }) {
                Ok(imported) => imported,
                // The length of a range must be known during the import.
                Err(_) if !folded && name.contains("range_") => continue,
                Err(error) => {
                    all.push(format!("{about} {error}"));
                    continue;
                }
            };
            let params = imported.params().expect("the values are in the file");
            let want = &|output: &str| value("out", output);
            all.extend(wrong(&Case { about, imported, inputs: inputs.clone(), params, want }));
        }
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn the_reference_gives_the_right_bits() {
    all_right(|case| {
        let given = |name: &str| case.inputs.get(name).or_else(|| case.params.get(name)).cloned();
        let results = interpret_rounded(&case.imported.graph, &given).unwrap_or_else(|e| panic!("{} {e}", case.about));
        case.wrong("by the reference", &results.iter().map(|value| value.to_tensor()).collect::<Vec<_>>())
    });
}

#[test]
fn kernels_give_the_right_bits() {
    let compilers = [Fp::Exact, Fp::Reassoc].map(|fp| (fp, compiler(fp)));
    all_right(|case| {
        let results = |compiler: &Compiler| {
            let mut session = compiler.compile(&case.imported.graph)?;
            session.load_named(|name| case.params.get(name).cloned())?;
            session.run_named(|name| case.inputs.get(name).cloned())
        };
        let wrong = compilers.iter().flat_map(|(fp, compiler)| {
            let results = results(compiler).unwrap_or_else(|e| panic!("{} {fp:?}: {e}", case.about));
            case.wrong(&format!("by kernels, {fp:?}"), &results)
        });
        wrong.collect()
    });
}
