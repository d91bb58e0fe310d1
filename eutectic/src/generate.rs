//! Generates text with a language model from a GGUF file. One program serves all lengths.

use std::{
    ops::ControlFlow,
    time::{Duration, Instant},
};

use eutectic_ir::DType;
use eutectic_models::{
    decoder::{CACHED, CHUNK, CacheType, DecoderConfig, TOKENS},
    language::LanguageModel,
    sampling::{Sampler, Sampling},
    vocabulary::TextStream,
};

use crate::{Compiler, Error, Session};

/// A language model that is ready to continue texts. It remembers the tokens that it has read. If a prompt starts with
/// them, only the rest is read.
pub struct Generator {
    model: LanguageModel,
    config: DecoderConfig,
    session: Session,
    /// The tokens whose keys and values are in the cache.
    cached: Vec<u32>,
}

/// The length of a continuation, and the sampling of its tokens.
#[derive(Clone, Copy, Debug)]
pub struct GenerateOptions {
    /// The largest number of generated tokens.
    pub max_tokens: usize,
    /// The choice of tokens.
    pub sampling: Sampling,
}

/// The result of a generation.
#[derive(Clone, Debug)]
pub struct Generated {
    /// The tokens. If one of them ends the text, it is the last.
    pub tokens: Vec<u32>,
    /// The text of the tokens.
    pub text: String,
    /// The reason why the text ends.
    pub stop: Stop,
    /// The time to read the prompt.
    pub prompt_time: Duration,
    /// The time to generate the tokens after the first one.
    pub token_time: Duration,
}

/// The reason why a text ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The model generated a token that ends the text.
    End,
    /// The continuation has the requested number of tokens.
    Limit,
    /// The cache is full.
    Room,
    /// The caller stopped the generation.
    Caller,
}

impl Generator {
    /// Compiles a model. `room` limits the number of tokens, including those of prompts. It is at most the number that
    /// the model was trained for.
    ///
    /// # Errors
    /// If the backend cannot compute the model or has too little memory for it.
    pub fn new(model: LanguageModel, compiler: &Compiler, room: usize) -> Result<Generator, Error> {
        Generator::with_cache(model, compiler, room, CacheType::default())
    }

    /// Compiles a model as [`Generator::new`] does, with a cache of this type.
    ///
    /// # Errors
    /// See [`Generator::new`].
    pub fn with_cache(
        model: LanguageModel,
        compiler: &Compiler,
        room: usize,
        cache: CacheType,
    ) -> Result<Generator, Error> {
        let decoder = model.decoder(room)?.with_cache(cache);
        let mut session = compiler.compile(&decoder.program(CHUNK)?)?;
        session.load_named(|name| decoder.param(name))?;
        let config = decoder.config().clone();
        Ok(Generator { model, config, session, cached: Vec::new() })
    }

    /// Returns the model.
    pub fn model(&self) -> &LanguageModel {
        &self.model
    }

    /// Returns the largest number of tokens of a text, including the prompt.
    pub fn room(&self) -> usize {
        self.config.positions
    }

    /// Returns the logits of the token that follows `ids`. Reads only the tokens that are not in the cache.
    ///
    /// # Errors
    /// If there are no tokens, one is not in the vocabulary, or the cache has no room for all.
    pub fn logits(&mut self, ids: &[u32]) -> Result<Vec<f32>, Error> {
        self.check(ids)?;
        // The last token is always read, because its logits are the result.
        let same = self.cached.iter().zip(ids).take_while(|(a, b)| a == b).count().min(ids.len() - 1);
        self.cached.truncate(same);
        let mut logits = Vec::new();
        for chunk in ids[same..].chunks(CHUNK) {
            logits = self.step(chunk)?;
            self.cached.extend(chunk);
        }
        Ok(logits)
    }

    /// Continues a prompt. `each` receives each piece of the text as it is generated, and may stop the generation.
    /// Pieces are whole characters.
    ///
    /// # Errors
    /// See [`Generator::logits`]. In addition, if the options are invalid, or logits are NaN.
    pub fn generate(
        &mut self,
        prompt: &[u32],
        options: &GenerateOptions,
        mut each: impl FnMut(&str) -> ControlFlow<()>,
    ) -> Result<Generated, Error> {
        let problems = options.sampling.problems();
        if !problems.is_empty() {
            return Err(Error::Arguments(problems));
        }
        let (mut sampler, mut stream) = (Sampler::new(options.sampling), TextStream::default());
        let (mut ids, mut text) = (prompt.to_vec(), String::new());
        let start = Instant::now();
        let mut logits = self.logits(prompt)?;
        let read = Instant::now();
        let stop = loop {
            if ids.len() - prompt.len() >= options.max_tokens {
                break Stop::Limit;
            }
            let Some(id) = sampler.choose(&logits, &ids) else {
                let problem = "cannot choose a token because the logits are NaN; the weights are probably damaged";
                return Err(Error::Arguments(vec![problem.into()]));
            };
            ids.push(id);
            if self.model.vocabulary().is_end(id) {
                break Stop::End;
            }
            let piece = stream.push(self.model.vocabulary().bytes(id));
            text += &piece;
            if !piece.is_empty() && each(&piece).is_break() {
                break Stop::Caller;
            }
            if ids.len() - prompt.len() == options.max_tokens {
                break Stop::Limit;
            }
            if ids.len() > self.room() {
                break Stop::Room;
            }
            logits = self.logits(&ids)?;
        };
        let rest = stream.finish();
        if !rest.is_empty() {
            text += &rest;
            // This is the last piece, so the return value does not matter.
            let _ = each(&rest);
        }
        let tokens = ids.split_off(prompt.len());
        Ok(Generated { tokens, text, stop, prompt_time: read - start, token_time: read.elapsed() })
    }

    fn check(&self, ids: &[u32]) -> Result<(), Error> {
        let (known, room) = (self.config.vocabulary, self.room());
        let mut problems = Vec::new();
        if ids.is_empty() {
            problems.push("the prompt has no tokens; give a text".into());
        }
        if ids.len() > room {
            problems.push(format!("the text has {} tokens, but the cache has room for {room}", ids.len()));
        }
        if let Some(id) = ids.iter().find(|id| **id as usize >= known) {
            problems.push(format!("the token {id} is out of range for the model's {known} tokens"));
        }
        if problems.is_empty() { Ok(()) } else { Err(Error::Arguments(problems)) }
    }

    /// Reads tokens that follow those in the cache, and returns the logits of the last one.
    fn step(&mut self, ids: &[u32]) -> Result<Vec<f32>, Error> {
        let (at, count) = (self.cached.len(), ids.len());
        self.session.set_length(CACHED, self.config.cache_rows(at + count))?;
        self.session.set_length(TOKENS, count)?;
        let bytes = |numbers: &[u32]| numbers.iter().flat_map(|n| i64::from(*n).to_le_bytes()).collect::<Vec<u8>>();
        let inputs = [bytes(ids), (at as i64).to_le_bytes().to_vec(), (count as i64 - 1).to_le_bytes().to_vec()];
        let mut logits = vec![0.0; self.config.vocabulary];
        let mut room = vec![0; logits.len() * DType::F32.size()];
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        self.session.run_into(&inputs, &mut [&mut room])?;
        for (number, bytes) in logits.iter_mut().zip(room.chunks_exact(DType::F32.size())) {
            *number = f32::from_le_bytes(bytes.try_into().expect("each chunk has four bytes"));
        }
        Ok(logits)
    }
}
