//! Guards of rules that depend on the device: on its backend and on its limits.

use std::{fmt, sync::Arc};

/// The device for which rules run.
#[derive(Clone, Debug, Default)]
pub struct Device {
    /// The name of the backend. If it is `None`, rules of every backend run.
    pub backend: Option<Arc<str>>,
    /// The known limits, in the order of [`LIMITS`]. A guard on an unknown limit always holds.
    pub limits: Vec<(&'static str, u64)>,
}

/// The limits of devices, each with its unit.
pub const LIMITS: [(&str, &str); 9] = [
    ("memory", "bytes that a session may use"),
    ("buffer", "bytes of one buffer"),
    ("alignment", "bytes; buffers start at multiples of it"),
    ("arguments", "bytes of the scalar arguments of a launch"),
    ("instructions", "instructions of a kernel"),
    ("loads", "loads of a kernel"),
    ("stores", "stores of a kernel"),
    ("axes", "axes of a kernel's domain"),
    ("extent", "points along an axis of a domain"),
];

/// A guard on a limit of the device: `(least memory 8e9)` or `(most axes 4)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitGuard {
    /// The name of the limit.
    pub limit: &'static str,
    /// Whether the limit must be at least the number; otherwise it must be at most the number.
    pub least: bool,
    /// The number.
    pub number: u64,
}

impl LimitGuard {
    /// Returns the name of a limit as [`LIMITS`] contains it.
    pub(crate) fn named(name: &str) -> Option<&'static str> {
        LIMITS.iter().map(|(known, _)| *known).find(|known| *known == name)
    }

    /// Returns whether the device's limit satisfies the guard, or is unknown.
    pub fn holds(&self, device: &Device) -> bool {
        let known = device.limits.iter().find(|(name, _)| *name == self.limit);
        known.is_none_or(|(_, has)| if self.least { *has >= self.number } else { *has <= self.number })
    }
}

impl fmt::Display for LimitGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.limit, if self.least { "≥" } else { "≤" }, self.number)
    }
}
