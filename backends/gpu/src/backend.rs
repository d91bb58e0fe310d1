//! The answers of a GPU to the planner.

use std::sync::Arc;

use eutectic_backend::{Backend, BackendError, Cost, Executable, Kernel, Limits, Program};

use crate::{device::Device, runtime};

/// A backend on a device.
pub struct Gpu<D: Device>(Arc<D>);

impl<D: Device> Gpu<D> {
    /// On that device.
    pub fn new(device: D) -> Gpu<D> {
        Gpu(Arc::new(device))
    }

    /// Its device, if nothing that was compiled for it is left.
    pub fn into_device(self) -> Option<D> {
        Arc::into_inner(self.0)
    }

    /// Its device.
    pub fn device(&self) -> &D {
        &self.0
    }
}

impl<D: Device> Backend for Gpu<D> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn describe(&self) -> String {
        self.0.describe()
    }

    fn limits(&self) -> Limits {
        self.0.limits()
    }

    fn supports(&self, kernel: &Kernel) -> Result<(), Vec<String>> {
        if kernel.varies() {
            return Err(vec![
                "extents at run time, which the kernels of this device do not take as arguments yet".into(),
            ]);
        }
        self.0.print(kernel).map(|_| ())
    }

    fn cost(&self, kernel: &Kernel) -> Cost {
        if kernel.varies() { Cost::IMPOSSIBLE } else { self.0.cost(kernel) }
    }

    fn compile(&self, program: &Program) -> Result<Arc<dyn Executable>, BackendError> {
        Ok(Arc::new(runtime::compile(&self.0, program)?))
    }
}
