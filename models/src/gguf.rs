//! GGUF files (<https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>): metadata and tensors, mapped into memory.
//!
//! Each packed format is a graph in text form (`gguf/formats/`). Programs contain that graph, and the fields of the
//! packed blocks are parameters. So weights stay packed in memory until a kernel reads them. The graph computes the
//! same bits as the decoder of ggml.

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
