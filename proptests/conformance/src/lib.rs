//! The requirements on every backend: suites that take any device, random programs against the reference, and the
//! definition of a kernel's meaning.

pub mod device;
pub mod kernels;
pub mod naive;
pub mod program;
pub mod suite;
pub mod suites;
pub mod sweep;
