//! Searches for a plan: chooses e-nodes by dynamic programming, fuses kernels greedily, and improves the plan by local
//! search. Small programs can be searched exactly.

mod choice;
mod detours;
mod exact;
mod joins;
mod likeness;
mod local;
mod order;
mod retry;
mod starts;
pub(crate) mod state;

use eutectic_ir::eclasses::ClassId;

use self::{
    likeness::Likeness,
    retry::{Move, RetryFilter},
    state::{Mark, Price, State},
};
use crate::{
    plan::{Plan, PlanError},
    planner::space::{Priced, Space},
};

/// The strategy of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Each op is a kernel of its own. This is the cost of running the graph op by op.
    Unfused,
    /// One pass in the order of the data flow decides whether each class is stored.
    Greedy,
    /// Greedy, followed by local search: changes of choice, storage and host, or all changes of one rule application,
    /// as long as they gain.
    Local,
    /// Every plan. It suits spaces of a few classes.
    Exact,
}

/// Options of the search.
#[derive(Clone, Copy, Debug)]
pub struct SearchOptions {
    /// The strategy.
    pub strategy: Strategy,
    /// The maximal number of rounds of local search. The search ends earlier if a round gains too little.
    pub rounds: usize,
    /// The work of greedy and local search per node of the program, in ops visited (see [`Space::work`]). At least 200
    /// nodes are counted, and each node beyond 500 counts a tenth, which limits the planning time of large programs.
    /// The limit is a count and not a time, so that plans are reproducible. A search that reaches it returns its best
    /// plan so far.
    pub work: u64,
    /// The maximal number of classes that the exact search prices, summed over plans.
    pub exact_limit: usize,
}

/// Smaller programs get the work of this number of nodes.
const NODES_LEAST: usize = 200;
/// Beyond this number of nodes, work grows a tenth as fast as the program.
const NODES_FULL: usize = 500;
/// The work beyond which moves are skipped if a similar one was refused elsewhere. Programs that need less are searched
/// in full.
const WORK_FULL: u64 = 200_000;

impl SearchOptions {
    /// Returns the maximal work for a program of `program` nodes.
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

/// The result of a search.
#[derive(Clone, Debug)]
pub struct Searched {
    /// The plan.
    pub plan: Plan,
    /// Its price.
    pub priced: Priced,
    /// Seconds of the plan that greedy search alone finds.
    pub greedy_seconds: f64,
    /// The number of plans that were priced.
    pub tried: usize,
    /// The work of the search, in ops visited (see [`Space::work`]).
    pub work: u64,
    /// Whether the search ended at [`SearchOptions::work`] or [`SearchOptions::exact_limit`].
    pub cut_short: bool,
}

/// Searches for a cheap plan. The search is deterministic.
///
/// # Errors
/// [`PlanError::NoChoice`] if the backend cannot compute an output. It names the first class without a kernel.
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
        fresh: RetryFilter::new(classes),
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

/// Returns one line for each class that prevents the outputs from being computed: it has no kernel, although its
/// operands can be computed. A line contains the place in the model, the ops that could compute the class, and for each
/// op the backend's reason against it.
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

/// Returns, for each class, the classes with an e-node that reads it.
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
    /// The best plan so far, or during a move the plan under trial.
    state: State<'s, 'a>,
    tried: usize,
    users: Vec<Vec<ClassId>>,
    /// For each e-node, its cost with all its operands.
    totals: Vec<Vec<f64>>,
    /// Don't-look bits of moves.
    fresh: RetryFilter,
    /// For each class that the plan does not need, whether the search has already decided if it should be stored.
    asked: Vec<bool>,
    /// The results of similar moves.
    likeness: Likeness,
    /// The work beyond which moves are skipped if a similar one was refused.
    full: u64,
    /// The work at which the search ends.
    limit: u64,
}

impl Search<'_, '_> {
    /// Returns whether work remains.
    fn goes_on(&self) -> bool {
        self.state.space.work() <= self.limit
    }

    /// Splits each initial kernel that cannot be built into one kernel per class. Greedy search then fuses their ops
    /// one by one.
    fn part(&mut self) {
        let state = &mut self.state;
        let mark = state.mark();
        let impossible = state.in_order().into_iter().filter(|id| !state.is_possible(*id));
        let classes: Vec<ClassId> = impossible.flat_map(|id| state.kernel(id).kernel.interior.clone()).collect();
        for class in classes.into_iter().filter(|&class| !state.space.facts.given[class]) {
            state.store(class);
        }
        match state.refresh() {
            Ok(()) => state.commit(),
            Err(_) => state.rollback(mark),
        }
    }

    /// Makes classes virtual if that gains, in the order of the data flow. Ends after four passes, or if a pass changes
    /// nothing.
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

    /// Stores a virtual class, or makes a stored class virtual, if that gains.
    fn try_flip(&mut self, class: ClassId) {
        if self.is_free(class) && !self.is_dominated(class) && self.fresh.try_now(Move::Flip(class), [class]) {
            self.attempt(|state| flip(state, class));
        }
    }

    /// Returns whether a class is virtual, and storing it can gain no more than storing its only reader.
    fn is_dominated(&self, class: ClassId) -> bool {
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

    /// Returns whether the plan decides whether a class is stored: it is neither given nor an output.
    fn is_free(&self, class: ClassId) -> bool {
        self.state.is_free(class)
    }

    /// Makes a move, and takes it back unless it gains. Returns whether it gained.
    fn attempt(&mut self, edit: impl FnOnce(&mut State<'_, '_>)) -> bool {
        let mark = self.state.mark();
        edit(&mut self.state);
        if self.refresh(|_, _| mark.price).is_some_and(|price| price.gains(mark.price)) {
            self.take(mark);
            return true;
        }
        self.state.rollback(mark);
        false
    }

    /// Updates kernels and prices after edits. Returns the price, or `None` if the plan is invalid or its price exceeds
    /// `most`. The function `most` computes this limit from the state and from [`Search::asked`].
    fn refresh(&mut self, most: impl Fn(&State<'_, '_>, &[bool]) -> Price) -> Option<Price> {
        self.tried += 1;
        if !self.goes_on() {
            return None;
        }
        let within = self.state.refresh_within(&|state| most(state, &self.asked));
        within.ok().filter(|within| *within).map(|_| self.state.price)
    }

    /// Accepts all edits since a mark.
    fn take(&mut self, since: Mark) {
        self.fresh.mark(self.state.changes(since).map(|(_, kernel)| kernel));
        self.state.commit();
    }
}

/// Stores a virtual class, or makes a stored class virtual.
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
