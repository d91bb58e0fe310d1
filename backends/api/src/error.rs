//! What goes wrong between lowering and a device.

use eutectic_ir::{Origin, ops::OutOfRange};

/// Why a backend could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The program holds what the backend cannot build; every such thing, with its place in the model.
    #[error("{backend} cannot build {} of the program's kernels:{}", .problems.len(), list(.problems))]
    Unsupported {
        /// The backend's name.
        backend: String,
        /// What it refuses, and why. Kernels that are named here are planned without.
        problems: Vec<Refusal>,
    },
    /// A buffer or parameter that does not fit.
    #[error("{what} `{name}`: {problem}")]
    Binding {
        /// `input`, `output`, `state`, `parameter` or `extent`.
        what: &'static str,
        /// Its name.
        name: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// An index that was read from a tensor lies outside the axis that it indexes.
    #[error("cannot read or write by index at {origin}: {problem}")]
    IndexOutOfRange {
        /// The index as it was given, and the legal ones.
        problem: OutOfRange,
        /// The model part that reads or writes.
        origin: Origin,
    },
    /// Parameters that must be given again, because they were let go when what is computed from them was there.
    #[error("{} must be given too: what is computed anew depends on them, and they were let go after loading", .0.join(", "))]
    Released(Vec<String>),
    /// What the backend needs is not on this machine.
    #[error("{what}; looked for it in {}", .places.join(", "))]
    Missing {
        /// What is not there, and how it gets there.
        what: String,
        /// Where it was looked for.
        places: Vec<String>,
    },
    /// A part of its [`Setup`](crate::Setup) that the backend cannot take.
    #[error("{option}: {problem}")]
    Setup {
        /// Which.
        option: &'static str,
        /// What is wrong with it, and what would be right.
        problem: String,
    },
    /// Memory that the device has not got free: what is smaller may fit.
    #[error("{0}")]
    Memory(String),
    /// The device failed.
    #[error("{0}")]
    Device(String),
}

/// Something of a program that a backend does not build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The kernel, by its number in the program; none where it is not a kernel's fault.
    pub kernel: Option<usize>,
    /// Its place in the model.
    pub origin: Origin,
    /// Why.
    pub why: String,
}

impl From<(Origin, String)> for Refusal {
    /// Of a program that is not right.
    fn from((origin, why): (Origin, String)) -> Refusal {
        Refusal { kernel: None, origin, why }
    }
}

fn list(problems: &[Refusal]) -> String {
    problems.iter().map(|problem| format!("\n  {}: {}", problem.origin, problem.why)).collect()
}
