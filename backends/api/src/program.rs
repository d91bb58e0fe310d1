//! Programs: the kernels of a plan in order, and the buffers between them.

use std::collections::BTreeMap;

use eutectic_ir::{DType, Origin, Symbol, Tensor, Type};

use crate::body::Slot;
use crate::kernel::Kernel;

/// The number of a buffer in [`Program::buffers`].
pub type BufferId = usize;

/// A region of memory that holds one tensor.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// Element type.
    pub dtype: DType,
    /// The number of elements, at the maximal extents.
    pub count: usize,
    /// The location.
    pub place: Place,
}

/// The location of a buffer.
#[derive(Clone, Debug)]
pub enum Place {
    /// The `n`th input of a run.
    Input(usize),
    /// The `n`th parameter.
    Param(usize),
    /// Part of the program.
    Const(Tensor),
    /// A result of the load program, which is kept for all runs: a byte offset into the load arena.
    Loaded(usize),
    /// Lives within a run: a byte offset into the run arena, which buffers share over time.
    Arena(usize),
    /// The `n`th output of a run.
    Output(usize),
    /// The `n`th state, which is kept from run to run. A step that writes it comes after the steps that read its old
    /// contents.
    State(usize),
}

/// The location of a buffer within another one. Both are in the arena of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The containing buffer, which is no part itself.
    pub of: BufferId,
    /// The element of that buffer that it begins with.
    pub at: usize,
}

/// One launch: a kernel and the buffers for its slots.
#[derive(Clone, Debug)]
pub struct Step {
    /// The number in [`Program::kernels`]. Repeated layers share their kernels.
    pub kernel: usize,
    /// The buffer of each slot.
    pub buffers: Vec<BufferId>,
    /// The slots that it writes over others that it reads. No other written slot shares memory with a slot that it
    /// reads.
    pub in_place: Vec<InPlace>,
    /// The model part that it mainly stems from.
    pub origin: Origin,
    /// The model part of each check of ids in the kernel, by number.
    pub checks: Vec<Origin>,
}

/// A slot that a step writes over a slot that it reads. Both begin at the same byte. Each point of the kernel reads
/// only elements of the slot that the same point writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InPlace {
    /// The slot that is read.
    pub read: Slot,
    /// The slot that is written.
    pub written: Slot,
}

impl Step {
    /// Returns a step that writes no slot in place.
    pub fn new(kernel: usize, buffers: Vec<BufferId>, origin: Origin) -> Step {
        Step { kernel, buffers, in_place: Vec::new(), origin, checks: Vec::new() }
    }

    /// Returns the model part of one of the kernel's checks of ids.
    pub fn origin_of_check(&self, check: usize) -> &Origin {
        self.checks.get(check).unwrap_or(&self.origin)
    }

    /// Returns the same, with a slot written over one that it reads.
    #[must_use]
    pub fn over(mut self, read: Slot, written: Slot) -> Step {
        self.in_place.push(InPlace { read, written });
        self
    }
}

/// A position where a run may skip steps. A backend may ignore it, because the skipped steps then change nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Before which step of the run program it is decided.
    pub before: usize,
    /// The truth value that decides: steps are passed over where it is false.
    pub unless: BufferId,
    /// The next step after the skip; the number of steps for the end of the run.
    pub to: usize,
}

/// A lowered program, ready for a backend.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// The distinct kernels.
    pub kernels: Vec<Kernel>,
    /// All buffers.
    pub buffers: Vec<Buffer>,
    /// The buffers that are parts of others: slices that an iteration of a loop reads or writes.
    pub parts: BTreeMap<BufferId, Part>,
    /// Run once, when the parameters arrive.
    pub load: Vec<Step>,
    /// Run each time.
    pub run: Vec<Step>,
    /// The exits, in the order of the steps that they precede.
    pub exits: Vec<Exit>,
    /// Bytes of the arena that the load program fills.
    pub load_bytes: usize,
    /// Bytes of the arena of a run: the peak of the live buffers.
    pub arena_bytes: usize,
    /// The extents at run time, each with its bounds: arguments of a run.
    pub extents: Vec<Symbol>,
    /// Names and types of the inputs.
    pub inputs: Vec<(String, Type)>,
    /// Names and types of the parameters.
    pub params: Vec<(String, Type)>,
    /// Names and types of the outputs.
    pub outputs: Vec<(String, Type)>,
    /// Names and types of the states.
    pub states: Vec<(String, Type)>,
}

impl Program {
    /// Returns, for each step of the run program, the outputs that need it, in their order, and last whether a state
    /// does.
    pub fn needed_for(&self) -> Vec<Vec<bool>> {
        let of_states = self.outputs.len();
        let whole = |buffer: BufferId| self.parts.get(&buffer).map_or(buffer, |part| part.of);
        // For each buffer, the users of its contents before the steps that were visited.
        let mut wanted = vec![vec![false; of_states + 1]; self.buffers.len()];
        for (buffer, wanted) in self.buffers.iter().zip(&mut wanted) {
            match buffer.place {
                Place::Output(n) => wanted[n] = true,
                Place::State(_) => wanted[of_states] = true,
                _ => {}
            }
        }
        let step = |step: &Step| {
            let mut needed = vec![false; of_states + 1];
            let join = |to: &mut [bool], from: &[bool]| to.iter_mut().zip(from).for_each(|(to, from)| *to |= from);
            for store in &self.kernels[step.kernel].stores {
                join(&mut needed, &wanted[whole(step.buffers[store.slot])]);
            }
            step.buffers.iter().for_each(|&buffer| join(&mut wanted[whole(buffer)], &needed));
            needed
        };
        let mut steps: Vec<_> = self.run.iter().rev().map(step).collect();
        steps.reverse();
        steps
    }
}
