//! Defines the errors of compiling and running a graph.

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
    /// A graph that is not valid, or has unbound dims.
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
    /// The parts that the backend cannot compute, with their places in the model.
    #[error("the backend `{backend}` cannot compute this program:\n{}{}", .problems.join("\n"), named(.left_out))]
    Unsupported {
        /// The backend.
        backend: String,
        /// Each unsupported part.
        problems: Vec<String>,
        /// Rules that define ops of the program and are not among the compiler's rules.
        left_out: Vec<String>,
    },
    /// The program needs more memory than the device has, whichever way it is planned.
    #[error(
        "cannot run the program because a session needs at least {needed} bytes of memory ({what}), but the backend \
         `{backend}` has only {capacity}"
    )]
    Memory {
        /// The backend.
        backend: String,
        /// The number of bytes that the smallest plan needs.
        needed: usize,
        /// The number of bytes that the device has.
        capacity: usize,
        /// The kinds of buffers, with the bytes of each.
        what: String,
    },
    /// There is not enough free memory for a result.
    #[error("cannot allocate {bytes} bytes of memory for a result of type {ty}")]
    NoRoom {
        /// The type of the result.
        ty: Type,
        /// The size of the result in bytes.
        bytes: usize,
    },
    /// A given plan that belongs to another program.
    #[error("the plan does not fit this program: {0}")]
    Plan(String),
    /// A plan that could not be lowered.
    #[error(transparent)]
    Lower(#[from] LowerError),
    /// An error of the backend.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A directory that does not contain a usable model.
    #[cfg(feature = "text")]
    #[error(transparent)]
    Model(#[from] Box<OpenError>),
    /// A batch for which a model has no program.
    #[cfg(feature = "text")]
    #[error(transparent)]
    Batch(#[from] ShapeError),
    /// A text that cannot be tokenized.
    #[cfg(feature = "text")]
    #[error(transparent)]
    Text(#[from] TokensError),
    /// A language model that cannot be used.
    #[cfg(feature = "text")]
    #[error(transparent)]
    Language(#[from] LanguageError),
    /// No backend has this name.
    #[error("no backend is named `{name}`{}; `eutectic devices` lists them: {}", meant(.name), known().join(", "))]
    NoBackend {
        /// The name.
        name: String,
    },
    /// A backend that is not part of this build.
    #[error("cannot open the backend `{name}` because this build lacks it; build with the feature `{name}`")]
    NotBuilt {
        /// Its name, which is that of its feature.
        name: &'static str,
    },
    /// A backend that cannot be opened on this machine or with this setup.
    #[error("cannot open the backend `{name}`: {why}")]
    Open {
        /// Its name.
        name: &'static str,
        /// The missing requirement, or the invalid request.
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
        [rule] => format!("\nthe rule {rule} defines an op of the program, but is not among the chosen rules"),
        rules => format!("\nrules that define ops of the program are not among the chosen rules: {}", rules.join(", ")),
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
    /// Returns an error that lists every class without a kernel whose operands can be computed. These classes are the
    /// causes of the failure.
    pub(crate) fn unplannable(space: &Space<'_>, left_out: Vec<String>, error: &PlanError) -> Error {
        let mut problems = eutectic_lowering::search::obstacles(space);
        if problems.is_empty() {
            problems.push(error.to_string());
        }
        Error::Unsupported { backend: space.backend.name().to_string(), problems, left_out }
    }
}
