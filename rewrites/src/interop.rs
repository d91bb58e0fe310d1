//! Converts rules to egg's [`Searcher`] and [`Applier`], so that egg's `Runner`, schedulers and extractors work on
//! the engine's e-graph.
//!
//! ```
//! use egg::{AstSize, Extractor, Runner};
//! use eutectic_ir::{DType, Graph, Type};
//! use eutectic_rewrites::{Choice, Phase, RuleSet, interop};
//!
//! let mut graph = Graph::new("twice negated");
//! let x = graph.input("x", Type::tensor(DType::F32, &[2, 3]))?;
//! let once = graph.apply("neg", &[x], &[])?;
//! let twice = graph.apply("neg", &[once], &[])?;
//! graph.output("y", twice)?;
//!
//! let rules = RuleSet::embedded()?.choose(&Choice::default())?;
//! let (egraph, class) = interop::egraph(&graph)?;
//! let output = class[twice.0 as usize].unwrap();
//! let runner = Runner::default().with_egraph(egraph).run(&interop::rewrites(&rules, &Phase::Main));
//! assert!(runner.egraph.analysis.conflict().is_none());
//! let (size, form) = Extractor::new(&runner.egraph, AstSize).find_best(output);
//! assert_eq!((size, form.to_string().as_str()), (1, "input"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Subst`] binds one variable for each node of a left side, including roots and operands. The applier searches
//! for the matched e-nodes of these classes again, because a `Subst` contains only classes. It also runs the guard,
//! which solves for dims and attributes, because a searcher cannot intern new types. So schedulers count matches
//! before the guard.
//!
//! Two kinds of rules are omitted, because egg has no counterpart. A `group` rule takes the maximal set of its
//! members. A `once` rule runs on the initial e-graph of its phase, and only if it lowers the cost.

use std::sync::Arc;

use egg::{Applier, Id, PatternAst, Rewrite, SearchMatches, Searcher, Subst, Symbol, Var};
use eutectic_ir::Graph;

pub use crate::egraph::{ClassData, EGraph, Facts, InternedNode};
use crate::{
    apply,
    egraph::classes_of,
    guard::{Sight, guard},
    optimize::{self, Options, RewriteError},
    pattern::{Match, unbound},
    recipe::Compiled,
    rule::Phase,
    ruleset::RuleSet,
};

/// Returns the e-graph of a program without rewriting, and the class of each node of the program. A node on which no
/// output depends has no class.
///
/// # Errors
/// If dimensions are not bound.
pub fn egraph(graph: &Graph) -> Result<(EGraph, Vec<Option<Id>>), RewriteError> {
    let (egraph, program) = optimize::start(graph)?;
    Ok((egraph, program.into_iter().map(|(id, _)| id).collect()))
}

/// Returns the e-graph after the engine's phases, for egg's extractors, and the class of each node of the program.
///
/// # Errors
/// If dimensions are not bound, or a rule is wrong.
pub fn saturate(graph: &Graph, rules: &RuleSet, options: &Options) -> Result<(EGraph, Vec<Option<Id>>), RewriteError> {
    let (engine, program, _) = optimize::saturate(graph, rules, options)?;
    Ok((engine.egraph, program.into_iter().map(|(id, _)| id).collect()))
}

/// Returns the rules that run in a phase, except `group` and `once` rules. Each legal form of a rule is a separate
/// rewrite.
pub fn rewrites(rules: &RuleSet, phase: &Phase) -> Vec<Rewrite<InternedNode, Facts>> {
    let rewrite = |compiled: &Arc<Compiled>| {
        let name = match compiled.variant {
            0 => compiled.rule.name.to_string(),
            form => format!("{}#{form}", compiled.rule.name),
        };
        let side = EggRule(compiled.clone());
        Rewrite::new(name, side.clone(), side).expect("the applier requires no variables")
    };
    single(rules).rules.iter().filter(|c| phase.runs(&c.rule.phase)).map(rewrite).collect()
}

