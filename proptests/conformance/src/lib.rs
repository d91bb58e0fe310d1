//! Tests the requirements on every backend. Contains suites for any device, random programs that are compared with the
//! reference, and a backend that defines the meaning of kernel descriptions.

pub mod device;
pub mod kernels;
pub mod naive;
pub mod program;
pub mod suite;
pub mod suites;
pub mod sweep;
