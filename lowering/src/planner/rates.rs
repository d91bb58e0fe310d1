//! Rates that the search needs and that follow from what the backend says of probe kernels.

use eutectic_backend::Backend;
use eutectic_ir::{DType, Type};

use crate::copy::copy;

/// Elements of the copy that measures bandwidth: 64 MiB, beyond the caches.
const STREAMED: usize = 16 << 20;

/// How often a program is taken to run for each time that it is loaded.
const RUNS_A_LOAD: f64 = 1000.0;

/// What the parts of a price are worth in seconds of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    /// Seconds of a kernel that does next to nothing.
    pub launch: f64,
    /// What a second of the load program counts.
    pub load: f64,
    /// What a byte counts that is kept between runs.
    pub byte: f64,
    /// What a byte counts that a run stores.
    pub stored: f64,
}

impl Rates {
    /// A kept byte counts a share ([`Backend::keep`]) of the time in which the device streams it. A second of the load program counts
    /// as much as it adds to each run until the program is loaded anew.
    ///
    /// Where memory is short, a byte that a plan stores counts as if runs read and wrote it `short` times more.
    pub fn of(backend: &dyn Backend, short: f64) -> Rates {
        // The usual type, if the device has it.
        let limits = backend.limits();
        let dtype = DType::ALL.into_iter().find(|dtype| limits.dtypes.contains(*dtype)).unwrap_or(DType::F32);
        let most = (STREAMED * DType::F32.size()).min(limits.binding) / dtype.size();
        let seconds =
            |count: usize| Some(backend.cost(&copy(&Type::tensor(dtype, &[count]))).seconds).filter(|s| s.is_finite());
        let launch = seconds(1).unwrap_or(0.0);
        let count = most.clamp(1, limits.extent.max(1));
        let streamed = seconds(count).unwrap_or(0.0) / (2 * count * dtype.size()) as f64;
        let stored = short * streamed;
        Rates { launch, load: 1.0 / RUNS_A_LOAD, byte: backend.keep() * streamed + stored, stored }
    }
}
