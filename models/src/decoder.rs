//! Decoder-only language models with a cache of keys and values, configured by the metadata of a GGUF file.
//!
//! The graph takes a chunk of tokens, and appends their keys and values in place to states, which are the cache. The
//! numbers of tokens in the chunk and in the cache are extents that each run chooses. So one program both reads prompts
//! and generates text.

mod architecture;
mod config;
mod graph;
mod rope;
mod values;

use std::{collections::BTreeMap, path::PathBuf};

use eutectic_ir::{DType, Dim, Graph, GraphError, Tensor, Type};

pub use self::{
    architecture::{ARCHITECTURES, Architecture, FeedForward},
    config::{DecoderConfig, Experts},
};
use crate::gguf::{Gguf, TensorInfo};

/// The name of the extent that counts the tokens of a run.
pub const TOKENS: &str = "tokens";
/// The run-time extent of the rows that the cache contains after a run: see [`DecoderConfig::cache_rows`].
pub const CACHED: &str = "cached";
/// The largest number of prompt tokens in one run.
pub const CHUNK: usize = 64;

/// The element type of the keys and values in a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheType {
    /// 16-bit floats. They halve the memory of the cache and the time to read it. Keys and values beyond ±65,504 become
    /// infinite.
    #[default]
    F16,
    /// The `f32` type in which the model computes keys and values, so they are not rounded.
    F32,
}

impl CacheType {
    /// Returns the element type.
    pub fn dtype(self) -> DType {
        match self {
            CacheType::F16 => DType::F16,
            CacheType::F32 => DType::F32,
        }
    }
}

/// A decoder with its weights.
#[derive(Debug)]
pub struct Decoder {
    config: DecoderConfig,
    cache: CacheType,
    tensors: BTreeMap<String, TensorInfo>,
}

/// The reasons why a GGUF file is not a supported decoder.
#[derive(Debug, thiserror::Error)]
#[error("cannot build a model from {}:{}", .path.display(), .problems.iter().map(|p| format!("\n  {p}")).collect::<String>())]
pub struct DecoderError {
    /// The file.
    pub path: PathBuf,
    /// Each problem: a value or a tensor that is missing, wrong or not supported.
    pub problems: Vec<String>,
}

impl Decoder {
    /// Returns the decoder of a GGUF file. `positions` limits the capacity of the cache in tokens. The default and the
    /// maximum is the number of positions that the model was trained for.
    ///
    /// ```
    /// use eutectic_models::{decoder::Decoder, gguf::Gguf};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/gguf/llama.gguf");
    /// let decoder = Decoder::new(&Gguf::open(path)?, Some(64))?;
    /// let graph = decoder.program(16)?; // for chunks of up to 16 tokens
    /// let inputs: Vec<&str> = graph.named("input").map(|(name, _)| name).collect();
    /// assert_eq!(inputs, ["ids", "at", "last"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If values or tensors are missing, wrong, or unknown to the architecture. The error lists all of them.
    pub fn new(gguf: &Gguf, positions: Option<usize>) -> Result<Decoder, Box<DecoderError>> {
        let fault = |problems: Vec<String>| Box::new(DecoderError { path: gguf.path().into(), problems });
        let config = DecoderConfig::read(gguf, positions).map_err(fault)?;
        let decoder = Decoder { config, cache: CacheType::default(), tensors: gguf.tensors().clone() };
        let problems = decoder.misfits();
        if problems.is_empty() { Ok(decoder) } else { Err(fault(problems)) }
    }

    /// Returns the decoder with a cache of the given type.
    #[must_use]
    pub fn with_cache(self, cache: CacheType) -> Decoder {
        Decoder { cache, ..self }
    }

    /// Returns the sizes of the decoder and the variants of its layers.
    pub fn config(&self) -> &DecoderConfig {
        &self.config
    }

