//! Don't-look bits of local search: a move that was refused is tried again only after a kernel near it has changed.

use eutectic_ir::eclasses::{ClassId, NodeChoice};
use rustc_hash::FxHashMap;

use crate::plan::PlanKernel;

/// A move of the search.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Move {
    /// Stores a class or makes it virtual.
    Flip(ClassId),
    /// Stores a neighbour instead of the class.
    Shift(ClassId),
    /// Computes a class by another of its e-nodes.
    Choose(ClassId, usize),
    /// Applies all choices of a bundle.
    Bundle(usize),
    /// Computes all views of a class from it.
    Share(ClassId),
    /// Merges the kernels of two leaders.
    Join(ClassId, ClassId),
    /// Lets a class leave the kernel that hosts it.
    Leave(ClassId),
}

/// How often a choice was refused, and the time of the first refusal.
struct Refusals {
    times: u32,
    first: u32,
}

/// Remembers when moves were tried, and when the kernels around each class last changed.
///
/// A plan costs the sum of its kernels, so the gain of a move depends only on the kernels that it changes.
pub struct RetryFilter {
    /// The number of accepted moves.
    now: u32,
    changed: Vec<u32>,
    tried: FxHashMap<Move, u32>,
    refused: FxHashMap<NodeChoice, Refusals>,
}

impl RetryFilter {
    /// Returns the state before any move.
    pub fn new(classes: usize) -> RetryFilter {
        RetryFilter { now: 0, changed: vec![0; classes], tried: FxHashMap::default(), refused: FxHashMap::default() }
    }

    /// Returns whether a move that changes kernels of these classes should be tried. If so, it is recorded as tried
    /// now.
    pub fn try_now(&mut self, step: Move, near: impl IntoIterator<Item = ClassId>) -> bool {
        let changed = near.into_iter().map(|class| self.changed[class]).max();
        let fresh = self.tried.get(&step).is_none_or(|&at| changed.is_some_and(|changed| changed > at));
        if fresh {
            self.tried.insert(step, self.now);
        }
        fresh
    }

    /// Returns how often choosing an e-node was refused since the kernels around its class last changed.
    pub fn refusals(&self, choice: NodeChoice) -> u32 {
        let refused = self.refused.get(&choice).filter(|refused| self.changed[choice.class] <= refused.first);
        refused.map_or(0, |refused| refused.times)
    }

    /// Records a refusal.
    pub fn refuse(&mut self, choice: NodeChoice) {
        let times = self.refusals(choice) + 1;
        let first = if times == 1 { self.now } else { self.refused[&choice].first };
        self.refused.insert(choice, Refusals { times, first });
    }

    /// Records an accepted move: the classes of all kernels that it removed or added have changed.
    pub fn mark<'k>(&mut self, kernels: impl Iterator<Item = &'k PlanKernel>) {
        self.now += 1;
        for kernel in kernels {
            for &class in kernel.interior.iter().chain(&kernel.reads) {
                self.changed[class] = self.now;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_count_until_something_near_changes() {
        let mut fresh = RetryFilter::new(4);
        let choice = |class, node| NodeChoice { class, node };
        (0..3).for_each(|_| fresh.refuse(choice(1, 2)));
        let refusals = [choice(1, 2), choice(1, 0), choice(2, 2)].map(|choice| fresh.refusals(choice));
        assert_eq!(refusals, [3, 0, 0]);
        let kernel = |class| PlanKernel { stores: vec![class], interior: vec![class], reads: vec![], load: false };
        fresh.mark([kernel(3)].iter());
        assert_eq!(fresh.refusals(choice(1, 2)), 3);
        fresh.mark([kernel(1)].iter());
        assert_eq!(fresh.refusals(choice(1, 2)), 0);
        fresh.refuse(choice(1, 2));
        assert_eq!(fresh.refusals(choice(1, 2)), 1);
    }
}
