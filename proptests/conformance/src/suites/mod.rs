//! Lists the suites, and runs their checks on a device.

mod codes;
mod decode;
pub mod extents;
mod failures;
mod gathers;
mod graphs;
mod groups;
mod halves;
mod ids;
mod kernels;
mod masks;
pub mod models;
pub mod numbers;
pub mod onnx;
mod ops;
mod precision;
mod products;
pub mod program;
pub mod programs;
mod random;
mod rankings;
mod rules;
mod scans;
mod scatters;
mod sessions;
pub mod states;
mod windows;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use crate::{device::Device, suite::Suite};

/// All suites whose checks read no files.
pub const SUITES: &[Suite] = &[
    Suite { name: "ops", checks: ops::CHECKS },
    Suite { name: "kernels", checks: kernels::CHECKS },
    Suite { name: "masks", checks: masks::CHECKS },
    Suite { name: "gathers", checks: gathers::CHECKS },
    Suite { name: "groups", checks: groups::CHECKS },
    Suite { name: "products", checks: products::CHECKS },
    Suite { name: "codes", checks: codes::CHECKS },
    Suite { name: "halves", checks: halves::CHECKS },
    Suite { name: "windows", checks: windows::CHECKS },
    Suite { name: "program", checks: program::CHECKS },
    Suite { name: "sessions", checks: sessions::CHECKS },
    Suite { name: "states", checks: states::CHECKS },
    Suite { name: "scatters", checks: scatters::CHECKS },
    Suite { name: "rankings", checks: rankings::CHECKS },
    Suite { name: "scans", checks: scans::CHECKS },
    Suite { name: "random", checks: random::CHECKS },
    Suite { name: "ids", checks: ids::CHECKS },
    Suite { name: "failures", checks: failures::CHECKS },
    Suite { name: "extents", checks: extents::CHECKS },
    Suite { name: "precision", checks: precision::CHECKS },
    Suite { name: "decode", checks: decode::CHECKS },
    Suite { name: "graphs", checks: graphs::CHECKS },
    Suite { name: "programs", checks: programs::CHECKS },
    Suite { name: "rules", checks: rules::CHECKS },
];

/// The result of a check.
pub struct Verdict {
    /// The name `suite/check` of the check.
    pub name: String,
    /// The failure, if there is one.
    pub failure: Option<String>,
    /// The number of kernels and programs that were right.
    pub judged: usize,
    /// The number of kernels and programs that the device refused.
    pub refused: usize,
    /// The reason for the first refusal.
    pub why: Option<String>,
    /// The time that the check took.
    pub time: Duration,
}

impl Suite {
    /// Runs the checks whose name `suite/check` contains a word.
    pub fn run<'a>(&'a self, device: &'a Device, word: &'a str) -> impl Iterator<Item = Verdict> + 'a {
        let named = self.checks.iter().map(|(name, check)| (format!("{}/{name}", self.name), check));
        named.filter(move |(name, _)| name.contains(word)).map(|(name, check)| verdict(name, device, check))
    }
}

/// Runs a check. Its panic becomes the failure in the verdict.
pub fn verdict(name: String, device: &Device, check: impl FnOnce(&Device)) -> Verdict {
    let start = Instant::now();
    device.take_counts();
    let done = catch_unwind(AssertUnwindSafe(|| device.beside(check)));
    let failure = done.err().map(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_default()
    });
    let (judged, refused, why) = device.take_counts();
    Verdict { name, failure, judged, refused, why, time: start.elapsed() }
}
