//! Helpers for the symbolic semantics of ops.

use crate::{
    call::Call,
    facts::Res,
    shape::Tensor,
    term::{T, Ty, apply},
};

/// The symbolic semantics of an op: a function from a call to its results.
pub type Semantics = fn(&Call) -> Res<Vec<Tensor>>;

/// Returns a single result.
pub(super) fn one(tensor: Tensor) -> Res<Vec<Tensor>> {
    Ok(vec![tensor])
}

/// Encloses a term in the function `round OP`, because the reference rounds it once.
pub(super) fn rounded(op: &str, ty: &Ty, term: T) -> T {
    apply(&format!("round {op}"), ty, vec![term])
}

/// Arithmetic on terms of one element type.
pub struct Arithmetic(pub Ty);

impl Arithmetic {
    pub fn of(&self, op: &str, args: &[&T]) -> T {
        apply(op, &self.0, args.iter().map(|t| T::clone(t)).collect())
    }

    pub fn add(&self, a: &T, b: &T) -> T {
        self.of("add", &[a, b])
    }

    pub fn sub(&self, a: &T, b: &T) -> T {
        self.of("sub", &[a, b])
    }

    pub fn mul(&self, a: &T, b: &T) -> T {
        self.of("mul", &[a, b])
    }

    pub fn div(&self, a: &T, b: &T) -> T {
        self.of("div", &[a, b])
    }
}
