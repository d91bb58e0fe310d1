//! The programs of the benchmarks: encoders of any depth, and compilers with and without outlining.

use std::collections::BTreeMap;

use eutectic::{
    Compiler, Cpu, CpuOptions, Graph, Options,
    engine::models::{BertConfig, BertOutput, Form, bert, minilm},
};

/// Returns an encoder with BERT-base's width, for one text of 128 tokens.
pub fn bert_base(layers: usize) -> Graph {
    encoder(&BertConfig { layers, ..BertConfig::base() }, Form::Composite)
}

/// Returns the encoder of [`bert_base`] in primitive ops (matmul, add, erf, reductions), as exporters write it.
pub fn bert_base_primitive(layers: usize) -> Graph {
    encoder(&BertConfig { layers, ..BertConfig::base() }, Form::Primitive)
}

/// Returns the encoder of all-MiniLM-L6-v2 for one text of 128 tokens.
pub fn minilm() -> Graph {
    encoder(&minilm::config(), Form::Composite)
}

fn encoder(config: &BertConfig, form: Form) -> Graph {
    let graph = bert::graph("encoder", config, form, &[BertOutput::LastHiddenState]).expect("BERT's extents agree");
    let dims = BTreeMap::from([(bert::BATCH.to_string(), 1), (bert::SEQUENCE.to_string(), 128)]);
    graph.bind(&dims).expect("BERT has positions for 128 tokens")
}

/// Returns a compiler for one thread of the CPU, with the embedded rules.
pub fn compiler(outline: bool) -> Compiler {
    let cpu = Cpu::new(CpuOptions { threads: 1, ..CpuOptions::default() });
    let compiler = Compiler::new(cpu).expect("the embedded rules load, as a test checks");
    compiler.with_options(Options { outline, ..Options::default() })
}
