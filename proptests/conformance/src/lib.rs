//! What every backend must satisfy: suites that take any device, random programs against the reference, and the definition of what
//! a kernel means.

pub mod device;
pub mod kernels;
pub mod naive;
pub mod program;
pub mod suite;
pub mod suites;
pub mod sweep;
