//! The engine: searches and applies the rules of a phase until nothing changes or a limit is reached.
//!
//! Rules are searched in the order of their names, in classes that changed since their last search. All matches of a
//! round are collected before they are applied in that order, so that every run gives the same result. Equal matches
//! share the computation of their replacement.

mod matches;

use std::{
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use egg::Id;
use eutectic_ir::{
    Op,
    lang::{Bindings, LangError},
};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::{
    apply::{self, Made},
    device::Device,
    egraph::EGraph,
    guard::Sight,
    instantiate::Ref,
    log::{Application, Log, canonical},
    parse::located,
    pattern::Match,
    recipe::{Compiled, Recipe, gains},
    rule::{Phase, VariableKind},
};

/// The limits of the engine. They are counts, most of them per program node, so that every run gives the same result.
///
/// The matches of a rule at one program node may grow with the program. In `((x·a)·b)·c…`, each product is a product
/// of every prefix, which makes n² e-nodes and n³ matches. [`EngineLimits::applications`] bounds each rule
/// separately, so that the total grows linearly. A rule that does not terminate then leaves room for other rules and
/// for other nodes. The limits of nodes and matches end a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineLimits {
    /// The maximal number of applications of a rule to the classes that stem from one program node. Beyond them, a
    /// rule has a shared budget for all nodes: this number times the number of nodes (at least 100). Legalization is
    /// not bounded, because a program has no kernels without it.
    pub applications: usize,
    /// The maximal number of e-nodes per program node. A program of fewer than 10 nodes has the limit of one with 10.
    pub nodes: usize,
    /// The maximal number of rounds of a phase.
    pub iterations: usize,
    /// The maximal number of matches of a phase per program node. A program of fewer than 10 nodes has the limit of one
    /// with 10.
    pub matches: usize,
}

impl Default for EngineLimits {
    fn default() -> EngineLimits {
        EngineLimits { applications: 12, nodes: 200, iterations: 60, matches: 2000 }
    }
}

impl EngineLimits {
    /// Returns the limits for a program with `program` nodes.
    fn of(self, program: usize) -> EngineLimits {
        let program = program.max(10);
        EngineLimits { nodes: self.nodes * program, matches: self.matches * program, ..self }
    }
}

/// The reason why a phase ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The last round changed nothing.
    Saturated,
    /// Only rules that reached their limit could still change the e-graph. [`RuleStatistics::held`] counts where.
    Applications,
    /// The limit on e-nodes was reached.
    Nodes,
    /// The limit on rounds was reached.
    Iterations,
    /// The limit on matches was reached.
    Matches,
}

/// The result of a phase.
#[derive(Clone, Debug)]
pub struct PhaseReport {
    /// The phase.
    pub phase: Phase,
    /// The reason why the phase ended.
    pub stop: Stop,
    /// The number of rounds.
    pub iterations: usize,
    /// The number of matches.
    pub matches: usize,
    /// The number of e-nodes at the end of the phase.
    pub nodes: usize,
    /// The number of e-classes at the end of the phase.
    pub classes: usize,
    /// The elapsed time.
    pub time: Duration,
}

/// The statistics of a rule.
#[derive(Clone, Debug, Default)]
pub struct RuleStatistics {
    /// The rule.
    pub name: Arc<str>,
    /// The number of matches that the guard admitted.
    pub matches: usize,
    /// The number of applications. A match counts once.
    pub applications: usize,
    /// The number of applications that united classes or made nodes.
    pub changes: usize,
    /// The number of program nodes at which the limit of applications stopped the rule.
    pub held: usize,
    /// The number of refused matches, whose right side has another type than the left side, or none.
    pub refused: usize,
    /// The reason for the first refusal.
    pub refusal: Option<Arc<str>>,
    /// The time of searching and applying.
    pub time: Duration,
}

impl RuleStatistics {
    /// Adds the statistics of the same rule in another run.
    pub fn add(&mut self, other: &RuleStatistics) {
        self.matches += other.matches;
        self.applications += other.applications;
        self.changes += other.changes;
        self.held += other.held;
        self.refused += other.refused;
        self.refusal = self.refusal.take().or_else(|| other.refusal.clone());
        self.time += other.time;
    }
}

/// A match that the guard admitted. A match of a group rule has several members.
struct Found {
    rule: usize,
    members: Vec<Match>,
}

/// The applications of a rule at a program node.
#[derive(Clone, Copy, Default)]
struct Spent {
    applications: usize,
    /// Whether the limit prevented a further application.
    held: bool,
}

/// A match that was not applied because an op observes the rounding of the value, which the rule may change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Withheld {
    pub rule: usize,
    pub root: Id,
    pub observer: Op,
}

type MatchKey = (u32, SmallVec<[Sight; 1]>);

