//! Reports why two kernels of a plan stay two where one reads results of the other.

use eutectic_ir::{Op, Origin, eclasses::ClassId};
use rustc_hash::FxHashMap;

use super::{
    search::{Searched, state::State},
    space::Space,
};
use crate::plan::{PlanError, PlanKernel};

/// Two kernels that are not one, and the reason.
#[derive(Clone, Debug)]
pub struct UnjoinedPair {
    /// The kernel that stores what the other reads, by its number in the plan.
    pub from: usize,
    /// The kernel that reads.
    pub to: usize,
    /// What is stored between them: the ops that compute it, each with its model part.
    pub between: Vec<(Op, Origin)>,
    /// Why it is stored.
    pub why: Reason,
}

/// Why two kernels are not one.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// One kernel in their place is possible, and would add so many predicted seconds to a run. Less than nothing where the search has
    /// ended before it tried.
    Dearer(f64),
    /// There is no such kernel, and this is why.
    Impossible(String),
}

/// Returns the pairs of a kernel and another one that reads its results, in the order of the readers.
pub fn unjoined_pairs(space: &Space<'_>, searched: &Searched) -> Vec<UnjoinedPair> {
    let mut state = State::new(space, searched.plan.clone()).expect("a plan that was found is valid");
    let kernels = &searched.priced.kernels;
    let stores = kernels.iter().enumerate().flat_map(|(at, (kernel, _))| kernel.stores.iter().map(move |&c| (c, at)));
    let maker: FxHashMap<ClassId, usize> = stores.collect();
    let mut pairs = Vec::new();
    for (to, (kernel, _)) in kernels.iter().enumerate() {
        let mut by_maker: Vec<(usize, Vec<ClassId>)> = Vec::new();
        for &class in &kernel.reads {
            let Some(&from) = maker.get(&class) else { continue };
            match by_maker.iter_mut().find(|(at, _)| *at == from) {
                Some((_, classes)) => classes.push(class),
                None => by_maker.push((from, vec![class])),
            }
        }
        for (from, classes) in by_maker {
            let op = |&class: &ClassId| {
                let c = &space.classes.classes[class];
                (c.nodes[searched.plan.choice[class]].op, c.origins.first().cloned().unwrap_or_default())
            };
            let why = reason(&mut state, &kernels[from].0, kernel, &classes);
            pairs.push(UnjoinedPair { from, to, between: classes.iter().map(op).collect(), why });
        }
    }
    pairs
}

/// What keeps `classes`, which one kernel stores, from being computed where the other reads them. They may become virtual, or the one kernel
/// may store both; the better of the two counts.
fn reason(state: &mut State<'_, '_>, from: &PlanKernel, to: &PlanKernel, classes: &[ClassId]) -> Reason {
    if from.load && !to.load {
        return Reason::Impossible("it is computed once, when parameters are loaded, and read in every run".into());
    }
    let leader = |kernel: &PlanKernel, state: &State<'_, '_>| state.plan().host[kernel.stores[0]];
    let (first, second) = (leader(from, state), leader(to, state));
    let wanted = classes.iter().any(|&class| state.space.facts.output[class]);
    let virtually = if wanted {
        Err("it is an output of the program, or of a part that repeats".to_string())
    } else {
        attempt(state, |state| classes.iter().for_each(|&class| state.release(class)))
    };
    let together = attempt(state, |state| state.join(first, second));
    match (virtually, together) {
        (Ok(one), Ok(other)) => Reason::Dearer(one.min(other)),
        (Ok(seconds), Err(_)) | (Err(_), Ok(seconds)) => Reason::Dearer(seconds),
        (Err(why), Err(also)) if wanted => Reason::Impossible(format!("{why}; one kernel for both: {also}")),
        (Err(why), Err(_)) => Reason::Impossible(why),
    }
}

/// What an edit adds to the price, or why there is no plan with it; the state stays as it is.
fn attempt(state: &mut State<'_, '_>, edit: impl FnOnce(&mut State<'_, '_>)) -> Result<f64, String> {
    let mark = state.mark();
    edit(state);
    let result = match state.settle() {
        Ok(()) if state.price.impossible > mark.price.impossible => Err(refused(state)),
        Ok(()) => Ok(state.price.seconds - mark.price.seconds),
        Err(error) => Err(in_words(state.space, &error)),
    };
    state.rollback(mark);
    result
}

/// Why the kernels that cannot be built cannot.
fn refused(state: &State<'_, '_>) -> String {
    let impossible = state.in_order().into_iter().filter(|&id| !state.is_possible(id));
    let mut reasons: Vec<String> =
        impossible.map(|id| state.space.refusal(state.plan(), &state.kernel(id).kernel)).collect();
    reasons.dedup();
    reasons.join("; ")
}

/// A plan's error in terms of the program: numbers of classes mean nothing to who reads it.
fn in_words(space: &Space<'_>, error: &PlanError) -> String {
    let place = |class: &ClassId| space.classes.classes[*class].origins.first().cloned().unwrap_or_default();
    match error {
        PlanError::SharedAnchor(_, readers) => {
            format!("{readers} kernels read it, and each would compute its product or reduction anew")
        }
        PlanError::CyclicKernels(class) | PlanError::CyclicChoice(class) => {
            format!("it would wait for itself, by way of {}", place(class))
        }
        PlanError::Kernel(_, why) => why.clone(),
        PlanError::NoChoice(class) | PlanError::NoHost(class, _) => {
            format!("nothing would be left to compute {}", place(class))
        }
    }
}
