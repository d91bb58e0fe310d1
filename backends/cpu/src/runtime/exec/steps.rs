//! Steps of a program with the sources of their slots, and running them on a table of slots.

use std::{ops::Range, sync::Arc, time::Instant};

use eutectic_backend::{BackendError, Port};
use eutectic_ir::Origin;

use super::pointer::Pointer;
use crate::runtime::{
    fault::IndexFault,
    threads::Workers,
    thunk::{Thunk, ThunkContext},
};

/// The source of a slot's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotSource {
    /// A byte of the session's arena.
    Arena(usize),
    /// The memory of a session's port.
    Port(Port),
    /// A constant of the program, by number.
    Const(usize),
    /// A parameter.
    Param(usize),
    /// A result of the load program, by number.
    Loaded(usize),
    /// A constant operand in packed form, by number.
    Packed(usize),
    /// A byte of the thunks' own memory, which steps share.
    Own(usize),
    /// Memory for an operand that each run packs.
    Passing,
    /// Nowhere: the operand is not packed.
    Nowhere,
}

/// A step whose slots are known.
#[derive(Clone)]
pub struct BoundStep {
    pub thunk: Arc<dyn Thunk>,
    /// Its part of [`BoundSteps::sources`].
    pub slots: Range<usize>,
    /// Whether an operand is packed first in each run.
    pub packs: bool,
    pub facts: Arc<StepFacts>,
}

/// The properties of a step that are the same for all lengths.
pub struct StepFacts {
    /// The number of its kernel, and how many slots that has: those of the thunk's own buffers follow.
    pub kernel: usize,
    pub given: usize,
    /// The slots that it writes.
    pub stores: Vec<usize>,
    pub in_place: bool,
    pub origin: Origin,
    /// Its model part of each check of ids.
    pub checks: Vec<Origin>,
}

/// A position where a run may skip steps.
pub struct BoundExit {
    pub before: usize,
    /// The slot of the truth value without which steps are passed over.
    pub unless: usize,
    pub to: usize,
}

/// Steps in order, with the sources of all of their slots.
#[derive(Default)]
pub struct BoundSteps {
    pub steps: Vec<BoundStep>,
    /// In the order of the steps that they precede.
    pub exits: Vec<BoundExit>,
    pub sources: Vec<SlotSource>,
}

impl BoundStep {
    /// Runs the step with a table of slots.
    ///
    /// # Safety
    /// The table must have the step's slots. Its pointers must be those that the sources name, to memory of the sizes
    /// that the program states, which nobody else writes meanwhile.
    unsafe fn run(&self, slots: &[Pointer], workers: &Workers, fault: &IndexFault) -> Result<(), BackendError> {
        let launch = self.launch(slots, workers, fault);
        // SAFETY: `check` compared buffers with the kernel's; there is room for packed operands.
        unsafe {
            if self.packs {
                self.thunk.pack(&launch);
            }
            self.thunk.run(&launch);
        }
        self.report(fault)
    }

    /// Packs its constant operand.
    ///
    /// # Safety
    /// As [`BoundStep::run`], for the slots from which the operand is packed, and its own.
    pub unsafe fn pack(&self, slots: &[Pointer], workers: &Workers, fault: &IndexFault) -> Result<(), BackendError> {
        // SAFETY: passed on from the caller.
        unsafe { self.thunk.pack(&self.launch(slots, workers, fault)) };
        self.report(fault)
    }

    fn launch<'a>(&self, slots: &'a [Pointer], workers: &'a Workers, fault: &'a IndexFault) -> ThunkContext<'a> {
        let slots = &slots[self.slots.clone()];
        // SAFETY: `Pointer` is transparent.
        let slots = unsafe { std::slice::from_raw_parts(slots.as_ptr().cast::<*mut u8>(), slots.len()) };
        ThunkContext { slots, workers, in_place: self.facts.in_place, fault }
    }

    /// Returns an error if an index was out of range.
    fn report(&self, fault: &IndexFault) -> Result<(), BackendError> {
        match fault.take() {
            Some((problem, check)) => {
                let origin = self.facts.checks.get(check).unwrap_or(&self.facts.origin).clone();
                Err(BackendError::IndexOutOfRange { problem, origin })
            }
            None => Ok(()),
        }
    }
}

impl BoundSteps {
    /// Passes over the steps that runs of other lengths pass over.
    pub fn exit_as(&mut self, other: &BoundSteps) {
        for &BoundExit { before, unless, to } in &other.exits {
            self.exits.push(BoundExit { before, unless: self.sources.len(), to });
            self.sources.push(other.sources[unless]);
        }
    }

    /// Runs the steps that are `wanted`, by number.
    ///
    /// # Safety
    /// As [`BoundStep::run`].
    pub unsafe fn run(
        &self,
        slots: &[Pointer],
        (workers, fault): (&Workers, &IndexFault),
        wanted: impl Fn(usize) -> bool,
        mut times: Option<&mut Vec<f64>>,
    ) -> Result<(), BackendError> {
        let (mut exits, mut next) = (self.exits.iter().peekable(), 0);
        for (n, step) in self.steps.iter().enumerate() {
            while let Some(exit) = exits.next_if(|exit| exit.before <= n) {
                // SAFETY: the slot points to a byte of the arena, and no step is under way.
                if exit.before >= next && unsafe { *slots[exit.unless].0 } == 0 {
                    next = exit.to;
                }
            }
            let start = times.is_some().then(Instant::now);
            if n >= next && wanted(n) {
                // SAFETY: passed on from the caller.
                unsafe { step.run(slots, workers, fault)? };
            }
            if let (Some(times), Some(start)) = (&mut times, start) {
                times.push(start.elapsed().as_secs_f64());
            }
        }
        Ok(())
    }

    /// Runs one step.
    ///
    /// # Safety
    /// As [`BoundStep::run`].
    pub unsafe fn run_one(
        &self,
        n: usize,
        slots: &[Pointer],
        workers: &Workers,
        fault: &IndexFault,
    ) -> Result<(), BackendError> {
        // SAFETY: passed on from the caller.
        unsafe { self.steps[n].run(slots, workers, fault) }
    }
}
