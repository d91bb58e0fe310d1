//! What a device answers: what kernels cost, and programs compiled for it.

use std::{sync::Arc, time::Duration};

use crate::{
    error::BackendError,
    fit::{Fitted, Measured},
    kernel::Kernel,
    limits::Limits,
    program::Program,
    run::Executable,
};

/// What a kernel is predicted to take.
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
    /// The cost of what cannot be built.
    pub const IMPOSSIBLE: Cost = Cost { seconds: f64::INFINITY, flops: 0.0, bytes: 0.0 };
}

/// A way in which a backend can compute a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Its name, with the sizes that it chooses: `warpgroups 128×256 of 2 in 1`.
    pub name: String,
    /// What it is predicted to take.
    pub cost: Cost,
}

/// A device that programs can be compiled for.
pub trait Backend: Send + Sync {
    /// Its name: `cpu`, `cuda`, `vulkan`.
    fn name(&self) -> &str;

    /// What it runs on and with, in a few words, for reports.
    fn describe(&self) -> String;

    /// Rules that programs are rewritten by for it, beside the packs: name and text of each file of its folder `rules/`. What a device
    /// lacks (64-bit integers, say) is rewritten there; kernels it then refuses are not planned.
    fn rules(&self) -> &[(&str, &str)] {
        &[]
    }

    /// What sizes it takes.
    fn limits(&self) -> Limits {
        Limits::default()
    }

    /// What it counts to keep a byte in memory between runs, as a share of the time in which the device reads or writes it once. A byte
    /// that is kept must save this much of each run.
    fn keep(&self) -> f64 {
        0.05
    }

    /// Why it cannot build a kernel, naming every op and element type that stands in the way.
    ///
    /// # Errors
    /// The reasons, one a string.
    fn supports(&self, kernel: &Kernel) -> Result<(), Vec<String>>;

    /// What a kernel costs; [`Cost::IMPOSSIBLE`] where [`Backend::supports`] has a reason.
    fn cost(&self, kernel: &Kernel) -> Cost;

    /// Returns what a kernel costs in a program where `constants`, and no other slots that it reads, hold the same in all runs. A kernel
    /// by itself finds constants in caches; in a program, nothing has read them since the last run. A backend may keep constants in a
    /// form of its own. [`Backend::cost`] takes an operand for a constant where that matters.
    fn cost_among(&self, kernel: &Kernel, constants: &[usize]) -> Cost {
        let _ = constants;
        self.cost(kernel)
    }

    /// Returns the ways in which it can compute a kernel, the cheapest first. [`Backend::compile`] takes the first one, whose cost is that of
    /// [`Backend::cost_among`]. A plan needs that cost only, so this may take longer.
    ///
    /// # Errors
    /// The reasons of [`Backend::supports`].
    fn candidates(&self, kernel: &Kernel, constants: &[usize]) -> Result<Vec<Candidate>, Vec<String>> {
        self.supports(kernel)?;
        Ok(vec![Candidate { name: kernel.kind().into(), cost: self.cost_among(kernel, constants) }])
    }

    /// How long it computes until its clocks are up, when it has idled: what is timed before is slower than what follows.
    fn warm_up(&self) -> Duration {
        Duration::ZERO
    }

    /// Seconds of a kernel by itself: the least of several turns. Nothing where kernels are timed within runs of programs.
    ///
    /// # Errors
    /// When it cannot be built, or the device failed.
    fn measure(&self, kernel: &Kernel, turns: usize) -> Result<Option<f64>, BackendError> {
        let _ = (kernel, turns);
        Ok(None)
    }

    /// Costs near its own that predict what was measured as well as can be; nothing where there are no coefficients.
    fn fit(&self, measured: &[Measured]) -> Option<Fitted> {
        let _ = measured;
        None
    }

    /// Resolves a program to code that takes parameters.
    ///
    /// # Errors
    /// Everything that the backend cannot build.
    fn compile(&self, program: &Program) -> Result<Arc<dyn Executable>, BackendError>;
}
