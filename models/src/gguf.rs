//! GGUF files (<https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>): metadata and tensors, mapped into memory.
//!
//! Tensors in formats of blocks are decoded to `f32` when they are asked for, to the bits that ggml gives. Programs have no operand that
//! stays packed yet, so a loaded model takes four bytes for each weight, and twice
//! that while it is loaded.

mod error;
mod file;
pub mod format;
mod header;
mod metadata;
mod part;
mod split;
mod tensor;

pub use self::{
    error::GgufError,
    file::Gguf,
    metadata::{Array, Value},
    tensor::TensorInfo,
};
