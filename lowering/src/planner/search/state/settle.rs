//! Kernels follow the edits of a plan: those that it touches are derived anew, checked, ordered and priced.

use std::{collections::BinaryHeap, sync::Arc};

use eutectic_ir::eclasses::ClassId;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::{Live, NONE, Price, State, Undo};
use crate::{
    plan::PlanError,
    planner::{
        search::order::{self, KernelId},
        space::KernelPrice,
    },
};

/// Why kernels cannot stand, and classes of which one must not be needed if they are to.
struct Refused {
    error: PlanError,
    of: Vec<ClassId>,
}

impl State<'_, '_> {
    /// Derives and prices the kernels that edits since the last call have touched.
    ///
    /// # Errors
    /// When the plan is not valid; what was done is to be rolled back then.
    pub fn settle(&mut self) -> Result<(), PlanError> {
        self.settle_from(BinaryHeap::new(), &|_| Price::ANY).map(|_| ())
    }

    /// As [`State::settle`], for a plan that is of no use where it costs more than what `most` says once its kernels are there: whether it
    /// may cost less. If not, not all of it is priced, for building a kernel takes far longer than deriving it, and what was done is to be
    /// rolled back.
    ///
    /// # Errors
    /// As of [`State::settle`].
    pub fn settle_within(&mut self, most: &dyn Fn(&Self) -> Price) -> Result<bool, PlanError> {
        self.settle_from(BinaryHeap::new(), most)
    }