pub(crate) struct Engine<'r> {
    pub egraph: EGraph,
    pub log: Log,
    pub statistics: Vec<RuleStatistics>,
    /// The matches that were not applied because an op observes their root.
    pub withheld: Vec<Withheld>,
    rules: &'r [Arc<Compiled>],
    /// The device for which rules run.
    device: Device,
    limits: EngineLimits,
    /// The result of the guard for each match. An error has the op that observes the root, if nothing else prevents
    /// the match.
    guards: FxHashMap<(u32, Sight), Result<Rc<Bindings>, Option<Op>>>,
    recipes: FxHashMap<MatchKey, Option<Rc<Recipe>>>,
    applied: Vec<FxHashSet<Vec<Match>>>,
    /// For each rule and program node, the applications to classes that stem from the node.
    spent: FxHashMap<(usize, u32), Spent>,
    /// For each rule, the remaining applications of the budget that all nodes share.
    shared: Vec<usize>,
    /// For each rule, the first round whose changes it has not searched.
    seen: Vec<u32>,
    /// Classes that a group rule made, by rule. The rule does not take them as members again.
    products: Vec<(usize, Id)>,
}

impl<'r> Engine<'r> {
    pub fn new(egraph: EGraph, rules: &'r [Arc<Compiled>], limits: EngineLimits) -> Engine<'r> {
        let program = egraph.total_number_of_nodes();
        let shared = limits.applications.saturating_mul(program.max(100));
        let limits = limits.of(program);
        let statistics = |c: &Arc<Compiled>| RuleStatistics { name: c.rule.name.clone(), ..Default::default() };
        Engine {
            egraph,
            log: Log::default(),
            statistics: rules.iter().map(statistics).collect(),
            withheld: Vec::new(),
            rules,
            limits,
            guards: FxHashMap::default(),
            recipes: FxHashMap::default(),
            applied: vec![FxHashSet::default(); rules.len()],
            device: Device::default(),
            spent: FxHashMap::default(),
            shared: vec![shared; rules.len()],
            seen: vec![0; rules.len()],
            products: Vec::new(),
        }
    }

    /// Sets the device for which rules run.
    pub fn on(mut self, device: Device) -> Engine<'r> {
        self.device = device;
        self
    }

    /// Runs a phase. First, its `once` rules run on the initial e-graph, and then all rules of the phase until
    /// nothing changes. Group rules run when all other rules have terminated, so that they see complete sets.
    ///
    /// # Errors
    /// If a replacement has another type than the replaced value, which is a defect of the engine.
    pub fn run(&mut self, phase: &Phase) -> Result<PhaseReport, LangError> {
        let start = Instant::now();
        let of = |engine: &Self, pick: &dyn Fn(&Compiled) -> bool| -> Vec<usize> {
            let runs = |r: &usize| engine.rules[*r].rule.kept_off(&engine.device).is_none();
            (0..engine.rules.len()).filter(runs).filter(|r| pick(&engine.rules[*r])).collect()
        };
        let once = of(self, &|c| c.rule.once && c.rule.phase == *phase);
        let single = of(self, &|c| !c.rule.once && phase.runs(&c.rule.phase) && !c.rule.group);
        let groups = of(self, &|c| !c.rule.once && phase.runs(&c.rule.phase) && c.rule.group);
        let (mut matches, mut iterations) = (0, 0);
        self.egraph.rebuild();
        if !once.is_empty() {
            let found = self.search(&once);
            matches += found.len();
            self.apply_all(found)?;
        }
        let stop = loop {
            if iterations >= self.limits.iterations {
                break Stop::Iterations;
            }
            iterations += 1;
            let mut found = self.search(&single);
            if found.is_empty() {
                found = self.search_groups(&groups);
            }
            matches += found.len();
            if matches > self.limits.matches {
                break Stop::Matches;
            }
            if found.is_empty() {
                let held = single.iter().any(|rule| self.statistics[*rule].held > 0);
                break if held { Stop::Applications } else { Stop::Saturated };
            }
            if !self.apply_all(found)? {
                break Stop::Nodes;
            }
        };
        Ok(PhaseReport {
            phase: phase.clone(),
            stop,
            iterations,
            matches,
            nodes: self.egraph.total_number_of_nodes(),
            classes: self.egraph.number_of_classes(),
            time: start.elapsed(),
        })
    }

    /// Applies matches in order, and then restores the e-graph's invariants. Returns `false` if the limit of nodes is
    /// reached.
    fn apply_all(&mut self, found: Vec<Found>) -> Result<bool, LangError> {
        self.egraph.analysis.now += 1;
        let mut within = true;
        let mut counted = NodeCount::of(&self.egraph);
        for one in found {
            let start = Instant::now();
            let rule = one.rule;
            self.apply(one)?;
            self.statistics[rule].time += start.elapsed();
            if counted.most(&self.egraph) > self.limits.nodes {
                counted = NodeCount::of(&self.egraph);
                if counted.nodes > self.limits.nodes {
                    within = false;
                    break;
                }
            }
        }
        self.egraph.rebuild();
        Ok(within)
    }

