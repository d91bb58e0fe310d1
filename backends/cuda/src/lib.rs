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
/// If there is no such device, or a library is missing; the error says where it was searched.
pub fn on(options: &CudaOptions) -> Result<Gpu<Cuda>, BackendError> {
    Cuda::new(options).map(Gpu::new)
}

/// Returns the backend on the first device, as lists of backends have it.
///
/// # Errors
/// As for [`on`], or when the costs cannot be read.
pub fn open(setup: &Setup) -> Result<Arc<dyn Backend>, BackendError> {
    Ok(Arc::new(on(&CudaOptions { setup: setup.clone(), ..CudaOptions::default() })?))
}
