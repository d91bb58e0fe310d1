//! Translation validation: compares the kernels of a plan with the e-nodes from which they were built.
//!
//! For each kernel and each tensor that it stores, the e-nodes and the kernel become functions from an index to a
//! value. They read the tensors in memory. The e-nodes are evaluated by the semantics of their ops. The kernel is
//! evaluated by its body, its index maps and the definition of its anchor. The functions are compared at a symbolic
//! point. Only the ranges of its coordinates are known, so the proof holds for every element. Extents that differ from
//! run to run are symbols, so the proof also holds for every length within their bounds.
//!
//! The validator also proves that each element is written once: the map of a store numbers its points in a mixed radix.
//! For an update it compares the address, value and order of each write, and proves that exactly the writes inside the
//! tensor happen. It does not cover the rewriting of the program into these e-nodes, because each rule is proved or
//! tested separately.
//!
//! Three things are assumed. Ids that depend only on positions have the values that the interpreter computes. An update
//! shares memory with the tensor that it updates. The ranks within a row are distinct.

mod kernel;
mod memory;
mod program;
mod store;
mod update;

use std::rc::Rc;

use eutectic_ir::ops::{Class, Writes};
use eutectic_lowering::{
    PlannedBlock,
    build::{self, KernelOfClasses, Positions},
    plan::PlanKernel,
};
use rayon::prelude::*;

use self::{
    memory::{Memory, room_of, shape_of, unflattened},
    store::{Points, Write},
};

use crate::{
    call::Case,
    facts::{Res, Stop, stop},
    prove::{Sense, on_large_stacks, same},
    term::{Poly, Ty},
};

/// The result of the validation of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub enum Validity {
    /// Each element that the kernel stores has the value of its e-node, in this sense, for every length of the axes.
    Valid(Sense),
    /// The equality is not proved, for this reason.
    Open(String),
}

/// A kernel of a plan, with the result of its validation.
#[derive(Clone, Debug, PartialEq)]
pub struct Validated {
    /// The name of its anchor.
    pub kind: &'static str,
    /// The part of the model from which most of the kernel comes.
    pub origin: String,
    /// The result of the validation.
    pub validity: Validity,
}

/// Compares each kernel of a block with the e-nodes that its plan chose, on all cores.
pub fn validate(block: &PlannedBlock) -> Vec<Validated> {
    let kernels = &block.searched.priced.kernels;
    on_large_stacks(|| kernels.par_iter().map(|(parts, _)| one(block, parts)).collect())
}

fn one(block: &PlannedBlock, parts: &PlanKernel) -> Validated {
    let origin = block.classes.classes[parts.stores[0]].origins.first();
    let origin = origin.map_or(String::new(), ToString::to_string);
    match build::kernel(&block.classes, &block.searched.plan, parts, &Positions::default(), usize::MAX) {
        Ok(built) => Validated { kind: built.kernel.kind(), origin, validity: of_kernel(block, &built) },
        Err(why) => Validated { kind: "none", origin, validity: Validity::Open(why) },
    }
}

/// Compares each store of a kernel with its e-node. The equality of the kernel has the weakest sense among its stores.
pub fn of_kernel(block: &PlannedBlock, built: &KernelOfClasses) -> Validity {
    let mut weakest = Sense::Bits;
    for n in 0..built.kernel.stores.len() {
        let mut why = String::new();
        let shown = [Sense::Bits, Sense::Reals].into_iter().find(|sense| match of_store(block, built, n, *sense) {
            Ok(()) => true,
            Err(Stop::Because(reason) | Stop::Vacuous(reason)) => {
                why = reason;
                false
            }
            Err(Stop::Split(name) | Stop::Peel(name)) => {
                why = format!("it is undecided whether {name} is 0");
                false
            }
        });
        match shown {
            Some(sense) => weakest = weakest.max(sense),
            None => return Validity::Open(why),
        }
    }
    Validity::Valid(weakest)
}

fn of_store(block: &PlannedBlock, built: &KernelOfClasses, n: usize, sense: Sense) -> Res<()> {
    let case = Rc::new(Case::default());
    case.fuel.set(400_000);
    case.left.set(true);
    let (store, body) = (&built.kernel.stores[n], &built.kernel.body);
    let class = built.classes[store.slot];
    let room = room_of(&block.classes.classes[class].ty)?;
    if room.contains(&Poly::zero()) {
        // The tensor has no elements.
        return Ok(());
    }
    let memory = Memory::new(&case, block);
    let reader = kernel::Reader::new(&case, built, &memory);
    let nodes = program::Nodes::new(&case, &memory, built.classes[..built.reads].iter().copied().collect());
    let points = Points::new(&case, body, &store.guards);
    let place = reader.index(body, &store.at, &points.at)?;
    let conditions = reader.conditions(body, &store.guards, &points.at)?;
    let whole = built.parts.iter().find(|(slot, _)| *slot == store.slot).map(|(_, whole)| *whole);
    let update = memory.chosen(class).ok().filter(|node| matches!(node.op.def().class, Class::Update(..)));
    let written = match update {
        Some(node) if whole.is_some_and(|whole| node.operands.first() != Some(&whole)) => {
            return stop("an update writes a part of another tensor");
        }
        Some(node) => {
            let (points, place, conditions, room, fills) = (&points, &place, &conditions, &room, whole.is_none());
            let write = Write { store, points, place, conditions, room, fills };
            // `written` proves that the guards hold exactly inside the tensor, so they must not be assumed here.
            Some(update::written(&case, &reader, &nodes, node, &write)?)
        }
        None => {
            if store.writes != Writes::Apart {
                return stop("several points may write to one element");
            }
            let open = reader.conditions(body, &points.open, &points.at)?;
            if let Some(p) = open.iter().find(|p| !case.facts.nonneg(p)) {
                return stop(format!("it is undecided whether a store writes at each point: {p} ≥ 0"));
            }
            let shape = shape_of(&case, &block.classes.classes[class].ty)?;
            let extents: Vec<Poly> = shape.into_iter().map(|item| item.extent).collect();
            points.cover(&place, &room, &extents)?;
            None
        }
    };
    case.facts.assume(conditions.iter().cloned(), || {
        let own = reader.value(body, store.value, &points.at)?;
        let want = written.map_or_else(|| nodes.element(class, &unflattened(&case, &place, &room)), Ok)?;
        case.left.set(false);
        same(&case, sense, Ty::fixed(built.kernel.slots[store.slot].0).kind, &want, &own)
    })
}
