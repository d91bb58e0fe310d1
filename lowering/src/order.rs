//! Sorts steps topologically.

use std::{cmp::Reverse, collections::BinaryHeap};

use eutectic_backend::{
    BufferId, Kernel, Step,
    hazards::{MemoryRange, MemorySpace, Touched, hazards},
};

/// Returns, for each step, the steps that must come after it. The buffers must not share memory.
pub(crate) fn followers(kernels: &[Kernel], steps: &[Step]) -> Vec<Vec<usize>> {
    let whole = |&buffer: &BufferId| MemoryRange { space: MemorySpace::Buffer(buffer), bytes: 0..1 };
    let touched = |step: &Step| {
        let (reads, writes) = step.buffers.split_at(step.buffers.len() - kernels[step.kernel].stores.len());
        Touched { reads: reads.iter().map(whole).collect(), writes: writes.iter().map(whole).collect() }
    };
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); steps.len()];
    for (at, waits) in hazards(steps.iter().map(touched)).into_iter().enumerate() {
        waits.into_iter().for_each(|earlier| after[earlier].push(at));
    }
    after
}

/// A set of ready steps, which chooses the next one.
pub(crate) trait Ready {
    /// Adds a step.
    fn add(&mut self, step: usize);
    /// Removes and returns the next step; `None` if the set is empty.
    fn take(&mut self) -> Option<usize>;
}

/// Chooses the ready step with the least number.
#[derive(Default)]
pub(crate) struct FirstStep(BinaryHeap<Reverse<usize>>);

impl Ready for FirstStep {
    fn add(&mut self, step: usize) {
        self.0.push(Reverse(step));
    }

    fn take(&mut self) -> Option<usize> {
        self.0.pop().map(|Reverse(step)| step)
    }
}

/// Sorts steps so that each comes before the steps in its list `after`. Returns `None` if the lists have a cycle.
pub(crate) fn order(after: &[Vec<usize>], mut ready: impl Ready) -> Option<Vec<usize>> {
    let mut waiting = vec![0_usize; after.len()];
    after.iter().flatten().for_each(|&step| waiting[step] += 1);
    (0..after.len()).filter(|&step| waiting[step] == 0).for_each(|step| ready.add(step));
    let mut order = Vec::with_capacity(after.len());
    while let Some(step) = ready.take() {
        order.push(step);
        for &next in &after[step] {
            waiting[next] -= 1;
            if waiting[next] == 0 {
                ready.add(next);
            }
        }
    }
    (order.len() == after.len()).then_some(order)
}
