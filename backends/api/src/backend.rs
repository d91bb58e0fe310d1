//! The backend interface: prices of kernels, and programs compiled for a device.

use std::{sync::Arc, time::Duration};

use crate::{
    costs::CostSheet,
    error::BackendError,
    fit::{Fitted, Freedom, Measured},
    kernel::Kernel,
    limits::Limits,
    program::Program,
    run::Executable,
};

/// The predicted cost of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Seconds on the device; infinite where the backend cannot build the kernel.
    pub seconds: f64,
    /// Floating-point operations that it really does, recomputation included.
    pub flops: f64,
    /// Bytes of its distinct loads and stores.
    pub bytes: f64,
}

impl Cost {
    /// The cost of a kernel that cannot be built.
    pub const IMPOSSIBLE: Cost = Cost { seconds: f64::INFINITY, flops: 0.0, bytes: 0.0 };
}

/// One way in which a backend can compute a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Its name, with the sizes that it chooses: `warpgroups 128×256 of 2 in 1`.
    pub name: String,
    /// The predicted cost.
    pub cost: Cost,
}

/// A device that programs can be compiled for.
pub trait Backend: Send + Sync {
    /// Returns its name: `cpu`, `cuda`, `vulkan`.
    fn name(&self) -> &str;

    /// Describes the device in a few words, for reports.
    fn describe(&self) -> String;

    /// Identifies the device for files of costs: its name, and how many threads the process may use where that changes prices. It does not
    /// depend on the [`Setup`](crate::Setup).
    fn device(&self) -> String {
        self.describe()
    }

    /// Returns the coefficients by which it predicts, and the measurement that they stem from; `None` where prices have none.
    fn costs(&self) -> Option<CostSheet> {
        None
    }

    /// Returns additional rewrite rules for the device: name and text of each file in the backend's folder `rules/`.
    /// These rules rewrite features that the device lacks, such as 64-bit integers. Kernels that it then refuses are
    /// not planned.
    fn rules(&self) -> &[(&str, &str)] {
        &[]
    }

    /// Returns the sizes and element types that the device supports.
    fn limits(&self) -> Limits {
        Limits::default()
    }

    /// Returns the price of keeping a byte in memory between runs, as a share of the time in which the device reads or
    /// writes it once. A kept byte must save at least this time in each run.
    fn keep(&self) -> f64 {
        0.05
    }

    /// Checks whether the backend can build a kernel.
    ///
    /// # Errors
    /// The reasons, one string each. They name every op and element type that is not supported.
    fn supports(&self, kernel: &Kernel) -> Result<(), Vec<String>>;

    /// Returns the predicted cost of a kernel; [`Cost::IMPOSSIBLE`] if [`Backend::supports`] gives a reason.
    fn cost(&self, kernel: &Kernel) -> Cost;

    /// Returns the predicted cost of a kernel in a program whose slots `constants`, and no other slots that the kernel
    /// reads, have equal contents in all runs. A kernel that is timed alone finds constants in caches; in a program,
    /// nothing has read them since the last run. A backend may also keep constants in another layout. [`Backend::cost`]
    /// assumes that an operand is constant if that matters.
    fn cost_among(&self, kernel: &Kernel, constants: &[usize]) -> Cost {
        let _ = constants;
        self.cost(kernel)
    }

    /// Returns the ways in which the backend can compute a kernel, the cheapest first. [`Backend::compile`] takes the
    /// first one, whose cost is that of [`Backend::cost_among`]. A plan needs only that cost, so this function may take
    /// longer.
    ///
    /// # Errors
    /// The reasons of [`Backend::supports`].
    fn candidates(&self, kernel: &Kernel, constants: &[usize]) -> Result<Vec<Candidate>, Vec<String>> {
        self.supports(kernel)?;
        Ok(vec![Candidate { name: kernel.kind().into(), cost: self.cost_among(kernel, constants) }])
    }

    /// Returns how long an idle device must compute until it reaches its full clock rate. Earlier measurements are too
    /// slow.
    fn warm_up(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns the seconds of a kernel alone, the minimum of `turns` measurements. Returns `None` if the backend times
    /// kernels within runs of programs.
    ///
    /// # Errors
    /// If the kernel cannot be built, or the device failed.
    fn measure(&self, kernel: &Kernel, turns: usize) -> Result<Option<f64>, BackendError> {
        let _ = (kernel, turns);
        Ok(None)
    }

    /// Returns whether a dozen kernels can be built and measured in a second, so that costs are calibrated at first use.
    fn calibrates(&self) -> bool {
        false
    }

    /// Fits the backend's cost coefficients to measurements, starting from its own. Returns `None` if it has no
    /// coefficients.
    fn fit(&self, measured: &[Measured], freedom: Freedom) -> Option<Fitted> {
        let _ = (measured, freedom);
        None
    }

    /// Resolves a program to code that takes parameters.
    ///
    /// # Errors
    /// Everything that the backend cannot build.
    fn compile(&self, program: &Program) -> Result<Arc<dyn Executable>, BackendError>;
}
