//! Compares models with results of the Python package transformers, from files in given folders.

use std::{collections::BTreeMap, path::Path};

use eutectic::{
    DType, Graph, Tensor, TextEncoder,
    engine::models::{
        Activation, BertConfig, BertOutput, Form, Weights,
        bert::{self, bind},
        minilm,
        sam::{self, IGNORED_FOR_EMBEDDINGS, SamConfig},
    },
};
use serde_json::Value;

use crate::device::Device;

/// Sentences, and the embeddings that transformers computes with MiniLM.
const SENTENCES: &str = include_str!("minilm.json");

/// Compiles a graph, loads its parameters, and returns the results of a run.
fn run(device: &Device, graph: &Graph, params: &BTreeMap<String, Tensor>, inputs: &Weights) -> Vec<Tensor> {
    let mut session = device.compiler().compile(graph).unwrap_or_else(|e| panic!("{e}"));
    session.load_named(|name| params.get(name).cloned()).unwrap_or_else(|e| panic!("{e}"));
    session.run_named(|name| inputs.get(name).cloned()).unwrap_or_else(|e| panic!("{e}"))
}

fn bound(weights: &Weights, graph: &Graph, ignored: &[&str]) -> BTreeMap<String, Tensor> {
    let params = graph.named("param").map(|(name, id)| (name, graph.ty(id)));
    weights.bind(params, ignored).unwrap_or_else(|e| panic!("{e}")).tensors
}

/// Checks that every difference is at most `tolerance` times the largest expected magnitude.
fn close(device: &Device, what: &str, got: &Tensor, want: &Tensor, tolerance: f64) {
    let (got, want) = (got.to_f64(), want.to_f64());
    assert_eq!(got.len(), want.len(), "{what}");
    let largest = want.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
    // A NaN fails this comparison.
    let close = got.iter().zip(&want).all(|(a, b)| (a - b).abs() <= tolerance * largest);
    let worst = got.iter().zip(&want).map(|(a, b)| (a - b).abs() / largest).fold(0.0, f64::max);
    assert!(close, "{what}: {worst:e}");
    device.judge();
}

fn open(path: &Path) -> Weights {
    Weights::open(path).unwrap_or_else(|e| panic!("{e}"))
}

/// Runs a small BERT with each activation, built from composite and from primitive ops. `folder` is models/golden.
pub fn bert(device: &Device, folder: &Path) {
    let folder = folder.join("tiny-bert");
    let config = BertConfig::open(folder.join("config.json")).unwrap_or_else(|e| panic!("{e}"));
    let (weights, expected) = (open(&folder.join("model.safetensors")), open(&folder.join("expected.safetensors")));
    let outputs = &[BertOutput::LastHiddenState, BertOutput::SentenceEmbedding];
    for name in ["gelu", "gelu_new", "relu", "silu", "tanh"] {
        let activation = Activation::named(name).expect("the name is an activation");
        let config = BertConfig { activation, ..config.clone() };
        for form in [Form::Composite, Form::Primitive] {
            let graph = bert::graph("tiny", &config, form, outputs).unwrap_or_else(|e| panic!("{e}"));
            let graph = bind(&graph, &config, 3, 7).unwrap_or_else(|e| panic!("{e}"));
            let results = run(device, &graph, &bound(&weights, &graph, bert::IGNORED), &expected);
            for (output, got) in outputs.iter().zip(&results) {
                let want = format!("{name}.{}", output.name());
                close(
                    device,
                    &format!("{want}, {form:?}"),
                    got,
                    expected.get(&want).expect("the golden file has every output"),
                    1e-4,
                );
            }
        }
    }
}

/// Runs SAM's image encoder on images of several shapes, built from composite and from primitive ops. `folder` is
/// models/golden.
pub fn sam(device: &Device, folder: &Path) {
    for name in ["padded", "resampled", "oblong", "model"] {
        let folder = folder.join("sam").join(name);
        let mut config = SamConfig::open(folder.join("config.json")).unwrap_or_else(|e| panic!("{e}"));
        let weights =
            sam::open_weights(folder.join("model.safetensors"), &mut config).unwrap_or_else(|e| panic!("{e}"));
        let expected = open(&folder.join("expected.safetensors"));
        for form in [Form::Composite, Form::Primitive] {
            let graph = sam::encoder(&config, form, 2).unwrap_or_else(|e| panic!("{e}"));
            let params = bound(&weights, &graph, IGNORED_FOR_EMBEDDINGS);
            let got = run(device, &graph, &params, &expected);
            close(
                device,
                &format!("{name}, {form:?}"),
                &got[0],
                expected.get("embedding").expect("the golden file has an embedding"),
                1e-4,
            );
        }
    }
}

/// Embeds the sentences of `models/golden/minilm.json`. `folder` is the folder of all-MiniLM-L6-v2.
pub fn sentences(device: &Device, folder: &Path) {
    let golden: Value = serde_json::from_str(SENTENCES).expect("the golden file is JSON");
    let cases = golden["cases"].as_array().expect("the golden file has cases");
    let texts: Vec<&str> = cases.iter().map(|c| c["text"].as_str().expect("a case has a text")).collect();
    let model = minilm::open(folder).unwrap_or_else(|e| panic!("{e}"));
    let mut encoder = TextEncoder::new(model, device.compiler());
    let all = encoder.encode(&texts).unwrap_or_else(|e| panic!("{e}"));
    for (case, got) in cases.iter().zip(all) {
        let want = case["embedding"].as_array().expect("numbers").iter().map(|x| x.as_f64().expect("a number"));
        let want = Tensor::from_f64(DType::F64, &[got.len()], want);
        let got = Tensor::from_f32(&[got.len()], &got).expect("the extent is the length");
        close(device, &case["name"].to_string(), &got, &want, 2e-4);
    }
}
