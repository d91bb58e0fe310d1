//! Plan search: a first choice by dynamic programming, greedy fusion, local search with bundle moves, exact for small.

use eutectic_ir::{eclasses::ClassId, ops::Class};

use crate::{
    plan::{Plan, PlanError},
    space::{Priced, Space},
};

/// How to look for a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Every op a kernel of its own: what running the graph op by op costs.
    Unfused,
    /// Each class is stored or not by one pass in the order of the data flow.
    Greedy,
    /// Greedy, then changes of choice, storage and host, one rule application's together, while they gain.
    Local,
    /// Every plan; only for spaces of a few classes.
    Exact,
}

/// Options of the search.
#[derive(Clone, Copy, Debug)]
pub struct SearchOptions {
    /// How.
    pub strategy: Strategy,
    /// How often local search goes over all moves; it ends earlier when none gains.
    pub rounds: usize,
    /// How many plans the exact search may price before it gives up.
    pub exact_limit: usize,
}

impl Default for SearchOptions {
    fn default() -> SearchOptions {
        SearchOptions { strategy: Strategy::Local, rounds: 8, exact_limit: 2_000_000 }
    }
}

/// What a search found.
#[derive(Clone, Debug)]
pub struct Searched {
    /// The plan.
    pub plan: Plan,
    /// Its price.
    pub priced: Priced,
    /// What greedy search alone would have found, in seconds.
    pub greedy_seconds: f64,
    /// How many plans were priced.
    pub tried: usize,
}

/// Looks for a cheap plan. The same space gives the same plan, always.
///
/// # Errors
/// When an output cannot be computed at all by the backend: [`PlanError::NoChoice`] names the first class that has no kernel.
pub fn search(space: &Space<'_>, options: &SearchOptions) -> Result<Searched, PlanError> {
    let fused = options.strategy != Strategy::Unfused;
    let mut search = Search { space, tried: 0, users: users(space), totals: Vec::new() };
    let plan = search.first_choice(fused)?;
    let mut best = search.price(&plan)?;
    let mut plan = plan;
    if fused {
        search.greedy(&mut plan, &mut best);
    }
    let greedy_seconds = best.seconds;
    match options.strategy {
        Strategy::Unfused | Strategy::Greedy => {}
        Strategy::Local => search.local(&mut plan, &mut best, options.rounds),
        Strategy::Exact => {
            search.local(&mut plan, &mut best, options.rounds);
            search.tried += exact::improve(space, &search.users, &mut plan, &mut best, options.exact_limit);
        }
    }
    Ok(Searched { plan, priced: best, greedy_seconds, tried: search.tried })
}

/// How many times dearer than the chosen e-node another may be, as a tree, and still be tried: sharing and fusion can make up
/// for so much.
const HOPELESS: f64 = 3.0;

/// How many ops down a store may be shifted at once.
const SHIFT_DEPTH: usize = 3;

/// Up to how many kernels every pair is tried as one kernel.
const ALL_PAIRS: usize = 16;

/// What stands in the way of computing the outputs: each class that has no kernel although its operands can be computed,
/// with its place in the model, the ops that could compute it and what the backend says to each.
pub fn obstacles(space: &Space<'_>) -> Vec<String> {
    let classes = &space.classes.classes;
    let mut can: Vec<bool> = space.given.clone();
    let alone: Vec<Vec<bool>> = (0..classes.len())
        .map(|c| {
            (0..classes[c].nodes.len()).map(|i| space.given[c] || space.cost_alone(c, i).seconds.is_finite()).collect()
        })
        .collect();
    let reachable = |can: &[bool], c: ClassId, i: usize| classes[c].nodes[i].operands.iter().all(|&o| can[o]);
    loop {
        let next = (0..classes.len())
            .find(|&c| !can[c] && (0..classes[c].nodes.len()).any(|i| alone[c][i] && reachable(&can, c, i)));
        match next {
            Some(class) => can[class] = true,
            None => break,
        }
    }
    let stuck = (0..classes.len()).filter(|&c| !can[c] && (0..classes[c].nodes.len()).any(|i| reachable(&can, c, i)));
    stuck.map(|class| space.obstacle(class)).collect()
}

