//! What every backend must satisfy: random programs against the reference, and the definition of what a kernel means.

pub mod naive;
pub mod program;
pub mod sweep;
