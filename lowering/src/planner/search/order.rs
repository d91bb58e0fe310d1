//! Maintains a topological order of kernels while kernels are added and removed.
//!
//! The algorithm is that of Pearce and Kelly, *A dynamic topological sort algorithm for directed acyclic graphs* (JEA
//! 11, 2006): only kernels between a new kernel and its operands are visited. Labels have gaps, so that relabelling
//! these kernels suffices.

use rustc_hash::FxHashMap;

/// The number of a kernel.
pub(crate) type KernelId = u32;

/// Kernels with labels. The label of a kernel is larger than the labels of the kernels that it reads.
pub(super) trait Labelled {
    /// Returns the kernels that a kernel reads.
    fn below(&self, id: KernelId) -> impl Iterator<Item = KernelId>;

    /// Returns the kernels that read a kernel.
    fn above(&self, id: KernelId) -> impl Iterator<Item = KernelId>;

    /// Returns a kernel's label.
    fn label(&self, id: KernelId) -> u64;

    /// Gives a kernel a label.
    fn relabel(&mut self, id: KernelId, label: u64);
}

/// The gap between a new kernel's label and the largest label of its operands.
const GAP: u64 = 1 << 32;

/// The maximal number of kernels that are relabelled for a new one. Insertions that need more fail as if there were a
/// cycle.
pub(super) const REACH: usize = 512;

/// Labels new kernels, given in ascending order of their ids, and sorts them by label.
///
/// # Errors
/// If kernels read each other's results in a cycle. The error has the kernels of one cycle.
pub(super) fn insert(state: &mut impl Labelled, fresh: &mut [KernelId]) -> Result<(), Vec<KernelId>> {
    // There are few kernels, so a binary search is faster than a table.
    let new = |id: KernelId| fresh.binary_search(&id).ok();
    let mut waits: Vec<usize> =
        fresh.iter().map(|&id| state.below(id).filter(|&below| new(below).is_some()).count()).collect();
    let mut ready: Vec<usize> = (0..fresh.len()).filter(|&at| waits[at] == 0).collect();
    let mut placed = vec![false; fresh.len()];
    while let Some(at) = ready.pop() {
        place(state, fresh[at], &|&other| new(other).is_some_and(|other| !placed[other]))?;
        placed[at] = true;
        for above in state.above(fresh[at]).filter_map(new) {
            waits[above] -= 1;
            if waits[above] == 0 {
                ready.push(above);
            }
        }
    }
    if let Some(at) = placed.iter().position(|placed| !placed) {
        // Each remaining kernel reads another remaining kernel. So following these reads leads back to a visited
        // kernel.
        let left = |id: &KernelId| state.below(*id).find(|&below| new(below).is_some_and(|below| !placed[below]));
        let (mut path, mut places) = (Vec::new(), FxHashMap::default());
        let mut next = Some(fresh[at]);
        while let Some(id) = next.filter(|id| !places.contains_key(id)) {
            places.insert(id, path.len());
            path.push(id);
            next = left(&id);
        }
        let from = next.map_or(0, |id| places[&id]);
        return Err(path.split_off(from));
    }
    fresh.sort_unstable_by_key(|&id| state.label(id));
    Ok(())
}

/// Inserts `id` after its operands, which have labels, and relabels its users above it.
fn place<L: Labelled>(state: &mut L, id: KernelId, unplaced: &impl Fn(&KernelId) -> bool) -> Result<(), Vec<KernelId>> {
    let low = state.below(id).map(|below| state.label(below)).max().unwrap_or(0);
    let readers =
        |state: &L, of: KernelId| -> Vec<KernelId> { state.above(of).filter(|above| !unplaced(above)).collect() };
    let high = readers(state, id).iter().map(|&above| state.label(above)).min().unwrap_or(u64::MAX);
    let room = high.saturating_sub(low);
    state.relabel(id, if room > 2 * GAP { low + GAP } else { low + (room / 2).max(1) });
    let mut open = vec![id];
    let mut lifted = 0;
    let mut lifted_for = FxHashMap::default();
    while let Some(at) = open.pop() {
        let least = state.label(at) + 1;
        for above in readers(state, at) {
            if state.label(above) >= least {
                continue;
            }
            lifted += 1;
            // A path from a new kernel to one of its operands passes only through relabelled kernels.
            lifted_for.insert(above, at);
            if lifted > REACH || state.below(id).any(|below| below == above) {
                let path = std::iter::successors(Some(above), |at| lifted_for.get(at).copied().filter(|_| *at != id));
                return Err(path.take(REACH).collect());
            }
            state.relabel(above, least);
            open.push(above);
        }
    }
    Ok(())
}