/// For each class, the classes with an e-node that reads it.
fn users(space: &Space<'_>) -> Vec<Vec<ClassId>> {
    let mut users = vec![Vec::new(); space.classes.classes.len()];
    for (class, c) in space.classes.classes.iter().enumerate() {
        for node in &c.nodes {
            for &operand in &node.operands {
                users[operand].push(class);
            }
        }
    }
    users.iter_mut().for_each(|u| u.dedup());
    users
}

struct Search<'s, 'a> {
    space: &'s Space<'a>,
    tried: usize,
    users: Vec<Vec<ClassId>>,
    /// What each e-node costs with everything below it, as a tree.
    totals: Vec<Vec<f64>>,
}

impl Search<'_, '_> {
    fn price(&mut self, plan: &Plan) -> Result<Priced, PlanError> {
        self.tried += 1;
        self.space.price(plan)
    }

    /// The cheapest way to compute each class as a tree. Fused, pointwise ops and views cost next to nothing, because they
    /// will be inlined; unfused, each op costs its own kernel.
    fn first_choice(&mut self, fused: bool) -> Result<Plan, PlanError> {
        let classes = &self.space.classes.classes;
        let n = classes.len();
        let own: Vec<Vec<f64>> = (0..n).map(|class| self.own_costs(class, fused)).collect();
        let mut best: Vec<(f64, usize)> =
            (0..n).map(|c| if self.space.given[c] { (0.0, 0) } else { (f64::INFINITY, 0) }).collect();
        loop {
            let mut changed = false;
            for class in (0..n).filter(|&c| !self.space.given[c]) {
                for (i, node) in classes[class].nodes.iter().enumerate() {
                    let total = node.operands.iter().fold(own[class][i], |sum, &c| sum + best[c].0);
                    // A relative margin: ties keep the earlier node, whatever the order of addition.
                    if total < best[class].0 * (1.0 - 1e-12) || (best[class].0.is_infinite() && total.is_finite()) {
                        best[class] = (total, i);
                        changed = true;
                    }
                }
            }
            if !changed {
                break;
            }
        }
        let total = |class: usize, i: usize| {
            classes[class].nodes[i].operands.iter().fold(own[class][i], |sum, &c| sum + best[c].0)
        };
        self.totals = (0..n).map(|c| (0..classes[c].nodes.len()).map(|i| total(c, i)).collect()).collect();
        let unreached = self.space.classes.outputs.iter().find(|&&c| best[c].0.is_infinite());
        if let Some(&output) = unreached {
            return Err(PlanError::NoChoice(self.culprit(output, &best)));
        }
        let choice: Vec<_> = best.iter().map(|b| b.1).collect();
        let stored = (0..n).map(|c| !self.space.given[c]).collect();
        let mut plan = Plan { choice, stored, host: (0..n).collect() };
        for &output in &self.space.classes.outputs {
            plan.stored[output] = true;
        }
        Ok(plan)
    }

    fn own_costs(&self, class: ClassId, fused: bool) -> Vec<f64> {
        let c = &self.space.classes.classes[class];
        if self.space.given[class] {
            return vec![0.0; c.nodes.len()];
        }
        let share = if c.constant { 0.01 } else { 1.0 };
        (0..c.nodes.len())
            .map(|i| {
                let alone = self.space.cost_alone(class, i);
                let seconds = match c.nodes[i].op.def().class {
                    Class::Pointwise if fused => alone.seconds * 0.1,
                    Class::View(_) | Class::Leaf(_) if fused => alone.seconds * 0.01,
                    _ => alone.seconds,
                };
                seconds * share
            })
            .collect()
    }

    /// A class below `class` that stops it from being computed: the first without a node whose operands all can be.
    fn culprit(&self, class: ClassId, best: &[(f64, usize)]) -> ClassId {
        let (mut at, mut seen) = (class, vec![false; best.len()]);
        loop {
            seen[at] = true;
            let nodes = &self.space.classes.classes[at].nodes;
            let next = nodes.iter().flat_map(|n| &n.operands).find(|&&c| best[c].0.is_infinite() && !seen[c]);
            match next {
                Some(&c) => at = c,
                None => return at,
            }
        }
    }

    /// Makes classes virtual, from the inputs on, wherever that gains; until a pass changes nothing.
    fn greedy(&mut self, plan: &mut Plan, best: &mut Priced) {
        for _ in 0..4 {
            let order: Vec<ClassId> = best.kernels.iter().flat_map(|(k, _)| k.stores.clone()).collect();
            let before = best.seconds;
            for class in order {
                self.try_flip(plan, best, class);
            }
            if best.seconds >= before {
                break;
            }
        }
    }

