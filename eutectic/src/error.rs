//! What can go wrong between a graph and its results.

use eutectic_backend::BackendError;
use eutectic_ir::{GraphError, lang::Errors};
use eutectic_lowering::{PlanError, Space, program::LowerError};
use eutectic_models::{OpenError, ShapeError, TokensError};
use eutectic_rewrites::{LoadError, RewriteError};

/// An error of the engine.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A graph that does not hold together, or has unbound dims.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// Rule files that do not load.
    #[error(transparent)]
    Rules(#[from] Errors),
    /// Rules that cannot be read or chosen.
    #[error(transparent)]
    Choice(LoadError),
    /// A rule that breaks a type, or a graph that cannot be rewritten.
    #[error(transparent)]
    Rewrite(#[from] RewriteError),
    /// What the backend cannot compute, with its place in the model.
    #[error("the backend `{backend}` cannot compute this program:\n{}", .problems.join("\n"))]
    Unsupported {
        /// The backend.
        backend: String,
        /// Each thing that stands in the way.
        problems: Vec<String>,
    },
    /// A plan that could not be lowered.
    #[error(transparent)]
    Lower(#[from] LowerError),
    /// The backend.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A directory that holds no usable model.
    #[error(transparent)]
    Model(#[from] Box<OpenError>),
    /// A batch for which a model has no program.
    #[error(transparent)]
    Batch(#[from] ShapeError),
    /// A text that has no tokens.
    #[error(transparent)]
    Text(#[from] TokensError),
    /// Inputs or parameters that do not fit.
    #[error("{}", .0.join("\n"))]
    Arguments(Vec<String>),
}

impl From<LoadError> for Error {
    fn from(error: LoadError) -> Error {
        match error {
            LoadError::Rules(errors) => Error::Rules(errors),
            other => Error::Choice(other),
        }
    }
}

impl Error {
    /// Every class of a space that no kernel computes although all of its operands could be: what really stands in the way.
    pub(crate) fn unplannable(space: &Space<'_>, error: &PlanError) -> Error {
        let mut problems = eutectic_lowering::search::obstacles(space);
        if problems.is_empty() {
            problems.push(error.to_string());
        }
        Error::Unsupported { backend: space.backend.name().to_string(), problems }
    }
}
