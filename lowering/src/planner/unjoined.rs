//! Reports why a kernel and a reader of its results are two kernels of a plan.

use eutectic_ir::{Op, Origin, eclasses::ClassId};
use rustc_hash::FxHashMap;

use super::{
    search::{Searched, state::State},
    space::Space,
};
use crate::plan::{PlanError, PlanKernel};

/// Two kernels that were not joined, and the reason.
#[derive(Clone, Debug)]
pub struct UnjoinedPair {
    /// The number of the kernel that stores the results.
    pub from: usize,
    /// The number of the kernel that reads them.
    pub to: usize,
    /// The results: the ops that compute them, each with its model part.
    pub between: Vec<(Op, Origin)>,
    /// The reason why they are stored.
    pub why: Reason,
}

/// The reason why two kernels were not joined.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// A joined kernel is possible, and would add these predicted seconds to a run. They are negative if the search
    /// ended before it tried the kernel.
    Dearer(f64),
    /// A joined kernel is impossible for this reason.
    Impossible(String),
}

/// Returns each pair of a kernel and a reader of its results, in the order of the readers.
pub fn unjoined_pairs(space: &Space<'_>, searched: &Searched) -> Vec<UnjoinedPair> {
    let mut state = State::new(space, searched.plan.clone()).expect("the plan of a search is valid");
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

/// Returns the reason why the kernel `to` reads `classes` from the kernel `from` instead of computing them. Of two ways
/// to join the kernels, the cheaper one counts: `to` computes the classes and nothing stores them, or one kernel has
/// the stores of both kernels.
fn reason(state: &mut State<'_, '_>, from: &PlanKernel, to: &PlanKernel, classes: &[ClassId]) -> Reason {
    if from.load && !to.load {
        return Reason::Impossible(
            "the first kernel runs once, when parameters are loaded, and the second in every run".into(),
        );
    }
    let leader = |kernel: &PlanKernel, state: &State<'_, '_>| state.plan().host[kernel.stores[0]];
    let (first, second) = (leader(from, state), leader(to, state));
    let wanted = classes.iter().any(|&class| state.space.facts.output[class]);
    let virtually = if wanted {
        Err("the value is an output of the program or of a repeated block".to_string())
    } else {
        attempt(state, |state| classes.iter().for_each(|&class| state.release(class)))
    };
    let together = attempt(state, |state| state.join(first, second));
    match (virtually, together) {
        (Ok(one), Ok(other)) => Reason::Dearer(one.min(other)),
        (Ok(seconds), Err(_)) | (Err(_), Ok(seconds)) => Reason::Dearer(seconds),
        (Err(why), Err(also)) if wanted => {
            Reason::Impossible(format!("{why}; one kernel with the stores of both is impossible because {also}"))
        }
        (Err(why), Err(_)) => Reason::Impossible(why),
    }
}

/// Returns the seconds that an edit adds to the price, or the reason why the edited plan is invalid. The state is
/// restored.
fn attempt(state: &mut State<'_, '_>, edit: impl FnOnce(&mut State<'_, '_>)) -> Result<f64, String> {
    let mark = state.mark();
    edit(state);
    let result = match state.refresh() {
        Ok(()) if state.price.impossible > mark.price.impossible => Err(refused(state)),
        Ok(()) => Ok(state.price.seconds - mark.price.seconds),
        Err(error) => Err(in_words(state.space, &error)),
    };
    state.rollback(mark);
    result
}

/// Returns the reasons why kernels cannot be built.
fn refused(state: &State<'_, '_>) -> String {
    let impossible = state.in_order().into_iter().filter(|&id| !state.is_possible(id));
    let mut reasons: Vec<String> =
        impossible.map(|id| state.space.refusal(state.plan(), &state.kernel(id).kernel)).collect();
    reasons.dedup();
    reasons.join("; ")
}

/// Returns the message of a plan error, with model parts in place of class numbers.
fn in_words(space: &Space<'_>, error: &PlanError) -> String {
    let place = |class: &ClassId| space.classes.classes[*class].origins.first().cloned().unwrap_or_default();
    match error {
        PlanError::SharedAnchor(_, readers) => {
            format!("{readers} kernels read the result, and each would compute its product or reduction again")
        }
        PlanError::CyclicKernels(class) | PlanError::CyclicChoice(class) => {
            format!("the joined kernel would depend on its own result through {}", place(class))
        }
        PlanError::Kernel(_, why) => why.clone(),
        PlanError::NoChoice(class) | PlanError::NoHost(class, _) => {
            format!("no kernel would compute {}", place(class))
        }
    }
}
