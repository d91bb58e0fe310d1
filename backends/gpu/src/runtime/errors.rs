//! What is wrong with what a caller binds.

use eutectic_backend::BackendError;

/// A binding that does not fit.
pub fn wrong(what: &'static str, name: &str, problem: String) -> BackendError {
    BackendError::Binding { what, name: name.into(), problem }
}

/// Whether there are as many as the program has.
pub fn expect(what: &'static str, got: usize, wanted: usize) -> Result<(), BackendError> {
    if got == wanted { Ok(()) } else { Err(wrong(what, "*", format!("{got} given, the program has {wanted}"))) }
}

/// Whether a part lies in memory of some size.
pub fn part(what: &'static str, name: &str, at: usize, bytes: usize, size: usize) -> Result<(), BackendError> {
    match at.checked_add(bytes).is_some_and(|end| end <= size) {
        true => Ok(()),
        false => Err(wrong(what, name, format!("{bytes} bytes from byte {at} on, but it has {size} bytes"))),
    }
}
