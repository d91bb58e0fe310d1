//! What GPU backends share: kernels printed from their description in some dialect, and the runtime that loads and runs programs.
//!
//! [`emit`] prints bodies: expressions by the table in [`ops`], index maps in 32 bits where ranges allow, guards, accesses of several
//! elements at once where [`lanes`] shows neighbours. [`map`] and [`rows`] are whole kernels; backends put products and attention around
//! the bodies of theirs. A backend implements [`device::Device`] and is wrapped in a [`Gpu`].

pub mod attention;
mod backend;
mod bounds;
pub mod cache;
pub mod cost;
pub mod device;
pub mod dialect;
pub mod emit;
pub mod lanes;
pub mod launch;
pub mod lengths;
pub mod map;
pub mod measure;
pub mod ops;
pub mod rows;
mod runtime;
mod split_rows;
pub mod stored_queries;

pub use backend::Gpu;
use runtime::FAULT_BYTES;
