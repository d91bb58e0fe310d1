//! GGUF files (<https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>): metadata and tensors, mapped into memory.
//!
//! A format of blocks is a graph in text form (`gguf/formats/`). Programs contain this graph, and its inputs, the
//! fields of blocks, are their parameters. So weights stay packed until a kernel reads them. They decode to the same
//! bits as in ggml.

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
