//! Converts errors of the engine to the exception `eutectic.Error`.

use std::{
    fmt::{self, Write},
    panic::{AssertUnwindSafe, catch_unwind},
};

use eutectic::engine::{
    ir::{
        GraphError,
        lang::{Errors, sexp::suggestion},
    },
    models::{WeightsError, onnx::OnnxError},
};
use miette::Diagnostic;
use pyo3::{create_exception, exceptions::PyException, prelude::*};

create_exception!(eutectic, Error, PyException, "The reason why the engine cannot load or run a model.");

/// The reason why a call has no result.
pub enum Problem {
    /// A message for the exception [`Error`].
    Told(String),
    /// An exception that Python code raised.
    Raised(PyErr),
}

/// The result of functions of this crate.
pub type Result<T, E = Problem> = std::result::Result<T, E>;

/// Returns a problem with a message.
pub fn told(message: impl fmt::Display) -> Problem {
    Problem::Told(message.to_string())
}

/// Returns the message about an unknown name, which lists the known names or suggests one.
pub fn unknown<'n>(of: &str, what: &str, name: &str, known: impl IntoIterator<Item = &'n str>) -> String {
    format!("{of} has no {what} `{name}`; {}", suggestion(name, "it has", known))
}

/// Calls the engine. A panic, which is a defect of the engine, becomes an error instead of ending the process.
pub fn guarded<T>(run: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(told(format_args!("cannot continue because of a defect of the engine: {text}; report it, with the model")))
    })
}

/// Returns the errors of a source as text, with their places and help.
pub fn listed(errors: &Errors) -> String {
    let mut text = errors.to_string();
    for error in &errors.0 {
        let _ = write!(text, "\n{}{error}", place(error).unwrap_or_default());
        if let Some(help) = &error.help {
            let _ = write!(text, "\n  help: {help}");
        }
    }
    text
}

/// Returns the place of an error as `FILE:LINE: `, or `None` if it has no place.
fn place(error: &dyn Diagnostic) -> Option<String> {
    let label = error.labels()?.next()?;
    let lines = error.source_code()?.read_span(label.inner(), 0, 0).ok()?;
    Some(format!("{}:{}: ", lines.name().unwrap_or_default(), lines.line() + 1))
}

impl From<Problem> for PyErr {
    fn from(problem: Problem) -> PyErr {
        match problem {
            Problem::Told(message) => Error::new_err(message),
            Problem::Raised(error) => error,
        }
    }
}

impl From<PyErr> for Problem {
    fn from(error: PyErr) -> Problem {
        Problem::Raised(error)
    }
}

impl From<eutectic::Error> for Problem {
    fn from(error: eutectic::Error) -> Problem {
        match error {
            eutectic::Error::Rules(errors) => errors.into(),
            error => told(error),
        }
    }
}

impl From<Errors> for Problem {
    fn from(errors: Errors) -> Problem {
        told(listed(&errors))
    }
}

impl From<GraphError> for Problem {
    fn from(error: GraphError) -> Problem {
        told(error)
    }
}

impl From<WeightsError> for Problem {
    fn from(error: WeightsError) -> Problem {
        told(error)
    }
}

impl From<OnnxError> for Problem {
    fn from(error: OnnxError) -> Problem {
        match &error {
            OnnxError::Unbound { open, .. } => {
                let shapes: Vec<_> = open.iter().map(|name| format!("{name:?}: N")).collect();
                told(format_args!("{error}; give shapes={{{}}}", shapes.join(", ")))
            }
            OnnxError::NoSuchDim { path, name, known } => {
                told(unknown(&path.display().to_string(), "dimension", name, known.iter().map(String::as_str)))
            }
            _ => told(error),
        }
    }
}
