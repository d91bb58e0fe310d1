//! Support for tests of models: fixtures, and evaluation in the reference interpreter.

#![allow(dead_code, reason = "each test file uses its part")]

pub mod gguf;

use std::{collections::BTreeMap, path::PathBuf};

use eutectic_ir::{Graph, Tensor, interp::interpret, ops::eval::Data};

/// Returns the path of a file or folder in models/golden.
pub fn golden(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden").join(path)
}

/// Evaluates a graph in `f64` and returns its outputs.
pub fn run(graph: &Graph, weights: &BTreeMap<String, Tensor>, inputs: &[(&str, Tensor)]) -> Vec<Vec<f64>> {
    let input = |name: &str| inputs.iter().find(|(n, _)| *n == name).map(|(_, t)| t.clone());
    let outputs = interpret::<f64>(graph, &|name| weights.get(name).cloned().or_else(|| input(name)));
    let reals = |data| match data {
        Data::Real(reals) => reals,
        Data::Int(_) => panic!("a model's outputs are floats"),
    };
    outputs.unwrap().into_iter().map(|value| reals(value.data)).collect()
}

/// Returns the largest difference between two lists of numbers. Panics if their lengths differ.
pub fn difference(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(x, y)| (x - y).abs()).fold(0.0, |worst, d| if d.is_nan() { d } else { worst.max(d) })
}
