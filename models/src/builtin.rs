//! The models that commands know by name. They are graphs without files, for `demo`, `opt`, `explain` and `bench`.

use crate::{
    bert::{BertConfig, BertOutput},
    minilm,
};

/// A model that can be built without any file.
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    /// Its name.
    pub name: &'static str,
    /// One line that describes it.
    pub doc: &'static str,
    /// Its configuration.
    pub config: fn() -> BertConfig,
    /// Its results.
    pub outputs: &'static [BertOutput],
    /// The default number of texts.
    pub batch: usize,
    /// The default number of tokens of each text.
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

/// Returns the model of that name.
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
