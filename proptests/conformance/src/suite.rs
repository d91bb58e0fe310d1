//! Defines suites: lists of named checks of a device.

use crate::device::Device;

/// A function that checks a device. It panics if the device is wrong.
pub type Check = fn(&Device);

/// A suite of named checks.
pub struct Suite {
    /// The name of the suite.
    pub name: &'static str,
    /// The checks.
    pub checks: &'static [(&'static str, Check)],
}

/// Expands to a list of checks, each with the name of its function.
macro_rules! checks {
    ($($check:ident),* $(,)?) => { &[$((stringify!($check), $check as $crate::suite::Check)),*] };
}
pub(crate) use checks;
