//! Runs small ONNX models, in which a wrong rewrite changes results visibly, and compares the results with the right
//! values.
//!
//! A case is a folder of `model.onnx`, `in_NAME.npy` for each input, `expected_NAME.npy` for each output, and
//! `case.json`. That file has the expectation (`values` or `an error`), the tolerance, and the level of `--fp`. It also
//! states whether the case has subnormal numbers.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use eutectic::{
    Dim, Error, Tensor,
    engine::{
        models::{
            npy,
            onnx::{ImportOptions, Model},
        },
        rewrites::{Choice, Fp},
    },
    packs,
};
use serde_json::Value;

use crate::device::Device;

/// The contents of `case.json`.
struct Case {
    inputs: Vec<String>,
    outputs: Vec<String>,
    expect: String,
    rtol: f64,
    atol: f64,
    fp: Fp,
    /// Whether operands or results are subnormal numbers, which some devices flush to 0.
    subnormals: bool,
}

impl Case {
    fn of(about: &Value) -> Case {
        let names = |key: &str| -> Vec<String> {
            about[key].as_array().into_iter().flatten().filter_map(Value::as_str).map(String::from).collect()
        };
        let exact = names("args").iter().any(|arg| arg == "exact");
        Case {
            inputs: names("inputs"),
            outputs: names("outputs"),
            expect: about["expect"].as_str().unwrap_or_default().into(),
            rtol: about["rtol"].as_f64().unwrap_or(0.0),
            atol: about["atol"].as_f64().unwrap_or(0.0),
            subnormals: about["subnormals"].as_bool().unwrap_or(false),
            fp: if exact { Fp::Exact } else { Fp::default() },
        }
    }
}

/// Runs the cases in `numbers` of the folder `models/golden`.
pub fn numbers(device: &Device, golden: &Path) {
    all_of(device, &golden.join("numbers"), 64);
}

/// Runs the cases in `ml` of the folder `models/golden`: models of the domain `ai.onnx.ml`, with results of ONNX
/// Runtime.
pub fn classical(device: &Device, golden: &Path) {
    all_of(device, &golden.join("ml"), 64);
}

/// Runs the cases in `microsoft` of the folder `models/golden`: quantised ops and attention of the domain
/// `com.microsoft`, with results of ONNX Runtime.
pub fn microsoft(device: &Device, golden: &Path) {
    all_of(device, &golden.join("microsoft"), 29);
}

/// Runs all cases of a folder. There must be at least `least` cases.
fn all_of(device: &Device, folder: &Path, least: usize) {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("cannot read {}: {e}", folder.display()));
    let mut folders: Vec<PathBuf> = entries.map(|e| e.expect("entries exist").path()).filter(|p| p.is_dir()).collect();
    folders.sort();
    assert!(folders.len() >= least, "cases are missing in {}", folder.display());
    let wrong: Vec<String> = folders.iter().filter_map(|folder| judged(device, folder).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Runs a case. The error names the wrong result.
fn judged(device: &Device, folder: &Path) -> Result<(), String> {
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let about = fs::read(folder.join("case.json")).map_err(|e| format!("{name}: {e}"))?;
    let case = Case::of(&serde_json::from_slice(&about).map_err(|e| format!("{name}: {e}"))?);
    if case.subnormals && !device.backend().limits().subnormals {
        device.refuse(|| format!("{name}: the case has subnormal numbers"));
        return Ok(());
    }
    match (run(device, folder, &case), case.expect == "values") {
        (Ok(got), true) => {
            for (output, got) in case.outputs.iter().zip(&got) {
                let want = array(&folder.join(format!("expected_{output}.npy")))?;
                same(got, &want, &case).map_err(|why| format!("{name}: {output}: {why}"))?;
            }
        }
        (Err(refused @ Error::Unsupported { .. }), true) => device.refuse(|| format!("{name}: {refused}")),
        (Err(error), true) => return Err(format!("{name}: {error}")),
        (Ok(_), false) => return Err(format!("{name}: an error is expected, but the result is a value")),
        (Err(_), false) => {}
    }
    device.judge();
    Ok(())
}

fn array(path: &Path) -> Result<Tensor, String> {
    let bytes = fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    npy::read(bytes).map_err(|e| format!("{}: {e}", path.display()))
}

/// Returns the outputs of a case, in the model's order.
fn run(device: &Device, folder: &Path, case: &Case) -> Result<Vec<Tensor>, Error> {
    let arguments = |e: String| Error::Arguments(vec![e]);
    let model = Model::open(folder.join("model.onnx")).map_err(|e| arguments(e.to_string()))?;
    let mut inputs = BTreeMap::new();
    for name in &case.inputs {
        inputs.insert(name.clone(), array(&folder.join(format!("in_{name}.npy"))).map_err(arguments)?);
    }
    let has_default = |name: &String| model.defaults().any(|(other, _)| other == name);
    let given = inputs.keys().filter(|name| has_default(name)).cloned().collect();
    // Open dimensions get the extents of the arrays.
    let mut shapes = BTreeMap::new();
    for (name, port) in model.inputs() {
        let shape = port.ok().and_then(|port| port.shape.as_ref());
        let given = inputs.get(name).map(|given| given.dims().to_vec()).unwrap_or_default();
        for (dim, extent) in shape.iter().flat_map(|shape| shape.iter()).zip(given) {
            shapes.extend(dim.symbols().into_iter().map(|symbol| (symbol.to_string(), Dim::from(extent))));
        }
    }
    let options = ImportOptions { given, shapes, ..ImportOptions::default() };
    // Shapes must be known when a program is compiled, and may depend on integers. If an import without their values
    // fails, integer inputs become constants.
    let fixed = inputs.iter().filter(|(_, given)| !given.dtype().is_float()).map(|(n, t)| (n.clone(), t.clone()));
    let known = ImportOptions { fixed: fixed.collect(), ..options.clone() };
    let imported = model.import_as(&options).or_else(|_| model.import_as(&known));
    let imported = imported.map_err(|e| arguments(e.to_string()))?;
    let rules = packs(&**device.backend())?.choose(&Choice { fp: case.fp, ..Choice::default() })?;
    let mut session = device.compiler().with_rules(rules).compile(&imported.graph)?;
    let params = imported.params().map_err(|e| arguments(e.to_string()))?;
    session.load_named(|name| params.get(name).cloned())?;
    session.run_named(|name| inputs.get(name).cloned())
}

/// Compares floats like `numpy.isclose` with `equal_nan=True`. Integers must be equal.
fn same(got: &Tensor, want: &Tensor, case: &Case) -> Result<(), String> {
    if (got.dtype().size(), got.dims()) != (want.dtype().size(), want.dims()) {
        let of = |tensor: &Tensor| format!("{}{:?}", tensor.dtype(), tensor.dims());
        return Err(format!("{}, not {}", of(got), of(want)));
    }
    let exact = !want.dtype().is_float();
    let close = |a: f64, b: f64| {
        a == b
            || a.is_nan() && b.is_nan()
            || !exact && b.is_finite() && (a - b).abs() <= case.atol + case.rtol * b.abs()
    };
    let (a, b) = (got.to_f64(), want.to_f64());
    match a.iter().zip(&b).position(|(&a, &b)| !close(a, b)) {
        Some(at) => Err(format!("element {at} is {}, not {}", a[at], b[at])),
        None if exact && got.bytes() != want.bytes() && got.dtype() == want.dtype() => {
            Err("integers beyond 2⁵³ differ".into())
        }
        None => Ok(()),
    }
}
