//! Numbers the kernels of a planned program, and reports repeated layers and the rules that led to each kernel.

use std::{
    collections::{BTreeSet, HashMap},
    ops::Range,
};

use eutectic_ir::Origin;
use eutectic_rewrites::Applied;

use crate::Planned;

/// Consecutive calls of one block: a repeated layer.
pub struct Repeat {
    /// The block, as an index into [`Planned::blocks`].
    pub block: usize,
    /// The calls, as indices into the calls of [`Planned::outlined`].
    pub calls: Range<usize>,
}

/// Returns the calls of a program in order. Consecutive repetitions form one group.
pub fn stretches(planned: &Planned) -> Vec<Repeat> {
    let mut first = 0;
    let calls = planned.outlined.calls.chunk_by(|a, b| a.block == b.block);
    calls
        .map(|same| {
            let calls = first..first + same.len();
            first = calls.end;
            Repeat { block: same[0].block, calls }
        })
        .collect()
}

/// The numbers of a program's kernels, which are the same in all reports. Kernels of a run have the numbers of their
/// steps, starting at 1. Kernels of the load program are `L1`, `L2` and so on.
pub struct Numbers(HashMap<(usize, usize), String>);

impl Numbers {
    /// Numbers the kernels of a program.
    pub fn of(planned: &Planned) -> Numbers {
        let steps = planned.lowered.steps.iter().enumerate();
        let mut numbers: HashMap<_, _> =
            steps.filter_map(|(at, step)| Some(((*step)?, (at + 1).to_string()))).collect();
        let mut loads = 0;
        for (call, body) in planned.outlined.calls.iter().enumerate() {
            let kernels = &planned.blocks[body.block].searched.priced.kernels;
            for (at, _) in kernels.iter().enumerate().filter(|(_, (kernel, _))| kernel.load) {
                loads += 1;
                numbers.insert((call, at), format!("L{loads}"));
            }
        }
        Numbers(numbers)
    }

    /// Returns the number of a call's kernel, or `–` if it has no separate step.
    pub fn get(&self, call: usize, kernel: usize) -> &str {
        self.0.get(&(call, kernel)).map_or("–", String::as_str)
    }
}

/// Returns the part of the model for an origin within a block, in one of its calls.
pub fn origin_in(planned: &Planned, call: usize, origin: &Origin) -> Origin {
    let known = &planned.outlined.calls[call].origins;
    known.iter().find(|(from, _)| from == origin).map_or_else(|| origin.clone(), |(_, to)| to.clone())
}

/// Returns the rule applications that led to a kernel of a block, in order.
pub fn applied(planned: &Planned, block: usize, kernel: usize) -> Vec<&Applied> {
    let (rewritten, searched) = (&planned.rewritten[block], &planned.blocks[block].searched);
    let computed = searched.priced.kernels[kernel].0.interior.iter();
    let led: BTreeSet<*const Applied> = computed
        .flat_map(|&class| rewritten.explain(class, searched.plan.choice[class]))
        .map(std::ptr::from_ref)
        .collect();
    rewritten.applications.iter().filter(|a| led.contains(&std::ptr::from_ref(*a))).collect()
}
