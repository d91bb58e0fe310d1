//! The language that op signatures, rewrite rules and the text form of graphs share.
//!
//! - [`sexp`]: the reader and located errors;
//! - [`format()`]: the common layout of rule files and graph files;
//! - [`typing`]: type patterns such as `F[B.. (* 2 H)]`, their unification and instantiation;
//! - [`mod@sample`]: the choice of types and attributes that fit a signature, for tests.
//!
//! The spelling of a name decides what it is. `F`, `B..` and `H` (upper case) are variables of element types,
//! dimension sequences and dimensions. `?x` is a tensor. Lower-case words are ops, attributes and literals.

mod format;
pub mod relation;
mod relations;
pub mod sample;
pub mod sexp;
pub mod typing;

pub use format::format;
pub use relation::{Relation, RelationCall};
pub use sample::sample;
pub use sexp::{Errors, LangError, Sexp, SexpKind, Source};
pub use typing::{Bindings, DTypeClass, DimPattern, DimsPattern, Mismatch, Signature, TypePattern};
