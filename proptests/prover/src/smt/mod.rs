//! Uses an SMT solver to decide questions that the prover leaves open, and as an independent check of the prover's own
//! procedure.
//!
//! Obligations on indices, extents and guards become formulas over integers. Elements of integer types and truth values
//! become bit vectors. The solver searches for a counterexample. If there is none, the obligation holds. Otherwise the
//! counterexample names the sizes.

mod formula;
mod judge;
mod solver;
mod words;

pub use formula::{Formula, call, int, nonneg, of_poly};
pub use judge::{Answers, Judge, Sizes};
pub use solver::{Answer, Solver};
pub use words::Types;
