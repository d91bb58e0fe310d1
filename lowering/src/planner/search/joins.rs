//! Tries moves that change which kernel stores a class: merging two kernels, and giving a class its own kernel.

use eutectic_ir::eclasses::ClassId;
use rustc_hash::FxHashMap;

use super::{Search, retry::Move};

/// The maximal number of merges that are tried for a kernel and one class that it reads or stores. Each merge is with a
/// later kernel that reads the class. A small kernel is also merged with at most this number of later small kernels.
const PARTNERS: usize = 8;

impl Search<'_, '_> {
    /// Tries to merge pairs of kernels, with the stores of both, and to give a stored class a kernel of its own.
    pub(super) fn host_moves(&mut self) {
        for (leader, partners) in self.partners() {
            for other in partners {
                let both = [leader, other].map(|leader| self.state.led_by(leader).is_some());
                if both == [true, true] && self.fresh.try_now(Move::Join(leader, other), [leader, other]) {
                    self.attempt(|state| state.join(leader, other));
                }
            }
            let stores = self.state.led_by(leader).map_or(Vec::new(), |live| live.kernel.stores.clone());
            for class in stores.into_iter().filter(|c| *c != leader) {
                if self.state.plan().host[class] == leader && self.fresh.try_now(Move::Leave(class), [class]) {
                    self.attempt(|state| state.set_host(class, class));
                }
            }
        }
    }

    /// Returns, for the leader of each kernel in order, the leaders of later kernels that may share a launch. These
    /// kernels read a class that the first kernel reads or stores, or both kernels are small (`State::is_small`).
    fn partners(&self) -> Vec<(ClassId, Vec<ClassId>)> {
        let ids = self.state.in_order();
        // For each class, its readers in order.
        let mut readers: FxHashMap<ClassId, Vec<usize>> = FxHashMap::default();
        for (at, &id) in ids.iter().enumerate() {
            for &class in &self.state.kernel(id).kernel.reads {
                readers.entry(class).or_default().push(at);
            }
        }
        let small: Vec<bool> = ids.iter().map(|id| self.state.is_small(*id)).collect();
        let of = |at: usize| {
            let kernel = &self.state.kernel(ids[at]).kernel;
            let mut partners: Vec<usize> = Vec::new();
            for class in kernel.reads.iter().chain(&kernel.stores) {
                let readers = readers.get(class).map_or(&[][..], |r| r);
                let next = readers.partition_point(|&reader| reader <= at);
                partners.extend(readers[next..].iter().take(PARTNERS));
            }
            if small[at] {
                partners.extend((at + 1..ids.len()).filter(|&other| small[other]).take(PARTNERS));
            }
            partners.sort_unstable();
            partners.dedup();
            (
                self.state.kernel(ids[at]).leader,
                partners.into_iter().map(|p| self.state.kernel(ids[p]).leader).collect(),
            )
        };
        (0..ids.len()).map(of).collect()
    }
}
