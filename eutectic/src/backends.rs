//! The backends that there are: adding one is its folder, and a line here.

use std::sync::Arc;

use eutectic_backend::{Backend, BackendError, Setup};

use crate::Cpu;

type Open = fn(&Setup) -> Result<Arc<dyn Backend>, BackendError>;

/// A backend that programs can be compiled for, if this build has it and this machine has what it needs.
pub struct Listed {
    /// Its name, as [`Backend::name`] gives it.
    pub name: &'static str,
    /// What it runs programs on.
    pub about: &'static str,
    /// None where the feature of its name is off.
    pub(crate) open: Option<Open>,
}

/// All that there are, in this build or not; the first is the one that runs everywhere.
pub const BACKENDS: &[Listed] = &[
    Listed { name: "cpu", about: "the processor: threads over cache-sized tiles", open: Some(Cpu::open) },
    Listed { name: "cuda", about: "an NVIDIA GPU: kernels compiled when they are needed", open: CUDA },
    Listed { name: "vulkan", about: "any GPU with Vulkan 1.3, or lavapipe", open: VULKAN },
];

#[cfg(feature = "cuda")]
const CUDA: Option<Open> = Some(eutectic_cuda::open);
#[cfg(not(feature = "cuda"))]
const CUDA: Option<Open> = None;

#[cfg(feature = "vulkan")]
const VULKAN: Option<Open> = Some(eutectic_vulkan::open);
#[cfg(not(feature = "vulkan"))]
const VULKAN: Option<Open> = None;