    /// Stores a class or makes it virtual, if that gains.
    fn try_flip(&mut self, plan: &mut Plan, best: &mut Priced, class: ClassId) -> bool {
        if self.space.given[class] || self.space.classes.outputs.contains(&class) {
            return false;
        }
        let mut trial = plan.clone();
        if trial.stored[class] {
            trial.release(class);
        } else {
            trial.stored[class] = true;
            trial.host[class] = class;
        }
        self.accept(plan, best, trial)
    }

    /// Stores an operand of a stored class in its stead, or a user: where the boundary lies matters when the shapes differ.
    fn try_shift(&mut self, plan: &mut Plan, best: &mut Priced, class: ClassId) {
        if !plan.stored[class] || self.space.given[class] || self.space.classes.outputs.contains(&class) {
            return;
        }
        let mut near = self.users[class].clone();
        // A step may gain only together with the next: an expand is as large as what is computed from it.
        let mut below = vec![class];
        for _ in 0..SHIFT_DEPTH {
            let operands = |&c: &ClassId| {
                let nodes = &self.space.classes.classes[c].nodes;
                nodes.get(plan.choice[c]).map_or(&[][..], |n| &n.operands).to_vec()
            };
            below = below.iter().flat_map(operands).filter(|&c| !self.space.given[c]).collect();
            near.extend(&below);
        }
        near.dedup();
        for next in near {
            if plan.stored[class] && !plan.stored[next] && !self.space.given[next] {
                let mut trial = plan.clone();
                let (leads, host) = (trial.host[class] == class, trial.host[class]);
                trial.stored[next] = true;
                trial.host[next] = if leads { next } else { host };
                if leads {
                    trial.host.iter_mut().filter(|h| **h == class).for_each(|h| *h = next);
                }
                trial.release(class);
                self.accept(plan, best, trial);
            }
        }
    }

    fn accept(&mut self, plan: &mut Plan, best: &mut Priced, trial: Plan) -> bool {
        match self.price(&trial) {
            Ok(priced) if gains(&priced, best) => {
                *plan = trial;
                *best = priced;
                true
            }
            _ => false,
        }
    }

    fn local(&mut self, plan: &mut Plan, best: &mut Priced, rounds: usize) {
        for _ in 0..rounds {
            let before = best.seconds;
            self.bundle_moves(plan, best);
            self.choice_moves(plan, best);
            self.host_moves(plan, best);
            for class in self.needed(best) {
                self.try_flip(plan, best, class);
                self.try_shift(plan, best, class);
            }
            if best.seconds >= before {
                return;
            }
        }
    }

    /// Every class that some kernel computes.
    fn needed(&self, best: &Priced) -> Vec<ClassId> {
        let mut needed: Vec<_> = best.kernels.iter().flat_map(|(k, _)| k.interior.iter().copied()).collect();
        needed.sort_unstable();
        needed.dedup();
        needed
    }

    /// All choices of one rule application together: merging projections pays only when all of them move.
    fn bundle_moves(&mut self, plan: &mut Plan, best: &mut Priced) {
        for bundle in &self.space.classes.bundles {
            let mut trial = plan.clone();
            for &(class, node) in &bundle.choices {
                trial.choice[class] = node;
            }
            let mut touched: Vec<_> = bundle.choices.iter().map(|c| c.0).collect();
            let needed = self.needed(best);
            for &(class, _) in &bundle.choices {
                let mut others =
                    bundle.choices.iter().map(|&(other, node)| &self.space.classes.classes[other].nodes[node]);
                if needed.binary_search(&class).is_err() && !others.any(|node| node.operands.contains(&class)) {
                    touched.extend(self.lead_to(class, &needed, &mut trial));
                }
            }
            self.try_settled(plan, best, &trial, &touched);
        }
    }

