//! The Vulkan backend: kernels printed as WGSL from their description, compiled to SPIR-V by naga, and run as recorded
//! command buffers.
//!
//! The loader is opened at run time: programs that use this crate build and start without it, and [`open`] says what is
//! missing.
//!
//! ```text
//! Kernel ── eutectic_gpu: map, rows, … ──┐
//!    └───── kernels: products, attention ┴─ dialect ── WGSL ── spirv: naga, units ── module ── commands ── stream ── run
//! ```

mod access;
mod commands;
mod device;
mod dialect;
mod errors;
mod features;
mod instance;
mod kernels;
mod library;
mod memory;
mod module;
mod reported;
mod spirv;
mod stream;
mod units;
mod words;

use std::sync::Arc;

use eutectic_backend::{Backend, BackendError, Setup};
use eutectic_gpu::Gpu;

pub use device::{Counted, Vulkan, VulkanOptions, costs};
pub use features::{Features, MatrixUnits};

/// Returns the backend on a device.
///
/// # Errors
/// Returns an error if there is no such device, or if a requirement is missing. In the latter case, the error lists the
/// places that were searched.
pub fn on(options: &VulkanOptions) -> Result<Gpu<Vulkan>, BackendError> {
    Vulkan::new(options).map(Gpu::new)
}

/// Returns the backend on the fastest device, as the list of backends opens it.
///
/// # Errors
/// Returns the errors of [`on`], or an error if the costs cannot be read.
pub fn open(setup: &Setup) -> Result<Arc<dyn Backend>, BackendError> {
    Ok(Arc::new(on(&VulkanOptions { setup: setup.clone(), ..VulkanOptions::default() })?))
}
