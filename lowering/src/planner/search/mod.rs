//! Plan search: a first choice by dynamic programming, greedy fusion, local search with bundle moves, exact for small.

mod choice;
mod exact;
mod fresh;
mod likeness;
mod local;
mod order;
pub(crate) mod state;

use eutectic_ir::eclasses::ClassId;

use self::{
    fresh::{Fresh, Move},
    likeness::Likeness,
    state::{Mark, Price, State},
};
use crate::{
    plan::{Plan, PlanError},
    planner::space::{Priced, Space},
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
    /// How often local search goes over all moves; it ends earlier when a round gains too little.
    pub rounds: usize,
    /// How much greedy and local search may do for each node of the program, in units of [`Space::work`]. At least 200 nodes
    /// are counted, and of those beyond 500 a tenth: otherwise planning a program of thousands takes longer than anyone waits. A count
    /// and not a time, so that plans repeat; the best plan so far is the result.
    pub work: u64,
    /// How many classes the exact search may price, those of each plan anew, before it gives up.
    pub exact_limit: usize,
}

/// Programs of fewer nodes have the search's work of so many.
const NODES_LEAST: usize = 200;
/// From so many nodes on, the search's work grows a tenth as fast as the program.
const NODES_FULL: usize = 500;
/// The work after which a search no longer tries what was refused at a place alike: programs that took less are searched in full.
const WORK_FULL: u64 = 200_000;

impl SearchOptions {
    /// How much work a program of so many nodes is worth.
    fn work_of(&self, program: usize) -> u64 {
        let counted = program.clamp(NODES_LEAST, NODES_FULL) + program.saturating_sub(NODES_FULL) / 10;
        self.work.saturating_mul(counted as u64)
    }
}

