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
    /// The location of the memory.
    pub place: Place,
}

/// The location of a buffer.
#[derive(Clone, Debug)]
pub enum Place {
    /// The `n`th input of a run.
    Input(usize),
    /// The `n`th parameter.
    Param(usize),
    /// A constant that the program contains.
    Const(Tensor),
    /// A result of the load program, kept for all runs, at this byte offset of the load arena.
    Loaded(usize),
    /// A value within a run, at this byte offset of the run arena. Buffers with disjoint live ranges share its memory.
    Arena(usize),
    /// The `n`th output of a run.
    Output(usize),
    /// The `n`th state, which is kept from run to run. A step that writes the state comes after all steps that read the
    /// old contents.
    State(usize),
}

/// The location of a buffer within another one. Both are in the arena of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The containing buffer, which is no part itself.
    pub of: BufferId,
    /// The first element of the part, as an index into the containing buffer.
    pub at: usize,
}

/// One launch: a kernel and the buffers for its slots.
#[derive(Clone, Debug)]
pub struct Step {
    /// The number of the kernel in [`Program::kernels`]. Repeated layers share their kernels.
    pub kernel: usize,
    /// The buffer of each slot.
    pub buffers: Vec<BufferId>,
    /// The pairs of a slot that the step reads and a slot that it writes in the same memory. In no other pair do the
    /// two slots share memory.
    pub in_place: Vec<InPlace>,
    /// The model part that most of the step comes from.
    pub origin: Origin,
    /// The model part of each bounds check of an index that the kernel reads from a tensor.
    /// [`Instr::Within`](crate::Instr::Within) has the number of its check.
    pub checks: Vec<Origin>,
}

/// A slot that a step writes over a slot that it reads. Both begin at the same byte. Each point of the kernel reads
/// only those elements that the same point writes.
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

    /// Returns the model part of one of the kernel's bounds checks, given its number.
    pub fn origin_of_check(&self, check: usize) -> &Origin {
        self.checks.get(check).unwrap_or(&self.origin)
    }

    /// Returns the step with slot `written` declared as written over slot `read`.
    #[must_use]
    pub fn over(mut self, read: Slot, written: Slot) -> Step {
        self.in_place.push(InPlace { read, written });
        self
    }
}

/// A position where a run may skip steps, for example the rest of a loop. The skipped steps would change nothing, so a
/// backend may also execute them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// The step of the run program before which the run decides.
    pub before: usize,
    /// The buffer of the truth value that decides. The run skips steps if it is false.
    pub unless: BufferId,
    /// The next step after the skipped ones. At the end of the run, it is the number of steps.
    pub to: usize,
}

/// A lowered program, ready for a backend.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// The distinct kernels.
    pub kernels: Vec<Kernel>,
    /// All buffers.
    pub buffers: Vec<Buffer>,
    /// The buffers that are parts of other buffers: slices that an iteration of a loop reads or writes.
    pub parts: BTreeMap<BufferId, Part>,
    /// The steps of the load program, which is executed once, when parameters are loaded.
    pub load: Vec<Step>,
    /// The steps of the run program, which each run executes.
    pub run: Vec<Step>,
    /// The exits of the run program, in the order of the steps that they precede.
    pub exits: Vec<Exit>,
    /// The size in bytes of the load arena.
    pub load_bytes: usize,
    /// The size in bytes of the run arena: the peak of the live buffers.
    pub arena_bytes: usize,
    /// The extents at run time, each with its bounds. Their values are arguments of a run.
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
    /// Returns, for each step of the run program, whether each output needs it. The last entry is whether a state needs
    /// it.
    pub fn needed_for(&self) -> Vec<Vec<bool>> {
        let of_states = self.outputs.len();
        let whole = |buffer: BufferId| self.parts.get(&buffer).map_or(buffer, |part| part.of);
        // For each buffer, the outputs (and states) that need its contents after the current step. The steps are
        // visited backwards.
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
