//! SAM's graphs in the reference interpreter, compared with results of transformers in `float64`
//! (`models/golden/make_sam.py`).

mod common;

use std::path::Path;

use common::{golden, run};
use eutectic_ir::{DType, Graph, Tensor};
use eutectic_models::{
    BoundParams, Form, Weights, WeightsError,
    sam::{self, IGNORED_FOR_EMBEDDINGS, IGNORED_FOR_MASKS, Label, Prompts, SamConfig},
};

/// The relative tolerance. The expected values are stored as f32, and transformers computes some values in f32.
const TOLERANCE: f64 = 1e-5;

fn bind(graph: &Graph, weights: &Weights, ignored: &[&str]) -> Result<BoundParams, WeightsError> {
    weights.bind(graph.named("param").map(|(name, id)| (name, graph.ty(id))), ignored)
}

/// Returns the largest difference, divided by the largest expected value.
fn error(expected: &Weights, name: &str, result: &[f64]) -> f64 {
    let expected = expected.get(name).unwrap().to_f64();
    common::difference(&expected, result) / expected.iter().fold(0.0, |m: f64, x| m.max(x.abs()))
}

fn embedding_error(folder: &Path, file: &str, form: Form) -> f64 {
    let mut config = SamConfig::open(folder.join("config.json")).unwrap();
    let weights = sam::open_weights(folder.join(file), &mut config).unwrap();
    let graph = sam::encoder(&config, form, 2).unwrap();
    let bound = bind(&graph, &weights, IGNORED_FOR_EMBEDDINGS).unwrap();
    let expected = Weights::open(folder.join("expected.safetensors")).unwrap();
    let pixels = expected.get("pixels").unwrap().clone();
    let results = run(&graph, &bound.tensors, &[("pixels", pixels)]);
    error(&expected, "embedding", &results[0])
}

#[test]
fn embeddings_are_those_of_transformers() {
    for name in ["padded", "resampled", "oblong", "model"] {
        for form in [Form::Composite, Form::Primitive] {
            let error = embedding_error(&golden("sam").join(name), "model.safetensors", form);
            assert!(error <= TOLERANCE, "{name}, {form:?}: {error:e}");
        }
    }
}

#[test]
fn checkpoints_of_torch_under_the_names_of_the_release_are_the_same_model() {
    let error = embedding_error(&golden("sam/model"), "original.pt", Form::Composite);
    assert!(error <= TOLERANCE, "{error:e}");
}

/// Returns points and labels [2 2 N]. Each prompt gets additional points: one that is labelled as no point, or the two
/// corners of a box.
fn prompts(expected: &Weights, boxes: bool) -> [(&'static str, Tensor); 2] {
    let [points, labels] = ["points", "labels"].map(|name| expected.get(name).unwrap().clone());
    let (points, labels, corners) = (points.to_f64(), labels.to_i64(), expected.get("boxes").unwrap().to_f64());
    let (mut xy, mut kinds) = (Vec::new(), Vec::new());
    for prompt in 0..4 {
        xy.extend(&points[prompt * 6..][..6]);
        kinds.extend(&labels[prompt * 3..][..3]);
        if boxes {
            xy.extend(&corners[prompt * 4..][..4]);
            kinds.extend([Label::First as i64, Label::Second as i64]);
        } else {
            xy.extend([0.0, 0.0]);
            kinds.push(Label::None as i64);
        }
    }
    let number = kinds.len() / 4;
    let labels = Tensor::from_i64(DType::I64, &[2, 2, number], kinds);
    [("points", Tensor::from_f64(DType::F32, &[2, 2, number, 2], xy)), ("labels", labels)]
}

/// Returns masks 1 to 3 of each prompt from results [2 2 4 ..], or only mask 0.
fn chosen(all: &[f64], several: bool) -> Vec<f64> {
    let size = all.len() / 16;
    let masks = all.chunks(size).enumerate().filter(|(n, _)| (n % 4 > 0) == several);
    masks.flat_map(|(_, mask)| mask).copied().collect()
}

#[test]
fn masks_are_those_of_transformers() {
    let folder = golden("sam/model");
    let expected = Weights::open(folder.join("expected.safetensors")).unwrap();
    for (file, form) in [("model.safetensors", Form::Composite), ("original.pt", Form::Primitive)] {
        let mut config = SamConfig::open(folder.join("config.json")).unwrap();
        let weights = sam::open_weights(folder.join(file), &mut config).unwrap();
        for (kind, boxes, prior) in
            [("three", false, false), ("one", false, false), ("boxed", true, false), ("masked", false, true)]
        {
            let [points, labels] = prompts(&expected, boxes);
            let wanted = Prompts { number: 2, points: points.1.dims()[2], prior };
            let graph = sam::segmenter(&config, form, 2, wanted).unwrap();
            let bound = bind(&graph, &weights, IGNORED_FOR_MASKS).unwrap_or_else(|e| panic!("{kind}: {e}"));
            let [pixels, earlier] = ["pixels", "prior"].map(|name| (name, expected.get(name).unwrap().clone()));
            let inputs: Vec<_> = [pixels, points, labels].into_iter().chain(prior.then_some(earlier)).collect();
            let results = run(&graph, &bound.tensors, &inputs);
            for (name, result) in [("masks", &results[1]), ("scores", &results[2])] {
                let error = error(&expected, &format!("{kind}.{name}"), &chosen(result, kind != "one"));
                assert!(error <= TOLERANCE, "{file}, {kind}, {name}: {error:e}");
            }
        }
    }
}
