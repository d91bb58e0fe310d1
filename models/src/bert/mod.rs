//! BERT (Devlin et al. 2018, arXiv:1810.04805) as a graph: the encoder and the sentence embedding on top of it.

mod config;

use eutectic_ir::{Attr, DType, Dim, Graph, GraphError, NodeId, Tensor, Type};

pub use config::BertConfig;

use crate::{
    nn::{Built, Form, reshape, sum, swap_last_two, transpose},
    random::Rng,
};

/// Name patterns of tensors in BERT files that the encoder does not read. The graph computes position ids itself, and
/// the pooler serves other tasks than sentence embeddings.
pub const IGNORED: &[&str] = &["*.position_ids", "pooler.*"];

/// The symbol of the batch dim: the number of texts.
pub const BATCH: &str = "B";
/// The symbol of the sequence dim: the number of tokens of each text, with padding.
pub const SEQUENCE: &str = "S";

/// The reason why there is no program for a batch.
#[derive(Debug, thiserror::Error)]
pub enum ShapeError {
    /// The batch is empty, or its sequence length is not between 1 and the model's number of positions.
    #[error(
        "cannot build a program for a batch of {batch} texts of {sequence} tokens; give at least one text and 1 to {positions} tokens, the positions of the model"
    )]
    OutOfRange {
        /// The number of texts.
        batch: usize,
        /// The number of tokens of each text.
        sequence: usize,
        /// The number of positions that have an embedding.
        positions: usize,
    },
    /// An op of the graph rejects the extents.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

/// A result of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BertOutput {
    /// `last_hidden_state`: `f32[B S hidden]`.
    LastHiddenState,
    /// `sentence_embedding`: `f32[B hidden]`, the mean of the hidden state over the tokens, scaled to length 1
    /// (Reimers and Gurevych 2019, arXiv:1908.10084).
    SentenceEmbedding,
}

impl BertOutput {
    /// Returns the name of this output in the graph.
    pub fn name(self) -> &'static str {
        match self {
            BertOutput::LastHiddenState => "last_hidden_state",
            BertOutput::SentenceEmbedding => "sentence_embedding",
        }
    }
}

/// Returns the encoder as a graph for B texts of S tokens each. S must not exceed the configured number of positions.
///
/// The inputs are the token ids, `ids` `i64[B S]`, and `mask` `i64[B S]`, which is 1 for a token and 0 for padding.
/// Parameters have the names and shapes of the transformers library's safetensors files. The origin of a value is the
/// path of its torch module, such as `encoder.layer.0.attention`.
///
/// # Errors
/// If extents do not fit each other. This cannot happen with a configuration from [`BertConfig::open`].
pub fn graph(name: &str, config: &BertConfig, form: Form, outputs: &[BertOutput]) -> Result<Graph, GraphError> {
    let mut graph = Graph::new(name);
    let mut builder = BertBuilder { g: &mut graph, config, form };
    let tokens = Type::Tensor(DType::I64, [Dim::symbol(BATCH), Dim::symbol(SEQUENCE)].into_iter().collect());
    let ids = builder.g.input("ids", tokens.clone())?;
    let mask = builder.g.input("mask", tokens)?;
    let keep = builder.g.apply("cast", &[mask], &[("to", DType::F32.into())])?;
    let hidden = builder.encoder(ids, keep)?;
    for output in outputs {
        let value = match output {
            BertOutput::LastHiddenState => hidden,
            BertOutput::SentenceEmbedding => builder.within("pooling", |b| b.embedding(hidden, keep))?,
        };
        builder.g.output(output.name(), value)?;
    }
    Ok(graph)
}

/// Replaces the symbols B and S in a graph from [`graph`] by known extents.
///
/// # Errors
/// If the batch is empty, or the length exceeds the number of positions.
pub fn bind(graph: &Graph, config: &BertConfig, batch: usize, sequence: usize) -> Result<Graph, ShapeError> {
    let extent = i64::try_from(batch).ok().filter(|_| batch > 0 && (1..=config.positions).contains(&sequence));
    let batch = extent.ok_or(ShapeError::OutOfRange { batch, sequence, positions: config.positions })?;
    // `sequence` fits in an `i64`, because it is at most `positions`, which the configuration limits to 2^24.
    let values = [(BATCH, batch), (SEQUENCE, sequence as i64)];
    Ok(graph.bind(&values.map(|(name, n)| (name.to_string(), n)).into())?)
}

