//! Checks the arguments of programs and runs.

use eutectic_backend::BackendError;

/// Returns the error for a problem of an input, output, state or parameter.
pub fn wrong(what: &'static str, name: &str, problem: String) -> BackendError {
    BackendError::Binding { what, name: name.into(), problem }
}

/// Checks the number of tensors.
pub fn expect(what: &'static str, got: usize, wanted: usize) -> Result<(), BackendError> {
    if got == wanted { Ok(()) } else { Err(wrong(what, "*", format!("{got} given, the program has {wanted}"))) }
}
