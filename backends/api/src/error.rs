//! Errors of lowering and of devices.

use eutectic_ir::{Origin, ops::OutOfRange};

/// The reasons why a backend cannot do a request.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The backend cannot build some kernels of the program. The error names each of them with its model part.
    #[error("{backend} cannot build {} of the program's kernels:{}", .problems.len(), list(.problems))]
    Unsupported {
        /// The backend's name.
        backend: String,
        /// The refused kernels, with reasons. Planning excludes these kernels.
        problems: Vec<Refusal>,
    },
    /// A buffer or parameter that does not fit.
    #[error("{what} `{name}`: {problem}")]
    Binding {
        /// `input`, `output`, `state`, `parameter` or `extent`.
        what: &'static str,
        /// The name of the input, output, state, parameter or extent.
        name: String,
        /// The problem, and the condition that the caller must meet.
        problem: String,
    },
    /// An index that was read from a tensor is out of range for the axis that it indexes.
    #[error("cannot read or write by index at {origin}: {problem}")]
    IndexOutOfRange {
        /// The index as the tensor has it, and the legal range.
        problem: OutOfRange,
        /// The model part that reads or writes.
        origin: Origin,
    },
    /// The names of parameters that the caller must give again. Recomputed results depend on them, but loading freed
    /// them.
    #[error(
        "cannot replace parameters without {} because recomputed results depend on them and loading freed them; \
         give them too",
        .0.join(", ")
    )]
    Released(Vec<String>),
    /// The machine lacks a requirement of the backend.
    #[error("{what}; searched: {}", .places.join("; "))]
    Missing {
        /// The missing requirement, and how to install it.
        what: String,
        /// The places that were searched.
        places: Vec<String>,
    },
    /// The backend cannot use an option of its [`Setup`](crate::Setup).
    #[error("{option}: {problem}")]
    Setup {
        /// The option.
        option: &'static str,
        /// The problem, and a valid value.
        problem: String,
    },
    /// The device has too little free memory. A smaller program may fit.
    #[error("{0}")]
    Memory(String),
    /// The device failed.
    #[error("{0}")]
    Device(String),
}

/// A part of a program that a backend cannot build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The number of the kernel in the program; `None` if no kernel is at fault.
    pub kernel: Option<usize>,
    /// The place of the part in the model.
    pub origin: Origin,
    /// The reason.
    pub why: String,
}

impl From<(Origin, String)> for Refusal {
    /// Converts a fault of a program, as [`Program::problems`](crate::Program::problems) reports it.
    fn from((origin, why): (Origin, String)) -> Refusal {
        Refusal { kernel: None, origin, why }
    }
}

fn list(problems: &[Refusal]) -> String {
    problems.iter().map(|problem| format!("\n  {}: {}", problem.origin, problem.why)).collect()
}
