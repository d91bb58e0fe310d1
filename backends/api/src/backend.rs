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
    /// Seconds on the device; infinite if the backend cannot build the kernel.
    pub seconds: f64,
    /// Floating-point operations that the kernel executes, recomputation included.
    pub flops: f64,
    /// Bytes of the distinct elements that the kernel loads and stores.
    pub bytes: f64,
}

impl Cost {
    /// The cost of a kernel that cannot be built.
    pub const IMPOSSIBLE: Cost = Cost { seconds: f64::INFINITY, flops: 0.0, bytes: 0.0 };
}

/// One way in which a backend can compute a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The name with the chosen sizes, for reports: `warpgroups 128×256 of 2 in 1`.
    pub name: String,
    /// The predicted cost.
    pub cost: Cost,
}

/// A device that programs can be compiled for.
pub trait Backend: Send + Sync {
    /// Returns the backend's name: `cpu`, `cuda` or `vulkan`.
    fn name(&self) -> &str;

    /// Describes the device in a few words, for reports.
    fn describe(&self) -> String;

    /// Returns the text that identifies the device in files of costs: its name, and the number of threads that the
    /// process may use if prices depend on it. The text does not depend on the [`Setup`](crate::Setup).
    fn device(&self) -> String {
        self.describe()
    }

    /// Returns the coefficients of the backend's cost model and the measurement that they come from; `None` if its
    /// prices have no coefficients.
    fn costs(&self) -> Option<CostSheet> {
        None
    }

    /// Returns additional rewrite rules for the device: name and text of each file in the backend's folder `rules/`.
    /// These rules replace features that the device lacks, such as 64-bit integers. Planning excludes kernels that the
    /// device refuses even then.
    fn rules(&self) -> &[(&str, &str)] {
        &[]
    }

    /// Returns the sizes and element types that the device supports.
    fn limits(&self) -> Limits {
        Limits::default()
    }

    /// Returns the price of keeping a byte in memory between runs. The unit is the time in which the device reads or
    /// writes a byte once. A kept byte must save at least this time in each run.
    fn keep(&self) -> f64 {
        0.05
    }

    /// Checks whether the backend can build a kernel.
    ///
    /// # Errors
    /// The reasons why it cannot, one string each. They name every unsupported op and element type.
    fn supports(&self, kernel: &Kernel) -> Result<(), Vec<String>>;

    /// Returns the predicted cost of a kernel; [`Cost::IMPOSSIBLE`] if [`Backend::supports`] gives a reason.
    fn cost(&self, kernel: &Kernel) -> Cost;

    /// Returns the predicted cost of a kernel as a step of a program. Of the slots that the kernel reads, exactly those
    /// in `constants` have equal contents in all runs. In a program, constants come from memory, because nothing has
    /// read them since the last run; a kernel that is timed alone finds them in caches. A backend may also keep
    /// constants in another layout. [`Backend::cost`] assumes that an operand is constant if that matters.
    fn cost_among(&self, kernel: &Kernel, constants: &[usize]) -> Cost {
        let _ = constants;
        self.cost(kernel)
    }

    /// Returns the ways in which the backend can compute a kernel, the cheapest first. [`Backend::compile`] takes the
    /// first one, and [`Backend::cost_among`] returns its cost. Planning calls only that function, so this one may take
    /// longer.
    ///
    /// # Errors
    /// The reasons of [`Backend::supports`].
    fn candidates(&self, kernel: &Kernel, constants: &[usize]) -> Result<Vec<Candidate>, Vec<String>> {
        self.supports(kernel)?;
        Ok(vec![Candidate { name: kernel.kind().into(), cost: self.cost_among(kernel, constants) }])
    }

    /// Returns how long an idle device must compute until it reaches its full clock rate. Kernels that are measured
    /// earlier appear too slow.
    fn warm_up(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns the seconds that a kernel takes outside of a program, the minimum of `turns` measurements. Returns
    /// `None` if the backend can time kernels only within runs of programs.
    ///
    /// # Errors
    /// If the kernel cannot be built, or the device failed.
    fn measure(&self, kernel: &Kernel, turns: usize) -> Result<Option<f64>, BackendError> {
        let _ = (kernel, turns);
        Ok(None)
    }

    /// Returns whether costs are calibrated at the first use of the device: it must build and measure a dozen kernels
    /// within a second.
    fn calibrates(&self) -> bool {
        false
    }

    /// Fits the backend's cost coefficients to measurements, starting from their present values. Returns `None` if the
    /// backend has no coefficients.
    fn fit(&self, measured: &[Measured], freedom: Freedom) -> Option<Fitted> {
        let _ = (measured, freedom);
        None
    }

    /// Compiles a program to code that takes parameters.
    ///
    /// # Errors
    /// If the backend cannot build a part of the program. The error lists all such parts.
    fn compile(&self, program: &Program) -> Result<Arc<dyn Executable>, BackendError>;
}
