//! A plan whose kernels are kept up to date. A move derives and prices only the kernels that it affects, and can be
//! taken back.

use std::sync::Arc;

use eutectic_ir::eclasses::ClassId;
use smallvec::SmallVec;

use super::order::{KernelId, Labelled};
use crate::{
    plan::{Plan, PlanError, PlanKernel},
    planner::space::Space,
    walk::Walker,
};

mod refresh;

/// The id for the absence of a kernel.
pub(crate) const NONE: KernelId = KernelId::MAX;

/// A kernel is small if it takes at most this multiple of the time of a launch. Small kernels are merged with any other
/// small kernel, to save launches.
const SMALL: f64 = 100.0;

/// The price of a plan. Lower is better, and each kernel that cannot be built outweighs any time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Price {
    /// The number of kernels that cannot be built.
    pub impossible: usize,
    /// The seconds of the other kernels, as `Space::seconds` counts them.
    pub seconds: f64,
}

impl Price {
    /// The highest price.
    pub const ANY: Price = Price { impossible: usize::MAX, seconds: f64::INFINITY };

    /// Returns whether the price exceeds `most` even if kernels are only added.
    pub fn exceeds(self, most: Price) -> bool {
        self.impossible > most.impossible || (self.impossible == most.impossible && self.seconds > most.seconds)
    }

    /// Returns whether the price is below `old` by more than rounding errors.
    pub fn gains(self, old: Price) -> bool {
        let better = self.seconds < old.seconds * (1.0 - 1e-9);
        self.impossible < old.impossible || (self.impossible == old.impossible && better)
    }
}

/// A kernel of the plan.
pub(crate) struct LiveKernel {
    /// The class that leads it.
    pub leader: ClassId,
    /// Its stores, interior and reads.
    pub kernel: Arc<PlanKernel>,
    /// Its label in the topological order of all kernels.
    pub label: u64,
    /// Its counted seconds.
    seconds: f64,
    /// Whether its price is part of the total.
    counted: bool,
    /// For each class that it reads, its position in [`State::readers`].
    at_reads: SmallVec<[u32; 8]>,
    /// For each interior class, its position in [`State::computing`].
    at_interior: SmallVec<[u32; 16]>,
}

/// One entry of the undo log.
enum Undo {
    Choice(ClassId, usize),
    Stored(ClassId, bool),
    Host(ClassId, ClassId),
    Added(KernelId),
    Removed(Box<LiveKernel>),
    Label(KernelId, u64),
    Load(KernelId),
}

/// A position of the undo log, to which edits can be rolled back.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    undo: usize,
    /// The price of the plan when the mark was set.
    pub price: Price,
}

/// The current plan of a search, with its kernels and price.
pub(crate) struct State<'s, 'a> {
    /// The e-classes, the backend and the cached prices.
    pub space: &'s Space<'a>,
    /// The price of the plan.
    pub price: Price,
    plan: Plan,
    kernels: Vec<Option<Box<LiveKernel>>>,
    free: Vec<KernelId>,
    /// For each class, the kernel that stores it.
    maker: Vec<KernelId>,
    /// For each class, the kernel that it leads.
    led: Vec<KernelId>,
    /// For each class, the other classes that name it as their leader.
    guests: Vec<Vec<ClassId>>,
    /// For each class, the kernels that read it, each with the position of the class among the kernel's reads.
    readers: Vec<Vec<(KernelId, u32)>>,
    /// For each class that is not given, the kernels that compute it, each with the position of the class in the
    /// kernel's interior.
    computing: Vec<Vec<(KernelId, u32)>>,
    /// For each leaf, the number of kernels of the run program that read it, if the leaf is a parameter or a constant.
    kept: Vec<u32>,
    /// Kernels that an edit invalidated.
    stale: Vec<KernelId>,
    undo: Vec<Undo>,
    walker: Walker,
}

