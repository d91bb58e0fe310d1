//! Plans for an H200 on a machine without one. Plans are searched and priced as on the device, and no kernel is built.

use std::sync::Arc;

use eutectic_backend::{Backend, BackendError, Cost, Executable, Kernel, Limits, Program};
use eutectic_gpu::{bounds::outside, cost::Costs, device::DeviceShape, lengths::from_memory};

use crate::{
    device::{WORTH_THE_LIBRARY, costs, limits},
    kernels,
};

/// Bytes of the device's memory.
const BYTES: usize = 140 << 30;

/// A backend that plans for an H200 on a machine without one, so that plans and kernels can be inspected on any
/// machine.
pub struct Absent {
    shape: DeviceShape,
    costs: Costs,
}

impl Absent {
    /// Returns an H200 with cuBLASLt and the embedded costs.
    pub fn h200() -> Absent {
        let costs = costs();
        let shape = DeviceShape {
            processors: 132,
            threads: 1024,
            column_threads: 512,
            shared: 227 << 10,
            workspace: usize::MAX,
            cluster: 8,
            library: Some(WORTH_THE_LIBRARY),
            rankings: costs.rankings,
        };
        Absent { shape, costs }
    }
}

impl Backend for Absent {
    fn name(&self) -> &str {
        "cuda"
    }

    fn describe(&self) -> String {
        "an H200 for planning only, which is not on this machine".into()
    }

    fn limits(&self) -> Limits {
        limits(BYTES)
    }

    fn supports(&self, kernel: &Kernel) -> Result<(), Vec<String>> {
        let outside = outside(kernel);
        if outside.is_empty() { kernels::print(&self.shape, &from_memory(kernel).0).map(drop) } else { Err(outside) }
    }

    fn cost(&self, kernel: &Kernel) -> Cost {
        if !outside(kernel).is_empty() {
            return Cost::IMPOSSIBLE;
        }
        let kernel = from_memory(kernel).0;
        if kernels::supports(&kernel).is_ok() { self.costs.cost(&self.shape, &kernel) } else { Cost::IMPOSSIBLE }
    }

    fn compile(&self, _: &Program) -> Result<Arc<dyn Executable>, BackendError> {
        Err(BackendError::Device(
            "cannot build kernels because this backend has no device; open the backend `cuda`".into(),
        ))
    }
}
