//! Reports on a plan: each kernel, the ops that were fused into it, and the time that each fusion saves.

use eutectic_backend::{Candidate, Cost};
use eutectic_ir::{Op, Origin, eclasses::ClassId, ops::Class};

use super::{
    search::{Searched, state::State},
    space::Space,
};
use crate::plan::PlanKernel;

/// One kernel of a plan, in terms of the program.
#[derive(Clone, Debug)]
pub struct KernelReport {
    /// The op of the anchor or reduction, or of the last store if there is neither.
    pub anchor: Op,
    /// The model part of the anchor.
    pub origin: Origin,
    /// The other ops that it computes, operands before users.
    pub fused: Vec<FusedOp>,
    /// The number of results that it stores.
    pub stores: usize,
    /// Whether it belongs to the load program.
    pub load: bool,
    /// Its predicted cost.
    pub cost: Cost,
    /// The backend's ways to compute the kernel, the selected one first.
    pub candidates: Vec<Candidate>,
}

/// An op that is fused into a kernel.
#[derive(Clone, Debug)]
pub struct FusedOp {
    /// The op.
    pub op: Op,
    /// Its model part.
    pub origin: Origin,
    /// The predicted seconds that storing its result would add to a run. `None` for views, if the plan stores the
    /// result already, or if no valid plan stores it.
    pub gain: Option<f64>,
}

/// Describes the kernels of a plan in order.
pub fn describe(space: &Space<'_>, searched: &Searched) -> Vec<KernelReport> {
    let mut state = State::new(space, searched.plan.clone()).expect("the plan of a search is valid");
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

/// Returns the seconds that storing a virtual class would add to the plan's price.
fn gain_of(state: &mut State<'_, '_>, class: ClassId) -> Option<f64> {
    let mark = state.mark();
    state.store(class);
    let valid = state.refresh().is_ok() && state.price.impossible == 0;
    let gain = valid.then_some(state.price.seconds - mark.price.seconds);
    state.rollback(mark);
    gain
}
