//! What goes wrong between lowering and a device.

use eutectic_ir::Origin;

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
