//! Updates the kernels of a plan after edits: derives the affected kernels, checks, sorts and prices them.

use std::{collections::BinaryHeap, sync::Arc};

use eutectic_ir::eclasses::ClassId;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::{LiveKernel, NONE, Price, State, Undo};
use crate::{
    plan::PlanError,
    planner::{
        search::order::{self, KernelId},
        space::KernelPrice,
    },
};

/// The reason why kernels are invalid. At least one class in `of` must become unneeded to make them valid.
struct Refused {
    error: PlanError,
    of: Vec<ClassId>,
}

impl State<'_, '_> {
    /// Derives and prices the kernels that edits since the last call have affected.
    ///
    /// # Errors
    /// If the plan is not valid. The caller must roll the edits back.
    pub fn refresh(&mut self) -> Result<(), PlanError> {
        self.refresh_from(BinaryHeap::new(), &|_| Price::ANY).map(|_| ())
    }

    /// Updates kernels like [`State::refresh`], for a plan that is useless above a price. `most` computes this limit
    /// from the derived kernels. Returns whether the plan stays within it. If not, the caller must roll the edits back.
    /// Pricing then stops early, because building a kernel takes far longer than deriving it.
    ///
    /// # Errors
    /// If the plan is not valid.
    pub fn refresh_within(&mut self, most: &dyn Fn(&Self) -> Price) -> Result<bool, PlanError> {
        self.refresh_from(BinaryHeap::new(), most)
    }

    /// Updates kernels like [`State::refresh_within`], and also derives or removes the kernels of the classes in
    /// `open`. Each entry has the label of the class's kernel in the topological order.
    pub(super) fn refresh_from(
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

    /// Derives the missing kernels of classes in `open` that must be stored, and removes the kernels of classes in
    /// `open` that need not be stored.
    fn take_turns(&mut self, open: &mut BinaryHeap<(u64, ClassId)>) -> Result<(), Refused> {
        // Visit users before operands, so that all readers of a class are known when it is visited. In this order, a
        // removed kernel is seldom derived again. The limit on turns ends the loop if kernels remove each other in a
        // cycle.
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
            // Drop failed classes that need no kernel any more, and try the others again.
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

    /// Returns whether a class must be stored: it is an output, or some kernel reads it.
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
        let id = self.attach(Box::new(LiveKernel {
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

    /// Removes a kernel. Its stores may need other kernels, and its operands may no longer be needed.
    fn remove(&mut self, id: KernelId, open: &mut BinaryHeap<(u64, ClassId)>) {
        let live = self.detach(id);
        open.extend(live.kernel.stores.iter().map(|&class| (live.label, class)));
        let made = live.kernel.reads.iter().filter(|c| !self.space.facts.given[**c]);
        open.extend(made.filter_map(|&class| Some((self.maker_of(class)?.label, class))));
        self.undo.push(Undo::Removed(live));
    }

    /// Removes kernels of classes that no output depends on and that read each other in a cycle, which the count of
    /// readers cannot detect. Returns whether it removed any. A class with very many users is taken for needed.
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

    /// Returns the class and all stored classes that depend on it, if each of them has a reader and none is an output.
    /// Otherwise returns `None`, and adds the classes on a path to an output to `needed`.
    fn unneeded_with(&mut self, class: ClassId, needed: &mut FxHashSet<ClassId>) -> Option<Vec<ClassId>> {
        // For each visited class, the operand from which it was reached.
        let mut above: FxHashMap<ClassId, ClassId> = FxHashMap::from_iter([(class, class)]);
        // Search depth first: usually an output is a few steps away.
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

    /// Checks, sorts and prices the kernels that were added since `start`, as long as the plan costs at most `most`.
    /// Returns whether the plan costs at most `most`.
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
            // A partial relabelling is not a topological order.
            self.take_back(labels);
            let of: Vec<ClassId> = circle.into_iter().flat_map(|id| self.kernel(id).kernel.stores.clone()).collect();
            return Err(Refused { error: PlanError::CyclicKernels(of[0]), of });
        }
        for &id in &fresh {
            let load = self.may_load(id);
            // The kernel was just derived and has one owner, so `make_mut` does not copy it.
            Arc::make_mut(&mut self.live_mut(id).kernel).load = load;
        }
        self.follow_load(fresh.clone());
        let most = most(self);
        Ok(self.price_within(fresh, most))
    }

    /// Prices kernels until the plan costs more than `most`: first kernels with a cached price, then small ones.
    /// Returns whether the plan costs at most `most`.
    fn price_within(&mut self, kernels: Vec<KernelId>, most: Price) -> bool {
        let space = self.space;
        let mut unknown = Vec::new();
        for id in kernels {
            let kernel = self.kernel(id).kernel.clone();
            let key = space.key(&self.plan, &kernel);
            match space.known(key) {
                Some(price) => self.put(id, space.hinted(price, &self.plan, &kernel)),
                // Load kernels cost little and rarely decide, so they are priced last.
                None => unknown.push((kernel.load, kernel.interior.len(), id, key)),
            }
        }
        unknown.sort_unstable();
        for (_, _, id, key) in unknown {
            if self.price.exceeds(most) {
                return false;
            }
            let kernel = &self.kernel(id).kernel;
            let price = space.hinted(space.price_of_key(key, &self.plan, kernel), &self.plan, kernel);
            self.put(id, price);
        }
        !self.price.exceeds(most)
    }

    /// Sets a kernel's counted seconds, and adds them to the plan's price.
    fn put(&mut self, id: KernelId, price: KernelPrice) {
        let space = self.space;
        let live = self.live_mut(id);
        live.seconds = space.seconds(&live.kernel, price);
        self.count(id, true);
    }

    /// Returns whether a kernel may be part of the load program: it reads leaves or results of the load program only.
    fn may_load(&self, id: KernelId) -> bool {
        let facts = &self.space.facts;
        let kernel = &self.kernel(id).kernel;
        kernel.stores.iter().all(|&c| facts.is_made_once(c))
            && kernel.reads.iter().all(|&c| {
                facts.loadable[c] && (facts.given[c] || self.maker_of(c).is_some_and(|maker| maker.kernel.load))
            })
    }

    /// Moves kernels between the load and the run program, following a change of their operands.
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

    /// Adds a kernel's counted seconds to the plan's price, or subtracts them.
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