    fn recipe(&mut self, rule: usize, members: &[Match]) -> Option<Rc<Recipe>> {
        let compiled = self.rules[rule].clone();
        let sights: SmallVec<[Sight; 1]> =
            members.iter().map(|m| Sight::of(compiled.pattern(), &self.egraph, m)).collect();
        let key = (rule as u32, sights);
        if let Some(known) = self.recipes.get(&key) {
            return known.clone();
        }
        let bindings: Option<Vec<Bindings>> =
            members.iter().map(|m| self.admit(rule, m).map(|b| (*b).clone())).collect();
        let recipe = match bindings {
            None => None,
            Some(bindings) => {
                let sights: Vec<&Sight> = key.1.iter().collect();
                match compiled.recipe(&mut self.egraph.analysis, &sights, &bindings) {
                    Ok(recipe) => recipe.map(Rc::new),
                    // The program stays correct if this match is skipped.
                    Err((message, _)) => {
                        let statistics = &mut self.statistics[rule];
                        statistics.refused += 1;
                        statistics.refusal.get_or_insert_with(|| message.into());
                        None
                    }
                }
            }
        };
        self.recipes.insert(key, recipe.clone());
        recipe
    }

    /// Returns the op to which a match binds the rule's op variable.
    fn op_of(&mut self, rule: usize, found: &Match) -> Option<Op> {
        let slot = self.rules[rule].rule.variables.iter().find_map(|v| match v.kind {
            VariableKind::Op(slot, _) => Some(slot),
            _ => None,
        })?;
        let (op, _) = self.admit(rule, found)?.op(slot)?;
        Some(op)
    }

    fn apply(&mut self, found: Found) -> Result<(), LangError> {
        let Found { rule, members } = found;
        let compiled = self.rules[rule].clone();
        let Some(recipe) = self.recipe(rule, &members) else { return Ok(()) };
        if compiled.rule.once && !gains(&compiled, &self.egraph, &members[0], &recipe) {
            return Ok(());
        }
        self.statistics[rule].applications += 1;
        let pattern = compiled.pattern();
        let roots: SmallVec<[Id; 2]> = members.iter().flat_map(|m| apply::roots(&compiled, m)).collect();
        let variables: SmallVec<[Id; 4]> = members.iter().flat_map(|m| apply::variables(&compiled, m)).collect();
        let Some(Made { nodes: made, changed }) = apply::make(&mut self.egraph, &roots, &variables, &recipe) else {
            return Ok(());
        };
        if let Some(alarm) = &self.egraph.analysis.alarm {
            let help = "this is a defect of Eutectic: the applier should have refused this match";
            let span = compiled.rule.roots[0].span.clone();
            return Err(located(&compiled.rule.source, &compiled.rule.name, span, alarm, help));
        }
        if compiled.rule.group {
            let inner = (0..made.len()).filter(|n| !recipe.tops.contains(&Ref::Instr(*n)));
            self.products.extend(inner.map(|n| (rule, made[n].1)));
        }
        self.statistics[rule].changes += usize::from(changed);
        let matched = members.iter().flat_map(|m| matched(pattern, &self.egraph, m)).collect();
        let op = self.op_of(rule, &members[0]);
        self.log.applications.push(Application { rule, op, roots, variables, matched, made, changed });
        Ok(())
    }
}

/// An estimate of the number of e-nodes. An exact count visits all classes, which is too slow after each application.
struct NodeCount {
    nodes: usize,
    /// The size of the e-graph's table of e-nodes, which grows with each new e-node.
    entries: usize,
}

impl NodeCount {
    fn of(egraph: &EGraph) -> NodeCount {
        NodeCount { nodes: egraph.total_number_of_nodes(), entries: egraph.total_size() }
    }

    /// Returns an upper bound of the current number of e-nodes.
    fn most(&self, egraph: &EGraph) -> usize {
        self.nodes + (egraph.total_size() - self.entries)
    }
}

/// Returns the e-nodes of a match.
fn matched(
    pattern: &crate::pattern::Pattern,
    egraph: &EGraph,
    found: &Match,
) -> Vec<(crate::egraph::Head, SmallVec<[Id; 4]>)> {
    let node = |(at, pat): (usize, &crate::pattern::Pat)| match pat {
        crate::pattern::Pat::Op { args, .. } => {
            let mut children: SmallVec<[Id; 4]> = args.iter().map(|a| found.classes[*a]).collect();
            if found.swapped >> at & 1 == 1 {
                children.swap(0, 1);
            }
            Some((found.heads[at], canonical(egraph, &children)))
        }
        _ => None,
    };
    pattern.nodes.iter().enumerate().filter_map(node).collect()
}
