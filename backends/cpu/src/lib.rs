//! The CPU backend: kernels as thunks in which every offset, stride and function is resolved.
//!
//! A kernel's bodies become tile programs (`tile`): lists of steps over cache-sized boxes of the domain, whose registers
//! are pointers into buffers or scratch memory and whose pointwise functions (`simd`) are vectorised loops chosen for
//! the machine. `kernels` has a thunk for each anchor, which puts a matrix product or a running softmax between them. `gemm` computes one
//! product on one thread, `gemm::micro` the blocks of it that stay in registers. `runtime` binds buffers, has constant operands packed when
//! parameters arrive, and keeps memory and threads. `cost` tells the planner what all of this takes.

mod backend;
mod cost;
mod gemm;
mod kernels;
mod machine;
mod runtime;
mod simd;
mod tile;

pub use backend::{Cpu, CpuOptions};
pub use cost::{Costs, ElementCosts, MemoryCosts, OpClasses, ProductCosts, fit};
pub use runtime::memory;
pub use simd::Isa;
