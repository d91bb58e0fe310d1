//! The CPU backend. A kernel becomes a thunk: an object in which every offset, stride and function pointer is resolved.
//!
//! ```text
//! Kernel ── cost ── Backend::cost
//!    │
//!    └── kernels: one thunk per anchor ──┬── tile: bodies as tile programs ── simd: pointwise loops, reductions, scans
//!                                        └── gemm: one product on one thread ── gemm::micro: register blocks
//!                           runtime: buffers, packed constants, threads, sessions
//! ```
//!
//! A kernel's bodies become tile programs (`tile`): lists of steps over cache-sized boxes of the domain (tiles). Their
//! registers are pointers into buffers or scratch memory. Their pointwise functions (`simd`) are vectorised loops,
//! chosen for the instruction set of the machine. `kernels` has a thunk for each anchor. It combines tile programs with
//! matrix products or an online softmax. `gemm` computes one product on one thread, and `gemm::micro` its register
//! blocks. `runtime` binds buffers, packs constant operands when parameters are loaded, and manages memory and threads.
//! `cost` predicts the time of kernels for the planner.

mod backend;
mod cost;
mod gemm;
mod kernels;
mod machine;
mod runtime;
mod schedule;
mod simd;
mod tile;

pub use backend::{Cpu, CpuOptions};
pub use cost::{Costs, ElementCosts, MemoryCosts, OpClasses, ProductCosts, fit};
pub use runtime::memory;
pub use schedule::LaneCosts;
pub use simd::Isa;
