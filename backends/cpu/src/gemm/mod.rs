//! Matrix products on one thread: their blocking, the packing of their operands, and the micro-kernels that compute
//! register blocks.

mod blocked;
pub mod blocking;
pub mod coded;
pub mod computed;
pub mod gathered;
pub mod integers;
pub mod kept;
pub mod left;
pub mod matrix;
pub mod micro;
pub mod product;
pub mod right;
mod run;
mod segments;
pub mod source;
