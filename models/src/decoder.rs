//! Language models of one family, decoders that read a cache of keys and values, configured by the metadata of a GGUF file.
//!
//! The graph takes a chunk of tokens and appends their keys and values to states, in place; both the chunk's length and the cache's are
//! extents at run time, so that one program reads a prompt and generates.

mod architecture;
mod config;
mod graph;

use std::{collections::BTreeMap, path::PathBuf};

use eutectic_ir::{DType, Dim, Graph, GraphError, Tensor, Type};

pub use self::{
    architecture::{ARCHITECTURES, Architecture},
    config::DecoderConfig,
};
use crate::gguf::{Gguf, TensorInfo};

/// The extent of the tokens that a run takes.
pub const TOKENS: &str = "tokens";
/// The extent of the tokens that the cache holds after a run.
pub const CACHED: &str = "cached";
/// Tokens of a prompt that run together at most.
pub const CHUNK: usize = 64;

/// The element type of the keys and values in a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheType {
    /// 16-bit floats, which take half of the memory.
    F16,
    /// What products accumulate in, so that keys and values are not rounded. On the CPU, tokens are faster so.
    #[default]
    F32,
}

impl CacheType {
    /// Returns the type of its elements.
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

/// Why a file is no decoder that can be built: everything at once.
#[derive(Debug, thiserror::Error)]
#[error("cannot build a model from {}:{}", .path.display(), .problems.iter().map(|p| format!("\n  {p}")).collect::<String>())]
pub struct DecoderError {
    /// The file.
    pub path: PathBuf,
    /// Each thing that is missing, wrong or not supported.
    pub problems: Vec<String>,
}

impl Decoder {
    /// Makes the decoder of a file, with room for `positions` tokens: no more than it was trained for, and by default as many.
    ///
    /// # Errors
    /// Every value and tensor that is missing, wrong, or unknown to the architecture's builder.
    pub fn new(gguf: &Gguf, positions: Option<usize>) -> Result<Decoder, Box<DecoderError>> {
        let fault = |problems: Vec<String>| Box::new(DecoderError { path: gguf.path().into(), problems });
        let config = DecoderConfig::read(gguf, positions).map_err(fault)?;
        let decoder = Decoder { config, cache: CacheType::default(), tensors: gguf.tensors().clone() };
        let problems = decoder.misfits();
        if problems.is_empty() { Ok(decoder) } else { Err(fault(problems)) }
    }

    /// Returns the decoder with a cache of another type.
    #[must_use]
    pub fn with_cache(self, cache: CacheType) -> Decoder {
        Decoder { cache, ..self }
    }

    /// Returns the sizes and kinds of its parts.
    pub fn config(&self) -> &DecoderConfig {
        &self.config
    }

    /// Returns the bytes that a run of one token has to read, with `cached` tokens in the cache: the weights as the file has them, and the
    /// keys and values. Of a table of embeddings that is no factor of the logits too, a row is read, which is not counted.
    pub fn read_bytes(&self, cached: usize) -> usize {
        let is_read = |name: &str| self.config.tied || name != "token_embd.weight";
        let weights = self.tensors.iter().filter(|(name, _)| is_read(name)).map(|(_, tensor)| tensor.bytes());
        let row = self.config.groups * self.config.depth.iter().sum::<usize>();
        let cache = self.config.layers * cached.min(self.config.positions) * row * self.cache.dtype().size();
        weights.sum::<usize>() + cache
    }

    /// Builds the program that reads `tokens` tokens and leaves `cached` tokens in the cache; see [`Decoder::program`].
    ///
    /// Its inputs are `ids i64[tokens]`; `at i64[]`, the place of the first of them; and `last i64[1]`, the token of the chunk whose
    /// logits are the output, `logits f32[1 vocabulary]`.
    ///
    /// # Errors
    /// When an extent is 0 or beyond the room of the cache.
    pub fn graph(&self, tokens: impl Into<Dim>, cached: impl Into<Dim>) -> Result<Graph, GraphError> {
        let formats = |name: &str| self.tensors.get(name).map(|tensor| tensor.format);
        graph::build(&self.config, &formats, [tokens.into(), cached.into()], self.cache.dtype())
    }

    /// Builds the program that reads any number of tokens up to `chunk`, and leaves any number in the cache up to
    /// [`DecoderConfig::positions`]: the extents [`TOKENS`] and [`CACHED`] at run time.
    ///
    /// # Errors
    /// As [`Decoder::graph`].
    pub fn program(&self, chunk: usize) -> Result<Graph, GraphError> {
        let positions = self.config.positions;
        let extent = |name: &str, most: usize| Dim::between(name, 1, most as i64);
        self.graph(extent(TOKENS, chunk.clamp(1, positions)), extent(CACHED, positions))
    }

    /// Returns the value of a parameter of the program: a field of a tensor as the file has it, or a table of the configuration.
    pub fn param(&self, name: &str) -> Option<Tensor> {
        if let Some(table) = self.config.rotation(name) {
            return Some(table);
        }
        let (tensor, field) = name.rsplit_once('.')?;
        let tensor = self.tensors.get(tensor)?;
        tensor.format.fields().iter().find(|of| of.name == field).map(|field| tensor.field(field))
    }

    /// Returns a line for each difference between the tensors of the file and those that the program needs.
    fn misfits(&self) -> Vec<String> {
        let mut unused: BTreeMap<&str, &TensorInfo> = self.tensors.iter().map(|(name, t)| (name.as_str(), t)).collect();
        // It is part of the tables of angles.
        unused.remove(config::FACTORS);
        let mut problems = Vec::new();
        // Without formats, the program has a parameter for each tensor.
        let graph = match graph::build(&self.config, &|_| None, [1_usize, 1].map(Dim::from), DType::F32) {
            Ok(graph) => graph,
            Err(error) => return vec![error.to_string()],
        };
        for (name, id) in graph.named("param").filter(|(name, _)| self.config.rotation_shape(name).is_none()) {
            let expected = graph.ty(id);
            match unused.remove(name) {
                None => problems.push(format!("the tensor `{name}`, {expected}, is missing")),
                Some(tensor) if Type::tensor(DType::F32, &tensor.dims) != *expected => {
                    let found = Type::tensor(DType::F32, &tensor.dims);
                    problems.push(format!("the tensor `{name}` should be {expected}, it is {found}"));
                }
                Some(_) => {}
            }
        }
        let of = self.config.architecture.name;
        problems.extend(unused.keys().map(|name| format!("the tensor `{name}` is unknown in the architecture {of}")));
        problems
    }
}
