//! A plan with its kernels kept up to date: a move derives and prices only the kernels that it touches, and can be taken back.

use std::{collections::BinaryHeap, sync::Arc};

use eutectic_ir::eclasses::ClassId;

use super::order::{self, KernelId, Labelled};
use crate::{
    plan::{Plan, PlanError, PlanKernel},
    space::Space,
    walk::Walker,
};

/// The number of no kernel.
pub(crate) const NONE: KernelId = KernelId::MAX;

/// How many times what launching takes a kernel may take for one launch less to be worth a try.
const SMALL: f64 = 100.0;

/// What a plan counts. Less is better, and what cannot be built is worse than anything that can.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Price {
    /// How many kernels cannot be built.
    pub impossible: usize,
    /// What the others count.
    pub seconds: f64,
}

impl Price {
    /// Whether this is better by more than rounding.
    pub fn gains(self, old: Price) -> bool {
        let better = self.seconds < old.seconds * (1.0 - 1e-9);
        self.impossible < old.impossible || (self.impossible == old.impossible && better)
    }
}

/// A kernel of the plan.
pub(crate) struct Live {
    /// The class that leads it.
    pub leader: ClassId,
    /// Its parts.
    pub kernel: Arc<PlanKernel>,
    /// Its place in an order of all kernels in which what is read is stored before.
    pub label: u64,
    /// What it counts.
    seconds: f64,
    /// Whether its price is part of the total.
    counted: bool,
    /// Where it stands in [`State::readers`] of each class that it reads.
    at_reads: Vec<u32>,
    /// Where it stands in [`State::computing`] of each class of its interior.
    at_interior: Vec<u32>,
}

/// One step back.
enum Undo {
    Choice(ClassId, usize),
    Stored(ClassId, bool),
    Host(ClassId, ClassId),
    Added(KernelId),
    Removed(Box<Live>),
    Label(KernelId, u64),
    Load(KernelId),
}

/// A moment to which the plan can be taken back.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    undo: usize,
    /// The price of that moment.
    pub price: Price,
}

/// See the module.
pub(crate) struct State<'s, 'a> {
    /// What the plan is over.
    pub space: &'s Space<'a>,
    /// What the plan counts.
    pub price: Price,
    plan: Plan,
    kernels: Vec<Option<Live>>,
    free: Vec<KernelId>,
    /// For each class, the kernel that stores it.
    maker: Vec<KernelId>,
    /// For each class, the kernel that it leads.
    led: Vec<KernelId>,
    /// For each class, the classes that name it as their leader, itself left out.
    guests: Vec<Vec<ClassId>>,
    /// For each class, the kernels that read it, with the place of the class among their reads.
    readers: Vec<Vec<(KernelId, u32)>>,
    /// For each class that is not given, the kernels that compute it, with its place in their interior.
    computing: Vec<Vec<(KernelId, u32)>>,
    /// For each constant leaf, how many kernels of the run program read it.
    kept: Vec<u32>,
    /// Kernels that no longer are what the plan says.
    stale: Vec<KernelId>,
    undo: Vec<Undo>,
    walker: Walker,
}

impl<'s, 'a> State<'s, 'a> {
    /// The kernels of a plan.
    ///
    /// # Errors
    /// When the plan is not valid.
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
        state.settle_from(outputs)?;
        state.undo.clear();
        Ok(state)
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The plan, for who is done.
    pub fn into_plan(self) -> Plan {
        self.plan
    }

    /// A kernel.
    pub fn kernel(&self, id: KernelId) -> &Live {
        self.kernels[id as usize].as_ref().expect("numbers are dropped with their kernels")
    }

    /// All kernels, those that are read first.
    pub fn in_order(&self) -> Vec<KernelId> {
        let live = |id: &KernelId| self.kernels[*id as usize].is_some();
        let mut ids: Vec<KernelId> = (0..self.kernels.len() as KernelId).filter(live).collect();
        ids.sort_unstable_by_key(|&id| self.kernel(id).label);
        ids
    }

    /// Whether launching a kernel is more than a hundredth of what it takes.
    pub fn is_small(&self, id: KernelId) -> bool {
        self.kernel(id).seconds <= self.space.rates.launch * SMALL
    }

    /// Whether a kernel can be built.
    pub fn is_possible(&self, id: KernelId) -> bool {
        self.kernel(id).seconds.is_finite()
    }

    /// Whether every kernel that computes a class can be built.
    pub fn is_built(&self, class: ClassId) -> bool {
        self.computing[class].iter().all(|(id, _)| self.is_possible(*id))
    }

