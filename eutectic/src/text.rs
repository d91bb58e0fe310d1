//! Sentence embeddings: texts of different lengths in one call, by one program.

use std::path::Path;

use eutectic_models::{Batch, Form, TextModel, minilm};

use crate::{Compiler, Error, Session};

/// How many texts run together at most.
const MAX_BATCH: usize = 32;

/// A text model with a compiler. Texts are batched by length; one program, which is compiled for the first of them, serves batches of
/// any shape.
///
/// Padding is masked out of everything that a text's embedding depends on, so the embedding does not depend on the
/// other texts of a call, beyond the order of a sum.
pub struct TextEncoder {
    model: TextModel,
    compiler: Compiler,
    form: Form,
    program: Option<Session>,
    max_batch: usize,
}

impl TextEncoder {
    /// Opens a directory with `config.json`, `model.safetensors` and `tokenizer.json` of all-MiniLM-L6-v2, or of another
    /// sentence embedding model with a BERT encoder.
    ///
    /// # Errors
    /// Everything that is missing or wrong in the directory, and how to get the files.
    pub fn open(dir: impl AsRef<Path>, compiler: Compiler) -> Result<TextEncoder, Error> {
        Ok(TextEncoder::new(minilm::open(dir)?, compiler))
    }

    /// An encoder for a model that is open already.
    pub fn new(model: TextModel, compiler: Compiler) -> TextEncoder {
        TextEncoder { model, compiler, form: Form::default(), program: None, max_batch: MAX_BATCH }
    }

    /// With the model written in other ops; results are the same, up to rounding.
    pub fn with_form(self, form: Form) -> TextEncoder {
        TextEncoder { form, program: None, ..self }
    }

    /// With at most so many texts in a batch, at least one.
    pub fn with_batch(self, max_batch: usize) -> TextEncoder {
        TextEncoder { max_batch: max_batch.max(1), program: None, ..self }
    }

    /// The model.
    pub fn model(&self) -> &TextModel {
        &self.model
    }

    /// The embedding of each text, in the order of the texts; each has length 1. Texts that are too long for the model are cut off.
    ///
    /// # Errors
    /// When the tokenizer gives up on a text, or the program for a batch cannot be compiled.
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

    /// The batches in which [`TextEncoder::encode`] runs texts.
    ///
    /// # Errors
    /// When the tokenizer gives up on a text.
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
