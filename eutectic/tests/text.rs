//! Sentence embeddings of a small BERT (`models/golden/tiny-bert`), compared with those of the transformers library.

use std::path::PathBuf;

use eutectic::{
    Compiler, Cpu, CpuOptions, TextEncoder,
    engine::models::{Form, TextModel},
};
use serde_json::Value;

/// The largest allowed difference, as for the real model.
const TOLERANCE: f32 = 2e-5;

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../models/golden/tiny-bert").join(name)
}

fn cases() -> (usize, Vec<(String, Vec<f32>)>) {
    let text = std::fs::read_to_string(golden("texts.json")).expect("the fixture");
    let value: Value = serde_json::from_str(&text).expect("it is JSON");
    let numbers =
        |v: &Value| v.as_array().expect("numbers").iter().map(|x| x.as_f64().expect("a number") as f32).collect();
    let case = |c: &Value| (c["text"].as_str().expect("a text").to_string(), numbers(&c["embedding"]));
    let max_tokens = value["max_tokens"].as_u64().expect("a number") as usize;
    (max_tokens, value["cases"].as_array().expect("cases").iter().map(case).collect())
}

fn encoder(max_tokens: usize, threads: usize) -> TextEncoder {
    let model = TextModel::open("tiny", golden(""), max_tokens, "").expect("the fixture");
    let cpu = Cpu::new(CpuOptions { threads, ..CpuOptions::default() });
    TextEncoder::new(model, Compiler::new(cpu).expect("the embedded rules load"))
}

fn difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(x, y)| (x - y).abs()).fold(0.0, |worst, d| if d.is_nan() { d } else { worst.max(d) })
}

#[test]
fn embeddings_are_those_of_transformers_in_both_forms() {
    let (max_tokens, cases) = cases();
    let texts: Vec<&str> = cases.iter().map(|(text, _)| text.as_str()).collect();
    for form in [Form::Composite, Form::Primitive] {
        let embeddings = encoder(max_tokens, 2).with_form(form).encode(&texts).expect("they are encoded");
        for ((text, wanted), got) in cases.iter().zip(&embeddings) {
            let off = difference(wanted, got);
            assert!(off <= TOLERANCE, "{form:?}, {text:?}: {off}");
        }
    }
}

#[test]
fn an_embedding_does_not_depend_on_the_batch() {
    let (max_tokens, cases) = cases();
    let texts: Vec<&str> = cases.iter().map(|(text, _)| text.as_str()).collect();
    let mut together = encoder(max_tokens, 1);
    let all = together.encode(&texts).expect("they are encoded");
    let mut reversed: Vec<&str> = texts.iter().rev().copied().collect();
    reversed.extend(&texts);
    let more = together.encode(&reversed).expect("they are encoded");
    for (at, text) in texts.iter().enumerate() {
        let alone = encoder(max_tokens, 1).encode(&[text]).expect("it is encoded");
        for other in [&alone[0], &more[texts.len() - 1 - at], &more[texts.len() + at]] {
            let off = difference(&all[at], other);
            assert!(off <= 1e-6, "{text:?}: {off}");
        }
    }
}

#[test]
fn one_program_serves_batches_of_any_shape() {
    let (max_tokens, _) = cases();
    let mut encoder = encoder(max_tokens, 1).with_batch(2);
    assert!(encoder.encode(&[] as &[&str]).expect("there is nothing to do").is_empty());
    let texts = ["", "a", "a b", "", "a b c d e f"];
    let all = encoder.encode(&texts).expect("they are encoded");
    for (text, want) in texts.iter().zip(&all) {
        let alone = encoder.encode(&[text]).expect("it is encoded");
        assert!(difference(&alone[0], want) <= 1e-6, "{text:?}");
    }
}
