//! Matrix products on one thread: how they are blocked, how operands are packed or read otherwise, and the micro-kernels below.

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
