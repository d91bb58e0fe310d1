//! Keeps the results of failed rounds of planning: refused kernels, and the memory pressure.

use std::fmt::Write;

use eutectic_backend::{Backend, BackendError, Place, Program, Refusal, Step};
use eutectic_ir::Origin;
use eutectic_lowering::{Refused, memory};

use crate::Error;

/// The maximal number of rounds.
const MOST: usize = 12;

/// The factor by which a stored byte becomes more expensive when a plan needs too much memory.
const DEARER: f64 = 8.0;

/// The state between rounds of planning.
#[derive(Default)]
pub(crate) struct Replan {
    /// Kernels that the backend refused to compile although `supports` accepted them.
    pub refused: Refused,
    /// The number of additional reads and writes that each stored byte counts as; 0 if memory suffices.
    pub memory_pressure: f64,
    /// The number of rounds.
    number: usize,
    /// All refusals.
    problems: Vec<String>,
    /// The smallest number of bytes that any plan needed, with a list of the kinds of buffers and their bytes.
    least: Option<(usize, String)>,
}

impl Replan {
    /// Returns whether the device has enough memory for a program. If not, the next round stores less.
    ///
    /// # Errors
    /// If no further round can find a plan that fits.
    pub fn fits(&mut self, program: &Program, backend: &dyn Backend) -> Result<bool, Error> {
        let limits = backend.limits();
        let needed = memory::needed(program, limits.alignment);
        if needed <= limits.capacity {
            return Ok(true);
        }
        let leaner = self.least.as_ref().is_none_or(|(least, _)| needed < *least);
        if leaner {
            self.least = Some((needed, describe(program, limits.alignment)));
        }
        self.number += 1;
        if self.number < MOST && (leaner || self.memory_pressure < DEARER * DEARER) {
            self.memory_pressure = if self.memory_pressure == 0.0 { 1.0 } else { self.memory_pressure * DEARER };
            return Ok(false);
        }
        let (needed, what) = self.least.take().unwrap_or_default();
        Err(Error::Memory { backend: backend.name().into(), needed, capacity: limits.capacity, what })
    }

    /// Records the kernels that a backend refused, for the next round.
    ///
    /// # Errors
    /// If no kernel is new, or the limit on rounds is reached. The error lists all refusals.
    pub fn learn(&mut self, error: BackendError, program: &Program) -> Result<(), Error> {
        let BackendError::Unsupported { backend, problems } = error else { return Err(error.into()) };
        let mut new = false;
        for Refusal { kernel, origin, why } in problems {
            let known = format!("{origin}: {why}");
            if !self.problems.contains(&known) {
                self.problems.push(known);
            }
            if let Some(kernel) = kernel.and_then(|kernel| program.kernels.get(kernel)) {
                new |= self.refused.add(kernel.clone(), why);
            }
        }
        self.number += 1;
        if new && self.number < MOST {
            return Ok(());
        }
        Err(Error::Unsupported { backend, problems: std::mem::take(&mut self.problems), left_out: Vec::new() })
    }
}

/// Returns the kernels that the backend refuses before it compiles them. Kernels of the search are within the backend's
/// limits and have a finite cost, but the backend may refuse copies that lowering added.
pub(crate) fn refusals(program: &Program, backend: &dyn Backend) -> Vec<Refusal> {
    let limits = backend.limits();
    let reasons = |(number, kernel)| {
        let why = [limits.exceeded(kernel), backend.supports(kernel).err().unwrap_or_default()].concat();
        let used = |step: &&Step| step.kernel == number;
        let step = program.load.iter().chain(&program.run).find(used);
        let origin = step.map_or_else(Origin::default, |step| step.origin.clone());
        (!why.is_empty()).then(|| Refusal { kernel: Some(number), origin, why: why.join(", ") })
    };
    program.kernels.iter().enumerate().filter_map(reasons).collect()
}

/// Describes the contents of a program's memory.
fn describe(program: &Program, alignment: usize) -> String {
    let mut text = String::new();
    type Is = fn(&Place) -> bool;
    let places: [(&str, Is); 4] = [
        ("parameters and constants", |p| matches!(p, Place::Param(_) | Place::Const(_))),
        ("inputs and outputs", |p| matches!(p, Place::Input(_) | Place::Output(_))),
        ("states", |p| matches!(p, Place::State(_))),
        ("computed when parameters arrive", |p| matches!(p, Place::Loaded(_))),
    ];
    for (what, is) in places {
        let bytes: usize = program
            .buffers
            .iter()
            .filter(|b| is(&b.place))
            .map(|b| (b.count * b.dtype.size()).next_multiple_of(alignment))
            .sum();
        let _ = write!(text, "{bytes} {what}, ");
    }
    let _ = write!(text, "{} of intermediate results", program.arena_bytes);
    text
}
