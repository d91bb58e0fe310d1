//! GGUF files (<https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>): metadata and tensors, mapped into memory.
//!
//! A format of blocks is a graph in text form (`gguf/formats/`): programs hold it, and have the fields of its blocks as parameters. So
//! weights stay packed as long as kernels read them so, and decode to the bits that ggml gives.

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
