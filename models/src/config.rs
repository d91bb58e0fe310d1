//! Reads `config.json` of the transformers library. Errors list every field that is missing or wrong.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::nn::Activation;

/// The reason why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is not a JSON object.
    #[error("{}: not a JSON object: {problem}", .path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// The error and its position.
        problem: String,
    },
    /// Fields are missing or wrong.
    #[error("{}: cannot read the configuration of {of}:{}", .path.display(), .problems.iter().map(|p| format!("\n  {p}")).collect::<String>())]
    Fields {
        /// The file.
        path: PathBuf,
        /// The kind of model, as in `a BERT encoder`.
        of: &'static str,
        /// One line for each field that is missing or wrong, with the expected value.
        problems: Vec<String>,
    },
}

/// Reads the JSON object of a file with `parse`. `of` is the kind of model for the error message, such as `a BERT
/// encoder`.
pub(crate) fn read<T>(
    path: &Path,
    of: &'static str,
    parse: impl FnOnce(&Map<String, Value>) -> Result<T, Vec<String>>,
) -> Result<T, ConfigError> {
    let text = std::fs::read(path).map_err(|source| ConfigError::Io { path: path.into(), source })?;
    let fields =
        serde_json::from_slice(&text).map_err(|e| ConfigError::Json { path: path.into(), problem: e.to_string() })?;
    parse(&fields).map_err(|problems| ConfigError::Fields { path: path.into(), of, problems })
}

/// The fields of a JSON object, and the problems that were found in them.
pub(crate) struct Fields<'a> {
    fields: &'a Map<String, Value>,
    /// The path of a nested object in the file, such as `vision_config.`. It is empty for the top-level object.
    place: String,
    problems: Vec<String>,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(fields: &'a Map<String, Value>) -> Fields<'a> {
        Fields { fields, place: String::new(), problems: Vec::new() }
    }

    pub(crate) fn problem(&mut self, name: &str, expected: impl fmt::Display, found: &dyn fmt::Display) {
        self.problems.push(format!("{}{name}: expected {expected}, found {found}", self.place));
    }

    /// Returns whether the object has a field of that name that is not null.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.fields.get(name).is_some_and(|v| !v.is_null())
    }

    pub(crate) fn required<T>(
        &mut self,
        name: &str,
        expected: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Option<T> {
        let Some(value) = self.fields.get(name) else {
            self.problem(name, expected, &"no such field");
            return None;
        };
        let read = read(value);
        if read.is_none() {
            self.problem(name, expected, value);
        }
        read
    }

    /// Reads a field with `read`. Returns `default` if the field is missing.
    pub(crate) fn optional<T>(
        &mut self,
        name: &str,
        expected: &str,
        default: T,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Option<T> {
        if self.has(name) { self.required(name, expected, read) } else { Some(default) }
    }

    pub(crate) fn check<T: DeserializeOwned>(
        &mut self,
        name: &str,
        expected: &str,
        valid: impl FnOnce(&T) -> bool,
    ) -> Option<T> {
        self.required(name, expected, |v| serde_json::from_value(v.clone()).ok().filter(valid))
    }

    /// Reads an extent between 1 and `limit`. The limit makes a damaged file an error here rather than a failed
    /// allocation later.
    pub(crate) fn size(&mut self, name: &str, limit: usize) -> Option<usize> {
        self.check(name, &format!("an integer from 1 to {limit}"), |n| (1..=limit).contains(n))
    }

    /// Reads an extent between 1 and `limit`. Returns `default` if the field is missing.
    pub(crate) fn size_or(&mut self, name: &str, limit: usize, default: usize) -> Option<usize> {
        if self.has(name) { self.size(name, limit) } else { Some(default) }
    }

    /// Reads a height and a width between 1 and `limit`: one number for both, or a list of two numbers.
    pub(crate) fn pair_or(&mut self, name: &str, limit: usize, default: usize) -> Option<[usize; 2]> {
        let expected = format!("an integer from 1 to {limit}, or a list of two of these");
        self.optional(name, &expected, [default; 2], |v| {
            let pair = v.as_array().map_or_else(|| vec![v; 2], |list| list.iter().collect());
            let side = |v: &Value| v.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| (1..=limit).contains(n));
            let sides: Option<Vec<usize>> = pair.into_iter().map(side).collect();
            sides?.try_into().ok()
        })
    }

    /// Reads a small positive number, which norms add to variances so that they do not divide by zero.
    pub(crate) fn eps_or(&mut self, name: &str, default: f64) -> Option<f64> {
        self.optional(name, "a number above 0 and below 1", default, |v| v.as_f64().filter(|x| *x > 0.0 && *x < 1.0))
    }

    /// Reads true or false.
    pub(crate) fn flag_or(&mut self, name: &str, default: bool) -> Option<bool> {
        self.optional(name, "true or false", default, Value::as_bool)
    }

    /// Reads a list of layer indices.
    pub(crate) fn indices_or(&mut self, name: &str, default: &[usize]) -> Option<Vec<usize>> {
        let read = |v: &Value| serde_json::from_value(v.clone()).ok();
        self.optional(name, "a list of integers", default.to_vec(), read)
    }

    /// Reads the name of an activation.
    pub(crate) fn activation(&mut self, name: &str) -> Option<Activation> {
        let names: Vec<_> = Activation::names().collect();
        let expected = format!("one of {}", names.join(", "));
        self.required(name, &expected, |v| v.as_str().and_then(Activation::named))
    }

    /// Reads the name of an activation. Returns `default` if the field is missing.
    pub(crate) fn activation_or(&mut self, name: &str, default: Activation) -> Option<Activation> {
        if self.has(name) { self.activation(name) } else { Some(default) }
    }

    /// Reports a field whose value is not `expected`. A missing field is accepted.
    pub(crate) fn fixed(&mut self, name: &str, expected: impl Into<Value>) {
        let expected = expected.into();
        match self.fields.get(name) {
            None | Some(Value::Null) => {}
            Some(found) if *found == expected => {}
            Some(found) => self.problem(name, expected, found),
        }
    }

    /// Reads a nested object with `read`. A missing object counts as an empty one.
    pub(crate) fn within<T>(&mut self, name: &str, read: impl FnOnce(&mut Fields<'_>) -> T) -> T {
        let empty = Map::new();
        let fields = match self.fields.get(name) {
            None | Some(Value::Null) => &empty,
            Some(Value::Object(fields)) => fields,
            Some(other) => {
                self.problem(name, "an object", other);
                &empty
            }
        };
        let mut inner = Fields { fields, place: format!("{}{name}.", self.place), problems: Vec::new() };
        let result = read(&mut inner);
        self.problems.append(&mut inner.problems);
        result
    }

    /// Returns the value that was read, or all problems if there are any.
    pub(crate) fn done<T>(self, read: Option<T>) -> Result<T, Vec<String>> {
        match (read, self.problems.is_empty()) {
            (Some(read), true) => Ok(read),
            _ => Err(self.problems),
        }
    }
}
