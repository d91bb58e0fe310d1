//! Local search: changes of choice, storage and host, one rule application's together, while they gain.

use eutectic_ir::{eclasses::ClassId, ops::Class};

use super::{Move, Search, gains};
use crate::{plan::Plan, space::Priced};

/// How many times dearer than the chosen e-node another may be, as a tree, and still be tried: sharing and fusion can make up
/// for so much.
const HOPELESS: f64 = 3.0;

/// How many ops down a store may be shifted at once.
const SHIFT_DEPTH: usize = 3;

/// Up to how many kernels every pair is tried as one kernel.
const ALL_PAIRS: usize = 16;

/// Which classes a change of choice starts out with as stored, by the e-node that computes them.
type Stores = fn(&Class) -> bool;

impl Search<'_, '_> {
    /// Goes over all moves until none gains.
    pub(super) fn local(&mut self, plan: &mut Plan, best: &mut Priced, rounds: usize) {
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
        if !self.fresh.try_now(Move::Shift(class), near.iter().copied().chain([class])) {
            return;
        }
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
                self.try_plan(plan, best, trial);
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
        for (at, bundle) in self.space.classes.bundles.iter().enumerate() {
            let mut trial = plan.clone();
            for &(class, node) in &bundle.choices {
                trial.choice[class] = node;
            }
            let mut touched: Vec<_> = bundle.choices.iter().map(|c| c.0).collect();
            if !self.fresh.try_now(Move::Bundle(at), self.near(&trial, &touched)) {
                continue;
            }
            let needed = self.needed(best);
            for &(class, _) in &bundle.choices {
                let mut others =
                    bundle.choices.iter().map(|&(other, node)| &self.space.classes.classes[other].nodes[node]);
                if needed.binary_search(&class).is_err() && !others.any(|node| node.operands.contains(&class)) {
                    touched.extend(self.lead_to(class, &needed, &mut trial));
                }
            }
            if trial != *plan {
                self.try_settled(plan, best, &trial, &touched);
            }
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
                    if self.fresh.try_now(Move::Choose(class, node), self.near(&trial, &[class])) {
                        self.try_settled(plan, best, &trial, &[class]);
                    }
                }
            }
        }
    }

    /// Prices a change of choice after letting the classes around it settle: a class that has become a view wants to be
    /// virtual, one that has become an anchor wants to be stored, one that several kernels have come to read may want to.
    fn try_settled(&mut self, plan: &mut Plan, best: &mut Priced, trial: &Plan, touched: &[ClassId]) {
        let nodes = |class: ClassId| &self.space.classes.classes[class].nodes[trial.choice[class]];
        let near = self.near(trial, touched);
        let stores: [Option<Stores>; 3] =
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
        let several = touched.len() > 1;
        let before = if several { self.needed(best) } else { Vec::new() };
        let least = starts.iter().map(|s| s.1.seconds).min_by(f64::total_cmp);
        if let (false, Some(least)) = (several, least) {
            // One class alone seldom settles better from a worse start; several that move together do.
            let cheapest = starts.iter().position(|s| s.1.seconds == least);
            starts = cheapest.map(|at| starts.swap_remove(at)).into_iter().collect();
        }
        for (mut trial, mut priced) in starts {
            let needed = self.needed(&priced);
            // What only this change needs has never been asked whether it should be stored.
            let new = |class: &ClassId| several && before.binary_search(class).is_err();
            for &class in needed.iter().filter(|c| near.binary_search(c).is_ok() || new(c)) {
                if let Some(flipped) = self.flipped(&trial, class)
                    && let Some(better) = self.better(&priced, &flipped)
                {
                    (trial, priced) = (flipped, better);
                }
            }
            if gains(&priced, best) {
                self.take(plan, best, trial, priced);
                return;
            }
        }
    }

    /// Some classes, what their chosen e-nodes read and what may read them, ascending.
    fn near(&self, plan: &Plan, touched: &[ClassId]) -> Vec<ClassId> {
        let mut near: Vec<ClassId> = touched.to_vec();
        for &class in touched {
            near.extend(&self.space.classes.classes[class].nodes[plan.choice[class]].operands);
            near.extend(&self.users[class]);
        }
        near.sort_unstable();
        near.dedup();
        near
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
                let pair = [one.stores[0], other.stores[0]];
                if near && from != to && self.fresh.try_now(Move::Join(from, to), pair) {
                    let mut trial = plan.clone();
                    trial.host.iter_mut().filter(|h| **h == from).for_each(|h| *h = to);
                    self.try_plan(plan, best, trial);
                }
            }
            for &class in one.stores.iter().filter(|_| one.stores.len() > 1) {
                if plan.host[class] != class && self.fresh.try_now(Move::Leave(class), [class]) {
                    let mut trial = plan.clone();
                    trial.host[class] = class;
                    self.try_plan(plan, best, trial);
                }
            }
        }
    }
}
