//! Don't-look bits, as local search for tours has them: a move that was refused is not tried again until something near it changes.

use eutectic_ir::eclasses::ClassId;
use rustc_hash::FxHashMap;

use crate::plan::PlanKernel;

/// A move of the search.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Move {
    /// Stores a class or makes it virtual.
    Flip(ClassId),
    /// Stores a neighbour in its stead.
    Shift(ClassId),
    /// Computes a class by another of its e-nodes.
    Choose(ClassId, usize),
    /// Takes all choices of a bundle.
    Bundle(usize),
    /// Computes all views of a class from it.
    Share(ClassId),
    /// Makes one kernel of two leaders'.
    Join(ClassId, ClassId),
    /// Lets a class leave the kernel that hosts it.
    Leave(ClassId),
}

/// When moves were tried, and when the kernels around each class last changed.
///
/// A plan costs what its kernels cost: what a move gains depends on the kernels that it changes and on nothing else.
pub struct Fresh {
    /// How many plans have been taken.
    now: u32,
    changed: Vec<u32>,
    tried: FxHashMap<Move, u32>,
    /// How often a class computed by another e-node was refused, and when that was first.
    refused: FxHashMap<(ClassId, usize), (u32, u32)>,
}

impl Fresh {
    /// Nothing has been tried.
    pub fn new(classes: usize) -> Fresh {
        Fresh { now: 0, changed: vec![0; classes], tried: FxHashMap::default(), refused: FxHashMap::default() }
    }

    /// Whether a move that changes kernels of these classes is worth a try; if so it counts as tried now.
    pub fn try_now(&mut self, step: Move, near: impl IntoIterator<Item = ClassId>) -> bool {
        let changed = near.into_iter().map(|class| self.changed[class]).max();
        let fresh = self.tried.get(&step).is_none_or(|&at| changed.is_some_and(|changed| changed > at));
        if fresh {
            self.tried.insert(step, self.now);
        }
        fresh
    }

    /// How often moves that compute a class by one of its e-nodes were refused since the kernels around it last changed.
    pub fn refusals(&self, class: ClassId, node: usize) -> u32 {
        self.refused.get(&(class, node)).filter(|(_, at)| self.changed[class] <= *at).map_or(0, |(times, _)| *times)
    }

    /// Counts one.
    pub fn refuse(&mut self, class: ClassId, node: usize) {
        let times = self.refusals(class, node) + 1;
        let at = if times == 1 { self.now } else { self.refused[&(class, node)].1 };
        self.refused.insert((class, node), (times, at));
    }

    /// Another plan is taken: everything in the kernels that have come and gone has changed.
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
        let mut fresh = Fresh::new(4);
        (0..3).for_each(|_| fresh.refuse(1, 2));
        assert_eq!((fresh.refusals(1, 2), fresh.refusals(1, 0), fresh.refusals(2, 2)), (3, 0, 0));
        let kernel = |class| PlanKernel { stores: vec![class], interior: vec![class], reads: vec![], load: false };
        fresh.mark([kernel(3)].iter());
        assert_eq!(fresh.refusals(1, 2), 3);
        fresh.mark([kernel(1)].iter());
        assert_eq!(fresh.refusals(1, 2), 0);
        fresh.refuse(1, 2);
        assert_eq!(fresh.refusals(1, 2), 1);
    }
}