impl Default for SearchOptions {
    fn default() -> SearchOptions {
        SearchOptions { strategy: Strategy::Local, rounds: 8, work: 10_000, exact_limit: 20_000_000 }
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
    /// What that took, in units of [`Space::work`].
    pub work: u64,
    /// Whether the search ended because it had used up [`SearchOptions::work`], or met [`SearchOptions::exact_limit`].
    pub cut_short: bool,
}

/// Looks for a cheap plan. The same space gives the same plan, always.
///
/// # Errors
/// When an output cannot be computed at all by the backend: [`PlanError::NoChoice`] names the first class that has no kernel.
pub fn search(space: &Space<'_>, options: &SearchOptions) -> Result<Searched, PlanError> {
    let classes = space.classes.classes.len();
    let start = space.work();
    let fused = options.strategy != Strategy::Unfused;
    let users = users(space);
    let first = choice::first(space, fused)?;
    let mut search = Search {
        state: State::new(space, first.plan)?,
        tried: 1,
        likeness: Likeness::of(space, &users),
        users,
        totals: first.totals,
        fresh: Fresh::new(classes),
        asked: vec![false; classes],
        full: start + WORK_FULL,
        limit: start + options.work_of(space.classes.program),
    };
    if fused {
        search.part();
        search.greedy();
    }
    let greedy = search.state.price;
    if matches!(options.strategy, Strategy::Local | Strategy::Exact) {
        search.local(options.rounds);
    }
    let Search { state, mut tried, users, limit, .. } = search;
    let work = space.work() - start;
    let mut cut_short = space.work() > limit;
    let mut plan = state.into_plan();
    let mut priced = space.price(&plan)?;
    if options.strategy == Strategy::Exact {
        let (more, complete) = exact::improve(space, &users, &mut plan, &mut priced, options.exact_limit);
        (tried, cut_short) = (tried + more, cut_short || !complete);
    }
    let greedy_seconds = if greedy.impossible > 0 { f64::INFINITY } else { greedy.seconds };
    Ok(Searched { plan, priced, greedy_seconds, tried, work, cut_short })
}

/// What stands in the way of computing the outputs: each class that has no kernel although its operands can be computed,
/// with its place in the model, the ops that could compute it and what the backend says to each.
pub fn obstacles(space: &Space<'_>) -> Vec<String> {
    let classes = &space.classes.classes;
    let given = &space.facts.given;
    let alone: Vec<Vec<bool>> = (0..classes.len())
        .map(|c| (0..classes[c].nodes.len()).map(|i| given[c] || space.price_alone(c, i).is_finite()).collect())
        .collect();
    let mut can: Vec<bool> = given.clone();
    let reachable = |can: &[bool], c: ClassId, i: usize| classes[c].nodes[i].operands.iter().all(|&o| can[o]);
    let users = users(space);
    let mut open: Vec<ClassId> = (0..classes.len()).rev().collect();
    while let Some(class) = open.pop() {
        if !can[class] && (0..classes[class].nodes.len()).any(|i| alone[class][i] && reachable(&can, class, i)) {
            can[class] = true;
            open.extend(users[class].iter().filter(|user| !can[**user]));
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
    /// The best plan so far, but for a move that is being tried.
    state: State<'s, 'a>,
    tried: usize,
    users: Vec<Vec<ClassId>>,
    /// What each e-node costs with everything below it.
    totals: Vec<Vec<f64>>,
    /// Where moves are worth another try.
    fresh: Fresh,
    /// Of what the plan does not need, which classes have been asked whether they should be stored if it did.
    asked: Vec<bool>,
    /// What was tried at places that are alike.
    likeness: Likeness,
    /// The work from which on moves that were refused at a place alike are left out.
    full: u64,
    /// The work after which the search ends.
    limit: u64,
}

impl Search<'_, '_> {
    /// Whether there is work left.
    fn goes_on(&self) -> bool {
        self.state.space.work() <= self.limit
    }

    /// Stores everything in kernels of the start that cannot be built: one op after the other is fused from there.
    fn part(&mut self) {
        let state = &mut self.state;
        let mark = state.mark();
        let impossible = state.in_order().into_iter().filter(|id| !state.is_possible(*id));
        let classes: Vec<ClassId> = impossible.flat_map(|id| state.kernel(id).kernel.interior.clone()).collect();
        for class in classes.into_iter().filter(|&class| !state.space.facts.given[class]) {
            state.store(class);
        }
        match state.settle() {
            Ok(()) => state.commit(),
            Err(_) => state.rollback(mark),
        }
    }

    /// Makes classes virtual, from the inputs on, wherever that gains; until a pass changes nothing.
    fn greedy(&mut self) {
        for _ in 0..4 {
            let ids = self.state.in_order();
            let order: Vec<ClassId> = ids.iter().flat_map(|id| self.state.kernel(*id).kernel.stores.clone()).collect();
            let before = self.state.price;
            for class in order {
                self.try_flip(class);
            }
            if !self.state.price.gains(before) {
                break;
            }
        }
    }

    /// Stores a class or makes it virtual, if that gains.
    fn try_flip(&mut self, class: ClassId) {
        if self.is_free(class) && !self.is_settled(class) && self.fresh.try_now(Move::Flip(class), [class]) {
            self.attempt(|state| flip(state, class));
        }
    }

    /// Whether a class is virtual, and storing it would gain no more than storing the only class that reads it.
    fn is_settled(&self, class: ClassId) -> bool {
        let (plan, space) = (self.state.plan(), self.state.space);
        if plan.stored[class] || !self.state.is_built(class) {
            return false;
        }
        let reads = |user: &&ClassId| {
            let node = space.classes.classes[**user].nodes.get(plan.choice[**user]);
            self.state.is_needed(**user) && node.is_some_and(|node| node.operands.contains(&class))
        };
        let mut readers = self.users[class].iter().filter(reads);
        match (readers.next(), readers.next()) {
            (Some(&reader), None) => space.leaves_storing_to(class, reader, plan.choice[reader]),
            _ => false,
        }
    }

    /// Whether a class is not given and no output, so that the plan decides whether it is stored.
    fn is_free(&self, class: ClassId) -> bool {
        self.state.is_free(class)
    }

    /// Makes a move, and takes it back unless it gains.
    fn attempt(&mut self, edit: impl FnOnce(&mut State<'_, '_>)) -> bool {
        let mark = self.state.mark();
        edit(&mut self.state);
        if self.settle(|_, _| mark.price).is_some_and(|price| price.gains(mark.price)) {
            self.take(mark);
            return true;
        }
        self.state.rollback(mark);
        false
    }

    /// The price after edits, if the plan is valid and costs no more than `most` of it, and of the classes that have been asked.
    fn settle(&mut self, most: impl Fn(&State<'_, '_>, &[bool]) -> Price) -> Option<Price> {
        self.tried += 1;
        if !self.goes_on() {
            return None;
        }
        let within = self.state.settle_within(&|state| most(state, &self.asked));
        within.ok().filter(|within| *within).map(|_| self.state.price)
    }

    /// Keeps what was done since a moment.
    fn take(&mut self, since: Mark) {
        self.fresh.mark(self.state.changes(since).map(|(_, kernel)| kernel));
        self.state.commit();
    }
}

/// Stores a class that is virtual, or the other way round.
fn flip(state: &mut State<'_, '_>, class: ClassId) {
    if state.plan().stored[class] { state.release(class) } else { state.store(class) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_grows_slower_than_large_programs() {
        let work = |nodes| SearchOptions::default().work_of(nodes);
        assert_eq!(work(3), work(NODES_LEAST));
        assert_eq!(2 * work(NODES_FULL), 5 * work(NODES_LEAST));
        assert_eq!(work(11 * NODES_FULL), 2 * work(NODES_FULL));
    }
}
