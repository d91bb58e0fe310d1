//! The models that commands know by name. They have no files; `demo`, `opt`, `explain` and `bench` build them as
//! graphs.

use crate::{
    bert::{BertConfig, BertOutput},
    minilm,
};

/// A model that can be built without any file.
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    /// The name of the model on the command line.
    pub name: &'static str,
    /// A description of one line.
    pub doc: &'static str,
    /// Returns the configuration of the encoder.
    pub config: fn() -> BertConfig,
    /// The outputs of the graph.
    pub outputs: &'static [BertOutput],
    /// The number of texts, unless the user gives one.
    pub batch: usize,
    /// The number of tokens of each text, unless the user gives one.
    pub sequence: usize,
}

/// All built-in models.
pub const BUILTINS: &[Builtin] = &[
    Builtin {
        name: "demo",
        doc: "a post-norm transformer encoder: 4 layers, hidden 256, 4 heads",
        config: demo,
        outputs: &[BertOutput::LastHiddenState],
        batch: 1,
        sequence: 128,
    },
    Builtin {
        name: "minilm",
        doc: "all-MiniLM-L6-v2: 6 layers, hidden 384, 12 heads, sentence embeddings",
        config: minilm::config,
        outputs: &[BertOutput::SentenceEmbedding],
        batch: 1,
        sequence: 128,
    },
    Builtin {
        name: "bert-base",
        doc: "BERT-base: 12 layers, hidden 768, 12 heads",
        config: BertConfig::base,
        outputs: &[BertOutput::LastHiddenState],
        batch: 1,
        sequence: 128,
    },
];

/// Returns the built-in model of that name.
pub fn named(name: &str) -> Option<&'static Builtin> {
    BUILTINS.iter().find(|b| b.name == name)
}

fn demo() -> BertConfig {
    BertConfig {
        vocabulary: 1000,
        hidden: 256,
        layers: 4,
        heads: 4,
        intermediate: 1024,
        positions: 128,
        ..BertConfig::base()
    }
}
