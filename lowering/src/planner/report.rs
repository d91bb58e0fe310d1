//! What a plan says about itself: each kernel, what was fused into it, and what that gains.

use eutectic_backend::{Candidate, Cost};
use eutectic_ir::{Op, Origin, eclasses::ClassId, ops::Class};

use super::{
    search::{Searched, state::State},
    space::Space,
};
use crate::plan::PlanKernel;

/// One kernel of a plan, for people.
#[derive(Clone, Debug)]
pub struct KernelReport {
    /// What it is built around: the op of the anchor or reduction, else of the last store.
    pub anchor: Op,
    /// The model part of the anchor.
    pub origin: Origin,
    /// What else it computes, operands before users.
    pub fused: Vec<FusedOp>,
    /// How many results it stores.
    pub stores: usize,
    /// Whether it belongs to the load program.
    pub load: bool,
    /// What it is predicted to cost.
    pub cost: Cost,
    /// The ways in which the backend can compute it by itself, the one that it takes first.
    pub candidates: Vec<Candidate>,
}

/// An op that is computed in a kernel around another.
#[derive(Clone, Debug)]
pub struct FusedOp {
    /// The op.
    pub op: Op,
    /// Its model part.
    pub origin: Origin,
    /// How many predicted seconds it would add to a run to store its result instead; `None` where the result is stored, where
    /// no valid plan stores it, or for views.
    pub gain: Option<f64>,
}

/// Describes the kernels of a plan in order.
pub fn describe(space: &Space<'_>, searched: &Searched) -> Vec<KernelReport> {
    let mut state = State::new(space, searched.plan.clone()).expect("a plan that was found is valid");
    searched.priced.kernels.iter().map(|(kernel, cost)| describe_kernel(&mut state, kernel, *cost)).collect()
}

fn describe_kernel(state: &mut State<'_, '_>, kernel: &PlanKernel, cost: Cost) -> KernelReport {
    let space = state.space;
    let plan = state.plan().clone();
    let op = |class: ClassId| space.classes.classes[class].nodes.get(plan.choice[class]).map(|n| n.op);
    let origin = |class: ClassId| space.classes.classes[class].origins.first().cloned().unwrap_or_default();
    let computed: Vec<ClassId> = kernel.interior.iter().copied().filter(|&c| !space.facts.given[c]).collect();
    let is_anchor = |c: &&ClassId| matches!(op(**c).map(|o| o.def().class), Some(Class::Anchor(_)));
    let leader = computed.iter().find(is_anchor).or(computed.last()).copied().unwrap_or(kernel.stores[0]);
    let fused = computed
        .iter()
        .filter(|&&c| c != leader)
        .filter_map(|&c| {
            let op = op(c)?;
            let view = matches!(op.def().class, Class::View(_) | Class::Leaf(_));
            let gain = if view || plan.stored[c] { None } else { gain_of(state, c) };
            Some(FusedOp { op, origin: origin(c), gain })
        })
        .collect();
    KernelReport {
        anchor: op(leader).unwrap_or_else(|| space.classes.classes[leader].nodes[0].op),
        origin: origin(leader),
        fused,
        stores: kernel.stores.len(),
        load: kernel.load,
        cost,
        candidates: space.candidates(&plan, kernel),
    }
}

/// What storing a virtual class would add to the plan's price.
fn gain_of(state: &mut State<'_, '_>, class: ClassId) -> Option<f64> {
    let mark = state.mark();
    state.store(class);
    let valid = state.settle().is_ok() && state.price.impossible == 0;
    let gain = valid.then_some(state.price.seconds - mark.price.seconds);
    state.rollback(mark);
    gain
}
