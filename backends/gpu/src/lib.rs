//! What GPU backends share: kernels printed from their description in some dialect, and the runtime that loads and runs programs.
//!
//! [`emit`] prints bodies: expressions by the table in [`ops`], index maps in 32 bits where ranges allow, guards, accesses of several
//! elements at once where [`lanes`] shows neighbours. [`map`] and [`rows`] are whole kernels; backends put products and attention around
//! the bodies of theirs. A backend implements [`device::Device`] and is wrapped in a [`Gpu`].

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
mod runtime;

pub use backend::Gpu;
pub use kernels::{attention, direct, emit, gathered, lanes, map, ops, rows, stored_queries};
use runtime::FAULT_BYTES;
