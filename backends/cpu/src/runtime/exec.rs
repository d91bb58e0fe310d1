//! The interface of compiled programs ([`Executable`], [`Loaded`], [`Session`]) for the CPU.

mod buffer;
mod check;
mod code;
mod known_lengths;
mod loaded;
mod pointer;
mod resolved;
mod runner;
mod session;
mod steps;
mod work;

use std::sync::Arc;

use eutectic_backend::{BackendError, Executable, Loaded, Session};
use eutectic_ir::Tensor;

pub use self::code::compile;
use self::{
    code::Code,
    loaded::{CpuLoaded, load},
    session::CpuSession,
};

impl Executable for Code {
    fn load(self: Arc<Self>, params: &[Tensor]) -> Result<Arc<dyn Loaded>, BackendError> {
        Ok(Arc::new(load(self, params)?))
    }
}

impl Loaded for CpuLoaded {
    fn replace(self: Arc<Self>, params: &[(usize, Tensor)]) -> Result<Arc<dyn Loaded>, BackendError> {
        Ok(Arc::new(CpuLoaded::replace(&self, params)?))
    }

    fn session(self: Arc<Self>) -> Result<Box<dyn Session>, BackendError> {
        Ok(Box::new(CpuSession::new(self)?))
    }

    fn bytes(&self) -> usize {
        CpuLoaded::bytes(self)
    }
}
