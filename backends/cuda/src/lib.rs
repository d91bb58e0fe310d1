//! The CUDA backend: kernels printed as CUDA C++ from their description, compiled by NVRTC, and run as recorded graphs.
//!
//! The driver and NVRTC are loaded at run time: programs that use this crate build and start without them, and [`open`] says what is missing.

mod absent;
mod device;
mod dialect;
pub mod kernels;
mod library;
pub mod nvrtc;
mod resources;
mod stream;

use std::sync::Arc;

use eutectic_backend::{Backend, BackendError, Setup};
use eutectic_gpu::{Gpu, cost::Costs};

pub use absent::Absent;
pub use device::{Cuda, CudaOptions, costs};
pub use dialect::combined;

/// The backend on a device.
///
/// # Errors
/// The library that is missing and where it was looked for, or that there is no such device.
pub fn on(options: &CudaOptions) -> Result<Gpu<Cuda>, BackendError> {
    Cuda::new(options).map(Gpu::new)
}

/// The backend on the first device, as lists of backends have it.
///
/// # Errors
/// As for [`on`], or when the costs cannot be read.
pub fn open(setup: &Setup) -> Result<Arc<dyn Backend>, BackendError> {
    let mut options = CudaOptions { apart: setup.apart, ..CudaOptions::default() };
    if let Some(costs) = &setup.costs {
        options.costs = Costs::read(costs).map_err(|problem| BackendError::Setup { option: "costs", problem })?;
    }
    Ok(Arc::new(on(&options)?))
}
