//! What lowering hands to a backend, and what a backend answers.
//!
//! A [`Kernel`] describes one launch: an anchor, expressions over loads with index maps, and stores. A [`Program`] is the
//! kernels of a plan with the buffers between them. A [`Backend`] says what a kernel costs and compiles programs; an
//! [`Executable`] takes parameters, and what is [`Loaded`] is run by any number of [`Session`]s.

pub mod fit;
mod kernel;
pub mod order;
mod program;
pub mod reach;
pub mod reductions;
mod run;
pub mod traffic;
pub mod unroll;

pub use kernel::{AnchorKernel, Body, EmptyRow, Guard, Instr, Kernel, Load, Slot, Store, ValueId};
pub use program::{Buffer, BufferId, Place, Program, Step};
pub use run::{DeviceBuffer, Executable, Input, Loaded, Memory, Output, Port, Session};

use std::sync::Arc;

use eutectic_ir::Origin;

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

/// A device that programs can be compiled for.
pub trait Backend: Send + Sync {
    /// Its name: `cpu`, `cuda`, `vulkan`.
    fn name(&self) -> &str;

    /// What it runs on and with, in a few words, for reports.
    fn describe(&self) -> String;

    /// Why it cannot build a kernel, naming every op and element type that stands in the way.
    ///
    /// # Errors
    /// The reasons, one a string.
    fn supports(&self, kernel: &Kernel) -> Result<(), Vec<String>>;

    /// What a kernel costs; [`Cost::IMPOSSIBLE`] where [`Backend::supports`] has a reason.
    fn cost(&self, kernel: &Kernel) -> Cost;

    /// Resolves a program to code that takes parameters.
    ///
    /// # Errors
    /// Everything that the backend cannot build.
    fn compile(&self, program: &Program) -> Result<Arc<dyn Executable>, BackendError>;
}

/// Why a backend could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The program holds what the backend cannot build; every such thing, with its place in the model.
    #[error("{backend} cannot build {} of the program's kernels:{}", .problems.len(), list(.problems))]
    Unsupported {
        /// The backend's name.
        backend: String,
        /// Where, and why.
        problems: Vec<(Origin, String)>,
    },
    /// A buffer or parameter that does not fit.
    #[error("{what} `{name}`: {problem}")]
    Binding {
        /// `input`, `output`, `state` or `parameter`.
        what: &'static str,
        /// Its name.
        name: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// An index that was read from a tensor lies outside the axis that it indexes.
    #[error("index {index} is out of range for an axis of {extent} in {origin}")]
    IndexOutOfRange {
        /// The index.
        index: i64,
        /// The extent of the axis.
        extent: usize,
        /// The model part that reads.
        origin: Origin,
    },
    /// Parameters that must be given again, because they were let go when what is computed from them was there.
    #[error("{} must be given too: what is computed anew depends on them, and they were let go after loading", .0.join(", "))]
    Released(Vec<String>),
    /// The device failed.
    #[error("{0}")]
    Device(String),
}

fn list(problems: &[(Origin, String)]) -> String {
    problems.iter().map(|(origin, why)| format!("\n  {origin}: {why}")).collect()
}
