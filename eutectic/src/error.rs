//! What can go wrong between a graph and its results.

use eutectic_backend::BackendError;
use eutectic_ir::{
    GraphError, Type,
    lang::{Errors, sexp::nearest},
};
use eutectic_lowering::{PlanError, Space, program::LowerError};
#[cfg(feature = "text")]
use eutectic_models::{OpenError, ShapeError, TokensError, language::LanguageError};
use eutectic_rewrites::{LoadError, RewriteError};

use crate::BACKENDS;

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
    #[error("the backend `{backend}` cannot compute this program:\n{}{}", .problems.join("\n"), named(.left_out))]
    Unsupported {
        /// The backend.
        backend: String,
        /// Each thing that stands in the way.
        problems: Vec<String>,
        /// Rules that say what ops of the program are made of, and are not among the compiler's.
        left_out: Vec<String>,
    },
    /// More memory than the device has, however the program is planned.
    #[error("a session takes {needed} bytes of memory at least, the backend `{backend}` has {capacity}: {what}")]
    Memory {
        /// The backend.
        backend: String,
        /// Bytes that the leanest plan takes.
        needed: usize,
        /// Bytes that the device has.
        capacity: usize,
        /// What they are for.
        what: String,
    },
    /// A result for which this machine has no memory left.
    #[error("a result of type {ty} takes {bytes} bytes of memory, which are not free here")]
    NoRoom {
        /// Its type.
        ty: Type,
        /// How many it takes.
        bytes: usize,
    },
    /// A plan that was found before and is of something else.
    #[error("the plan does not fit: {0}")]
    Plan(String),
    /// A plan that could not be lowered.
    #[error(transparent)]
    Lower(#[from] LowerError),
    /// The backend.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A directory that holds no usable model.
    #[cfg(feature = "text")]
    #[error(transparent)]
    Model(#[from] Box<OpenError>),
    /// A batch for which a model has no program.
    #[cfg(feature = "text")]
    #[error(transparent)]
    Batch(#[from] ShapeError),
    /// A text that has no tokens.
    #[cfg(feature = "text")]
    #[error(transparent)]
    Text(#[from] TokensError),
    /// A language model that cannot be used.
    #[cfg(feature = "text")]
    #[error(transparent)]
    Language(#[from] LanguageError),
    /// A name that is no backend's.
    #[error("no backend is named `{name}`{}; `eutectic devices` lists them: {}", meant(.name), known().join(", "))]
    NoBackend {
        /// The name.
        name: String,
    },
    /// A backend that was left out of this build.
    #[error("this build has no backend `{name}`: it takes the feature `{name}`")]
    NotBuilt {
        /// Its name, which is that of its feature.
        name: &'static str,
    },
    /// A backend that does not run here, or not as it was asked to.
    #[error("the backend `{name}` cannot be opened: {why}")]
    Open {
        /// Its name.
        name: &'static str,
        /// What is missing, or wrong with what was asked for.
        #[source]
        why: BackendError,
    },
    /// Inputs or parameters that do not fit.
    #[error("{}", .0.join("\n"))]
    Arguments(Vec<String>),
}

fn named(left_out: &[String]) -> String {
    match left_out {
        [] => String::new(),
        [rule] => format!("\n{rule} was left out, which says what an op of it is made of"),
        rules => format!("\nrules were left out that say what ops of it are made of: {}", rules.join(", ")),
    }
}

fn known() -> Vec<&'static str> {
    BACKENDS.iter().map(|backend| backend.name).collect()
}

fn meant(name: &str) -> String {
    nearest(name, known().into_iter()).map_or(String::new(), |name| format!(", did you mean `{name}`?"))
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
    pub(crate) fn unplannable(space: &Space<'_>, left_out: Vec<String>, error: &PlanError) -> Error {
        let mut problems = eutectic_lowering::search::obstacles(space);
        if problems.is_empty() {
            problems.push(error.to_string());
        }
        Error::Unsupported { backend: space.backend.name().to_string(), problems, left_out }
    }
}
