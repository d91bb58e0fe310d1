//! The ops of the domain `ai.onnx.ml`, which classical models are exported in: trees, linear models, support vectors and the preparation of
//! features. Where ONNX leaves something open, results are those of ONNX Runtime.

mod encoders;
mod ensemble;
mod features;
mod forest;
mod linear;
mod rows;
mod scores;
mod svm;
mod trees;

use super::row::OpRow;

/// The families of the domain.
pub(super) const FAMILIES: &[&[OpRow]] = &[trees::OPS, linear::OPS, svm::OPS, features::OPS, encoders::OPS];
