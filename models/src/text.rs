//! A text model from a directory: configuration, weights and tokenizer, checked together.

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

/// A BERT model with its weights and its tokenizer. Whoever runs it needs to know nothing about BERT: [`TextModel::graph`]
/// gives the program for a batch, [`TextModel::weights`] its parameters by name, [`TextModel::batches`] its inputs.
#[derive(Debug)]
pub struct TextModel {
    name: String,
    config: BertConfig,
    weights: BTreeMap<String, Tensor>,
    widened: Vec<(String, Type)>,
    tokens: Tokens,
}

/// Why a directory holds no usable model: everything at once.
#[derive(Debug, thiserror::Error)]
#[error("{} holds no usable model:{}\n  help: {help}", .dir.display(), .problems.iter().map(|p| format!("\n{p}")).collect::<String>())]
pub struct OpenError {
    /// The directory.
    pub dir: PathBuf,
    /// What is wrong, file by file.
    pub problems: Vec<Problem>,
    /// How to get a directory that is right.
    pub help: String,
}

/// What is wrong with one part of a model.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The weights.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The tokenizer.
    #[error(transparent)]
    Tokens(#[from] TokensError),
    /// The configuration's extents do not fit together.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The tokenizer gives ids that have no embedding.
    #[error("the tokenizer has ids up to {}, the model embeddings for {embedded}: they belong to different models", .ids - 1)]
    Vocabulary {
        /// One more than the largest id.
        ids: usize,
        /// How many ids have an embedding.
        embedded: usize,
    },
}

impl TextModel {
    /// Opens a directory with `config.json`, `model.safetensors` and `tokenizer.json`. Texts are cut off at `max_tokens`
    /// tokens, or at what the model has positions for. `help` ends the error message: how to get the files.
    ///
    /// # Errors
    /// Everything that is wrong with the three files, and between them.
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

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its configuration.
    pub fn config(&self) -> &BertConfig {
        &self.config
    }

    /// The graph for a batch of texts of one padded length, with the inputs `ids` and `mask`; its output is
    /// `sentence_embedding`.
    ///
    /// # Errors
    /// When the batch is empty or the length has no positions.
    pub fn graph(&self, form: Form, batch: usize, sequence: usize) -> Result<Graph, ShapeError> {
        bind(
            &bert::graph(&self.name, &self.config, form, &[BertOutput::SentenceEmbedding])?,
            &self.config,
            batch,
            sequence,
        )
    }

    /// The graph for batches of any number of texts up to a limit, of any padded length up to that of the longest texts: both are
    /// extents at run time.
    ///
    /// # Errors
    /// When there may be no text.
    pub fn graph_to(&self, form: Form, max_batch: usize) -> Result<Graph, ShapeError> {
        let longest = self.tokens.max_tokens().min(self.config.positions);
        // Whoever gets this graph cannot go beyond what these extents admit.
        self.graph(form, max_batch, longest)?;
        let open = bert::graph(&self.name, &self.config, form, &[BertOutput::SentenceEmbedding])?;
        let most = [(bert::BATCH, max_batch), (bert::SEQUENCE, longest)];
        let extents = most.map(|(name, most)| (name.to_string(), Dim::between(name, 1, most as i64)));
        Ok(open.bind_dims(&extents.into())?)
    }

    /// The values of the graph's parameters, by name. They stay in the mapped file where nothing was converted.
    pub fn weights(&self) -> &BTreeMap<String, Tensor> {
        &self.weights
    }

    /// The weights that were widened to f32, with the types in the file.
    pub fn widened(&self) -> &[(String, Type)] {
        &self.widened
    }

    /// Its tokenizer.
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// The batches that hold all texts, of at most `max_batch` each.
    ///
    /// # Errors
    /// When the tokenizer gives up on a text.
    pub fn batches(&self, texts: &[impl AsRef<str>], max_batch: usize) -> Result<Vec<Batch>, TokensError> {
        self.tokens.batches(texts, max_batch)
    }
}

fn keep<T, E: Into<Problem>>(result: Result<T, E>, problems: &mut Vec<Problem>) -> Option<T> {
    result.map_err(|e| problems.push(e.into())).ok()
}