impl<'s, 'a> State<'s, 'a> {
    /// Derives the kernels of a plan.
    ///
    /// # Errors
    /// If the plan is not valid.
    pub fn new(space: &'s Space<'a>, plan: Plan) -> Result<State<'s, 'a>, PlanError> {
        let n = space.classes.classes.len();
        let mut guests = vec![Vec::new(); n];
        for (class, &host) in plan.host.iter().enumerate().filter(|(c, h)| *c != **h) {
            guests[host].push(class);
        }
        let mut state = State {
            space,
            price: Price::default(),
            plan,
            kernels: Vec::new(),
            free: Vec::new(),
            maker: vec![NONE; n],
            led: vec![NONE; n],
            guests,
            readers: vec![Vec::new(); n],
            computing: vec![Vec::new(); n],
            kept: vec![0; n],
            stale: Vec::new(),
            undo: Vec::new(),
            walker: Walker::new(n),
        };
        let outputs = space.classes.outputs.iter().map(|&output| (u64::MAX / 2, output)).collect();
        state.refresh_from(outputs, &|_| Price::ANY)?;
        state.undo.clear();
        Ok(state)
    }

    /// Returns the plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the plan and drops its kernels.
    pub fn into_plan(self) -> Plan {
        self.plan
    }

    /// Returns a kernel.
    pub fn kernel(&self, id: KernelId) -> &LiveKernel {
        self.kernels[id as usize].as_ref().expect("kernel numbers are dropped with their kernels")
    }

    /// Returns all kernels in topological order.
    pub fn in_order(&self) -> Vec<KernelId> {
        let live = |id: &KernelId| self.kernels[*id as usize].is_some();
        let mut ids: Vec<KernelId> = (0..self.kernels.len() as KernelId).filter(live).collect();
        ids.sort_unstable_by_key(|&id| self.kernel(id).label);
        ids
    }

    /// Returns whether launching a kernel takes at least a hundredth of its time (`SMALL`).
    pub fn is_small(&self, id: KernelId) -> bool {
        self.kernel(id).seconds <= self.space.rates.launch * SMALL
    }

    /// Returns whether a kernel can be built.
    pub fn is_possible(&self, id: KernelId) -> bool {
        self.kernel(id).seconds.is_finite()
    }

    /// Returns whether every kernel that computes a class can be built.
    pub fn is_built(&self, class: ClassId) -> bool {
        self.computing[class].iter().all(|(id, _)| self.is_possible(*id))
    }

    /// Returns whether some kernel computes a class.
    pub fn is_needed(&self, class: ClassId) -> bool {
        !self.computing[class].is_empty()
    }

    /// Returns the kernel that a class leads.
    pub fn led_by(&self, leader: ClassId) -> Option<&LiveKernel> {
        self.kernels.get(self.led[leader] as usize)?.as_deref()
    }

    /// Returns the kernel that stores a class.
    pub fn maker_of(&self, class: ClassId) -> Option<&LiveKernel> {
        self.kernels.get(self.maker[class] as usize)?.as_deref()
    }

    /// Returns the current position of the undo log.
    pub fn mark(&self) -> Mark {
        Mark { undo: self.undo.len(), price: self.price }
    }

    /// Discards the undo log, which makes all edits permanent.
    pub fn commit(&mut self) {
        self.undo.clear();
    }

    /// Returns the kernels that were removed (true) or added (false) since a mark.
    pub fn changes(&self, since: Mark) -> impl Iterator<Item = (bool, &PlanKernel)> {
        self.undo[since.undo..].iter().filter_map(|step| match step {
            Undo::Removed(live) => Some((true, &*live.kernel)),
            Undo::Added(id) => self.kernels[*id as usize].as_ref().map(|live| (false, &*live.kernel)),
            _ => None,
        })
    }

    /// Returns whether the plan decides whether a class is stored: it is neither given nor an output.
    pub fn is_free(&self, class: ClassId) -> bool {
        let facts = &self.space.facts;
        !facts.given[class] && !facts.output[class]
    }

    /// Returns the counted seconds of the kernels that were removed since a mark.
    pub fn gone(&self, since: Mark) -> f64 {
        let gone = |step: &Undo| if let Undo::Removed(live) = step { live.seconds } else { 0.0 };
        self.undo[since.undo..].iter().map(gone).sum()
    }

