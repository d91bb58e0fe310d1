//! The steps of a program with the sources of their slots, and their execution on a table of slots.

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
    /// The session's arena, from this byte on.
    Arena(usize),
    /// The memory of an input, output or state of the session.
    Port(Port),
    /// The constant of the program with this number.
    Const(usize),
    /// The parameter with this number.
    Param(usize),
    /// The result of the load program with this number.
    Loaded(usize),
    /// The packed constant operand with this number.
    Packed(usize),
    /// The additional memory of thunks, from this byte on. Steps use it one after the other.
    Own(usize),
    /// Memory for an operand that each run packs. Steps use it one after the other.
    Passing,
    /// No memory, because the operand is not packed.
    Nowhere,
}

/// A step of a program, with its slots.
#[derive(Clone)]
pub struct BoundStep {
    pub thunk: Arc<dyn Thunk>,
    /// The range of the step's slots in [`BoundSteps::sources`].
    pub slots: Range<usize>,
    /// Whether each run packs an operand before the step.
    pub packs: bool,
    pub facts: Arc<StepFacts>,
}

/// The properties of a step that are equal for all lengths of a run (extents at run time).
pub struct StepFacts {
    /// The number of the kernel.
    pub kernel: usize,
    /// The number of the kernel's slots. The slots of the thunk's additional buffers follow them.
    pub given: usize,
    /// The slots that the step writes.
    pub stores: Vec<usize>,
    pub in_place: bool,
    pub origin: Origin,
    /// The model part of each check of an index, by the number of the check.
    pub checks: Vec<Origin>,
}

/// A position where a run may skip steps.
pub struct BoundExit {
    pub before: usize,
    /// The slot of a truth value. If it is false, the run skips steps.
    pub unless: usize,
    pub to: usize,
}

/// Steps in order, with the sources of all of their slots.
#[derive(Default)]
pub struct BoundSteps {
    pub steps: Vec<BoundStep>,
    /// The exits, in the order of the steps that they precede.
    pub exits: Vec<BoundExit>,
    pub sources: Vec<SlotSource>,
}

impl BoundStep {
    /// Runs the step with a table of slots.
    ///
    /// # Safety
    /// The table must have the step's slots. Its pointers must point to the memory that the sources name, with the
    /// sizes that the program states. Nobody else may write the memory during the call.
    unsafe fn run(&self, slots: &[Pointer], workers: &Workers, fault: &IndexFault) -> Result<(), BackendError> {
        let launch = self.launch(slots, workers, fault);
        // SAFETY: `Program::problems` has checked that the buffers fit the kernel, and packed operands have memory of
        // their size.
        unsafe {
            if self.packs {
                self.thunk.pack(&launch);
            }
            self.thunk.run(&launch);
        }
        self.report(fault)
    }

    /// Packs the constant operand of the step.
    ///
    /// # Safety
    /// As [`BoundStep::run`], for the slots from which the operand is packed, and for the slot of the packed operand.
    pub unsafe fn pack(&self, slots: &[Pointer], workers: &Workers, fault: &IndexFault) -> Result<(), BackendError> {
        // SAFETY: the caller keeps this function's contract.
        unsafe { self.thunk.pack(&self.launch(slots, workers, fault)) };
        self.report(fault)
    }

    fn launch<'a>(&self, slots: &'a [Pointer], workers: &'a Workers, fault: &'a IndexFault) -> ThunkContext<'a> {
        let slots = &slots[self.slots.clone()];
        // SAFETY: `Pointer` has the layout of `*mut u8`, because it is `repr(transparent)`.
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
    /// Adds the exits of `other`, the steps of the same program for other lengths.
    pub fn exit_as(&mut self, other: &BoundSteps) {
        for &BoundExit { before, unless, to } in &other.exits {
            self.exits.push(BoundExit { before, unless: self.sources.len(), to });
            self.sources.push(other.sources[unless]);
        }
    }

    /// Runs the steps that are `wanted`, by number, and skips steps at exits. `times` receives the seconds of each
    /// step.
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
                // SAFETY: the slot points to a byte of the arena, and no step is executing.
                if exit.before >= next && unsafe { *slots[exit.unless].0 } == 0 {
                    next = exit.to;
                }
            }
            let start = times.is_some().then(Instant::now);
            if n >= next && wanted(n) {
                // SAFETY: the caller keeps this function's contract.
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
        // SAFETY: the caller keeps this function's contract.
        unsafe { self.steps[n].run(slots, workers, fault) }
    }
}
