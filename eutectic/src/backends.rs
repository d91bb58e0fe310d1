//! The list of backends. A new backend adds its folder and a line here.

use std::sync::Arc;

use eutectic_backend::{Backend, BackendError, Setup};

use crate::Cpu;

type Open = fn(&Setup) -> Result<Arc<dyn Backend>, BackendError>;

/// A backend for which programs can be compiled, if this build contains it and this machine meets its requirements.
pub struct Listed {
    /// Its name, as [`Backend::name`] gives it.
    pub name: &'static str,
    /// The devices on which it runs programs.
    pub about: &'static str,
    /// The function that opens it; `None` if this build lacks the feature with its name.
    pub(crate) open: Option<Open>,
}

/// All backends, including those that are not in this build. The first one runs everywhere.
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
