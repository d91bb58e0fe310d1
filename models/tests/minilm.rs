//! Tests the real all-MiniLM-L6-v2, if it has been fetched: `models/scripts/fetch-minilm.sh`, then `cargo test --
//! --ignored`.

mod common;

use std::path::{Path, PathBuf};

use common::{difference, golden, run};
use eutectic_models::{Form, TextModel, bert, builtin, minilm};
use serde_json::Value;

fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/minilm")
}

fn golden_cases() -> Vec<Value> {
    let file: Value = serde_json::from_slice(&std::fs::read(golden("minilm.json")).unwrap()).unwrap();
    assert_eq!(file["max_tokens"], minilm::MAX_TOKENS);
    file["cases"].as_array().unwrap().clone()
}

fn model() -> TextModel {
    minilm::open(dir()).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
#[ignore = "needs target/minilm: run models/scripts/fetch-minilm.sh"]
fn the_directory_holds_what_the_code_says() {
    let model = model();
    assert_eq!(*model.config(), minilm::config());
    assert_eq!(model.weights().len(), 5 + 6 * 16);
    assert!(model.widened().is_empty());
}

#[test]
#[ignore = "needs target/minilm: run models/scripts/fetch-minilm.sh"]
fn token_ids_equal_the_reference() {
    let model = model();
    for case in golden_cases() {
        let ids: Vec<i64> = case["ids"].as_array().unwrap().iter().map(|id| id.as_i64().unwrap()).collect();
        assert_eq!(model.tokens().encode(case["text"].as_str().unwrap()).unwrap(), ids, "{}", case["name"]);
    }
}

/// Texts of the test. They are short because the interpreter is slow.
#[test]
#[ignore = "needs target/minilm: run models/scripts/fetch-minilm.sh"]
fn embeddings_of_short_texts_equal_the_reference() {
    let model = model();
    for case in golden_cases().iter().filter(|case| case["ids"].as_array().unwrap().len() < 12) {
        let batch = model.batches(&[case["text"].as_str().unwrap()], 1).unwrap().remove(0);
        let [texts, length] = batch.dims();
        let graph = model.graph(Form::Primitive, texts, length).unwrap();
        let inputs = ["ids", "mask"].map(|name| (name, batch.input(name).unwrap().clone()));
        let expected: Vec<f64> = case["embedding"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
        let difference = difference(&expected, &run(&graph, model.weights(), &inputs)[0]);
        assert!(difference < 1e-6, "{}: {difference:e}", case["name"]);
    }
}

#[test]
fn builtin_models_build_in_both_forms() {
    for builtin in builtin::BUILTINS {
        let config = (builtin.config)();
        for form in [Form::Composite, Form::Primitive] {
            let graph = bert::graph(builtin.name, &config, form, builtin.outputs).unwrap();
            bert::bind(&graph, &config, builtin.batch, builtin.sequence).unwrap();
        }
        assert_eq!(builtin::named(builtin.name).map(|b| b.doc), Some(builtin.doc));
    }
}
