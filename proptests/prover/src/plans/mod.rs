//! Translation validation: the kernels of a plan beside the e-nodes that they were built from.
//!
//! For each kernel and each tensor that it stores, both are read as functions from an index to a value, over the tensors that are stored: the e-nodes by the
//! semantics of their ops, the kernel by its body, its index maps and the definition of its anchor. They are compared at a point of which only the ranges
//! of its coordinates are known, so for every element; axes whose extent is another in each run keep their name, so for every length within its bounds. That each
//! element is written once is shown as well: the map of a store numbers its points by a mixed radix. What rewrote the program into these e-nodes are rules, each proved or
//! tested by itself.

mod kernel;
mod memory;
mod program;

use std::{collections::BTreeSet, rc::Rc};

use eutectic_backend::Kernel;
use eutectic_ir::ops::Writes;
use eutectic_lowering::{
    PlannedBlock,
    build::{self, KernelOfClasses, Positions},
    plan::PlanKernel,
};
use eutectic_rewrites::Claim;
use rayon::prelude::*;

use self::memory::{room_of, unflattened};

use crate::{
    call::Case,
    facts::{Res, Stop, stop},
    prove::{on_large_stacks, same},
    term::{Atom, Poly, Ty, product},
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
    let store = &built.kernel.stores[n];
    if store.writes != Writes::Apart {
        return stop("points that write to one element");
    }
    let class = built.classes[store.slot];
    let room = room_of(&block.classes.classes[class].ty)?;
    let reader = kernel::Reader::new(&case, built, &block.classes);
    let at = reader.point();
    let flat = reader.index(&built.kernel.body, &store.at, &at)?;
    if store.guards.is_empty() && !built.parts.iter().any(|(slot, _)| *slot == store.slot) {
        covers(&built.kernel, n, &at, &flat, &room)?;
    }
    let conditions = reader.conditions(&built.kernel.body, &store.guards, &at)?;
    case.facts.assume(conditions.iter().cloned(), || {
        let index = unflattened(&case, &flat, &room);
        let own = reader.value(&built.kernel.body, store.value, &at)?;
        let reads: BTreeSet<usize> = built.classes[..built.reads].iter().copied().collect();
        let want = program::Nodes::new(&case, block, reads).element(class, &index)?;
        case.left.set(false);
        let float = Ty::fixed(built.kernel.slots[store.slot].0).kind;
        same(&case, claim, float, &want, &own)
    })
}

/// Shows that the points of a store write each element once: sorted by stride, each axis steps over all those before it.
fn covers(kernel: &Kernel, n: usize, at: &[Poly], flat: &Poly, room: &[Poly]) -> Res<()> {
    let mut strides: Vec<(i128, i128)> = Vec::new();
    let mut constant = flat.clone();
    for (axis, index) in at.iter().enumerate() {
        let Some(([own @ Atom::Var(_)], 1)) = index.single() else { continue };
        let Some((slope, rest)) = constant.linear_in(own) else { return stop("a store whose map is not linear") };
        constant = rest;
        match slope.known() {
            Some(0) => {}
            Some(stride) => strides.push((stride, kernel.body.domain[axis] as i128)),
            None => return stop("a store whose strides are known at run time only"),
        }
    }
    strides.sort_unstable();
    let count = product(room).known();
    let next = strides.iter().try_fold(1, |next, (stride, extent)| (next == *stride).then_some(next * extent));
    match constant == Poly::zero() && next.is_some() && next == count {
        true => Ok(()),
        false => stop(format!("whether store {n} writes each of its elements once, at {flat}")),
    }
}