/// Returns random token ids and a mask for `batch` texts of `sequence` tokens. The first text has no padding, and the
/// others have random lengths.
pub fn random_inputs(config: &BertConfig, batch: usize, sequence: usize, seed: u64) -> [(&'static str, Tensor); 2] {
    let mut rng = Rng::new(seed);
    let (mut ids, mut mask) = (Vec::new(), Vec::new());
    for text in 0..batch {
        let length = if text == 0 { sequence } else { 1 + rng.below(sequence) };
        ids.extend((0..sequence).map(|at| if at < length { rng.below(config.vocabulary) as i64 } else { 0 }));
        mask.extend((0..sequence).map(|at| i64::from(at < length)));
    }
    [("ids", ids), ("mask", mask)].map(|(name, v)| (name, Tensor::from_i64(DType::I64, &[batch, sequence], v)))
}

struct BertBuilder<'a> {
    g: &'a mut Graph,
    config: &'a BertConfig,
    form: Form,
}

impl BertBuilder<'_> {
    fn within<T>(&mut self, part: &str, build: impl FnOnce(&mut BertBuilder<'_>) -> T) -> T {
        let (config, form) = (self.config, self.form);
        self.g.within(part, |g| build(&mut BertBuilder { g, config, form }))
    }

    /// Adds the parameter `name` of the module that is being built. Its full name starts with the module's path.
    fn param(&mut self, name: &str, dims: &[usize]) -> Built {
        let name = format!("{}.{name}", self.g.origin().path());
        self.g.param(&name, Type::tensor(DType::F32, dims))
    }

    fn encoder(&mut self, ids: NodeId, keep: NodeId) -> Built {
        let mut hidden = self.within("embeddings", |b| b.embeddings(ids))?;
        let bias = self.within("mask", |b| b.mask(keep))?;
        for layer in 0..self.config.layers {
            hidden = self.within(&format!("encoder.layer.{layer}"), |b| b.layer(hidden, bias))?;
        }
        Ok(hidden)
    }

    fn embeddings(&mut self, ids: NodeId) -> Built {
        let (hidden, table) = (self.config.hidden, [("axis", Attr::Int(0))]);
        let words = self.within("word_embeddings", |b| {
            let words = b.param("weight", &[b.config.vocabulary, hidden])?;
            b.g.apply("gather", &[words, ids], &table)
        })?;
        let positions = self.within("position_embeddings", |b| {
            let positions = b.param("weight", &[b.config.positions, hidden])?;
            let shape = Attr::Shape([Dim::symbol(SEQUENCE)].into_iter().collect());
            let at =
                b.g.apply("iota", &[], &[("shape", shape), ("axis", (-1).into()), ("dtype", DType::I64.into())])?;
            b.g.apply("gather", &[positions, at], &table)
        })?;
        let types = self.within("token_type_embeddings", |b| {
            let types = b.param("weight", &[b.config.types, hidden])?;
            b.g.apply("slice", &[types], &[("axis", 0.into()), ("at", 0.into()), ("len", 1.into())])
        })?;
        // The sum of positions and types does not depend on inputs, so loading computes it once. The embeddings of
        // words are added last.
        let constant = self.g.apply("add", &[positions, types], &[])?;
        let sum = self.g.apply("add", &[words, constant], &[])?;
        self.layernorm(sum)
    }

    /// Returns the attention bias [B 1 1 S]: 0 for a token and the lowest finite `f32` for padding. A bias of −∞ would
    /// give NaN for a text that is all padding, because softmax subtracts the row's maximum, −∞.
    fn mask(&mut self, keep: NodeId) -> Built {
        let (one, lowest) = (self.g.scalar(1.0, keep)?, self.g.scalar(f64::from(f32::MIN), keep)?);
        let padding = self.g.apply("sub", &[one, keep], &[])?;
        let bias = self.g.apply("mul", &[padding, lowest], &[])?;
        reshape(self.g, bias, &[Dim::symbol(BATCH), 1_i64.into(), 1_i64.into(), Dim::symbol(SEQUENCE)])
    }

    fn layer(&mut self, hidden: NodeId, bias: NodeId) -> Built {
        let BertConfig { hidden: width, intermediate, .. } = *self.config;
        let attended = self.within("attention", |b| {
            let heads = b.within("self", |b| b.attention(hidden, bias))?;
            b.within("output", |b| b.project_add_norm(heads, hidden, width))
        })?;
        let inner = self.within("intermediate", |b| {
            let inner = b.linear("dense", attended, width, intermediate)?;
            b.form.activation(b.g, inner, b.config.activation)
        })?;
        self.within("output", |b| b.project_add_norm(inner, attended, intermediate))
    }

    fn attention(&mut self, hidden: NodeId, bias: NodeId) -> Built {
        let BertConfig { hidden: width, heads, .. } = *self.config;
        let depth = width / heads;
        let (batch, sequence) = (Dim::symbol(BATCH), Dim::symbol(SEQUENCE));
        let mut head = |part: &str| {
            let x = self.linear(part, hidden, width, width)?;
            let split = reshape(self.g, x, &[batch.clone(), sequence.clone(), heads.into(), depth.into()])?;
            transpose(self.g, split, &[0, 2, 1, 3])
        };
        let parts = [head("query")?, head("key")?, head("value")?];
        let mixed = self.form.attention(self.g, parts, Some(bias), depth)?;
        let joined = transpose(self.g, mixed, &[0, 2, 1, 3])?;
        reshape(self.g, joined, &[batch, sequence, width.into()])
    }

    /// Returns the layer norm of x w + b + residual. This is a post-norm layer: the norm follows the addition.
    fn project_add_norm(&mut self, x: NodeId, residual: NodeId, from: usize) -> Built {
        let projected = self.linear("dense", x, from, self.config.hidden)?;
        let sum = self.g.apply("add", &[projected, residual], &[])?;
        self.layernorm(sum)
    }

    fn linear(&mut self, part: &str, x: NodeId, from: usize, to: usize) -> Built {
        self.within(part, |b| {
            // torch stores the weight of a linear layer as [out in].
            let (stored, bias) = (b.param("weight", &[to, from])?, b.param("bias", &[to])?);
            let weight = swap_last_two(b.g, stored)?;
            b.form.linear(b.g, x, weight, bias)
        })
    }

    fn layernorm(&mut self, x: NodeId) -> Built {
        let BertConfig { hidden, eps, .. } = *self.config;
        self.within("LayerNorm", |b| {
            let params = [b.param("weight", &[hidden])?, b.param("bias", &[hidden])?];
            b.form.layernorm(b.g, x, params, hidden, eps)
        })
    }

    /// Returns the mean of the hidden states of a text's tokens, scaled to length 1. Lower limits on both divisors
    /// avoid a division by zero; the limits are those of sentence-transformers.
    fn embedding(&mut self, hidden: NodeId, keep: NodeId) -> Built {
        let column = reshape(self.g, keep, &[Dim::symbol(BATCH), Dim::symbol(SEQUENCE), 1_i64.into()])?;
        let kept = self.g.apply("mul", &[hidden, column], &[])?;
        let (total, tokens) = (sum(self.g, kept, 1, false)?, sum(self.g, keep, -1, true)?);
        let mean = self.divide(total, tokens, 1e-9)?;
        let squares = self.g.apply("mul", &[mean, mean], &[])?;
        let square = sum(self.g, squares, -1, true)?;
        let length = self.g.apply("sqrt", &[square], &[])?;
        self.divide(mean, length, 1e-12)
    }

    /// Computes x / max(y, least).
    fn divide(&mut self, x: NodeId, y: NodeId, least: f64) -> Built {
        let least = self.g.scalar(least, y)?;
        let divisor = self.g.apply("max", &[y, least], &[])?;
        self.g.apply("div", &[x, divisor], &[])
    }
}

#[cfg(test)]
mod tests;
