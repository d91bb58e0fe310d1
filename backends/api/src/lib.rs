//! What lowering hands to a backend, and what a backend answers.
//!
//! A [`Kernel`] describes one launch: an anchor, expressions over loads with index maps, and stores. A [`Program`] is the
//! kernels of a plan with the buffers between them. A [`Backend`] says what a kernel costs and makes programs run.

mod kernel;
mod program;

pub use kernel::{AnchorKernel, Body, EmptyRow, Guard, Instr, Kernel, Load, Slot, Store, ValueId};
pub use program::{Buffer, BufferId, Place, Program, Step};

use eutectic_ir::{Origin, Tensor};

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

    /// Resolves a program to something that runs.
    ///
    /// # Errors
    /// Everything that the backend cannot build.
    fn compile(&self, program: &Program) -> Result<Box<dyn Executable>, BackendError>;
}

/// A compiled program.
pub trait Executable: Send {
    /// Takes the parameters and runs the load program. `params` are in the order of [`Program::params`].
    ///
    /// # Errors
    /// When a parameter's type is not the program's, or an index is out of range.
    fn load(&mut self, params: &[Tensor]) -> Result<(), BackendError>;

    /// Runs once. `inputs` and `outputs` are in the order of [`Program::inputs`] and [`Program::outputs`], dense, row-major,
    /// little-endian. Does not allocate, once it has run.
    ///
    /// # Errors
    /// When a buffer's length is wrong, parameters were not loaded, or an index read from a tensor is out of range.
    fn run(&mut self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), BackendError>;

    /// Seconds of each step of the run program, in order, of one run; for `bench` and `explain`.
    ///
    /// # Errors
    /// As [`Executable::run`].
    fn profile(&mut self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<Vec<f64>, BackendError>;
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
        /// `input`, `output` or `parameter`.
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
    /// `run` before `load`.
    #[error("the program has {0} parameters; call `load` with them before `run`")]
    NotLoaded(usize),
    /// The device failed.
    #[error("{0}")]
    Device(String),
}

fn list(problems: &[(Origin, String)]) -> String {
    problems.iter().map(|(origin, why)| format!("\n  {origin}: {why}")).collect()
}
