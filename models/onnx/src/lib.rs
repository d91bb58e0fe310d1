//! Reads ONNX models (<https://onnx.ai/onnx/repo-docs/IR.html>) and translates their ops into Eutectic ops.
//!
//! The reader translates op by op and does not optimize. Rules recognize the composite ops that exporters decompose.
//! Each dimension has a number or a run-time extent before the import. So the reference interpreter can evaluate the
//! values that decide shapes.
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use eutectic_ir::Dim;
//! use eutectic_onnx::Model;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../golden/onnx/mlp-new.onnx");
//! let model = Model::open(path)?;
//! assert_eq!(model.symbols(), ["batch"]);
//! let imported = model.import(&BTreeMap::from([("batch".to_string(), Dim::Known(2))]))?;
//! let (_, output) = &imported.graph.outputs()[0];
//! assert_eq!(imported.graph.ty(*output).to_string(), "f32[2 5]");
//! # Ok(())
//! # }
//! ```

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
