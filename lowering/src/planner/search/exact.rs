//! Enumerates every plan: choices, stored sets and hosts of the needed classes, users before operands.

use eutectic_ir::eclasses::ClassId;

use crate::{
    plan::Plan,
    planner::space::{Priced, Space},
};

/// Prices every plan. Stops when the priced plans have more than `limit` classes in total. Returns the number of priced
/// plans, and whether these are all plans.
pub fn improve(
    space: &Space<'_>,
    users: &[Vec<ClassId>],
    plan: &mut Plan,
    best: &mut Priced,
    limit: usize,
) -> (usize, bool) {
    let order = users_first(space);
    let trial = plan.clone();
    let mut all =
        Enumeration { space, users, order, trial, decided: vec![None; users.len()], plan, best, tried: 0, left: limit };
    all.from(0);
    (all.tried, all.left > 0)
}

/// Returns the classes that need a kernel, users before operands as far as e-graph cycles allow.
fn users_first(space: &Space<'_>) -> Vec<ClassId> {
    fn visit(space: &Space<'_>, class: ClassId, seen: &mut [bool], order: &mut Vec<ClassId>) {
        if space.facts.given[class] || std::mem::replace(&mut seen[class], true) {
            return;
        }
        for &operand in space.classes.classes[class].nodes.iter().flat_map(|n| &n.operands) {
            visit(space, operand, seen, order);
        }
        order.push(class);
    }
    let mut order = Vec::new();
    let mut seen = vec![false; space.facts.given.len()];
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
    /// For each class, whether it is needed; `None` until this is decided.
    decided: Vec<Option<bool>>,
    plan: &'e mut Plan,
    best: &'e mut Priced,
    tried: usize,
    /// The number of classes that may still be priced.
    left: usize,
}

impl Enumeration<'_, '_> {
    fn from(&mut self, at: usize) {
        if self.left == 0 {
            return;
        }
        let Some(&class) = self.order.get(at) else {
            self.tried += 1;
            self.left = self.left.saturating_sub(self.order.len());
            if let Ok(priced) = self.space.price(&self.trial)
                && priced.seconds < self.best.seconds * (1.0 - 1e-9)
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

    /// Returns whether `user` reads `class` under the decisions so far. An undecided user may read it.
    fn reads(&self, user: ClassId, class: ClassId) -> bool {
        let node = self.space.classes.classes[user].nodes.get(self.trial.choice[user]);
        !self.space.facts.given[user]
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
