//! ONNX models (<https://onnx.ai/onnx/repo-docs/IR.html>): a reader from ONNX ops to ours.
//!
//! The reader maps op by op and optimizes nothing; rules recognise what exporters took apart. What computes shapes is evaluated while
//! the model is read, by the reference interpreter, because dimensions are bound before.

mod call;
mod error;
mod folder;
mod import;
mod importer;
mod model;
mod ops;
mod opsets;
#[rustfmt::skip]
#[allow(missing_docs, unused_qualifications, clippy::all)]
mod proto;
mod stored;
mod types;

pub use error::{OnnxError, Unsupported};
pub use model::{ImportOptions, Imported, MOST_TIMES, Model, Summary};
pub use ops::supported_ops;
pub use opsets::{NEWEST_OPSET, OLDEST_OPSET};
pub use stored::{StoredTensor, read_tensor};
pub use types::ModelPort;

#[cfg(test)]
mod tests;
