//! A language model from a GGUF file: its decoder, vocabulary and chat template.

use std::path::{Path, PathBuf};

use crate::{
    chat::{ChatError, ChatTemplate, Message},
    decoder::{Decoder, DecoderError},
    gguf::{Gguf, GgufError},
    vocabulary::{Vocabulary, VocabularyError},
};

/// A language model before compilation.
#[derive(Debug)]
pub struct LanguageModel {
    gguf: Gguf,
    vocabulary: Vocabulary,
    template: Option<ChatTemplate>,
    trained: usize,
}

/// The reason why a language model cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LanguageError {
    /// The file cannot be read.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The file is not a supported decoder.
    #[error(transparent)]
    Decoder(#[from] Box<DecoderError>),
    /// The vocabulary cannot be used, or it cannot tokenize a text.
    #[error(transparent)]
    Vocabulary(#[from] VocabularyError),
    /// The chat template cannot make a prompt of the messages.
    #[error(transparent)]
    Chat(#[from] ChatError),
    /// The vocabulary has more tokens than the embedding table has rows.
    #[error("cannot use {}: its vocabulary has {tokens} tokens, but its embedding table has {embedded} rows; convert the model again", .path.display())]
    Embeddings {
        /// The file.
        path: PathBuf,
        /// The number of tokens in the vocabulary.
        tokens: usize,
        /// The number of rows of the embedding table.
        embedded: usize,
    },
    /// The file has no chat template.
    #[error("{} has no chat template; give the prompt as plain text", .path.display())]
    NoTemplate {
        /// The file.
        path: PathBuf,
    },
}

impl LanguageModel {
    /// Opens a GGUF file.
    ///
    /// # Errors
    /// If the file is damaged, or if parts of the model are missing or not supported.
    pub fn open(path: impl AsRef<Path>) -> Result<LanguageModel, LanguageError> {
        let gguf = Gguf::open(path)?;
        let decoder = Decoder::new(&gguf, None)?;
        let vocabulary = Vocabulary::new(&gguf)?;
        let (tokens, embedded) = (vocabulary.len(), decoder.config().vocabulary);
        if tokens > embedded {
            return Err(LanguageError::Embeddings { path: gguf.path().into(), tokens, embedded });
        }
        let template = ChatTemplate::new(&gguf, &vocabulary);
        Ok(LanguageModel { gguf, vocabulary, template, trained: decoder.config().trained })
    }

    /// Creates the decoder with a cache of `room` tokens, or of the number of tokens that the model was trained for, if
    /// that is smaller.
    ///
    /// # Errors
    /// See [`Decoder::new`].
    pub fn decoder(&self, room: usize) -> Result<Decoder, LanguageError> {
        Ok(Decoder::new(&self.gguf, Some(room))?)
    }

    /// Returns the opened GGUF file.
    pub fn gguf(&self) -> &Gguf {
        &self.gguf
    }

    /// Returns the number of tokens that the model was trained for.
    pub fn trained(&self) -> usize {
        self.trained
    }

    /// Returns the vocabulary.
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// Returns the chat template, if the file has one.
    pub fn template(&self) -> Option<&ChatTemplate> {
        self.template.as_ref()
    }

    /// Tokenizes a prompt, with the token that begins a text if the model uses one.
    ///
    /// # Errors
    /// If the vocabulary cannot tokenize the text.
    pub fn prompt(&self, text: &str) -> Result<Vec<u32>, LanguageError> {
        Ok(self.vocabulary.encode(text, true)?)
    }

    /// Renders a conversation with the chat template and tokenizes it. The result ends where the model's answer begins.
    ///
    /// # Errors
    /// If the file has no chat template, or the template rejects the messages.
    pub fn chat_prompt(&self, messages: &[Message]) -> Result<Vec<u32>, LanguageError> {
        let template = self.template.as_ref();
        let template = template.ok_or_else(|| LanguageError::NoTemplate { path: self.gguf.path().into() })?;
        // The template itself writes the tokens that begin and end a text, so `encode` must not add them.
        Ok(self.vocabulary.encode(&template.apply(messages, true)?, false)?)
    }
}