    /// Returns the seconds of launching the kernels of the run program that were added since a mark.
    pub fn launches(&self, since: Mark) -> f64 {
        self.changes(since).filter(|(gone, kernel)| !gone && !kernel.load).count() as f64 * self.space.rates.launch
    }

    /// Returns the contribution of the load-program kernels added since a mark to the plan's price, in weighted
    /// seconds.
    pub fn loaded(&self, since: Mark) -> f64 {
        let come = |step: &Undo| match step {
            Undo::Added(id) => {
                self.kernels[*id as usize].as_ref().filter(|live| live.kernel.load).map(|live| live.seconds)
            }
            _ => None,
        };
        self.undo[since.undo..].iter().filter_map(come).sum()
    }

    /// Returns whether a class is computed, and no kernel of the run program computes or reads it.
    pub fn is_loaded(&self, class: ClassId) -> bool {
        let mut around = self.computing[class].iter().chain(&self.readers[class]);
        self.is_needed(class) && around.all(|(id, _)| self.kernel(*id).kernel.load)
    }

    /// Sets whether an unneeded class will be stored once a kernel needs it, unless it leads a kernel with other needed
    /// stores.
    pub fn wish(&mut self, class: ClassId, stored: bool) {
        debug_assert!(!self.is_needed(class), "only moves change needed classes");
        if self.led[class] != NONE {
            return;
        }
        let steps = self.undo.len();
        if stored {
            self.store(class)
        } else {
            self.release(class)
        }
        // No kernel is affected, so the edit needs no undo entry.
        self.undo.truncate(steps);
        self.stale.clear();
    }

    /// Computes a class by another of its e-nodes.
    pub fn choose(&mut self, class: ClassId, node: usize) {
        let old = std::mem::replace(&mut self.plan.choice[class], node);
        if old != node {
            self.undo.push(Undo::Choice(class, old));
            self.stale.extend(self.computing[class].iter().map(|(id, _)| *id));
        }
    }

    /// Stores a class in a kernel of its own.
    pub fn store(&mut self, class: ClassId) {
        self.set_stored(class, true);
        self.set_host(class, class);
    }

    /// Makes a class virtual. If it led a kernel, each other store of that kernel gets a kernel of its own.
    pub fn release(&mut self, class: ClassId) {
        self.set_stored(class, false);
        for guest in self.guests[class].clone() {
            self.set_host(guest, guest);
        }
        self.set_host(class, class);
    }

    fn set_stored(&mut self, class: ClassId, stored: bool) {
        let old = std::mem::replace(&mut self.plan.stored[class], stored);
        if old != stored {
            self.undo.push(Undo::Stored(class, old));
            let around = self.computing[class].iter().chain(&self.readers[class]);
            self.stale.extend(around.map(|(id, _)| *id));
            self.stale.extend([self.maker[class], self.led[self.plan.host[class]]]);
        }
    }

    /// Lets the kernel of another leader store a class.
    pub fn set_host(&mut self, class: ClassId, host: ClassId) {
        let old = self.plan.host[class];
        if old != host {
            self.undo.push(Undo::Host(class, old));
            self.move_guest(class, host);
            self.stale.extend([self.led[old], self.led[host], self.maker[class]]);
        }
    }

    /// Merges two kernels: all classes that `from` leads get the leader `to`.
    pub fn join(&mut self, from: ClassId, to: ClassId) {
        for guest in self.guests[from].clone() {
            self.set_host(guest, to);
        }
        self.set_host(from, to);
    }

    /// Makes another class the leader of a kernel, and stores it in place of the old leader.
    pub fn hand_over(&mut self, from: ClassId, to: ClassId) {
        self.set_stored(to, true);
        let host = self.plan.host[from];
        if host == from {
            self.set_host(to, to);
            for guest in self.guests[from].clone() {
                self.set_host(guest, to);
            }
        } else {
            self.set_host(to, host);
        }
        self.release(from);
    }

    fn move_guest(&mut self, class: ClassId, host: ClassId) {
        let old = std::mem::replace(&mut self.plan.host[class], host);
        if old != class {
            self.guests[old].retain(|guest| *guest != class);
        }
        if host != class {
            self.guests[host].push(class);
        }
    }

