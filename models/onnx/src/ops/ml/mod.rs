//! The domain `ai.onnx.ml` of classical models: trees, linear models, support vectors and feature preparation. If ONNX
//! leaves a result undefined, it is that of ONNX Runtime.

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
