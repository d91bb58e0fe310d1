//! Translation validation: the kernels of a plan beside the e-nodes that they were built from.
//!
//! For each kernel and each tensor that it stores, both are read as functions from an index to a value, over the tensors that are stored: the e-nodes by the
//! semantics of their ops, the kernel by its body, its index maps and the definition of its anchor. They are compared at a point of which only the ranges
//! of its coordinates are known, so for every element; axes whose extent is another in each run keep their name, so for every length within its bounds. That each
//! element is written once is shown as well: the map of a store numbers its points by a mixed radix. Of an update, each write is compared: its place, its value,
//! whether it is inside of the tensor, and the order. What rewrote the program into these e-nodes are rules, each proved or tested by itself.
//!
//! Three things are assumed: ids that depend on positions alone have the values that the interpreter computes; an update shares memory with the
//! tensor that it updates; and the ranks within a row are distinct.

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
use eutectic_rewrites::Claim;
use rayon::prelude::*;

use self::{
    memory::{Memory, room_of, shape_of, unflattened},
    store::{Points, Write},
};

use crate::{
    call::Case,
    facts::{Res, Stop, stop},
    prove::{on_large_stacks, same},
    term::{Poly, Ty},
};

/// What was shown of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub enum Validity {
    /// Each element that it stores has the value of its e-node, in this sense, for every length of the axes.
    Valid(Claim),
    /// Why that is not shown.
    Open(String),
}

/// A kernel of a plan, and what was shown of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Validated {
    /// Its anchor.
    pub kind: &'static str,
    /// The model part that it mainly stems from.
    pub origin: String,
    /// What was shown.
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

/// Compares a kernel with e-nodes, at the weakest claim that all of its stores have.
pub fn of_kernel(block: &PlannedBlock, built: &KernelOfClasses) -> Validity {
    let mut weakest = Claim::Bits;
    for n in 0..built.kernel.stores.len() {
        let mut why = String::new();
        let shown = [Claim::Bits, Claim::Reals].into_iter().find(|claim| match of_store(block, built, n, *claim) {
            Ok(()) => true,
            Err(Stop::Because(reason) | Stop::Vacuous(reason)) => {
                why = reason;
                false
            }
            Err(Stop::Split(name) | Stop::Peel(name)) => {
                why = format!("whether {name} is 0");
                false
            }
        });
        match shown {
            Some(claim) => weakest = weakest.max(claim),
            None => return Validity::Open(why),
        }
    }
    Validity::Valid(weakest)
}

fn of_store(block: &PlannedBlock, built: &KernelOfClasses, n: usize, claim: Claim) -> Res<()> {
    let case = Rc::new(Case::default());
    case.fuel.set(400_000);
    case.left.set(true);
    let (store, body) = (&built.kernel.stores[n], &built.kernel.body);
    let class = built.classes[store.slot];
    let room = room_of(&block.classes.classes[class].ty)?;
    if room.contains(&Poly::zero()) {
        // There is no element.
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
            return stop("a part is written of another tensor");
        }
        Some(node) => {
            let (points, place, conditions, room, fills) = (&points, &place, &conditions, &room, whole.is_none());
            let write = Write { store, points, place, conditions, room, fills };
            // Whether its guards hold is to be shown, so that they are not assumed yet.
            Some(update::written(&case, &reader, &nodes, node, &write)?)
        }
        None => {
            if store.writes != Writes::Apart {
                return stop("points that write to one element");
            }
            let open = reader.conditions(body, &points.open, &points.at)?;
            if let Some(p) = open.iter().find(|p| !case.facts.nonneg(p)) {
                return stop(format!("whether a store writes at each point: {p} ≥ 0"));
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
        same(&case, claim, Ty::fixed(built.kernel.slots[store.slot].0).kind, &want, &own)
    })
}
