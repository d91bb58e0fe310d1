//! Models as graphs: builders that turn a model's configuration into a graph, and loaders of weights and tokenizers.
//! Other crates compile the graphs.
//!
//! Features, all on by default: `onnx` (the reader of ONNX files), `text` (tokenizers and text models), `vision` (the
//! reader of image files).

pub mod bert;
pub mod builtin;
#[cfg(feature = "text")]
pub mod chat;
pub mod config;
pub mod decoder;
pub mod gguf;
pub mod image;
#[cfg(feature = "text")]
pub mod language;
pub mod llama;
pub mod minilm;
pub mod module;
pub mod nn;
pub mod npy;
pub mod random;
pub mod sam;
pub mod sam3;
pub mod sampling;
#[cfg(feature = "text")]
pub mod text;
#[cfg(feature = "text")]
pub mod tokens;
pub mod vision;
#[cfg(feature = "text")]
pub mod vocabulary;
pub mod weights;
mod windows;

pub use bert::{BertConfig, BertOutput, ShapeError};
pub use config::ConfigError;
#[cfg(feature = "onnx")]
pub use eutectic_onnx as onnx;
pub use llama::LlamaConfig;
pub use nn::{Activation, Form};
pub use random::random_weights;
#[cfg(feature = "text")]
pub use text::{OpenError, Problem, TextModel};
#[cfg(feature = "text")]
pub use tokens::{Batch, Tokens, TokensError};
pub use weights::{BoundParams, Misfit, Weights, WeightsError};
