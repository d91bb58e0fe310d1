//! The domain `ai.onnx.ml` of classical models: trees, linear models, support vectors and feature preparation. Where
//! ONNX leaves a result undefined, the result is that of ONNX Runtime.

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

/// The tables of the domain, by family.
pub(super) const FAMILIES: &[&[OpRow]] = &[trees::OPS, linear::OPS, svm::OPS, features::OPS, encoders::OPS];