/// Returns all rules that [`rewrites`] can convert, that is, all except `group` and `once` rules.
pub fn single(rules: &RuleSet) -> RuleSet {
    let chosen = rules.rules.iter().filter(|c| !c.rule.group && !c.rule.once).cloned().collect();
    RuleSet { rules: chosen, ..rules.clone() }
}

/// A rule in egg's form.
#[derive(Clone)]
struct EggRule(Arc<Compiled>);

/// Returns the variable that stands for a node of a left side.
fn variable(node: usize) -> Var {
    Var::from_u32(node as u32)
}

fn subst(found: &Match) -> Subst {
    let mut subst = Subst::with_capacity(found.classes.len());
    for (node, class) in found.classes.iter().enumerate().filter(|(_, class)| **class != unbound()) {
        subst.insert(variable(node), *class);
    }
    subst
}

impl Searcher<InternedNode, Facts> for EggRule {
    fn search_eclass_with_limit(
        &self,
        egraph: &EGraph,
        class: Id,
        limit: usize,
    ) -> Option<SearchMatches<'_, InternedNode>> {
        if limit == 0 || apply::is_exempt(&self.0, egraph, class) {
            return None;
        }
        let mut substs: Vec<Subst> = Vec::new();
        self.0.pattern().search(egraph, class, &mut |found: &Match| {
            let subst = subst(found);
            if !substs.contains(&subst) {
                substs.push(subst);
            }
            substs.len() < limit
        });
        (!substs.is_empty()).then_some(SearchMatches { eclass: class, substs, ast: None })
    }

    fn search_with_limit(&self, egraph: &EGraph, limit: usize) -> Vec<SearchMatches<'_, InternedNode>> {
        let (mut left, mut all) = (limit, Vec::new());
        for class in classes_of(egraph, self.0.pattern().entry().1.ops()) {
            if let Some(found) = self.search_eclass_with_limit(egraph, class, left) {
                left -= found.substs.len();
                all.push(found);
            }
        }
        all
    }

    fn vars(&self) -> Vec<Var> {
        (0..self.0.pattern().nodes.len()).map(variable).collect()
    }
}

impl Applier<InternedNode, Facts> for EggRule {
    fn apply_one(
        &self,
        egraph: &mut EGraph,
        class: Id,
        subst: &Subst,
        _: Option<&PatternAst<InternedNode>>,
        _: Symbol,
    ) -> Vec<Id> {
        let mut found: Vec<Match> = Vec::new();
        self.0.pattern().search(egraph, class, &mut |one: &Match| {
            let same = |(node, class): (usize, &Id)| {
                *class == unbound() || subst.get(variable(node)).is_some_and(|id| egraph.find(*id) == *class)
            };
            if one.classes.iter().enumerate().all(same) {
                found.push(one.clone());
            }
            true
        });
        found.iter().flat_map(|one| self.apply(egraph, one)).collect()
    }
}

impl EggRule {
    /// Applies the rule to a match. Returns the roots if this changed the e-graph.
    fn apply(&self, egraph: &mut EGraph, found: &Match) -> Vec<Id> {
        let compiled = &*self.0;
        let sight = Sight::of(compiled.pattern(), egraph, found);
        let facts = &mut egraph.analysis;
        let Ok(bindings) = guard(&compiled.rule, compiled.pattern(), facts, &sight) else { return Vec::new() };
        let recipe = match compiled.recipe(facts, &[&sight], &[bindings]) {
            Ok(Some(recipe)) => recipe,
            Ok(None) => return Vec::new(),
            Err((problem, _)) => {
                facts.alarm.get_or_insert(format!("{}: {problem}", compiled.rule.name));
                return Vec::new();
            }
        };
        let roots: Vec<Id> = apply::roots(compiled, found).collect();
        let variables: Vec<Id> = apply::variables(compiled, found).collect();
        let made = apply::make(egraph, &roots, &variables, &recipe);
        if made.is_some_and(|made| made.changed) { roots } else { Vec::new() }
    }
}
