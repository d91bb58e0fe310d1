//! The embeddings of the real model, if it has been fetched (`models/scripts/fetch-minilm.sh`).

use std::path::PathBuf;

use eutectic::{Compiler, Cpu, CpuOptions, TextEncoder, engine::models::minilm};
use serde_json::Value;

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
#[ignore = "needs target/minilm: run models/scripts/fetch-minilm.sh"]
fn ten_sentences_embed_as_transformers_embeds_them() {
    let text = std::fs::read_to_string(repository().join("models/golden/minilm.json")).expect("the golden values");
    let golden: Value = serde_json::from_str(&text).expect("it is JSON");
    let cases = golden["cases"].as_array().expect("cases");
    assert_eq!(cases.len(), 10);
    let texts: Vec<&str> = cases.iter().map(|c| c["text"].as_str().expect("a text")).collect();
    let model = minilm::open(repository().join("target/minilm")).unwrap_or_else(|e| panic!("{e}"));
    let compiler = Compiler::new(Cpu::new(CpuOptions::default())).expect("the embedded rules load");
    let mut encoder = TextEncoder::new(model, compiler);
    for (case, got) in cases.iter().zip(encoder.encode(&texts).expect("they are encoded")) {
        let want = case["embedding"].as_array().expect("numbers").iter().map(|x| x.as_f64().expect("a number"));
        let worst = want.zip(&got).map(|(w, g)| (w - f64::from(*g)).abs()).fold(0.0, f64::max);
        assert!(worst <= 2e-5 && got.len() == 384, "{}: {worst:e}", case["name"]);
    }
}