    /// Makes the plan use a class that it does not need, by the shortest way down from a class that it does need: the
    /// rule may have rewritten another form of what the plan computes, as a product of rows where the plan has one of
    /// batches. Returns the classes whose choice that takes.
    fn lead_to(&self, class: ClassId, needed: &[ClassId], plan: &mut Plan) -> Vec<ClassId> {
        let mut ways: Vec<(ClassId, Option<usize>)> = vec![(class, None)];
        let mut at = 0;
        while let Some(&(below, _)) = ways.get(at) {
            if at > 0 && needed.binary_search(&below).is_ok() {
                break;
            }
            for &user in self.users[below].iter().filter(|u| !self.space.given[**u]) {
                if ways.iter().all(|w| w.0 != user) {
                    ways.push((user, Some(at)));
                }
            }
            at += 1;
        }
        let mut changed = Vec::new();
        while let Some(&(user, Some(below))) = ways.get(at) {
            let nodes = &self.space.classes.classes[user].nodes;
            let reads = nodes.iter().position(|n| n.operands.contains(&ways[below].0));
            plan.choice[user] = reads.expect("users read what they use");
            changed.push(user);
            at = below;
        }
        changed
    }

    fn choice_moves(&mut self, plan: &mut Plan, best: &mut Priced) {
        for class in self.needed(best) {
            if self.space.given[class] {
                continue;
            }
            for node in 0..self.space.classes.classes[class].nodes.len() {
                let hopeless = self.totals[class][node] > self.totals[class][plan.choice[class]] * HOPELESS;
                if node != plan.choice[class] && !hopeless && self.totals[class][node].is_finite() {
                    let mut trial = plan.clone();
                    trial.choice[class] = node;
                    self.try_settled(plan, best, &trial, &[class]);
                }
            }
        }
    }

    /// Prices a change of choice after letting the classes around it settle: a class that has become a view wants to be
    /// virtual, one that has become an anchor wants to be stored, one that several kernels have come to read may want to.
    fn try_settled(&mut self, plan: &mut Plan, best: &mut Priced, trial: &Plan, touched: &[ClassId]) -> bool {
        let nodes = |class: ClassId| &self.space.classes.classes[class].nodes[trial.choice[class]];
        let mut near: Vec<ClassId> = touched.to_vec();
        for &class in touched {
            near.extend(&nodes(class).operands);
            near.extend(&self.users[class]);
        }
        near.sort_unstable();
        near.dedup();
        let stores: [Option<fn(&Class) -> bool>; 3] =
            [None, Some(|class| matches!(class, Class::Anchor(_))), Some(|class| !matches!(class, Class::View(_)))];
        let mut starts: Vec<(Plan, Priced)> = Vec::new();
        for stores in stores {
            let mut start = trial.clone();
            if let Some(stores) = stores {
                for &class in touched.iter().filter(|c| !self.space.classes.outputs.contains(c)) {
                    start.release(class);
                    start.stored[class] = stores(&nodes(class).op.def().class);
                }
            }
            if starts.iter().all(|s| s.0 != start)
                && let Ok(priced) = self.price(&start)
                // A start that is far off cannot be saved by what happens next to it.
                && priced.seconds <= best.seconds * 2.0
            {
                starts.push((start, priced));
            }
        }
        if let ([_], Some(least)) = (touched, starts.iter().map(|s| s.1.seconds).min_by(f64::total_cmp)) {
            // One class alone seldom settles better from a worse start; several that move together do.
            let cheapest = starts.iter().position(|s| s.1.seconds == least);
            starts = cheapest.map(|at| starts.swap_remove(at)).into_iter().collect();
        }
        for (mut trial, mut priced) in starts {
            let needed = self.needed(&priced);
            for &class in near.iter().filter(|c| needed.binary_search(c).is_ok()) {
                self.try_flip(&mut trial, &mut priced, class);
            }
            if gains(&priced, best) {
                *plan = trial;
                *best = priced;
                return true;
            }
        }
        false
    }

    /// Makes one kernel of two, with the stores of both; and lets a class leave the kernel that hosts it.
    fn host_moves(&mut self, plan: &mut Plan, best: &mut Priced) {
        let kernels: Vec<_> = best.kernels.iter().map(|(k, _)| k.clone()).collect();
        for (at, one) in kernels.iter().enumerate() {
            for other in &kernels[at + 1..] {
                // Among few kernels any two may share a launch; among many only those that have data in common.
                let near = kernels.len() <= ALL_PAIRS
                    || other.reads.iter().any(|c| one.stores.contains(c) || one.reads.contains(c));
                let (from, to) = (plan.host[one.stores[0]], plan.host[other.stores[0]]);
                if near && from != to {
                    let mut trial = plan.clone();
                    trial.host.iter_mut().filter(|h| **h == from).for_each(|h| *h = to);
                    self.accept(plan, best, trial);
                }
            }
            for &class in one.stores.iter().filter(|_| one.stores.len() > 1) {
                if plan.host[class] != class {
                    let mut trial = plan.clone();
                    trial.host[class] = class;
                    self.accept(plan, best, trial);
                }
            }
        }
    }
}

