//! The tensor-program IR: types, attributes, the op table, graphs and the reference interpreter.
//!
//! All other crates of Eutectic use the terms that are defined here. An op is declared once, in [`ops`]. Its type
//! signature is written in the language of the rewrite rules ([`lang`]).

#[cfg(feature = "ndarray")]
mod arrays;
pub mod attr;
pub mod bounded;
pub mod dim;
pub mod dot;
pub mod dtype;
pub mod eclasses;
pub mod float;
pub mod functions;
pub mod graph;
pub mod index;
pub mod interp;
pub mod interval;
pub mod lang;
mod observe;
pub mod ops;
pub mod outline;
pub mod round;
pub mod scalar;
pub mod tensor;
pub mod text;
pub mod types;

#[cfg(feature = "ndarray")]
pub use arrays::NoView;
pub use attr::{Attr, Attrs};
pub use bounded::Bounded;
pub use dim::{Dim, Symbol};
pub use dtype::DType;
pub use float::FloatFormat;
pub use graph::{Graph, GraphError, NodeId, OpName, Origin};
pub use interp::{InterpError, interpret};
pub use interval::Interval;
pub use ops::{Class, Op, OpDef, Ops};
pub use scalar::Scalar;
pub use tensor::{Tensor, TensorElement};
pub use types::{Shape, Type};
