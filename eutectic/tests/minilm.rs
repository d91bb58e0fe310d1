//! The real model, where it has been fetched (`models/scripts/fetch-minilm.sh`): embeddings, and what the plan comes to.

use std::path::PathBuf;

use eutectic::{
    Compiler, Cpu, CpuOptions, TextEncoder,
    engine::{
        lowering::print,
        models::{Form, TextModel, minilm},
    },
};
use serde_json::Value;

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn model() -> TextModel {
    minilm::open(repository().join("target/minilm")).unwrap_or_else(|e| panic!("{e}"))
}

fn compiler() -> Compiler {
    Compiler::new(Cpu::new(CpuOptions::default())).expect("the embedded rules load")
}

#[test]
#[ignore = "needs target/minilm: run models/scripts/fetch-minilm.sh"]
fn ten_sentences_embed_as_transformers_embeds_them() {
    let text = std::fs::read_to_string(repository().join("models/golden/minilm.json")).expect("the golden values");
    let golden: Value = serde_json::from_str(&text).expect("it is JSON");
    let cases = golden["cases"].as_array().expect("cases");
    assert_eq!(cases.len(), 10);
    let texts: Vec<&str> = cases.iter().map(|c| c["text"].as_str().expect("a text")).collect();
    let mut encoder = TextEncoder::new(model(), compiler());
    for (case, got) in cases.iter().zip(encoder.encode(&texts).expect("they are encoded")) {
        let want = case["embedding"].as_array().expect("numbers").iter().map(|x| x.as_f64().expect("a number"));
        let worst = want.zip(&got).map(|(w, g)| (w - f64::from(*g)).abs()).fold(0.0, f64::max);
        assert!(worst <= 2e-5 && got.len() == 384, "{}: {worst:e}", case["name"]);
    }
}

#[test]
#[ignore = "needs target/minilm: run models/scripts/fetch-minilm.sh"]
fn memory_is_an_eighth_of_the_intermediates() {
    let graph = model().graph(Form::Composite, 1, 128).expect("the shape is bound");
    let planned = compiler().plan(&graph).expect("it is planned");
    let intermediates: usize = graph.nodes().filter(|(_, n)| !n.operands.is_empty()).map(|(_, n)| n.ty.bytes()).sum();
    assert!(planned.lowered.program.arena_bytes * 8 <= intermediates);
    let print = print::program(&planned.lowered.program);
    assert!(print.contains("attention"), "attention is recognised:\n{print}");
}

#[test]
#[ignore = "needs target/minilm: run models/scripts/fetch-minilm.sh"]
fn composites_and_primitives_come_out_as_the_same_kernels() {
    let kernels = |form| {
        let graph = model().graph(form, 1, 128).expect("the shape is bound");
        print::program(&compiler().plan(&graph).expect("it is planned").lowered.program)
    };
    assert_eq!(kernels(Form::Composite), kernels(Form::Primitive));
}
