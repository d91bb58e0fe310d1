//! ONNX's own backend node tests (`models/scripts/fetch-onnx-node-tests.sh`), against a manifest of what each comes out as.
//!
//! A case that passed and fails now is an error, and so is one that passes now and did not: then the manifest is written anew, by
//! `cargo test --workspace --test onnx_nodes -- --ignored write_the_manifest`.

use std::{
    collections::BTreeMap,
    fmt::Write,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use eutectic::{
    Compiler, Cpu, CpuOptions, Error, Tensor,
    engine::models::onnx::{Imported, Model, OnnxError, read_tensor},
};

const MANIFEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/onnx_nodes.txt");

/// What `numpy.testing.assert_allclose` takes in ONNX's runner.
const RELATIVE: f64 = 1e-3;
const ABSOLUTE: f64 = 1e-7;

/// Which inputs are known when a case is compiled.
type Which = fn(&Tensor) -> bool;

/// What becomes of a case.
enum Outcome {
    /// Its outputs are right; of which inputs the values had to be known when it was compiled.
    Pass(&'static str),
    /// An error says what is missing.
    Unsupported(String),
    /// Anything else.
    Fail(String),
}

/// A case, and whether every op in it has a mapping.
struct Case {
    outcome: Outcome,
    claimed: bool,
}

#[test]
#[ignore = "needs target/onnx-node-tests: run models/scripts/fetch-onnx-node-tests.sh"]
fn every_case_comes_out_as_the_manifest_says() {
    let text = fs::read_to_string(MANIFEST).expect("the manifest");
    let line = |line: &str| line.split_once(' ').map(|(status, rest)| (name_of(rest).to_string(), status.to_string()));
    let expected: BTreeMap<String, String> = text.lines().filter(|l| !l.starts_with('#')).filter_map(line).collect();
    let cases = run_all();
    let mut wrong = String::new();
    for (name, case) in &cases {
        let got = describe(name, case);
        let want = expected.get(name).map_or("nothing", String::as_str);
        if want != got.split(' ').next().unwrap_or_default() {
            let _ = writeln!(wrong, "the manifest has {want}, now it is: {got}");
        }
    }
    for name in expected.keys().filter(|name| !cases.contains_key(*name)) {
        let _ = writeln!(wrong, "{name} is not there");
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
#[ignore = "writes the manifest"]
fn write_the_manifest() {
    let cases = run_all();
    let count = |f: fn(&Case) -> bool| cases.values().filter(|c| f(c)).count();
    let (passed, claimed) = (count(|c| matches!(c.outcome, Outcome::Pass(_))), count(|c| c.claimed));
    let mut text = format!(
        "# The {} node tests of onnx 1.22.0: {claimed} use only ops that have a mapping, {passed} pass.\n",
        cases.len()
    );
    for (name, case) in &cases {
        let _ = writeln!(text, "{}", describe(name, case));
    }
    fs::write(MANIFEST, text).expect("it is written");
    println!("{passed} passed, {claimed} claimed, {} in all", cases.len());
}

/// The name at the start of a line's rest.
fn name_of(rest: &str) -> &str {
    rest.split([' ', ':']).next().unwrap_or(rest)
}

fn describe(name: &str, case: &Case) -> String {
    match &case.outcome {
        Outcome::Pass("") => format!("pass {name}"),
        Outcome::Pass(how) => format!("pass {name} {how}"),
        Outcome::Unsupported(why) => format!("unsupported {name}: {why}"),
        Outcome::Fail(why) => format!("fail {name}: {why}"),
    }
}

fn run_all() -> BTreeMap<String, Case> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/onnx-node-tests"));
    let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let folders: Vec<PathBuf> = entries.map(|e| e.expect("an entry").path()).filter(|p| p.is_dir()).collect();
    let compiler = Compiler::new(Cpu::new(CpuOptions { threads: 1, ..CpuOptions::default() })).expect("the rules load");
    let (next, cases) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || {
        while let Some(folder) = folders.get(next.fetch_add(1, Ordering::Relaxed)) {
            let compiler = compiler.clone();
            let outcome = catch_unwind(AssertUnwindSafe(|| run(&compiler, folder)));
            let panicked = |_| Case { outcome: Outcome::Fail("it panics".into()), claimed: true };
            let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
            cases.lock().expect("no thread panics here").insert(name, outcome.unwrap_or_else(panicked));
        }
    };
    std::thread::scope(|scope| drop((0..2).map(|_| scope.spawn(work)).collect::<Vec<_>>()));
    cases.into_inner().expect("no thread panics here")
}

fn run(compiler: &Compiler, folder: &Path) -> Case {
    let model = match Model::open(folder.join("model.onnx")) {
        Ok(model) => model,
        Err(error) => return Case { outcome: Outcome::Unsupported(reason(&error)), claimed: false },
    };
    let outcome = attempts(compiler, &model, &folder.join("test_data_set_0")).unwrap_or_else(|outcome| outcome);
    Case { outcome, claimed: model.unknown_ops().is_empty() }
}

/// The error without the file's name, in a line.
fn reason(error: &dyn std::fmt::Display) -> String {
    let text = error.to_string();
    let text = text.split_once(".onnx: ").map_or(text.as_str(), |(_, rest)| rest);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Tries with no input known, then with all integers, then with all: shapes must be known when a program is compiled.
fn attempts(compiler: &Compiler, model: &Model, data: &Path) -> Result<Outcome, Outcome> {
    let mut inputs = BTreeMap::new();
    let mut shapes = BTreeMap::new();
    for (at, (name, port)) in model.inputs().enumerate() {
        let port = port.map_err(|why| Outcome::Unsupported(format!("input {name}: {why}")))?;
        let path = data.join(format!("input_{at}.pb"));
        let tensor = read_tensor(path).map_err(|e| Outcome::Unsupported(format!("input {name}: {}", reason(&e))))?;
        for (dim, extent) in port.shape.iter().flat_map(|s| s.iter()).zip(tensor.dims()) {
            shapes.extend(dim.symbols().into_iter().map(|symbol| (symbol.to_string(), *extent as i64)));
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
                let about_shapes = reason(&error).contains("decides about shapes");
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
    match results() {
        Ok(results) => {
            let compared = results.iter().zip(imported.graph.outputs()).enumerate();
            let wrong = compared.filter_map(|(at, (got, (name, _)))| {
                let want = read_tensor(data.join(format!("output_{at}.pb"))).map_err(|e| reason(&e));
                want.and_then(|want| compare(got, &want)).err().map(|why| format!("output {name}: {why}"))
            });
            wrong.into_iter().next().map_or(Outcome::Pass(how), Outcome::Fail)
        }
        Err(error @ (Error::Unsupported { .. } | Error::Backend(_))) => Outcome::Unsupported(reason(&error)),
        Err(error) => Outcome::Fail(reason(&error)),
    }
}

/// What differs.
fn compare(got: &Tensor, want: &Tensor) -> Result<(), String> {
    if got.ty() != want.ty() {
        return Err(format!("it is {}, not {}", got.ty(), want.ty()));
    }
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
