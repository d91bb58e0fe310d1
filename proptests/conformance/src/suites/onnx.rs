//! Runs ONNX's own backend node tests (`models/scripts/fetch-onnx-node-tests.sh`), and lists the outcomes that are
//! expected.

use std::{
    collections::BTreeMap,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use eutectic::{
    Compiler, Dim, Error, Tensor,
    engine::models::onnx::{Imported, Model, OnnxError, read_tensor},
};
use rayon::prelude::*;

use crate::device::Device;

/// The expected outcomes on the processor, one line for each case.
pub const MANIFEST: &str = include_str!("../../tests/onnx_nodes.txt");

/// The tolerance of `numpy.testing.assert_allclose` in ONNX's runner.
const RELATIVE: f64 = 1e-3;
const ABSOLUTE: f64 = 1e-7;

/// Ops that draw random numbers. ONNX does not define these numbers, so only the types of results are compared.
const DRAWS: [&str; 4] = ["random-uniform", "random-normal", "bernoulli", "dropout"];

/// Returns whether an input is known when a case is compiled.
type Which = fn(&Tensor) -> bool;

/// The outcome of a case.
pub enum Outcome {
    /// The outputs are right. The string names the inputs that had to be known at compile time, or states that only
    /// types were compared.
    Pass(&'static str),
    /// An error names the missing feature.
    Unsupported(String),
    /// Anything else.
    Fail(String),
}

/// The result of running a case.
pub struct Case {
    /// The outcome.
    pub outcome: Outcome,
    /// Whether the importer has a mapping for every op of the case.
    pub claimed: bool,
}

/// Returns the name of a case. `rest` is a line of the manifest after its status.
pub fn name_of(rest: &str) -> &str {
    rest.split([' ', ':']).next().unwrap_or(rest)
}

/// Returns a case as a line of the manifest.
pub fn describe(name: &str, case: &Case) -> String {
    match &case.outcome {
        Outcome::Pass("") => format!("pass {name}"),
        Outcome::Pass(how) => format!("pass {name} {how}"),
        Outcome::Unsupported(why) => format!("unsupported {name}: {why}"),
        Outcome::Fail(why) => format!("fail {name}: {why}"),
    }
}

/// Runs all cases of a folder, and returns them by name.
pub fn run_all(compiler: &Compiler, folder: &Path) -> BTreeMap<String, Case> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let folders: Vec<PathBuf> = entries.map(|e| e.expect("entries exist").path()).filter(|p| p.is_dir()).collect();
    let case = |folder: &PathBuf| {
        let outcome = catch_unwind(AssertUnwindSafe(|| run(compiler, folder)));
        let panicked = |_| Case { outcome: Outcome::Fail("it panics".into()), claimed: true };
        let name = folder.file_name().expect("the folder of a case has a name").to_string_lossy().into_owned();
        (name, outcome.unwrap_or_else(panicked))
    };
    folders.par_iter().map(case).collect()
}

/// Checks that each case that passes in the manifest also passes here, unless the device refuses it.
pub fn nodes(device: &Device, folder: &Path) {
    let passes = |name: &str| MANIFEST.lines().any(|line| line.strip_prefix("pass ").map(name_of) == Some(name));
    let mut wrong = String::new();
    for (name, case) in run_all(&device.compiler(), folder).iter().filter(|(name, _)| passes(name)) {
        match &case.outcome {
            Outcome::Pass(_) => device.judge(),
            Outcome::Unsupported(why) => device.refuse(|| why.clone()),
            Outcome::Fail(why) => wrong += &format!("{name}: {why}\n"),
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

fn run(compiler: &Compiler, folder: &Path) -> Case {
    let model = match Model::open(folder.join("model.onnx")) {
        Ok(model) => model,
        Err(error) => return Case { outcome: Outcome::Unsupported(reason(&error)), claimed: false },
    };
    let outcome = attempts(compiler, &model, &folder.join("test_data_set_0")).unwrap_or_else(|outcome| outcome);
    Case { outcome, claimed: model.unknown_ops().is_empty() }
}

/// Returns the text of an error on one line, without the name of the file.
fn reason(error: &dyn std::fmt::Display) -> String {
    let text = error.to_string();
    let text = text.split_once(".onnx: ").map_or(text.as_str(), |(_, rest)| rest);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Imports and runs a case. If shapes depend on inputs, imports it again with known inputs: first with those that are
/// not floats, then with all.
fn attempts(compiler: &Compiler, model: &Model, data: &Path) -> Result<Outcome, Outcome> {
    let mut inputs = BTreeMap::new();
    let mut shapes = BTreeMap::new();
    for (at, (name, port)) in model.inputs().enumerate() {
        let port = port.map_err(|why| Outcome::Unsupported(format!("input {name}: {why}")))?;
        let path = data.join(format!("input_{at}.pb"));
        let tensor = read_tensor(path).map_err(|e| Outcome::Unsupported(format!("input {name}: {}", reason(&e))))?;
        for (dim, extent) in port.shape.iter().flat_map(|s| s.iter()).zip(tensor.dims()) {
            shapes.extend(dim.symbols().into_iter().map(|symbol| (symbol.to_string(), Dim::from(*extent))));
        }
        inputs.insert(name.to_string(), tensor);
    }
    let known: [(&str, Which); 3] =
        [("", |_| false), ("(integers known)", |t| !t.dtype().is_float()), ("(inputs known)", |_| true)];
    let mut refused = Outcome::Unsupported(String::new());
    for (how, fixed) in known {
        let fixed = inputs.iter().filter(|(_, t)| fixed(t)).map(|(n, t)| (n.clone(), t.clone())).collect();
        match model.import_with(&shapes, &fixed) {
            Ok(imported) => return Ok(judged(compiler, &imported, &inputs, data, how)),
            Err(error @ OnnxError::Unsupported { .. }) => {
                let about_shapes = reason(&error).contains("decides shapes");
                refused = Outcome::Unsupported(reason(&error));
                if !about_shapes {
                    return Err(refused);
                }
            }
            Err(error) => return Err(Outcome::Unsupported(reason(&error))),
        }
    }
    Err(refused)
}

fn judged(
    compiler: &Compiler,
    imported: &Imported,
    inputs: &BTreeMap<String, Tensor>,
    data: &Path,
    how: &'static str,
) -> Outcome {
    let results = || -> Result<Vec<Tensor>, Error> {
        let mut session = compiler.compile(&imported.graph)?;
        let params = imported.params().map_err(|e| Error::Arguments(vec![e.to_string()]))?;
        session.load_named(|name| params.get(name).cloned())?;
        session.run_named(|name| inputs.get(name).cloned())
    };
    let draws = imported.graph.nodes().any(|(_, node)| DRAWS.contains(&node.op.name()));
    match results() {
        Ok(results) => {
            let compared = results.iter().zip(imported.graph.outputs()).enumerate();
            let wrong = compared.filter_map(|(at, (got, (name, _)))| {
                let want = read_tensor(data.join(format!("output_{at}.pb"))).map_err(|e| reason(&e));
                let compare = if draws { same_type } else { compare };
                want.and_then(|want| compare(got, &want)).err().map(|why| format!("output {name}: {why}"))
            });
            wrong.into_iter().next().map_or(Outcome::Pass(if draws { "(types only)" } else { how }), Outcome::Fail)
        }
        Err(error @ (Error::Unsupported { .. } | Error::Backend(_))) => Outcome::Unsupported(reason(&error)),
        Err(error) => Outcome::Fail(reason(&error)),
    }
}

/// Checks that a result has the expected type. The error names both types.
fn same_type(got: &Tensor, want: &Tensor) -> Result<(), String> {
    if got.ty() == want.ty() { Ok(()) } else { Err(format!("its type is {}, not {}", got.ty(), want.ty())) }
}

/// Checks that a result has the expected type and elements. The error names the first difference.
fn compare(got: &Tensor, want: &Tensor) -> Result<(), String> {
    same_type(got, want)?;
    if !got.dtype().is_float() {
        return if got.to_i64() == want.to_i64() { Ok(()) } else { Err("other integers".into()) };
    }
    let close =
        |(a, b): &(f64, f64)| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= ABSOLUTE + RELATIVE * b.abs();
    match got.to_f64().into_iter().zip(want.to_f64()).find(|pair| !close(pair)) {
        Some((got, want)) => Err(format!("{got:e}, not {want:e}")),
        None => Ok(()),
    }
}
