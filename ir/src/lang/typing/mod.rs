//! Type patterns, unification against types, and type signatures.
//!
//! A pattern such as `F[B.. M (* 2 H)]` is matched against a type to bind its variables, or computes a type from
//! bindings. Unification never backtracks. When a shape is matched, at most one of its sequences may be unbound. A
//! dimension expression is solved only if it has one unbound variable. Otherwise the constraint waits until others
//! have bound more variables.

mod bindings;
mod dims;
mod signature;
mod types;

pub use bindings::{Bindings, Bound, DTypeClass, Mismatch, Scope, SlotKind, Status, VarId};
pub use dims::{DimPattern, DimsItem, DimsPattern};
pub use signature::{Signature, SignatureResult};
pub use types::{DTypePattern, TypePattern, solve};

/// Returns whether a name is a variable of the type language: its first letter is upper-case.
pub fn is_variable(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_uppercase()) && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