/// Whether a price is better by more than rounding.
fn gains(new: &Priced, old: &Priced) -> bool {
    new.seconds < old.seconds * (1.0 - 1e-9) || (old.seconds.is_infinite() && new.seconds.is_finite())
}

mod exact {
    //! Enumeration of every plan: choices, stored sets and hosts of the classes that are needed, users before operands.

    use super::{ClassId, Plan, Priced, Space, gains};

    /// Prices every plan; gives up, without harm, after `limit`.
    pub(super) fn improve(
        space: &Space<'_>,
        users: &[Vec<ClassId>],
        plan: &mut Plan,
        best: &mut Priced,
        limit: usize,
    ) -> usize {
        let order = users_first(space);
        let trial = plan.clone();
        let mut all = Enumeration { space, users, order, trial, decided: vec![None; users.len()], plan, best, limit };
        all.from(0);
        limit - all.limit
    }

    /// Classes that need a kernel, those that read others before those (as far as cycles between classes allow).
    fn users_first(space: &Space<'_>) -> Vec<ClassId> {
        fn visit(space: &Space<'_>, class: ClassId, seen: &mut [bool], order: &mut Vec<ClassId>) {
            if space.given[class] || std::mem::replace(&mut seen[class], true) {
                return;
            }
            for &operand in space.classes.classes[class].nodes.iter().flat_map(|n| &n.operands) {
                visit(space, operand, seen, order);
            }
            order.push(class);
        }
        let mut order = Vec::new();
        let mut seen = vec![false; space.given.len()];
        for &output in &space.classes.outputs {
            visit(space, output, &mut seen, &mut order);
        }
        order.reverse();
        order
    }

    struct Enumeration<'e, 's> {
        space: &'e Space<'s>,
        users: &'e [Vec<ClassId>],
        order: Vec<ClassId>,
        trial: Plan,
        /// Whether a class is needed, once it is decided.
        decided: Vec<Option<bool>>,
        plan: &'e mut Plan,
        best: &'e mut Priced,
        limit: usize,
    }

    impl Enumeration<'_, '_> {
        fn from(&mut self, at: usize) {
            if self.limit == 0 {
                return;
            }
            let Some(&class) = self.order.get(at) else {
                self.limit -= 1;
                if let Ok(priced) = self.space.price(&self.trial)
                    && gains(&priced, self.best)
                {
                    *self.plan = self.trial.clone();
                    *self.best = priced;
                }
                return;
            };
            let output = self.space.classes.outputs.contains(&class);
            let needed = output || self.users[class].iter().any(|&user| self.reads(user, class));
            self.decided[class] = Some(needed);
            if needed {
                self.decide(at, class, output);
            } else {
                (self.trial.stored[class], self.trial.host[class]) = (false, class);
                self.from(at + 1);
            }
            self.decided[class] = None;
        }

        /// Whether `user` needs `class` under what is decided; a user that is still open might.
        fn reads(&self, user: ClassId, class: ClassId) -> bool {
            let node = self.space.classes.classes[user].nodes.get(self.trial.choice[user]);
            !self.space.given[user]
                && self.decided[user].is_none_or(|needed| needed && node.is_some_and(|n| n.operands.contains(&class)))
        }

        fn decide(&mut self, at: usize, class: ClassId, output: bool) {
            for node in 0..self.space.classes.classes[class].nodes.len() {
                self.trial.choice[class] = node;
                if !output {
                    (self.trial.stored[class], self.trial.host[class]) = (false, class);
                    self.from(at + 1);
                }
                self.trial.stored[class] = true;
                let before = self.order[..at].iter().copied();
                let leaders: Vec<_> = before.filter(|&c| self.trial.stored[c] && self.trial.host[c] == c).collect();
                for leader in std::iter::once(class).chain(leaders) {
                    self.trial.host[class] = leader;
                    self.from(at + 1);
                }
            }
        }
    }
}