    /// Returns the number of bytes that a run of one token reads, with `cached` tokens in the cache: the weights in the
    /// file's formats, and the keys and values. Of experts, only those that a token uses are counted. Of an embedding
    /// table that is not also a factor of the logits, only one row is read, and nothing is counted.
    pub fn read_bytes(&self, cached: usize) -> usize {
        let experts = &self.config.experts;
        let read = |(name, tensor): (&String, &TensorInfo)| match name.as_str() {
            "token_embd.weight" if !self.config.tied => 0,
            "position_embd.weight" => 0,
            name if name.contains("_exps.") => tensor.bytes() / experts.count.max(1) * experts.used,
            _ => tensor.bytes(),
        };
        let row = self.config.groups * self.config.depth.iter().sum::<usize>();
        let cache = self.config.layers * cached.min(self.config.positions) * row * self.cache.dtype().size();
        self.tensors.iter().map(read).sum::<usize>() + cache
    }

    /// Builds the program that reads `tokens` tokens and leaves `cached` rows in the cache: see
    /// [`DecoderConfig::cache_rows`]. See [`Decoder::program`] for run-time extents.
    ///
    /// Its inputs are `ids i64[tokens]`; `at i64[]`, the position of the first token in the sequence; and `last
    /// i64[1]`, the index in the chunk of the token whose logits are returned. The output is `logits f32[1
    /// vocabulary]`.
    ///
    /// # Errors
    /// If an extent is 0 or exceeds the capacity of the cache.
    pub fn graph(&self, tokens: impl Into<Dim>, cached: impl Into<Dim>) -> Result<Graph, GraphError> {
        let formats = |name: &str| self.tensors.get(name).map(|tensor| tensor.format);
        graph::build(&self.config, &formats, [tokens.into(), cached.into()], self.cache.dtype())
    }

    /// Builds the program for any chunk of up to `chunk` tokens, and any cache of up to the rows that
    /// [`DecoderConfig::positions`] tokens need. Each run chooses both as the extents [`TOKENS`] and [`CACHED`].
    ///
    /// # Errors
    /// See [`Decoder::graph`].
    pub fn program(&self, chunk: usize) -> Result<Graph, GraphError> {
        let positions = self.config.positions;
        let extent = |name: &str, most: usize| Dim::between(name, 1, most as i64);
        self.graph(extent(TOKENS, chunk.clamp(1, positions)), extent(CACHED, self.config.cache_rows(positions)))
    }

    /// Returns the value of a parameter of the program: either a field of a packed tensor of the file, or a table of
    /// cosines or sines, which is computed from the configuration.
    pub fn param(&self, name: &str) -> Option<Tensor> {
        if let Some(table) = self.config.rotation(name) {
            return Some(table);
        }
        let (tensor, field) = name.rsplit_once('.')?;
        let tensor = self.tensors.get(tensor)?;
        tensor.format.fields().iter().find(|of| of.name == field).map(|field| tensor.field(field))
    }

    /// Compares the file's tensors with the program's parameters. Returns a message for each tensor that is missing,
    /// has the wrong shape, or has no parameter.
    fn misfits(&self) -> Vec<String> {
        let mut unused: BTreeMap<&str, &TensorInfo> = self.tensors.iter().map(|(name, t)| (name.as_str(), t)).collect();
        unused.retain(|name, _| !rope::is_of_tables(name));
        let mut problems = Vec::new();
        // Without formats, the graph has one parameter for each tensor.
        let graph =
            match graph::build(&self.config, &|_| None, [1, self.config.cache_rows(1)].map(Dim::from), DType::F32) {
                Ok(graph) => graph,
                Err(error) => return vec![error.to_string()],
            };
        for (name, id) in graph.named("param").filter(|(name, _)| self.config.rotation_shape(name).is_none()) {
            let expected = graph.ty(id);
            match unused.remove(name) {
                None => problems.push(format!("the tensor `{name}` of type {expected} is missing")),
                Some(tensor) if Type::tensor(DType::F32, &tensor.dims) != *expected => {
                    let found = Type::tensor(DType::F32, &tensor.dims);
                    problems.push(format!("the tensor `{name}` should be {expected}, but is {found}"));
                }
                Some(_) => {}
            }
        }
        let of = self.config.architecture.name;
        problems.extend(unused.keys().map(|name| format!("the architecture {of} has no tensor `{name}`")));
        problems
    }
}
