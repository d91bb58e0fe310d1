//! Tests the requirements on every backend: suites for any device, random programs that are compared with the reference,
//! and a definition of what kernels compute.

pub mod device;
pub mod kernels;
pub mod naive;
pub mod program;
pub mod suite;
pub mod suites;
pub mod sweep;