    /// Undoes all edits since a mark.
    pub fn rollback(&mut self, mark: Mark) {
        self.stale.clear();
        self.take_back(mark.undo);
        // Restore the sum exactly; adding and subtracting costs leaves rounding errors.
        self.price = mark.price;
    }

    /// Undoes all but the first `steps` entries of the log.
    fn take_back(&mut self, steps: usize) {
        while self.undo.len() > steps {
            match self.undo.pop().expect("the log has more than `steps` entries") {
                Undo::Choice(class, old) => self.plan.choice[class] = old,
                Undo::Stored(class, old) => self.plan.stored[class] = old,
                Undo::Host(class, old) => self.move_guest(class, old),
                Undo::Added(id) => drop(self.detach(id)),
                Undo::Removed(live) => drop(self.attach(live)),
                Undo::Label(id, old) => self.live_mut(id).label = old,
                Undo::Load(id) => self.toggle_load(id),
            }
        }
    }

    pub(crate) fn live_mut(&mut self, id: KernelId) -> &mut LiveKernel {
        self.kernels[id as usize].as_mut().expect("kernel numbers are dropped with their kernels")
    }

    fn attach(&mut self, mut live: Box<LiveKernel>) -> KernelId {
        let id = self.free.pop().unwrap_or_else(|| {
            self.kernels.push(None);
            self.kernels.len() as KernelId - 1
        });
        live.at_reads.clear();
        live.at_interior.clear();
        for (slot, &class) in (0..).zip(&live.kernel.reads) {
            live.at_reads.push(self.readers[class].len() as u32);
            self.readers[class].push((id, slot));
        }
        for (slot, &class) in (0..).zip(&live.kernel.interior) {
            live.at_interior.push(self.computing[class].len() as u32);
            if !self.space.facts.given[class] {
                self.computing[class].push((id, slot));
            }
        }
        live.kernel.stores.iter().for_each(|&class| self.maker[class] = id);
        self.led[live.leader] = id;
        let counted = std::mem::replace(&mut live.counted, false);
        self.kernels[id as usize] = Some(live);
        if counted {
            self.count(id, true);
        }
        id
    }

    fn detach(&mut self, id: KernelId) -> Box<LiveKernel> {
        let counted = self.kernel(id).counted;
        if counted {
            self.count(id, false);
        }
        let mut live = self.kernels[id as usize].take().expect("a kernel is dropped once");
        live.counted = counted;
        self.free.push(id);
        for (&class, &at) in live.kernel.reads.iter().zip(&live.at_reads) {
            self.readers[class].swap_remove(at as usize);
            if let Some(&(moved, slot)) = self.readers[class].get(at as usize) {
                self.live_mut(moved).at_reads[slot as usize] = at;
            }
        }
        for (&class, &at) in live.kernel.interior.iter().zip(&live.at_interior) {
            if self.space.facts.given[class] {
                continue;
            }
            self.computing[class].swap_remove(at as usize);
            if let Some(&(moved, slot)) = self.computing[class].get(at as usize) {
                self.live_mut(moved).at_interior[slot as usize] = at;
            }
        }
        live.kernel.stores.iter().for_each(|&class| self.maker[class] = NONE);
        self.led[live.leader] = NONE;
        live
    }
}

impl Labelled for State<'_, '_> {
    fn label(&self, id: KernelId) -> u64 {
        self.kernel(id).label
    }

    fn relabel(&mut self, id: KernelId, label: u64) {
        let old = std::mem::replace(&mut self.live_mut(id).label, label);
        self.undo.push(Undo::Label(id, old));
    }

    fn below(&self, id: KernelId) -> impl Iterator<Item = KernelId> {
        let made = self.kernel(id).kernel.reads.iter().filter(|c| !self.space.facts.given[**c]);
        made.map(|&c| self.maker[c]).filter(|&maker| maker != NONE)
    }

    fn above(&self, id: KernelId) -> impl Iterator<Item = KernelId> {
        let made = self.kernel(id).kernel.stores.iter().filter(|c| !self.space.facts.given[**c]);
        made.flat_map(|&c| self.readers[c].iter().map(|(reader, _)| *reader))
    }
}

#[cfg(test)]
mod tests;
