//! The Vulkan backend: kernels printed as WGSL from their description, compiled to SPIR-V by naga, and run as recorded command buffers.
//!
//! The loader is opened at run time: programs that use this crate build and start without it, and [`open`] says what is missing.

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
mod spirv;
mod stream;
mod units;
mod words;

use std::sync::Arc;

use eutectic_backend::{Backend, BackendError, Setup};
use eutectic_gpu::{Gpu, cost::Costs};

pub use device::{Counted, Vulkan, VulkanOptions, costs};
pub use features::{Features, MatrixUnits};

/// The backend on a device.
///
/// # Errors
/// What is missing and where it was looked for, or that there is no such device.
pub fn on(options: &VulkanOptions) -> Result<Gpu<Vulkan>, BackendError> {
    Vulkan::new(options).map(Gpu::new)
}

/// The backend on the fastest device, as lists of backends have it.
///
/// # Errors
/// As for [`on`], or when the costs cannot be read.
pub fn open(setup: &Setup) -> Result<Arc<dyn Backend>, BackendError> {
    let mut options = VulkanOptions::default();
    if let Some(costs) = &setup.costs {
        options.costs = Some(Costs::read(costs).map_err(|problem| BackendError::Setup { option: "costs", problem })?);
    }
    Ok(Arc::new(on(&options)?))
}
