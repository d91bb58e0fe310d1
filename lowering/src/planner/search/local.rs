//! Local search: changes of choice, storage and host, one rule application's together, while they gain.

use std::collections::VecDeque;

use eutectic_ir::{
    eclasses::{ClassId, ENode},
    ops::Class,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{
    Search, flip,
    fresh::Move,
    state::{Mark, Price, State},
};

/// How many times dearer than the chosen e-node another may be, with all below it, and still be tried: sharing and fusion can make
/// up for so much.
const HOPELESS: f64 = 3.0;

/// How many times what it replaces a start may cost: what happens next to it cannot save more.
const FAR_OFF: f64 = 2.0;

/// The same of a start of which something has never been settled, which may launch any number of kernels besides: launching is what
/// settling saves first (without it, BERT-base became a fifth dearer on a GPU). What such a start settles is of use to later ones.
const FAR_OFF_UNSETTLED: f64 = 4.0;

/// How many ops down a store may be shifted at once.
const SHIFT_DEPTH: usize = 3;

/// How many of the kernels that come next in order, and have something in common with a kernel, are tried as one kernel with it.
const PARTNERS: usize = 8;

/// How many classes are looked at for a way from what the plan computes to what a rule has made.
const DETOUR: usize = 256;

/// How many rewritings of one form of a class are tried in vain until what is around it changes: a form that the plan does not use may
/// have been rewritten by a hundred rules, and most of them do not decide whether it is worth its while.
const REFUSALS: u32 = 8;

/// The share of a plan's time that what a change brings to the load program may count without being settled before it is decided: such
/// kernels are long, and hardly anything gains so little.
const LOADED: f64 = 1e-3;

/// The share of a plan's time that a round gains at least if another follows: that one asks almost as much and gains less.
const WORTH_ANOTHER: f64 = 0.01;

/// Which classes a change of choice starts out with as stored, by the e-node that computes them.
type Stores = fn(&Class) -> bool;

impl Search<'_, '_> {
    /// Goes over all moves until they gain too little.
    pub(super) fn local(&mut self, rounds: usize) {
        for _ in 0..rounds {
            let before = self.state.price;
            self.bundle_moves();
            self.shared_moves();
            self.choice_moves();
            self.host_moves();
            for class in self.needed() {
                self.try_flip(class);
                self.try_shift(class);
            }
            let hoped = Price { seconds: before.seconds * (1.0 - WORTH_ANOTHER), ..before };
            if !self.state.price.gains(hoped) || !self.goes_on() {
                return;
            }
        }
    }

    /// Every class that some kernel computes.
    fn needed(&self) -> Vec<ClassId> {
        (0..self.users.len()).filter(|&class| self.state.is_needed(class)).collect()
    }

    /// The operands of a class as it is chosen that are not given.
    fn below(&self, class: ClassId) -> impl Iterator<Item = ClassId> + '_ {
        let nodes = &self.state.space.classes.classes[class].nodes;
        let chosen = nodes.get(self.state.plan().choice[class]);
        let operands = chosen.into_iter().flat_map(|n| n.operands.iter().copied());
        operands.filter(|&c| !self.state.space.facts.given[c])
    }

    /// Stores an operand of a stored class in its stead, or a user: where the boundary lies matters when the shapes differ.
    fn try_shift(&mut self, class: ClassId) {
        if !self.state.plan().stored[class] || !self.is_free(class) {
            return;
        }
        let mut near = self.users[class].clone();
        // A step may gain only together with the next: an expand is as large as what is computed from it.
        let mut level = vec![class];
        for _ in 0..SHIFT_DEPTH {
            level = level.iter().flat_map(|&c| self.below(c)).collect();
            level.dedup();
            near.extend(&level);
        }
        near.dedup();
        if !self.fresh.try_now(Move::Shift(class), near.iter().copied().chain([class])) {
            return;
        }
        for next in near {
            let plan = self.state.plan();
            if plan.stored[class] && !plan.stored[next] && self.state.is_needed(next) {
                self.attempt(|state| state.hand_over(class, next));
            }
        }
    }

    /// All choices of one rule application together: merging projections pays only when all of them move.
    fn bundle_moves(&mut self) {
        let space = self.state.space;
        for (at, bundle) in space.classes.bundles.iter().enumerate() {
            let mut choices = bundle.choices.clone();
            if !self.fresh.try_now(Move::Bundle(at), self.near(&choices)) {
                continue;
            }
            let mut detours = Vec::new();
            for &(class, _) in &bundle.choices {
                let mut others = bundle.choices.iter().map(|&(other, node)| &space.classes.classes[other].nodes[node]);
                if !self.state.is_needed(class) && !others.any(|node| node.operands.contains(&class)) {
                    let detour = self.lead_to(class);
                    detours.extend(detour.first().copied());
                    choices.extend(detour);
                }
            }
            if !detours.is_empty() && detours.iter().all(|&(class, node)| self.fresh.refusals(class, node) >= REFUSALS)
            {
                continue;
            }
            let better = self.with_cheaper_forms(&bundle.choices).map(|made| [&made, &choices[made.len()..]].concat());
            let plan = self.state.plan();
            let is_new = |choices: &[(ClassId, usize)]| choices.iter().any(|&(class, node)| plan.choice[class] != node);
            let starts: Vec<_> = better.into_iter().chain([choices]).filter(|choices| is_new(choices)).collect();
            if !starts.is_empty() && !starts.iter().any(|choices| self.try_settled(choices)) {
                detours.into_iter().for_each(|(class, node)| self.fresh.refuse(class, node));
            }
        }
    }

    /// All views of a class that the plan does not need together: what several kernels round for themselves is worth storing rounded only if
    /// all of them read it so.
    fn shared_moves(&mut self) {
        let space = self.state.space;
        for class in 0..self.users.len() {
            if space.facts.given[class] || self.state.is_needed(class) {
                continue;
            }
            let reads = |&user: &ClassId| {
                let is_view =
                    |node: &ENode| matches!(node.op.def().class, Class::View(_)) && node.operands.contains(&class);
                space.classes.classes[user].nodes.iter().position(is_view).map(|node| (user, node))
            };
            let views: Vec<(ClassId, usize)> =
                self.users[class].iter().filter(|user| !space.facts.given[**user]).filter_map(reads).collect();
            if views.len() < 2 || !self.fresh.try_now(Move::Share(class), self.near(&views)) {
                continue;
            }
            let mut nearest: Vec<(ClassId, usize)> = Vec::new();
            for view in views {
                let detour = if self.state.is_needed(view.0) { Vec::new() } else { self.lead_to(view.0) };
                let steps = if detour.is_empty() && !self.state.is_needed(view.0) { None } else { Some(view) };
                let is_new = |(class, _): &(ClassId, usize)| nearest.iter().all(|(other, _)| other != class);
                let new: Vec<_> = detour.into_iter().chain(steps).filter(is_new).collect();
                nearest.extend(new);
            }
            for choices in [nearest, self.lead_from(class)] {
                if choices.len() > 1 {
                    self.wish_for(class);
                    if self.try_settled(&choices) {
                        break;
                    }
                }
            }
        }
    }

    /// Makes everything near that the plan needs use a class that it does not need, where an e-node of it can. Returns the choices that takes.
    fn lead_from(&self, class: ClassId) -> Vec<(ClassId, usize)> {
        let space = self.state.space;
        let mut from: FxHashMap<ClassId, Option<(ClassId, usize)>> = FxHashMap::from_iter([(class, None)]);
        let (mut open, mut ends) = (VecDeque::from([class]), Vec::new());
        while let Some(below) = open.pop_front() {
            for &user in self.users[below].iter().filter(|u| !space.facts.given[**u]) {
                let reads = |node: &ENode| node.operands.contains(&below);
                let node = space.classes.classes[user].nodes.iter().position(reads).expect("users read what they use");
                if from.len() < DETOUR && !from.contains_key(&user) {
                    from.insert(user, Some((below, node)));
                    if self.state.is_needed(user) { ends.push(user) } else { open.push_back(user) }
                }
            }
        }
        let mut choices: Vec<(ClassId, usize)> = Vec::new();
        for mut user in ends {
            while let Some((below, node)) = from[&user]
                && !choices.contains(&(user, node))
            {
                choices.push((user, node));
                user = below;
            }
        }
        choices
    }

    /// Has a class that the plan does not need stored if it comes to need it, by the kernel of the anchor that it is made of; and what goes into
    /// that.
    fn wish_for(&mut self, class: ClassId) {
        // Classes, whether they go into the anchor, and whether they are to be stored.
        let mut open = vec![(class, false, true)];
        // Forms that nothing needs may go round: a reshape of a reshape.
        let mut seen = FxHashSet::default();
        while let Some((class, before, stored)) = open.pop() {
            let is_settled = self.state.space.facts.loadable[class] || self.state.is_needed(class);
            if is_settled || !self.is_free(class) || !seen.insert(class) {
                continue;
            }
            let node = self.state.plan().choice[class];
            let Some(ENode { op, operands, .. }) = self.state.space.classes.classes[class].nodes.get(node) else {
                continue;
            };
            let of_operands = match op.def().class {
                Class::View(_) if before => Some((true, true)),
                _ if before => None,
                Class::Anchor(_) => Some((true, true)),
                _ => Some((false, false)),
            };
            self.state.wish(class, stored && !(before && of_operands.is_some()));
            if let Some((before, stored)) = of_operands {
                open.extend(operands.iter().map(|&operand| (operand, before, stored)));
            }
        }
    }

    /// What a rule makes, but that what its results are made of takes its cheapest form: other rules may have rewritten that, as a product
    /// into one of rounded operands. None if that is no other.
    fn with_cheaper_forms(&self, choices: &[(ClassId, usize)]) -> Option<Vec<(ClassId, usize)>> {
        let classes = &self.state.space.classes.classes;
        let is_part =
            |class: &ClassId| choices.iter().any(|&(other, node)| classes[other].nodes[node].operands.contains(class));
        let cheaper = |&(class, node): &(ClassId, usize)| {
            let (form, totals) = (self.state.plan().choice[class], &self.totals[class]);
            let is_cheaper = !self.state.is_needed(class) && is_part(&class) && totals[form] < totals[node];
            (class, if is_cheaper { form } else { node })
        };
        let made: Vec<_> = choices.iter().map(cheaper).collect();
        (made != choices).then_some(made)
    }

    /// Makes the plan use a class that it does not need, by the shortest way down from a class that it does need: the
    /// rule may have rewritten another form of what the plan computes, as a product of rows where the plan has one of
    /// batches. Returns the choices that takes.
    fn lead_to(&self, class: ClassId) -> Vec<(ClassId, usize)> {
        let space = self.state.space;
        let mut from: FxHashMap<ClassId, Option<ClassId>> = FxHashMap::from_iter([(class, None)]);
        let mut open = VecDeque::from([class]);
        let mut found = None;
        while let Some(below) = open.pop_front() {
            if below != class && self.state.is_needed(below) {
                found = Some(below);
                break;
            }
            for &user in self.users[below].iter().filter(|u| !space.facts.given[**u]) {
                if from.len() < DETOUR && !from.contains_key(&user) {
                    from.insert(user, Some(below));
                    open.push_back(user);
                }
            }
        }
        let mut choices = Vec::new();
        while let Some(user) = found {
            found = from[&user];
            if let Some(below) = found {
                let nodes = &space.classes.classes[user].nodes;
                let reads = nodes.iter().position(|n| n.operands.contains(&below));
                choices.push((user, reads.expect("users read what they use")));
            }
        }
        choices
    }

    fn choice_moves(&mut self) {
        let space = self.state.space;
        for class in self.needed() {
            for node in 0..space.classes.classes[class].nodes.len() {
                let chosen = self.state.plan().choice[class];
                let (total, best) = (self.totals[class][node], self.totals[class][chosen]);
                if node != chosen && total.is_finite() && total <= best * HOPELESS {
                    let near = self.near(&[(class, node)]);
                    if self.state.is_needed(class) && self.fresh.try_now(Move::Choose(class, node), near) {
                        self.try_settled(&[(class, node)]);
                    }
                }
            }
        }
    }

    /// Makes a change of choice if that gains, unless one like it did not elsewhere. Whether it gained.
    fn try_settled(&mut self, choices: &[(ClassId, usize)]) -> bool {
        if self.state.space.work() > self.full && self.likeness.is_vain(choices) {
            return false;
        }
        let gained = self.settles(choices);
        self.likeness.note(choices, gained);
        gained
    }

    /// Prices a change of choice after letting the classes around it settle: a class that has become a view wants to be
    /// virtual, one that has become an anchor wants to be stored, one that several kernels have come to read may want to.
    /// Whether it gained, and was taken.
    fn settles(&mut self, choices: &[(ClassId, usize)]) -> bool {
        let stores: [Option<Stores>; 3] =
            [None, Some(|class| matches!(class, Class::Anchor(_))), Some(|class| !matches!(class, Class::View(_)))];
        let mark = self.state.mark();
        let several = choices.len() > 1;
        let mut seen: Vec<Vec<bool>> = Vec::new();
        let mut starts: Vec<(Option<Stores>, f64)> = Vec::new();
        for stores in stores {
            self.start(choices, stores);
            let stored: Vec<bool> = choices.iter().map(|(class, _)| self.state.plan().stored[*class]).collect();
            if seen.contains(&stored) {
                self.state.rollback(mark);
                continue;
            }
            seen.push(stored);
            // One class alone seldom settles better from a worse start; several that move together do.
            let best = starts.last().filter(|_| !several).map_or(f64::INFINITY, |(_, seconds)| *seconds);
            let most = |state: &State<'_, '_>, asked: &[bool]| {
                let seconds = far_off(state, asked, mark, several).min(best);
                Price { seconds, ..mark.price }
            };
            if let Some(price) = self.settle(most).filter(|price| price.seconds < best) {
                if !several {
                    starts.clear();
                }
                starts.push((stores, price.seconds));
            }
            self.state.rollback(mark);
        }
        let mut refused = f64::INFINITY;
        for (stores, seconds) in starts {
            // A start that costs more than what an earlier one came to seldom settles to less.
            if seconds > refused {
                continue;
            }
            self.start(choices, stores);
            if self.settle(|_, _| Price::ANY).is_none() {
                self.state.rollback(mark);
                continue;
            }
            let mut near = self.near(choices);
            // What only this change needs may never have been asked whether it should be stored.
            near.extend(unasked(&self.state, &self.asked, mark));
            near.sort_unstable();
            near.dedup();
            // What is only loaded comes last, and only where it can still decide: it counts for little, while its kernels are many and long.
            let mut later = Vec::new();
            for &class in &near {
                if self.state.is_loaded(class) {
                    later.push(class);
                } else {
                    self.flip_if_better(class);
                }
            }
            for class in later {
                if self.reaches(mark) {
                    self.flip_if_better(class);
                } else {
                    // Later starts ask: its kernels would cost them what nothing has settled.
                    near.retain(|other| *other != class);
                }
            }
            if self.state.price.gains(mark.price) {
                self.take(mark);
                return true;
            }
            refused = refused.min(self.state.price.seconds);
            let settled: Vec<_> = near.into_iter().map(|class| (class, self.state.plan().stored[class])).collect();
            self.state.rollback(mark);
            self.remember(settled);
        }
        false
    }

    /// Stores a class that is needed or makes it virtual, in a plan that is being tried.
    fn flip_if_better(&mut self, class: ClassId) {
        if self.is_free(class) && self.state.is_needed(class) {
            let before = self.state.mark();
            flip(&mut self.state, class);
            if !self.settle(|_, _| before.price).is_some_and(|price| price.gains(before.price)) {
                self.state.rollback(before);
            }
        }
    }

    /// Whether settling its new kernels of the load program may decide about a plan that is being tried: it would gain if they counted
    /// nothing, and they count for more than [`LOADED`].
    fn reaches(&self, mark: Mark) -> bool {
        let (price, loaded) = (self.state.price, self.state.loaded(mark));
        let without = Price { seconds: price.seconds - loaded, ..price };
        price.impossible > mark.price.impossible || (loaded > mark.price.seconds * LOADED && without.gains(mark.price))
    }

    /// Keeps for the next start what of one that was refused is stored: most rules that rewrite what the plan does not use make the
    /// same ops reachable, and settling those costs far more than what a rule changes there.
    fn remember(&mut self, settled: Vec<(ClassId, bool)>) {
        for (class, stored) in settled {
            if self.is_free(class) && !self.state.is_needed(class) {
                self.state.wish(class, stored);
                self.asked[class] = true;
            }
        }
    }

    /// Makes choices, and stores the classes that are to be or none of them.
    fn start(&mut self, choices: &[(ClassId, usize)], stores: Option<Stores>) {
        choices.iter().for_each(|&(class, node)| self.state.choose(class, node));
        let Some(stores) = stores else { return };
        for &(class, node) in choices {
            if self.is_free(class) {
                self.state.release(class);
                if stores(&self.state.space.classes.classes[class].nodes[node].op.def().class) {
                    self.state.store(class);
                }
            }
        }
    }

    /// Some classes, what these e-nodes of them read and what may read them, ascending. What is given never changes.
    fn near(&self, choices: &[(ClassId, usize)]) -> Vec<ClassId> {
        let space = self.state.space;
        let mut near = Vec::new();
        for &(class, node) in choices {
            near.push(class);
            near.extend(&space.classes.classes[class].nodes[node].operands);
            near.extend(&self.users[class]);
        }
        near.retain(|&class| !space.facts.given[class]);
        near.sort_unstable();
        near.dedup();
        near
    }

    /// Makes one kernel of two, with the stores of both; and lets a class leave the kernel that hosts it.
    fn host_moves(&mut self) {
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

    /// For each kernel's leader, in order, the leaders of later kernels that may share a launch: those that read what it stores or
    /// reads; and any, where launching is a good part of what both take.
    fn partners(&self) -> Vec<(ClassId, Vec<ClassId>)> {
        let ids = self.state.in_order();
        // Readers of each class in order, once for all.
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

/// The most that the plan may cost after a start.
fn far_off(state: &State<'_, '_>, asked: &[bool], mark: Mark, several: bool) -> f64 {
    let is_settled = several && unasked(state, asked, mark).next().is_none();
    let (times, launches) = if is_settled { (FAR_OFF, 0.0) } else { (FAR_OFF_UNSETTLED, state.launches(mark)) };
    mark.price.seconds + (times - 1.0) * state.gone(mark) + launches
}

/// The classes that kernels compute now and computed nowhere at a moment, of which none knows yet whether they should be stored.
fn unasked(state: &State<'_, '_>, asked: &[bool], mark: Mark) -> impl Iterator<Item = ClassId> {
    let of = move |was: bool| {
        let kernels = state.changes(mark).filter(move |(gone, _)| *gone == was);
        kernels.flat_map(|(_, kernel)| kernel.interior.iter().copied())
    };
    // Nearly all have been asked by then.
    let mut now: Vec<ClassId> = of(false).filter(|&class| !asked[class] && state.is_free(class)).collect();
    if !now.is_empty() {
        let before: FxHashSet<ClassId> = of(true).collect();
        now.retain(|class| !before.contains(class));
    }
    now.into_iter()
}
