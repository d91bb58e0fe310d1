//! Checks the arguments of programs and runs.

use eutectic_backend::BackendError;

/// Returns the error for an input, output, state or parameter that does not fit the program.
pub fn wrong(what: &'static str, name: &str, problem: String) -> BackendError {
    BackendError::Binding { what, name: name.into(), problem }
}

/// Checks that the number of tensors of a kind is the program's.
pub fn expect(what: &'static str, got: usize, wanted: usize) -> Result<(), BackendError> {
    let problem = || format!("cannot take {got} {what}s because the program has {wanted}; give one for each");
    if got == wanted { Ok(()) } else { Err(wrong(what, "*", problem())) }
}
