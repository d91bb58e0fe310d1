//! What is known after planning a program that the device then refused: kernels to do without, and how short memory is.

use std::fmt::Write;

use eutectic_backend::{Backend, BackendError, Place, Program, Refusal, Step};
use eutectic_ir::Origin;
use eutectic_lowering::{Refused, memory};

use crate::Error;

/// How often a program is planned at most: each time, fewer of its kernels are new.
const MOST: usize = 12;

/// How many times dearer a stored byte becomes when a plan takes too much memory.
const DEARER: f64 = 8.0;

/// A round of planning.
#[derive(Default)]
pub(crate) struct Round {
    /// Kernels that the backend refused after it had supported them.
    pub refused: Refused,
    /// By how much a byte that is stored counts more than it costs, as a share of the time in which it is written.
    pub short: f64,
    /// How many rounds there were.
    number: usize,
    /// Everything that was refused.
    problems: Vec<String>,
    /// The least that a plan took, and what for.
    least: Option<(usize, String)>,
}

impl Round {
    /// Whether the device has the memory that a program takes. If not, the next round is to store less.
    ///
    /// # Errors
    /// When no round has found a plan that fits.
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
        if self.number < MOST && (leaner || self.short < DEARER * DEARER) {
            self.short = if self.short == 0.0 { 1.0 } else { self.short * DEARER };
            return Ok(false);
        }
        let (needed, what) = self.least.take().unwrap_or_default();
        Err(Error::Memory { backend: backend.name().into(), needed, capacity: limits.capacity, what })
    }

    /// Notes what a backend refused, for the next round.
    ///
    /// # Errors
    /// When nothing new was learned, or there were enough rounds: all that was refused.
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

/// What a backend says of the kernels of a program before it compiles them. Those of the search are within its limits and cost
/// something finite; copies that lowering has added need not be.
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

/// What the memory of a program is for.
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
