//! Checks the tensors and memory that a caller binds.

use eutectic_backend::BackendError;

/// Returns the error for a tensor or buffer that does not fit.
pub fn wrong(what: &'static str, name: &str, problem: String) -> BackendError {
    BackendError::Binding { what, name: name.into(), problem }
}

/// Checks the number of bound tensors.
pub fn expect(what: &'static str, got: usize, wanted: usize) -> Result<(), BackendError> {
    let problem = || format!("cannot take {got} {what}s because the program has {wanted}; give one for each");
    if got == wanted { Ok(()) } else { Err(wrong(what, "*", problem())) }
}

/// Checks that a range is within memory of `size` bytes.
pub fn part(what: &'static str, name: &str, at: usize, bytes: usize, size: usize) -> Result<(), BackendError> {
    match at.checked_add(bytes).is_some_and(|end| end <= size) {
        true => Ok(()),
        false => {
            let problem = format!("cannot access {bytes} bytes at byte {at} because the buffer has {size} bytes");
            Err(wrong(what, name, problem))
        }
    }
}
