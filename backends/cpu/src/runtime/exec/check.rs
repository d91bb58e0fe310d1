//! Checks of what programs and runs are given.

use eutectic_backend::BackendError;

/// What is not right about an input, output, state or parameter.
pub fn wrong(what: &'static str, name: &str, problem: String) -> BackendError {
    BackendError::Binding { what, name: name.into(), problem }
}

/// Whether there are as many as the program has.
pub fn expect(what: &'static str, got: usize, wanted: usize) -> Result<(), BackendError> {
    if got == wanted { Ok(()) } else { Err(wrong(what, "*", format!("{got} given, the program has {wanted}"))) }
}
