//! The little language that op signatures, rewrite rules and the text form of graphs share.
//!
//! - [`sexp`]: the reader and located errors;
//! - [`format()`]: the common layout of rule files and graph files;
//! - [`typing`]: type patterns such as `F[B.. (* 2 H)]`, unification and instantiation;
//! - [`relation`]: the relations that a type pattern alone cannot state (`broadcast`, `permute`, …);
//! - [`mod@sample`]: choosing types and attributes that fit, for tests.
//!
//! Spelling decides what a name is: `F`, `B..`, `H` (upper case) are element-type, dimension-sequence and
//! dimension variables; `?x` is a tensor; lower-case words are ops, attributes and literals.

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
