//! Matrix products on one thread: how they are blocked, how operands are packed or read otherwise, and the micro-kernels below.

mod blocked;
pub mod computed;
pub mod gathered;
mod left;
pub mod micro;
pub mod plan;
mod right;
mod short;
pub mod source;
mod streams;
