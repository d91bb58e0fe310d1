//! Checks the tensors and memory that a caller binds.

use eutectic_backend::BackendError;

/// Returns the error for a tensor or buffer that does not fit.
pub fn wrong(what: &'static str, name: &str, problem: String) -> BackendError {
    BackendError::Binding { what, name: name.into(), problem }
}

/// Checks the number of bound tensors.
pub fn expect(what: &'static str, got: usize, wanted: usize) -> Result<(), BackendError> {
    if got == wanted { Ok(()) } else { Err(wrong(what, "*", format!("{got} given, the program has {wanted}"))) }
}

/// Checks that a range is within memory of `size` bytes.
pub fn part(what: &'static str, name: &str, at: usize, bytes: usize, size: usize) -> Result<(), BackendError> {
    match at.checked_add(bytes).is_some_and(|end| end <= size) {
        true => Ok(()),
        false => Err(wrong(what, name, format!("{bytes} bytes at byte {at} exceed the buffer of {size} bytes"))),
    }
}
