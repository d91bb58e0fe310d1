//! Models: loaders for weights and tokens, and builders that turn a configuration into a graph. Nothing is compiled here.

pub mod bert;
pub mod builtin;
pub mod config;
pub mod image;
pub mod llama;
pub mod minilm;
pub mod module;
pub mod nn;
pub mod onnx;
pub mod random;
pub mod sam;
pub mod sam3;
pub mod text;
pub mod tokens;
pub mod vision;
pub mod weights;
mod windows;

pub use bert::{BertConfig, BertOutput};
pub use config::ConfigError;
pub use llama::LlamaConfig;
pub use nn::{Activation, Form};
pub use random::random_weights;
pub use text::{OpenError, Problem, ShapeError, TextModel};
pub use tokens::{Batch, Tokens, TokensError};
pub use weights::{BoundParams, Misfit, Weights, WeightsError};
