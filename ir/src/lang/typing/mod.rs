//! Type patterns, unification against types, and type signatures.
//!
//! A pattern such as `F[B.. M (* 2 H)]` is matched against a type to bind its variables, or instantiated from bindings
//! to compute one. At most one sequence of a shape may be unbound when it is matched, and a dimension expression is
//! inverted only if it has one unbound variable. So unification never backtracks: a constraint that cannot be decided
//! is deferred until others have bound more variables.

mod bindings;
mod dims;
mod signature;
mod types;

pub use bindings::{Bindings, Bound, DTypeClass, Mismatch, Scope, SlotKind, Status, VarId};
pub use dims::{DimPattern, DimsItem, DimsPattern};
pub use signature::{Signature, SignatureResult};
pub use types::{DTypePattern, TypePattern, solve};

/// Returns whether a name is spelled as a variable of the type language: upper case first.
pub fn is_variable(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_uppercase()) && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
