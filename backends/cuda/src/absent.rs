//! An H200 that is not here: plans are searched and priced as on the device, and nothing is built.

use std::sync::Arc;

use eutectic_backend::{Backend, BackendError, Cost, Executable, Kernel, Limits, Program};
use eutectic_gpu::{bounds::outside, cost::Costs, device::DeviceShape, lengths::from_memory};

use crate::{
    device::{WORTH_THE_LIBRARY, costs, limits},
    kernels,
};

/// What schedules depend on, of an H200 with cuBLASLt.
const H200: DeviceShape = DeviceShape {
    processors: 132,
    threads: 1024,
    column_threads: 512,
    shared: 227 << 10,
    workspace: usize::MAX,
    cluster: 8,
    library: Some(WORTH_THE_LIBRARY),
};

/// Bytes of its memory.
const BYTES: usize = 140 << 30;

/// Plans for an H200 without one: what the search takes, and how kernels would be computed, can be looked at on any machine.
pub struct Absent {
    costs: Costs,
}

impl Absent {
    /// An H200 with the embedded costs.
    pub fn h200() -> Absent {
        Absent { costs: costs() }
    }
}

impl Backend for Absent {
    fn name(&self) -> &str {
        "cuda"
    }

    fn describe(&self) -> String {
        "an H200 that is not here".into()
    }

    fn limits(&self) -> Limits {
        limits(BYTES)
    }

    fn supports(&self, kernel: &Kernel) -> Result<(), Vec<String>> {
        let outside = outside(kernel);
        if outside.is_empty() { kernels::print(&H200, &from_memory(kernel).0).map(drop) } else { Err(outside) }
    }

    fn cost(&self, kernel: &Kernel) -> Cost {
        if !outside(kernel).is_empty() {
            return Cost::IMPOSSIBLE;
        }
        let kernel = from_memory(kernel).0;
        if kernels::supports(&kernel).is_ok() { self.costs.cost(&H200, &kernel) } else { Cost::IMPOSSIBLE }
    }

    fn compile(&self, _: &Program) -> Result<Arc<dyn Executable>, BackendError> {
        Err(BackendError::Device("cannot build kernels because the device is not here; open the backend `cuda`".into()))
    }
}
