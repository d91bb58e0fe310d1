//! The vocabulary of a GGUF file: converts texts to token ids, and token ids to texts.

mod build;
mod pieces;
mod splits;
mod stream;

use std::path::PathBuf;

use self::build::Parts;
pub use self::stream::TextStream;
use crate::gguf::Gguf;

/// The tokens of a GGUF file, and its rules for splitting texts into tokens.
#[derive(Clone, Debug)]
pub struct Vocabulary {
    path: PathBuf,
    parts: Parts,
}

/// The reason why a vocabulary cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum VocabularyError {
    /// Values are missing, wrong or not supported. All such values are listed.
    #[error("cannot read the vocabulary of {}:{}", .path.display(), .problems.iter().map(|p| format!("\n  {p}")).collect::<String>())]
    Format {
        /// The file.
        path: PathBuf,
        /// A message for each value that is missing, wrong or not supported.
        problems: Vec<String>,
    },
    /// A text cannot be tokenized.
    #[error("cannot tokenize the text {text:?}… with the vocabulary of {}: {problem}", .path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// The start of the text.
        text: String,
        /// The reason.
        problem: String,
    },
}

impl Vocabulary {
    /// Reads the vocabulary of a GGUF file.
    ///
    /// # Errors
    /// If values are missing, wrong or not supported. The error lists all of them.
    pub fn new(gguf: &Gguf) -> Result<Vocabulary, VocabularyError> {
        let path = gguf.path().to_path_buf();
        match build::parts(gguf) {
            Ok(parts) => Ok(Vocabulary { path, parts }),
            Err(problems) => Err(VocabularyError::Format { path, problems }),
        }
    }

    /// Returns the number of tokens.
    pub fn len(&self) -> usize {
        self.parts.pieces.len()
    }

    /// Returns whether there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.parts.pieces.is_empty()
    }

    /// Tokenizes a text. With `is_prompt`, adds those tokens that begin or end a text and that the file requests. Names
    /// of special tokens in the text, such as `<|im_end|>`, become these tokens.
    ///
    /// # Errors
    /// If the tokenizer fails.
    pub fn encode(&self, text: &str, is_prompt: bool) -> Result<Vec<u32>, VocabularyError> {
        let encoding = self.parts.tokenizer.encode_fast(text, false).map_err(|problem| VocabularyError::Text {
            path: self.path.clone(),
            text: text.chars().take(40).collect(),
            problem: problem.to_string(),
        })?;
        let begin = self.parts.begin.filter(|_| is_prompt && self.parts.adds_begin);
        let end = self.parts.end.filter(|_| is_prompt && self.parts.adds_end);
        Ok(begin.into_iter().chain(encoding.get_ids().iter().copied()).chain(end).collect())
    }

    /// Returns the text of tokens. Invalid UTF-8 becomes U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut stream = TextStream::default();
        let text: String = ids.iter().map(|id| stream.push(self.bytes(*id))).collect();
        text + &stream.finish()
    }

    /// Returns the bytes that a token adds to a text. Control tokens and unknown ids add none.
    pub fn bytes(&self, id: u32) -> &[u8] {
        self.parts.pieces.get(id as usize).map_or(&[], |piece| &piece.bytes)
    }

    /// Returns the name that the file gives to a token.
    pub fn name(&self, id: u32) -> Option<&str> {
        self.parts.pieces.get(id as usize).map(|piece| piece.name.as_str())
    }

    /// Returns whether a token ends a text.
    pub fn is_end(&self, id: u32) -> bool {
        self.parts.ends.binary_search(&id).is_ok()
    }

    /// Returns the token that begins a text, if there is one.
    pub fn begin(&self) -> Option<u32> {
        self.parts.begin
    }

    /// Returns whether [`Vocabulary::encode`] adds the token that begins a text to prompts.
    pub fn adds_begin(&self) -> bool {
        self.parts.adds_begin && self.parts.begin.is_some()
    }

    /// Returns the token that ends a text, if there is one.
    pub fn end(&self) -> Option<u32> {
        self.parts.end
    }
}
