//! What a backend is opened with.

use std::num::NonZeroUsize;

/// What a user says about a device; by default nothing, and backends look for themselves.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// At most so many threads of the host.
    pub threads: Option<NonZeroUsize>,
    /// What things cost on this machine, as `eutectic tune` writes it.
    pub costs: Option<String>,
    /// Whether kernels are launched one by one, each when the one before it has ended, also on a device that records runs; tools that check
    /// memory as kernels run need that.
    pub apart: bool,
}
