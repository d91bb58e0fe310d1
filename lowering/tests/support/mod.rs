//! What the tests share: a backend that prices by a simple roofline, and random graphs.

pub mod graphs;
pub mod roofline;

pub use roofline::Roofline;
