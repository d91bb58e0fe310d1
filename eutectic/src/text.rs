//! Sentence embeddings: texts of different lengths in one call, programs compiled and kept by shape.

use std::path::Path;

use eutectic_models::{Batch, Form, TextModel, minilm};

use crate::{Compiler, Error, Session};

/// How many texts run together at most.
const MAX_BATCH: usize = 32;

/// How many programs are kept. Each holds its own packed weights: for MiniLM, about 50 MB.
const KEPT: usize = 8;

/// A text model with a compiler. Texts are batched by length; the program for each batch shape is compiled when the shape first
/// occurs, and kept until others have been used more recently.
///
/// Padding is masked out of everything that a text's embedding depends on, so the embedding does not depend on the
/// other texts of a call, beyond the order of a sum.
pub struct TextEncoder {
    model: TextModel,
    compiler: Compiler,
    form: Form,
    /// The most recently used one last.
    programs: Vec<([usize; 2], Session)>,
    kept: usize,
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
        TextEncoder { model, compiler, form: Form::default(), programs: Vec::new(), kept: KEPT, max_batch: MAX_BATCH }
    }

    /// With the model written in other ops; results are the same, up to rounding.
    pub fn with_form(self, form: Form) -> TextEncoder {
        TextEncoder { form, ..self }
    }

    /// With at most so many texts in a batch, and at most so many programs kept (each at least one).
    pub fn with_limits(self, max_batch: usize, kept: usize) -> TextEncoder {
        TextEncoder { max_batch: max_batch.max(1), kept: kept.max(1), ..self }
    }

    /// The model.
    pub fn model(&self) -> &TextModel {
        &self.model
    }

    /// The shapes (texts, tokens of each) of the programs that are kept.
    pub fn shapes(&self) -> impl Iterator<Item = [usize; 2]> {
        self.programs.iter().map(|(shape, _)| *shape)
    }

    /// The embedding of each text, in the order of the texts; each has length 1. Texts that are too long for the model are cut off.
    ///
    /// # Errors
    /// When the tokenizer gives up on a text, or the program for a batch cannot be compiled.
    pub fn encode(&mut self, texts: &[impl AsRef<str>]) -> Result<Vec<Vec<f32>>, Error> {
        let mut embeddings = vec![Vec::new(); texts.len()];
        for batch in self.model.batches(texts, self.max_batch)? {
            let result = self.program(batch.dims())?.run_named(|name| batch.input(name).cloned())?;
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

    fn program(&mut self, shape: [usize; 2]) -> Result<&mut Session, Error> {
        let program = match self.programs.iter().position(|(s, _)| *s == shape) {
            Some(at) => self.programs.remove(at),
            None => {
                // Before the new one takes its memory.
                self.programs.drain(..(self.programs.len() + 1).saturating_sub(self.kept));
                (shape, self.compile(shape)?)
            }
        };
        self.programs.push(program);
        Ok(&mut self.programs.last_mut().expect("it was just put there").1)
    }

    fn compile(&self, [batch, length]: [usize; 2]) -> Result<Session, Error> {
        let mut session = self.compiler.compile(&self.model.graph(self.form, batch, length)?)?;
        session.load_named(|name| self.model.weights().get(name).cloned())?;
        Ok(session)
    }
}
