//! The CPU backend: kernels as thunks in which every offset, stride and function is resolved.
//!
//! A kernel's bodies become tile programs (`tile`): lists of steps over cache-sized boxes of the domain, whose registers
//! are pointers into buffers or scratch memory and whose pointwise functions (`simd`) are vectorised loops chosen for
//! the machine. `kernels` puts a matrix product or a running softmax between them: `kernels::micro` has the blocks of products
//! that stay in registers, `kernels::gemm` and `kernels::blocked` one product on one thread, `kernels::matmul` the tasks of a
//! product. `exec` binds buffers and has constant operands packed when parameters arrive; `partition` has the threads.

mod axes;
mod backend;
mod cache;
mod cost;
mod exec;
mod fault;
mod fit;
mod kernels;
pub mod memory;
mod partition;
mod simd;
mod tile;
mod unroll;

pub use backend::{Cpu, CpuOptions};
pub use cost::{Class, Costs, Element, Memory, Product};
pub use fit::{Fitted, Measured, fit};
pub use simd::Isa;
