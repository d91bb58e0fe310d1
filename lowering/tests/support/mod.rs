//! Support for the tests: a backend with roofline prices, and random graphs.

pub mod graphs;
pub mod roofline;

pub use roofline::Roofline;
