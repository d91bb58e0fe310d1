//! Code that GPU backends share: printing kernels from their descriptions in a dialect, and the runtime that loads and
//! runs programs.
//!
//! ```text
//! Kernel ── lengths ── kernels::{map, rows, split_*, …} ── emit (ops, lanes, dialect) ── text ─┐
//!    │                                                                                          ├── runtime: code → loaded → session
//!    └── cost ── Backend::cost            products, attention: the backend's own kernels ───────┘
//! ```
//!
//! [`emit`] prints the bodies of kernels: expressions by the table in [`ops`], index maps, guards, and vector accesses
//! where [`lanes`] shows that elements are contiguous. Index maps have 32 bits if their ranges allow it. [`map`] and
//! [`rows`] are complete kernels. Backends print products and attention around such bodies. A backend implements
//! [`device::Device`] and is wrapped in a [`Gpu`].

mod backend;
pub mod bounds;
pub mod cache;
pub mod cost;
pub mod device;
pub mod dialect;
mod kernels;
pub mod launch;
pub mod lengths;
pub mod measure;
pub mod ranking_costs;
mod runtime;
pub mod sectors;

pub use backend::Gpu;
pub use kernels::{attention, direct, emit, gathered, lanes, map, ops, rows, stored_queries};
use runtime::FAULT_BYTES;
