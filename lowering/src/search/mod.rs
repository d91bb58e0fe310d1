//! Plan search: a first choice by dynamic programming, greedy fusion, local search with bundle moves, exact for small.

mod exact;
mod fresh;
mod local;

use eutectic_ir::{eclasses::ClassId, ops::Class};

use self::fresh::{Fresh, Move};
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
    let fresh = Fresh::new(space.classes.classes.len());
    let mut search = Search { space, tried: 0, users: users(space), totals: Vec::new(), fresh };
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
    /// Where moves are worth another try.
    fresh: Fresh,
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
    fn try_flip(&mut self, plan: &mut Plan, best: &mut Priced, class: ClassId) {
        if self.fresh.try_now(Move::Flip(class), [class])
            && let Some(trial) = self.flipped(plan, class)
        {
            self.try_plan(plan, best, trial);
        }
    }

    /// The plan with a class stored that was virtual, or the other way round.
    fn flipped(&self, plan: &Plan, class: ClassId) -> Option<Plan> {
        if self.space.given[class] || self.space.classes.outputs.contains(&class) {
            return None;
        }
        let mut trial = plan.clone();
        if trial.stored[class] {
            trial.release(class);
        } else {
            trial.stored[class] = true;
            trial.host[class] = class;
        }
        Some(trial)
    }

    /// Takes a plan if it gains.
    fn try_plan(&mut self, plan: &mut Plan, best: &mut Priced, trial: Plan) {
        if let Some(priced) = self.better(best, &trial) {
            self.take(plan, best, trial, priced);
        }
    }

    /// The price of a plan that is valid and gains.
    fn better(&mut self, best: &Priced, trial: &Plan) -> Option<Priced> {
        self.price(trial).ok().filter(|priced| gains(priced, best))
    }

    fn take(&mut self, plan: &mut Plan, best: &mut Priced, trial: Plan, priced: Priced) {
        self.fresh.mark((plan, best), (&trial, &priced));
        (*plan, *best) = (trial, priced);
    }
}

/// Whether a price is better by more than rounding.
fn gains(new: &Priced, old: &Priced) -> bool {
    new.seconds < old.seconds * (1.0 - 1e-9) || (old.seconds.is_infinite() && new.seconds.is_finite())
}
