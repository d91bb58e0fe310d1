//! Prints kernels from their descriptions in a dialect, and prices them.

pub mod attention;
mod cost;
pub mod direct;
pub mod emit;
pub mod gathered;
pub(crate) mod in_block;
pub(crate) mod in_order;
pub mod lanes;
pub mod map;
pub mod ops;
pub mod rows;
mod split_rows;
pub(crate) mod stages;
pub mod stored_queries;
