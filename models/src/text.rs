//! Opens a text model in a directory: its configuration, weights and tokenizer.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use eutectic_ir::{Dim, Graph, GraphError, Tensor, Type};

use crate::{
    bert::{self, BertConfig, BertOutput, ShapeError, bind},
    config::ConfigError,
    nn::Form,
    tokens::{Batch, Tokens, TokensError},
    weights::{Weights, WeightsError},
};

/// A BERT model with its weights and its tokenizer. [`TextModel::graph`] returns its graph for a batch,
/// [`TextModel::weights`] the values of the graph's parameters, and [`TextModel::batches`] those of its inputs.
#[derive(Debug)]
pub struct TextModel {
    name: String,
    config: BertConfig,
    weights: BTreeMap<String, Tensor>,
    widened: Vec<(String, Type)>,
    tokens: Tokens,
}

/// The reasons why a directory has no usable model.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the model in {}:{}\n  help: {help}", .dir.display(), .problems.iter().map(|p| format!("\n{p}")).collect::<String>())]
pub struct OpenError {
    /// The directory.
    pub dir: PathBuf,
    /// The errors of all files.
    pub problems: Vec<Problem>,
    /// Tells the user how to get a complete directory.
    pub help: String,
}

/// An error in one file of a model, or a contradiction between two files.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The weights cannot be used.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The tokenizer cannot be used.
    #[error(transparent)]
    Tokens(#[from] TokensError),
    /// The extents of the configuration contradict each other.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The tokenizer has token ids for which the model has no embedding.
    #[error("the tokenizer has ids up to {}, but the model has {embedded} embeddings, so they belong to different models", .ids - 1)]
    Vocabulary {
        /// The largest id plus 1.
        ids: usize,
        /// The number of rows of the embedding table.
        embedded: usize,
    },
}

impl TextModel {
    /// Opens a directory with `config.json`, `model.safetensors` and `tokenizer.json`. Truncates texts to `max_tokens`
    /// tokens, or to the model's number of positions if that is smaller. An error message ends with `help`, which tells
    /// the user how to get the files.
    ///
    /// # Errors
    /// If a file cannot be used, or if two files contradict each other. The error lists all problems.
    pub fn open(name: &str, dir: impl AsRef<Path>, max_tokens: usize, help: &str) -> Result<TextModel, Box<OpenError>> {
        let dir = dir.as_ref();
        let mut problems = Vec::new();
        let config = keep(BertConfig::open(dir.join("config.json")), &mut problems);
        let weights = keep(Weights::open(dir.join("model.safetensors")), &mut problems);
        let max_tokens = config.as_ref().map_or(max_tokens, |c| c.positions.min(max_tokens));
        let tokens = keep(Tokens::open(dir.join("tokenizer.json"), max_tokens), &mut problems);
        if let (Some(config), Some(tokens)) = (&config, &tokens)
            && tokens.vocabulary() > config.vocabulary
        {
            problems.push(Problem::Vocabulary { ids: tokens.vocabulary(), embedded: config.vocabulary });
        }
        let bound = config.as_ref().zip(weights.as_ref()).and_then(|(config, weights)| {
            let graph = keep(bert::graph(name, config, Form::Composite, &[]), &mut problems)?;
            let params: Vec<_> = graph.named("param").map(|(name, id)| (name, graph.ty(id))).collect();
            keep(weights.bind(params, bert::IGNORED), &mut problems)
        });
        match (config, bound, tokens, problems.is_empty()) {
            (Some(config), Some(bound), Some(tokens), true) => {
                Ok(TextModel { name: name.into(), config, weights: bound.tensors, widened: bound.widened, tokens })
            }
            _ => Err(Box::new(OpenError { dir: dir.into(), problems, help: help.into() })),
        }
    }

    /// Returns the name of the model.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the configuration of the encoder.
    pub fn config(&self) -> &BertConfig {
        &self.config
    }

    /// Returns the graph for a batch of texts that are padded to `sequence` tokens. Its inputs are `ids` and `mask`,
    /// and its output is `sentence_embedding`.
    ///
    /// # Errors
    /// If the batch is empty, or the length exceeds the number of positions.
    pub fn graph(&self, form: Form, batch: usize, sequence: usize) -> Result<Graph, ShapeError> {
        bind(
            &bert::graph(&self.name, &self.config, form, &[BertOutput::SentenceEmbedding])?,
            &self.config,
            batch,
            sequence,
        )
    }

    /// Returns the graph for batches of up to `max_batch` texts, padded to any length up to the largest number of
    /// tokens. Each run chooses both extents.
    ///
    /// # Errors
    /// If `max_batch` is 0.
    pub fn graph_to(&self, form: Form, max_batch: usize) -> Result<Graph, ShapeError> {
        let longest = self.tokens.max_tokens().min(self.config.positions);
        // Reports an error if the largest extents are out of range.
        self.graph(form, max_batch, longest)?;
        let open = bert::graph(&self.name, &self.config, form, &[BertOutput::SentenceEmbedding])?;
        let most = [(bert::BATCH, max_batch), (bert::SEQUENCE, longest)];
        let extents = most.map(|(name, most)| (name.to_string(), Dim::between(name, 1, most as i64)));
        Ok(open.bind_dims(&extents.into())?)
    }

    /// Returns the values of the graph's parameters by name. Values that were not widened stay in the mapped file.
    pub fn weights(&self) -> &BTreeMap<String, Tensor> {
        &self.weights
    }

    /// Returns the parameters that were widened to `f32`, with their types in the file.
    pub fn widened(&self) -> &[(String, Type)] {
        &self.widened
    }

    /// Returns the tokenizer.
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// Divides texts into batches of at most `max_batch` texts.
    ///
    /// # Errors
    /// If the tokenizer fails on a text.
    pub fn batches(&self, texts: &[impl AsRef<str>], max_batch: usize) -> Result<Vec<Batch>, TokensError> {
        self.tokens.batches(texts, max_batch)
    }
}

fn keep<T, E: Into<Problem>>(result: Result<T, E>, problems: &mut Vec<Problem>) -> Option<T> {
    result.map_err(|e| problems.push(e.into())).ok()
}
