//! An order of kernels in which what is read is stored before, kept up to date as kernels come and go.
//!
//! As in Pearce and Kelly, *A dynamic topological sort algorithm for directed acyclic graphs* (JEA 11, 2006), only kernels that stand
//! between a new one and what it waits for are visited. Labels leave room between them, so that lifting those is all it takes.

use rustc_hash::{FxHashMap, FxHashSet};

use super::state::{KernelId, State};
use crate::plan::PlanError;

/// Room between a kernel and the last that it waits for.
const GAP: u64 = 1 << 32;

/// How often kernels are lifted for a new one at most; what would take more is refused like a circle.
const REACH: usize = 512;

/// Gives new kernels their places, and sorts them by these.
///
/// # Errors
/// When kernels wait for each other.
pub(super) fn insert(state: &mut State<'_, '_>, fresh: &mut [KernelId]) -> Result<(), PlanError> {
    let new: FxHashSet<KernelId> = fresh.iter().copied().collect();
    let mut waits: FxHashMap<KernelId, usize> = FxHashMap::default();
    for &id in fresh.iter() {
        waits.insert(id, state.below(id).filter(|below| new.contains(below)).count());
    }
    let mut ready: Vec<KernelId> = fresh.iter().copied().filter(|id| waits[id] == 0).collect();
    let mut placed: FxHashSet<KernelId> = FxHashSet::default();
    while let Some(id) = ready.pop() {
        let unplaced = |other: &KernelId| new.contains(other) && !placed.contains(other);
        place(state, id, &unplaced)?;
        placed.insert(id);
        for above in state.above(id).filter(|above| new.contains(above)) {
            let left = waits.get_mut(&above).expect("every new kernel is counted");
            *left -= 1;
            if *left == 0 {
                ready.push(above);
            }
        }
    }
    if let Some(&id) = fresh.iter().find(|id| !placed.contains(*id)) {
        return Err(PlanError::CyclicKernels(state.kernel(id).kernel.stores[0]));
    }
    fresh.sort_unstable_by_key(|&id| state.kernel(id).label);
    Ok(())
}

/// Places one new kernel, all whose operands are placed, and lifts what waits for it over it.
fn place(state: &mut State<'_, '_>, id: KernelId, unplaced: &impl Fn(&KernelId) -> bool) -> Result<(), PlanError> {
    let low = state.below(id).map(|below| state.kernel(below).label).max().unwrap_or(0);
    let readers = |state: &State<'_, '_>, of: KernelId| -> Vec<KernelId> {
        state.above(of).filter(|above| !unplaced(above)).collect()
    };
    let high = readers(state, id).iter().map(|&above| state.kernel(above).label).min().unwrap_or(u64::MAX);
    let room = high.saturating_sub(low);
    state.relabel(id, if room > 2 * GAP { low + GAP } else { low + (room / 2).max(1) });
    let mut open = vec![id];
    let mut lifted = 0;
    while let Some(at) = open.pop() {
        let least = state.kernel(at).label + 1;
        for above in readers(state, at) {
            if state.kernel(above).label >= least {
                continue;
            }
            lifted += 1;
            // A path from a new kernel to one that it waits for runs through labels that are lifted, all of them.
            if lifted > REACH || state.below(id).any(|below| below == above) {
                return Err(PlanError::CyclicKernels(state.kernel(id).kernel.stores[0]));
            }
            state.relabel(above, least);
            open.push(above);
        }
    }
    Ok(())
}