    /// As [`State::settle_within`], with classes to look at besides, each where its kernel stood in the order.
    pub(super) fn settle_from(
        &mut self,
        mut open: BinaryHeap<(u64, ClassId)>,
        most: &dyn Fn(&Self) -> Price,
    ) -> Result<bool, PlanError> {
        let start = self.undo.len();
        for id in std::mem::take(&mut self.stale) {
            if self.kernels.get(id as usize).is_some_and(Option::is_some) {
                self.remove(id, &mut open);
            }
        }
        loop {
            match self.take_turns(&mut open).and_then(|()| self.finish(start, most)) {
                Ok(within) => return Ok(within),
                Err(Refused { error, of }) => {
                    let mut needed = FxHashSet::default();
                    if !of.into_iter().any(|class| self.drop_unneeded(class, &mut needed, &mut open)) {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Derives the kernels of open classes that have to be stored, and drops those of classes that have not.
    fn take_turns(&mut self, open: &mut BinaryHeap<(u64, ClassId)>) -> Result<(), Refused> {
        // Users before operands: whether a class is still read is known when its turn comes. A kernel that went and came
        // back is rare, and that two take turns at it without end is ruled out by giving up.
        let (mut turns, mut failed, mut steps) = (0, Vec::new(), usize::MAX);
        loop {
            while let Some((label, class)) = open.pop() {
                turns += 1;
                if turns > 64 * (self.kernels.len() + 64) {
                    return Err(Refused { error: PlanError::CyclicKernels(class), of: vec![class] });
                }
                match (self.is_live(class), self.maker[class]) {
                    (true, NONE) => {
                        let error = self.derive(class, label, open).err();
                        failed.extend(error.map(|error| (label, class, error)));
                    }
                    (false, id) if id != NONE => self.remove(id, open),
                    _ => {}
                }
            }
            // Whoever read it, or what is stored with it, may have gone since.
            failed.retain(|(_, class, _)| self.is_live(*class) && self.maker[*class] == NONE);
            open.extend(failed.iter().map(|(label, class, _)| (*label, *class)));
            let Some((_, class, error)) = failed.drain(..).next() else { return Ok(()) };
            if self.undo.len() == steps {
                let host = self.plan.host[class];
                return Err(Refused { error, of: self.guests[host].iter().copied().chain([host, class]).collect() });
            }
            steps = self.undo.len();
        }
    }

    /// Whether a class has to be stored: it is an output, or some kernel reads it.
    fn is_live(&self, class: ClassId) -> bool {
        self.space.facts.output[class] || (self.plan.stored[class] && !self.readers[class].is_empty())
    }

    /// Derives the kernel that stores a class.
    fn derive(&mut self, class: ClassId, label: u64, open: &mut BinaryHeap<(u64, ClassId)>) -> Result<(), PlanError> {
        let leader = self.plan.leader(class)?;
        if self.led[leader] != NONE {
            self.remove(self.led[leader], open);
        }
        let guests = self.guests[leader].iter().chain([&leader]).copied();
        let mut stores: Vec<ClassId> = guests.filter(|&c| self.plan.stored[c] && self.is_live(c)).collect();
        stores.sort_unstable();
        let facts = &self.space.facts;
        let kernel = self.walker.kernel(self.space.classes, &facts.given, &self.plan, leader, stores)?;
        self.space.spend(kernel.interior.len() + kernel.reads.len());
        for &read in kernel.reads.iter().filter(|c| !facts.given[**c] && self.maker[**c] == NONE) {
            open.push((label, read));
        }
        let id = self.attach(Box::new(Live {
            leader,
            at_reads: SmallVec::new(),
            at_interior: SmallVec::new(),
            kernel: Arc::new(kernel),
            label,
            seconds: 0.0,
            counted: false,
        }));
        self.undo.push(Undo::Added(id));
        Ok(())
    }

    /// Drops a kernel; what it stored may have to be stored elsewhere, and what it read may no longer be needed.
    fn remove(&mut self, id: KernelId, open: &mut BinaryHeap<(u64, ClassId)>) {
        let live = self.detach(id);
        open.extend(live.kernel.stores.iter().map(|&class| (live.label, class)));
        let made = live.kernel.reads.iter().filter(|c| !self.space.facts.given[**c]);
        open.extend(made.filter_map(|&class| Some((self.maker_of(class)?.label, class))));
        self.undo.push(Undo::Removed(live));
    }

    /// Drops what stores and reads a class that no output needs: the count of readers, by which kernels go, keeps those that only read
    /// each other. Whether there were any; what many wait for is taken for needed.
    fn drop_unneeded(
        &mut self,
        class: ClassId,
        needed: &mut FxHashSet<ClassId>,
        open: &mut BinaryHeap<(u64, ClassId)>,
    ) -> bool {
        let Some(unneeded) = self.unneeded_with(class, needed) else { return false };
        for class in unneeded {
            if self.maker[class] != NONE {
                self.remove(self.maker[class], open);
            }
        }
        true
    }

    /// The stored classes that read a class, directly or not, and itself, if all of them are read and none is an output; else classes on a
    /// way to an output are added to those that are `needed`.
    fn unneeded_with(&mut self, class: ClassId, needed: &mut FxHashSet<ClassId>) -> Option<Vec<ClassId>> {
        // Each with the one that it reads, by which it was met.
        let mut above: FxHashMap<ClassId, ClassId> = FxHashMap::from_iter([(class, class)]);
        // Straight up: mostly there is an output, and it is not far.
        let mut open = vec![class];
        while let Some(class) = open.pop() {
            if self.space.facts.output[class] || needed.contains(&class) {
                let below = |class: &ClassId| above.get(class).copied().filter(|below| below != class);
                needed.extend(std::iter::successors(Some(class), below));
                return None;
            }
            if self.readers[class].is_empty() || above.len() > order::REACH {
                return None;
            }
            for at in 0..self.readers[class].len() {
                let reader = self.kernel(self.readers[class][at].0);
                let (leader, kernel) = (reader.leader, reader.kernel.clone());
                for &store in &kernel.stores {
                    let (classes, given) = (self.space.classes, &self.space.facts.given);
                    let reads = kernel.stores.len() == 1
                        || self
                            .walker
                            .kernel(classes, given, &self.plan, leader, vec![store])
                            .is_ok_and(|alone| alone.reads.contains(&class));
                    if reads && !above.contains_key(&store) {
                        above.insert(store, class);
                        open.push(store);
                    }
                }
            }
        }
        let mut unneeded: Vec<ClassId> = above.into_keys().collect();
        unneeded.sort_unstable();
        Some(unneeded)
    }

    /// Checks, orders and prices the kernels that are new since `start`, as long as the plan may cost no more than `most`; whether it may.
    fn finish(&mut self, start: usize, most: &dyn Fn(&Self) -> Price) -> Result<bool, Refused> {
        let mut fresh: Vec<KernelId> = self.undo[start..]
            .iter()
            .filter_map(|step| if let Undo::Added(id) = step { Some(*id) } else { None })
            .filter(|id| self.kernels[*id as usize].as_ref().is_some_and(|live| !live.counted))
            .collect();
        fresh.sort_unstable();
        fresh.dedup();
        for &id in &fresh {
            let interior = &self.kernel(id).kernel.interior;
            let shared = |c: &&ClassId| {
                self.computing[**c].len() > 1 && !self.plan.stored[**c] && self.plan.is_anchor(self.space.classes, **c)
            };
            if let Some(&class) = interior.iter().find(shared) {
                let kernels = self.computing[class].iter().map(|(id, _)| &self.kernel(*id).kernel);
                let of = kernels.clone().flat_map(|kernel| kernel.stores.iter().copied()).collect();
                return Err(Refused { error: PlanError::SharedAnchor(class, kernels.len()), of });
            }
        }
        let labels = self.undo.len();
        if let Err(circle) = order::insert(self, &mut fresh) {
            // What was lifted halfway is no order.
            self.take_back(labels);
            let of: Vec<ClassId> = circle.into_iter().flat_map(|id| self.kernel(id).kernel.stores.clone()).collect();
            return Err(Refused { error: PlanError::CyclicKernels(of[0]), of });
        }
        for &id in &fresh {
            let load = self.may_load(id);
            // Nobody else holds a kernel that was just derived.
            Arc::make_mut(&mut self.live_mut(id).kernel).load = load;
        }
        self.follow_load(fresh.clone());
        let most = most(self);
        Ok(self.price_within(fresh, most))
    }

    /// Prices kernels as long as the plan may cost no more than `most`, those first whose price is known, then small ones; whether it may.
    fn price_within(&mut self, kernels: Vec<KernelId>, most: Price) -> bool {
        let space = self.space;
        let mut unknown = Vec::new();
        for id in kernels {
            let kernel = self.kernel(id).kernel.clone();
            let key = space.key(&self.plan, &kernel);
            match space.known(key) {
                Some(price) => self.put(id, price),
                // What loading takes counts for little, and so hardly ever decides.
                None => unknown.push((kernel.load, kernel.interior.len(), id, key)),
            }
        }
        unknown.sort_unstable();
        for (_, _, id, key) in unknown {
            if self.price.exceeds(most) {
                return false;
            }
            let price = space.price_of_key(key, &self.plan, &self.kernel(id).kernel);
            self.put(id, price);
        }
        !self.price.exceeds(most)
    }

    /// Counts a kernel at its price.
    fn put(&mut self, id: KernelId, price: KernelPrice) {
        let space = self.space;
        let live = self.live_mut(id);
        live.seconds = space.seconds(&live.kernel, price);
        self.count(id, true);
    }

    /// Whether everything that a kernel reads is there before the first run, and so may be what it stores.
    fn may_load(&self, id: KernelId) -> bool {
        let facts = &self.space.facts;
        let kernel = &self.kernel(id).kernel;
        kernel.stores.iter().all(|&c| facts.is_made_once(c))
            && kernel.reads.iter().all(|&c| {
                facts.loadable[c] && (facts.given[c] || self.maker_of(c).is_some_and(|maker| maker.kernel.load))
            })
    }

    /// Moves kernels between the load and the run program after those of their operands.
    fn follow_load(&mut self, changed: Vec<KernelId>) {
        let mut open = changed;
        while let Some(id) = open.pop() {
            let constant = self.kernel(id).kernel.stores.iter().copied().filter(|&c| self.space.facts.loadable[c]);
            let readers: Vec<KernelId> =
                constant.flat_map(|c| self.readers[c].iter().map(|(reader, _)| *reader)).collect();
            for reader in readers {
                if self.kernel(reader).kernel.load != self.may_load(reader) {
                    self.toggle_load(reader);
                    self.undo.push(Undo::Load(reader));
                    open.push(reader);
                }
            }
        }
    }

    pub(super) fn toggle_load(&mut self, id: KernelId) {
        let counted = self.kernel(id).counted;
        if counted {
            self.count(id, false);
        }
        let kernel = Arc::make_mut(&mut self.live_mut(id).kernel);
        kernel.load = !kernel.load;
        if counted {
            let price = self.space.kernel_price(&self.plan, &self.kernel(id).kernel);
            self.put(id, price);
        }
    }

    /// Adds what a kernel counts to the price, or takes it away.
    pub(super) fn count(&mut self, id: KernelId, add: bool) {
        let live = self.live_mut(id);
        live.counted = add;
        let (kernel, seconds) = (live.kernel.clone(), live.seconds);
        self.add(seconds, add);
        for &class in kernel.reads.iter().filter(|c| !kernel.load && self.space.is_kept_leaf(**c)) {
            let readers = &mut self.kept[class];
            let alone = *readers == u32::from(!add);
            *readers = if add { *readers + 1 } else { *readers - 1 };
            if alone {
                self.add(self.space.keep(class), add);
            }
        }
    }

    fn add(&mut self, seconds: f64, add: bool) {
        match (seconds.is_finite(), add) {
            (true, true) => self.price.seconds += seconds,
            (true, false) => self.price.seconds -= seconds,
            (false, true) => self.price.impossible += 1,
            (false, false) => self.price.impossible -= 1,
        }
    }
}
