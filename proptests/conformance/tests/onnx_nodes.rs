//! Compares the outcomes of ONNX's own backend node tests on the processor with a manifest.
//!
//! A case with another outcome than in the manifest is an error. If it passes now, update the manifest by
//! `cargo test --workspace --all-features --test onnx_nodes -- --ignored write_the_manifest`.

use std::{collections::BTreeMap, fmt::Write, fs, path::Path};

use eutectic::{Compiler, Cpu, CpuOptions};
use eutectic_conformance::suites::onnx::{Case, MANIFEST, Outcome, describe, name_of, run_all};

fn run_on_the_processor() -> BTreeMap<String, Case> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/onnx-node-tests");
    let compiler = Compiler::new(Cpu::new(CpuOptions { threads: 1, ..CpuOptions::default() })).expect("the rules load");
    run_all(&compiler, Path::new(folder))
}

#[test]
#[ignore = "needs target/onnx-node-tests: run models/scripts/fetch-onnx-node-tests.sh"]
fn every_case_has_the_outcome_in_the_manifest() {
    let text = MANIFEST;
    let line = |line: &str| line.split_once(' ').map(|(status, rest)| (name_of(rest).to_string(), status.to_string()));
    let expected: BTreeMap<String, String> = text.lines().filter(|l| !l.starts_with('#')).filter_map(line).collect();
    let cases = run_on_the_processor();
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
    let cases = run_on_the_processor();
    let count = |f: fn(&Case) -> bool| cases.values().filter(|c| f(c)).count();
    let (passed, claimed) = (count(|c| matches!(c.outcome, Outcome::Pass(_))), count(|c| c.claimed));
    let mut text = format!(
        "# The {} node tests of onnx 1.22.0: {claimed} use only ops that have a mapping, {passed} pass.\n",
        cases.len()
    );
    for (name, case) in &cases {
        let _ = writeln!(text, "{}", describe(name, case));
    }
    fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/onnx_nodes.txt"), text).expect("the manifest can be written");
    println!("{passed} passed, {claimed} claimed, {} in all", cases.len());
}
