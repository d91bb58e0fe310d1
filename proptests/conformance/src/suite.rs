//! Defines suites: lists of named checks of a device.

use crate::device::Device;

/// A check. It panics if the device is wrong.
pub type Check = fn(&Device);

/// Named checks.
pub struct Suite {
    /// Its name.
    pub name: &'static str,
    /// The checks.
    pub checks: &'static [(&'static str, Check)],
}

/// Returns checks, named like their functions.
macro_rules! checks {
    ($($check:ident),* $(,)?) => { &[$((stringify!($check), $check as $crate::suite::Check)),*] };
}
pub(crate) use checks;
