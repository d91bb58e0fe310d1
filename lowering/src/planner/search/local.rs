//! Runs the local search. It tries changes of choice, storage and host, and all changes of one rule application
//! together. It keeps the changes that lower the price.

use eutectic_ir::{
    eclasses::{ClassId, ENode, NodeChoice},
    ops::Class,
};

use super::{Search, retry::Move, state::Price};

/// An e-node is tried if it costs, with its operands, at most this multiple of the chosen e-node. Sharing and fusion
/// can make up for such a factor.
const HOPELESS: f64 = 3.0;

/// The maximal number of ops by which one move shifts a store towards the operands.
const SHIFT_DEPTH: usize = 3;

/// The number of refused rule applications to an e-node that the plan does not use. Further ones are then skipped until
/// a kernel around the e-node's class changes. A hundred rules may apply to such an e-node, and most of them do not
/// affect whether using it pays.
const REFUSALS: u32 = 8;

/// A further round starts only if the last one gained this share of the plan's time. Later rounds cost almost as much
/// and gain less.
const WORTH_ANOTHER: f64 = 0.01;

impl Search<'_, '_> {
    /// Tries all moves in rounds, until a round gains too little.
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

    /// Returns every class that some kernel computes.
    fn needed(&self) -> Vec<ClassId> {
        (0..self.users.len()).filter(|&class| self.state.is_needed(class)).collect()
    }

    /// Returns the operands of a class's chosen e-node that are not given.
    fn below(&self, class: ClassId) -> impl Iterator<Item = ClassId> + '_ {
        let nodes = &self.state.space.classes.classes[class].nodes;
        let chosen = nodes.get(self.state.plan().choice[class]);
        let operands = chosen.into_iter().flat_map(|n| n.operands.iter().copied());
        operands.filter(|&c| !self.state.space.facts.given[c])
    }

    /// Tries to store an operand or a user in place of a stored class. This moves a kernel boundary, for example to a
    /// smaller tensor.
    fn try_shift(&mut self, class: ClassId) {
        if !self.state.plan().stored[class] || !self.is_free(class) {
            return;
        }
        let mut near = self.users[class].clone();
        // Operands of operands are tried too, because a single step may not gain: the result of an expand is as large
        // as the values computed from it.
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

    /// Applies all choices of one rule application together: merging projections pays only if all of them change.
    fn bundle_moves(&mut self) {
        let space = self.state.space;
        for (at, bundle) in space.classes.bundles.iter().enumerate() {
            let mut choices = bundle.choices.clone();
            if !self.fresh.try_now(Move::Bundle(at), self.near(&choices)) {
                continue;
            }
            let mut detours = Vec::new();
            for &NodeChoice { class, .. } in &bundle.choices {
                let mut others =
                    bundle.choices.iter().map(|other| &space.classes.classes[other.class].nodes[other.node]);
                if !self.state.is_needed(class) && !others.any(|node| node.operands.contains(&class)) {
                    let detour = self.lead_to(class);
                    detours.extend(detour.first().copied());
                    choices.extend(detour);
                }
            }
            if !detours.is_empty() && detours.iter().all(|&detour| self.fresh.refusals(detour) >= REFUSALS) {
                continue;
            }
            let better = self.with_cheaper_forms(&bundle.choices).map(|made| [&made, &choices[made.len()..]].concat());
            let plan = self.state.plan();
            let is_new = |choices: &[NodeChoice]| choices.iter().any(|of| plan.choice[of.class] != of.node);
            let starts: Vec<_> = better.into_iter().chain([choices]).filter(|choices| is_new(choices)).collect();
            if !starts.is_empty() && !starts.iter().any(|choices| self.try_choices(choices)) {
                detours.into_iter().for_each(|detour| self.fresh.refuse(detour));
            }
        }
    }

    /// Tries, in one move, to compute a class that no kernel computes yet, and to compute all its views from it. For
    /// example, storing a cast tensor pays only if every kernel that now casts the operand itself reads a view of the
    /// stored tensor.
    fn shared_moves(&mut self) {
        let space = self.state.space;
        for class in 0..self.users.len() {
            if space.facts.given[class] || self.state.is_needed(class) {
                continue;
            }
            let reads = |&user: &ClassId| {
                let is_view =
                    |node: &ENode| matches!(node.op.def().class, Class::View(_)) && node.operands.contains(&class);
                space.classes.classes[user].nodes.iter().position(is_view).map(|node| NodeChoice { class: user, node })
            };
            let views: Vec<NodeChoice> =
                self.users[class].iter().filter(|user| !space.facts.given[**user]).filter_map(reads).collect();
            if views.len() < 2 || !self.fresh.try_now(Move::Share(class), self.near(&views)) {
                continue;
            }
            let mut nearest: Vec<NodeChoice> = Vec::new();
            for view in views {
                let detour = if self.state.is_needed(view.class) { Vec::new() } else { self.lead_to(view.class) };
                let steps = if detour.is_empty() && !self.state.is_needed(view.class) { None } else { Some(view) };
                let is_new = |of: &NodeChoice| nearest.iter().all(|other| other.class != of.class);
                let new: Vec<_> = detour.into_iter().chain(steps).filter(is_new).collect();
                nearest.extend(new);
            }
            for choices in [nearest, self.lead_from(class)] {
                if choices.len() > 1 {
                    self.wish_for(class);
                    if self.try_choices(&choices) {
                        break;
                    }
                }
            }
        }
    }

    fn choice_moves(&mut self) {
        let space = self.state.space;
        for class in self.needed() {
            for node in 0..space.classes.classes[class].nodes.len() {
                let chosen = self.state.plan().choice[class];
                let (total, best) = (self.totals[class][node], self.totals[class][chosen]);
                if node != chosen && total.is_finite() && total <= best * HOPELESS {
                    let near = self.near(&[NodeChoice { class, node }]);
                    if self.state.is_needed(class) && self.fresh.try_now(Move::Choose(class, node), near) {
                        self.try_choices(&[NodeChoice { class, node }]);
                    }
                }
            }
        }
    }

    /// Returns the classes of the choices, the operands of the chosen e-nodes, and all users, ascending and without
    /// given classes.
    pub(super) fn near(&self, choices: &[NodeChoice]) -> Vec<ClassId> {
        let space = self.state.space;
        let mut near = Vec::new();
        for &NodeChoice { class, node } in choices {
            near.push(class);
            near.extend(&space.classes.classes[class].nodes[node].operands);
            near.extend(&self.users[class]);
        }
        near.retain(|&class| !space.facts.given[class]);
        near.sort_unstable();
        near.dedup();
        near
    }
}