    /// Whether some kernel computes a class.
    pub fn is_needed(&self, class: ClassId) -> bool {
        !self.computing[class].is_empty()
    }

    /// The kernel that a class leads.
    pub fn led_by(&self, leader: ClassId) -> Option<&Live> {
        self.kernels.get(self.led[leader] as usize)?.as_ref()
    }

    /// The kernel that stores a class.
    pub fn maker_of(&self, class: ClassId) -> Option<&Live> {
        self.kernels.get(self.maker[class] as usize)?.as_ref()
    }

    /// This moment.
    pub fn mark(&self) -> Mark {
        Mark { undo: self.undo.len(), price: self.price }
    }

    /// Makes what was done since a moment stand, if nothing before it is to be taken back.
    pub fn commit(&mut self) {
        self.undo.clear();
    }

    /// Kernels that are gone since a moment (true) or have come.
    pub fn changes(&self, since: Mark) -> impl Iterator<Item = (bool, &PlanKernel)> {
        self.undo[since.undo..].iter().filter_map(|step| match step {
            Undo::Removed(live) => Some((true, &*live.kernel)),
            Undo::Added(id) => self.kernels[*id as usize].as_ref().map(|live| (false, &*live.kernel)),
            _ => None,
        })
    }

    /// What the kernels that are gone since a moment counted.
    pub fn replaced(&self, since: Mark) -> f64 {
        let gone = self.undo[since.undo..].iter().filter_map(|step| match step {
            Undo::Removed(live) => Some(live.seconds),
            _ => None,
        });
        gone.filter(|seconds| seconds.is_finite()).sum()
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

    /// Makes a class virtual; if it led a kernel, the kernel's other stores are on their own again.
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

    /// Makes one kernel of two: all that one leader hosts goes to another.
    pub fn join(&mut self, from: ClassId, to: ClassId) {
        for guest in self.guests[from].clone() {
            self.set_host(guest, to);
        }
        self.set_host(from, to);
    }

    /// Gives the lead of a kernel to another class, which is stored in its place.
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

    /// Takes everything back to a moment.
    pub fn rollback(&mut self, mark: Mark) {
        self.stale.clear();
        while self.undo.len() > mark.undo {
            match self.undo.pop().expect("the log is longer than that") {
                Undo::Choice(class, old) => self.plan.choice[class] = old,
                Undo::Stored(class, old) => self.plan.stored[class] = old,
                Undo::Host(class, old) => self.move_guest(class, old),
                Undo::Added(id) => drop(self.detach(id)),
                Undo::Removed(live) => drop(self.attach(*live)),
                Undo::Label(id, old) => self.live_mut(id).label = old,
                Undo::Load(id) => self.toggle_load(id),
            }
        }
        // Sums that were added to and taken from differ by rounding.
        self.price = mark.price;
    }

    /// Derives and prices the kernels that edits since the last call have touched.
    ///
    /// # Errors
    /// When the plan is not valid; what was done is to be rolled back then.
    pub fn settle(&mut self) -> Result<(), PlanError> {
        self.settle_from(BinaryHeap::new())
    }

    /// As [`State::settle`], with classes to look at besides, each where its kernel stood in the order.
    fn settle_from(&mut self, mut open: BinaryHeap<(u64, ClassId)>) -> Result<(), PlanError> {
        let start = self.undo.len();
        for id in std::mem::take(&mut self.stale) {
            if self.kernels.get(id as usize).is_some_and(Option::is_some) {
                self.remove(id, &mut open);
            }
        }
        // Users before operands: whether a class is still read is known when its turn comes. A kernel that went and came
        // back is rare, and that two take turns at it without end is ruled out by giving up.
        let mut turns = 0;
        while let Some((label, class)) = open.pop() {
            turns += 1;
            if turns > 64 * (self.kernels.len() + 64) {
                return Err(PlanError::CyclicKernels(class));
            }
            match (self.is_live(class), self.maker[class]) {
                (true, NONE) => self.derive(class, label, &mut open)?,
                (false, id) if id != NONE => self.remove(id, &mut open),
                _ => {}
            }
        }
        self.finish(start)
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
        let id = self.attach(Live {
            leader,
            at_reads: Vec::with_capacity(kernel.reads.len()),
            at_interior: Vec::with_capacity(kernel.interior.len()),
            kernel: Arc::new(kernel),
            label,
            seconds: 0.0,
            counted: false,
        });
        self.undo.push(Undo::Added(id));
        Ok(())
    }

    /// Drops a kernel; what it stored may have to be stored elsewhere, and what it read may no longer be needed.
    fn remove(&mut self, id: KernelId, open: &mut BinaryHeap<(u64, ClassId)>) {
        let live = self.detach(id);
        open.extend(live.kernel.stores.iter().map(|&class| (live.label, class)));
        let made = live.kernel.reads.iter().filter(|c| !self.space.facts.given[**c]);
        open.extend(made.filter_map(|&class| Some((self.maker_of(class)?.label, class))));
        self.undo.push(Undo::Removed(Box::new(live)));
    }

    /// Checks, orders and prices the kernels that are new since `start`.
    fn finish(&mut self, start: usize) -> Result<(), PlanError> {
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
                return Err(PlanError::SharedAnchor(class, self.computing[class].len()));
            }
        }
        order::insert(self, &mut fresh).map_err(|id| PlanError::CyclicKernels(self.kernel(id).kernel.stores[0]))?;
        for &id in &fresh {
            let load = self.may_load(id);
            let space = self.space;
            let live = self.live_mut(id);
            // Nobody else holds a kernel that was just derived.
            Arc::make_mut(&mut live.kernel).load = load;
            let kernel = live.kernel.clone();
            let cost = space.cost(&self.plan, &kernel);
            self.live_mut(id).seconds = space.seconds(&kernel, cost);
            self.count(id, true);
        }
        self.follow_load(fresh);
        Ok(())
    }

    /// Whether everything that a kernel reads is there before the first run, and so may be what it stores.
    fn may_load(&self, id: KernelId) -> bool {
        let facts = &self.space.facts;
        let kernel = &self.kernel(id).kernel;
        kernel.stores.iter().all(|&c| facts.loadable[c] && !facts.output[c])
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

    fn toggle_load(&mut self, id: KernelId) {
        self.count(id, false);
        let live = self.live_mut(id);
        let kernel = Arc::make_mut(&mut live.kernel);
        kernel.load = !kernel.load;
        let kernel = live.kernel.clone();
        let space = self.space;
        let cost = space.cost(&self.plan, &kernel);
        self.live_mut(id).seconds = space.seconds(&kernel, cost);
        self.count(id, true);
    }

    /// Adds what a kernel counts to the price, or takes it away.
    fn count(&mut self, id: KernelId, add: bool) {
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

    pub(crate) fn live_mut(&mut self, id: KernelId) -> &mut Live {
        self.kernels[id as usize].as_mut().expect("numbers are dropped with their kernels")
    }

    fn attach(&mut self, mut live: Live) -> KernelId {
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

    fn detach(&mut self, id: KernelId) -> Live {
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
mod tests {
    use eutectic_ir::{Graph, eclasses::EClasses};
    use proptest::{prelude::*, test_runner::TestCaseError};

    use super::*;
    use crate::tests::{Roofline, graphs};

    /// One edit of a plan; the numbers are taken modulo what there is.
    #[derive(Clone, Debug)]
    enum Edit {
        Flip(usize),
        Choose(usize, usize),
        Join(usize, usize),
        Leave(usize),
        HandOver(usize, usize),
    }

    fn edits() -> impl Strategy<Value = Vec<(Vec<Edit>, bool)>> {
        let any = || any::<usize>();
        let edit = prop_oneof![
            4 => any().prop_map(Edit::Flip),
            4 => (any(), any()).prop_map(|(c, n)| Edit::Choose(c, n)),
            2 => (any(), any()).prop_map(|(a, b)| Edit::Join(a, b)),
            1 => any().prop_map(Edit::Leave),
            2 => (any(), any()).prop_map(|(a, b)| Edit::HandOver(a, b)),
        ];
        prop::collection::vec((prop::collection::vec(edit, 1..4), proptest::bool::ANY), 1..60)
    }

    fn apply(state: &mut State<'_, '_>, edit: &Edit) {
        let space = state.space;
        let facts = &space.facts;
        let free: Vec<ClassId> = (0..facts.given.len()).filter(|&c| !facts.given[c] && !facts.output[c]).collect();
        let computed: Vec<ClassId> = (0..facts.given.len()).filter(|&c| !facts.given[c]).collect();
        let leaders: Vec<ClassId> = state.in_order().into_iter().map(|id| state.kernel(id).leader).collect();
        match *edit {
            _ if free.is_empty() => {}
            Edit::Flip(class) => super::super::flip(state, free[class % free.len()]),
            Edit::Choose(class, node) => {
                let class = computed[class % computed.len()];
                state.choose(class, node % space.classes.classes[class].nodes.len());
            }
            Edit::Join(a, b) if leaders[a % leaders.len()] != leaders[b % leaders.len()] => {
                state.join(leaders[a % leaders.len()], leaders[b % leaders.len()]);
            }
            Edit::Join(..) => {}
            Edit::Leave(class) => {
                let class = free[class % free.len()];
                if state.plan().stored[class] {
                    state.set_host(class, class);
                }
            }
            Edit::HandOver(from, to) => {
                let (from, to) = (free[from % free.len()], free[to % free.len()]);
                if state.plan().stored[from] && !state.plan().stored[to] {
                    state.hand_over(from, to);
                }
            }
        }
    }

    /// Holds what is kept up to date against the definition of a plan and its price.
    fn agrees(state: &State<'_, '_>) -> Result<(), TestCaseError> {
        let mut kernels: Vec<PlanKernel> =
            state.in_order().into_iter().map(|id| (*state.kernel(id).kernel).clone()).collect();
        let priced = state.space.price(state.plan()).map_err(|e| TestCaseError::fail(format!("accepted, but {e}")))?;
        let mut expected: Vec<PlanKernel> = priced.kernels.iter().map(|(kernel, _)| (**kernel).clone()).collect();
        let mut stored = vec![false; state.maker.len()];
        for kernel in &kernels {
            prop_assert!(kernel.reads.iter().all(|&c| state.space.facts.given[c] || stored[c]), "out of order");
            kernel.stores.iter().for_each(|&c| stored[c] = true);
        }
        kernels.sort_by(|a, b| a.stores.cmp(&b.stores));
        expected.sort_by(|a, b| a.stores.cmp(&b.stores));
        prop_assert_eq!(kernels, expected);
        let seconds = if state.price.impossible > 0 { f64::INFINITY } else { state.price.seconds };
        let close = seconds == priced.seconds || (seconds - priced.seconds).abs() <= 1e-9 * priced.seconds;
        prop_assert!(close, "{} and {}", seconds, priced.seconds);
        Ok(())
    }

    fn follow(classes: &EClasses, moves: &[(Vec<Edit>, bool)]) -> Result<(), TestCaseError> {
        let space = Space::new(classes, &Roofline);
        let n = classes.classes.len();
        let choice = vec![0; n];
        let stored = (0..n).map(|c| !space.facts.given[c] || space.facts.output[c]).collect();
        let Ok(mut state) = State::new(&space, Plan { choice, stored, host: (0..n).collect() }) else { return Ok(()) };
        agrees(&state)?;
        for (edits, keep) in moves {
            let mark = state.mark();
            let before = state.plan().clone();
            edits.iter().for_each(|edit| apply(&mut state, edit));
            match state.settle() {
                Ok(()) => agrees(&state)?,
                Err(refused) => {
                    let reference = state.plan().kernels(classes);
                    prop_assert!(reference.is_err(), "{} refused, but valid", refused);
                    state.rollback(mark);
                }
            }
            if !keep {
                state.rollback(mark);
                prop_assert_eq!(state.plan(), &before);
                agrees(&state)?;
            } else if moves.len().is_multiple_of(2) {
                state.commit();
            }
        }
        Ok(())
    }

    /// A graph whose classes have several e-nodes: each op also reads its operands in another order or from other values.
    fn with_choices(graph: &Graph, seed: u64) -> EClasses {
        let mut rng = graphs::Rng(seed);
        let mut classes = EClasses::of(graph);
        for class in 0..classes.classes.len() {
            let Some(node) = classes.classes[class].nodes.first().cloned().filter(|n| !n.operands.is_empty()) else {
                continue;
            };
            for _ in 0..rng.below(3) {
                let mut other = node.clone();
                for operand in &mut other.operands {
                    // Also later classes, so that choices can run in circles.
                    let candidate = rng.below(classes.classes.len());
                    if classes.classes[candidate].ty == classes.classes[*operand].ty {
                        *operand = candidate;
                    }
                }
                if !classes.classes[class].nodes.contains(&other) && !other.operands.contains(&class) {
                    classes.classes[class].nodes.push(other);
                }
            }
        }
        classes
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

        #[test]
        fn kernels_kept_up_to_date_are_those_of_the_plan(seed in any::<u64>(), ops in 3_usize..24, moves in edits()) {
            let graph = graphs::random_graph(seed, ops, &[8, 16]);
            follow(&with_choices(&graph, seed), &moves)?;
        }
    }
}
