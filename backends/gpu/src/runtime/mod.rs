//! Compiled programs on a GPU: code, the parameters that sessions share, and sessions.

mod buffer;
mod code;
mod errors;
mod loaded;
mod session;

use std::sync::Arc;

use eutectic_backend::{BackendError, Executable, Loaded, Session};
use eutectic_ir::Tensor;

pub use self::code::{FAULT_BYTES, compile};
use self::{code::Code, loaded::GpuLoaded, session::GpuSession};
use crate::device::Device;

impl<D: Device> Executable for Code<D> {
    fn load(self: Arc<Self>, params: &[Tensor]) -> Result<Arc<dyn Loaded>, BackendError> {
        Ok(Arc::new(loaded::load(self, params)?))
    }
}

impl<D: Device> Loaded for GpuLoaded<D> {
    fn replace(self: Arc<Self>, params: &[(usize, Tensor)]) -> Result<Arc<dyn Loaded>, BackendError> {
        Ok(Arc::new(self.replaced(params)?))
    }

    fn session(self: Arc<Self>) -> Result<Box<dyn Session>, BackendError> {
        Ok(Box::new(GpuSession::new(self)?))
    }

    fn bytes(&self) -> usize {
        GpuLoaded::bytes(self)
    }
}
