//! ONNX's own backend node tests (`models/scripts/fetch-onnx-node-tests.sh`): the outcome of each, and those that must
//! pass.

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

/// The outcomes on the processor, one line for each case.
pub const MANIFEST: &str = include_str!("../../tests/onnx_nodes.txt");

/// The tolerance of `numpy.testing.assert_allclose` in ONNX's runner.
const RELATIVE: f64 = 1e-3;
const ABSOLUTE: f64 = 1e-7;

/// Ops that draw numbers. ONNX does not say which ones, so that results of a case with such an op have a type and no
/// values to compare.
const DRAWS: [&str; 4] = ["random-uniform", "random-normal", "bernoulli", "dropout"];

/// Selects the inputs that are known when a case is compiled.
type Which = fn(&Tensor) -> bool;

/// The outcome of a case.
pub enum Outcome {
    /// Its outputs are right. The string names the inputs whose values had to be known at compile time.
    Pass(&'static str),
    /// An error names the missing feature.
    Unsupported(String),
    /// Anything else.
    Fail(String),
}

/// A case that was run.
pub struct Case {
    /// The outcome of the case.
    pub outcome: Outcome,
    /// Whether every op in it has a mapping.
    pub claimed: bool,
}

/// Returns the name at the start of a line's rest.
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

/// Runs all cases of a folder.
pub fn run_all(compiler: &Compiler, folder: &Path) -> BTreeMap<String, Case> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let folders: Vec<PathBuf> = entries.map(|e| e.expect("an entry").path()).filter(|p| p.is_dir()).collect();
    let case = |folder: &PathBuf| {
        let outcome = catch_unwind(AssertUnwindSafe(|| run(compiler, folder)));
        let panicked = |_| Case { outcome: Outcome::Fail("it panics".into()), claimed: true };
        let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
        (name, outcome.unwrap_or_else(panicked))
    };
    folders.par_iter().map(case).collect()
}

/// Checks each case that passes in the manifest: it must pass here too, unless the device refuses it.
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

/// Returns the error without the file's name, in a line.
fn reason(error: &dyn std::fmt::Display) -> String {
    let text = error.to_string();
    let text = text.split_once(".onnx: ").map_or(text.as_str(), |(_, rest)| rest);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Tries to import the case with no input known, then with all inputs known that are not floats, then with all inputs
/// known. Shapes must be known when a program is compiled.
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

/// Returns an error if types differ.
fn same_type(got: &Tensor, want: &Tensor) -> Result<(), String> {
    if got.ty() == want.ty() { Ok(()) } else { Err(format!("its type is {}, not {}", got.ty(), want.ty())) }
}

/// Returns the difference as an error, if there is one.
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
