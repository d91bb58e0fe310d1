//! A language model from a GGUF file: decoder, vocabulary and chat template, checked together.

use std::path::{Path, PathBuf};

use crate::{
    chat::{ChatError, ChatTemplate, Message},
    decoder::{Decoder, DecoderError},
    gguf::{Gguf, GgufError},
    vocabulary::{Vocabulary, VocabularyError},
};

/// A language model that has not been compiled.
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
    /// No decoder can be built from it.
    #[error(transparent)]
    Decoder(#[from] Box<DecoderError>),
    /// Its vocabulary cannot be used, or it cannot tokenize a text.
    #[error(transparent)]
    Vocabulary(#[from] VocabularyError),
    /// The messages cannot become a prompt.
    #[error(transparent)]
    Chat(#[from] ChatError),
    /// The file has more tokens than embeddings.
    #[error("{}: the vocabulary has {tokens} tokens, but there are embeddings for {embedded}; convert the model again", .path.display())]
    Embeddings {
        /// The file.
        path: PathBuf,
        /// The number of tokens.
        tokens: usize,
        /// The number of embeddings.
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
    /// If the file is damaged, or something is missing or not supported. The error lists everything that is.
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

    /// Creates the decoder, with room for at most `room` tokens, and at most the number that it was trained for.
    ///
    /// # Errors
    /// See [`Decoder::new`].
    pub fn decoder(&self, room: usize) -> Result<Decoder, LanguageError> {
        Ok(Decoder::new(&self.gguf, Some(room))?)
    }

    /// Returns the file.
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

    /// Returns the tokens of a prompt.
    ///
    /// # Errors
    /// If the vocabulary cannot tokenize the text.
    pub fn prompt(&self, text: &str) -> Result<Vec<u32>, LanguageError> {
        Ok(self.vocabulary.encode(text, true)?)
    }

    /// Returns the tokens of a conversation, up to the start of the model's answer.
    ///
    /// # Errors
    /// If the file has no chat template, or the template rejects the messages.
    pub fn chat_prompt(&self, messages: &[Message]) -> Result<Vec<u32>, LanguageError> {
        let template = self.template.as_ref();
        let template = template.ok_or_else(|| LanguageError::NoTemplate { path: self.gguf.path().into() })?;
        // A template itself writes the tokens that begin and end a text.
        Ok(self.vocabulary.encode(&template.apply(messages, true)?, false)?)
    }
}
