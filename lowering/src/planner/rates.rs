//! Rates of the search, derived from the backend's costs of probe kernels.

use eutectic_backend::Backend;
use eutectic_ir::{DType, Type};

use crate::copy::copy;

/// The f32 elements of the copy whose cost gives the bandwidth: 64 MiB, more than caches hold.
const STREAMED: usize = 16 << 20;

/// The assumed number of runs per load of a program.
const RUNS_A_LOAD: f64 = 1000.0;

/// Converts loads, launches and bytes to seconds of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    /// Seconds of a kernel that does almost nothing.
    pub launch: f64,
    /// Seconds of a run per second of the load program.
    pub load: f64,
    /// Seconds of a run per byte that is kept between runs.
    pub byte: f64,
    /// Seconds of a run per byte that a run stores.
    pub stored: f64,
}

impl Rates {
    /// Derives the rates from a backend's costs. A byte that is kept between runs costs a share ([`Backend::keep`]) of
    /// the time in which the device streams it. The time of the load program is divided by the number of runs per load.
    ///
    /// `memory_pressure` is 0 if memory suffices. Otherwise, each byte that a plan stores counts as that number of
    /// additional reads and writes.
    pub fn of(backend: &dyn Backend, memory_pressure: f64) -> Rates {
        // The first element type that the device has.
        let limits = backend.limits();
        let dtype = DType::ALL.into_iter().find(|dtype| limits.dtypes.contains(*dtype)).unwrap_or(DType::F32);
        let most = (STREAMED * DType::F32.size()).min(limits.binding) / dtype.size();
        let seconds =
            |count: usize| Some(backend.cost(&copy(&Type::tensor(dtype, &[count]))).seconds).filter(|s| s.is_finite());
        let launch = seconds(1).unwrap_or(0.0);
        let count = most.clamp(1, limits.extent.max(1));
        let streamed = seconds(count).unwrap_or(0.0) / (2 * count * dtype.size()) as f64;
        let stored = memory_pressure * streamed;
        Rates { launch, load: 1.0 / RUNS_A_LOAD, byte: backend.keep() * streamed + stored, stored }
    }
}
