//! Computes sentence embeddings, with one program for texts of different lengths.

use std::path::Path;

use eutectic_models::{Batch, Form, TextModel, minilm};

use crate::{Compiler, Error, Session};

/// The default number of texts in a batch.
const MAX_BATCH: usize = 32;

/// A text model with a compiler. Texts are batched by length. One program, which is compiled for the first text, serves
/// batches of any shape.
///
/// Padding is masked. So the embedding of a text depends on the other texts of a call only through the order of sums.
pub struct TextEncoder {
    model: TextModel,
    compiler: Compiler,
    form: Form,
    program: Option<Session>,
    max_batch: usize,
}

impl TextEncoder {
    /// Opens a directory with `config.json`, `model.safetensors` and `tokenizer.json` of all-MiniLM-L6-v2, or of
    /// another sentence embedding model with a BERT encoder.
    ///
    /// # Errors
    /// If something in the directory is missing or wrong. The error lists everything, and says how to get the files.
    pub fn open(dir: impl AsRef<Path>, compiler: Compiler) -> Result<TextEncoder, Error> {
        Ok(TextEncoder::new(minilm::open(dir)?, compiler))
    }

    /// Returns an encoder for an opened model.
    pub fn new(model: TextModel, compiler: Compiler) -> TextEncoder {
        TextEncoder { model, compiler, form: Form::default(), program: None, max_batch: MAX_BATCH }
    }

    /// Selects the form of the model's ops. Results are the same, up to rounding.
    pub fn with_form(self, form: Form) -> TextEncoder {
        TextEncoder { form, program: None, ..self }
    }

    /// Sets the largest number of texts in a batch, at least one.
    pub fn with_batch(self, max_batch: usize) -> TextEncoder {
        TextEncoder { max_batch: max_batch.max(1), program: None, ..self }
    }

    /// Returns the model.
    pub fn model(&self) -> &TextModel {
        &self.model
    }

    /// Returns the embedding of each text, in the order of the texts. Each has length 1. Texts that are too long for
    /// the model are truncated.
    ///
    /// # Errors
    /// If the tokenizer fails on a text, or the program for a batch cannot be compiled.
    pub fn encode(&mut self, texts: &[impl AsRef<str>]) -> Result<Vec<Vec<f32>>, Error> {
        let mut embeddings = vec![Vec::new(); texts.len()];
        for batch in self.model.batches(texts, self.max_batch)? {
            let result = self.program()?.run_named(|name| batch.input(name).cloned())?;
            let numbers: Vec<f32> = result.iter().flat_map(|t| t.to_f64()).map(|x| x as f32).collect();
            let width = numbers.len() / batch.texts.len();
            for (&text, row) in batch.texts.iter().zip(numbers.chunks_exact(width.max(1))) {
                embeddings[text] = row.to_vec();
            }
        }
        Ok(embeddings)
    }

    /// Returns the batches in which [`TextEncoder::encode`] runs texts.
    ///
    /// # Errors
    /// If the tokenizer fails on a text.
    pub fn batches(&self, texts: &[impl AsRef<str>]) -> Result<Vec<Batch>, Error> {
        Ok(self.model.batches(texts, self.max_batch)?)
    }

    fn program(&mut self) -> Result<&mut Session, Error> {
        let session = match self.program.take() {
            Some(session) => session,
            None => {
                let mut session = self.compiler.compile(&self.model.graph_to(self.form, self.max_batch)?)?;
                session.load_named(|name| self.model.weights().get(name).cloned())?;
                session
            }
        };
        Ok(self.program.insert(session))
    }
}
