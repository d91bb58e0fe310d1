//! The CUDA backend: kernels printed as CUDA C++ from their description, compiled by NVRTC, and run as recorded graphs.
//!
//! The driver and NVRTC are loaded at run time: programs that use this crate build and start without them, and [`open`]
//! says what is missing.
//!
//! ```text
//! Kernel ── eutectic_gpu: map, rows, … ──┐
//!    └───── kernels: products, attention ┴─ dialect ── CUDA C++ ── nvrtc ── machine code ── stream: graph ── run
//!                                                                 cache on disk ┘
//! ```

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
use eutectic_gpu::Gpu;

pub use absent::Absent;
pub use device::{Cuda, CudaOptions, costs};
pub use dialect::combined;

/// Returns the backend on a device.
///
/// # Errors
/// Returns an error if there is no such device, or if a library is missing. The error says where the library was
/// searched.
pub fn on(options: &CudaOptions) -> Result<Gpu<Cuda>, BackendError> {
    Cuda::new(options).map(Gpu::new)
}

/// Returns the backend on the first device, as the list of backends opens it.
///
/// # Errors
/// Returns the errors of [`on`], or an error if the costs cannot be read.
pub fn open(setup: &Setup) -> Result<Arc<dyn Backend>, BackendError> {
    Ok(Arc::new(on(&CudaOptions { setup: setup.clone(), ..CudaOptions::default() })?))
}
