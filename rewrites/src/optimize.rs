//! The entry: a graph and rules in, a saturated e-graph as plain data out.

use std::sync::Arc;

use egg::Id;
use eutectic_ir::{
    Graph, NodeId, Op, Origin,
    eclasses::{ClassId, EClasses},
    lang::LangError,
};
use smallvec::SmallVec;

use crate::{
    classes::{self, Extracted},
    egraph::{EGraph, Facts, InternedNode},
    engine::{Engine, EngineLimits, PhaseReport, RuleStatistics},
    log::{Log, Makers, canonical},
    own_ops::OpClash,
    recipe::Compiled,
    rule::Phase,
    ruleset::RuleSet,
};

/// What `optimize` can be told.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where it stops.
    pub limits: EngineLimits,
    /// The last phase to run; all if there is none.
    pub until: Option<Phase>,
    /// The backend for which rules run; those of every backend if there is none.
    pub backend: Option<Arc<str>>,
}

/// Why a graph could not be rewritten.
#[derive(Debug, thiserror::Error)]
pub enum RewriteError {
    /// Dimensions are to be bound first.
    #[error("dimensions are not bound: {}", .0.join(", "))]
    Unbound(Vec<String>),
    /// Part of the program has no legal form with the rules that ran.
    #[error("no rule brings these into a form that kernels take: {}", .0.join("; "))]
    Illegal(Vec<String>),
    /// Two ops have one name.
    #[error(transparent)]
    Ops(#[from] OpClash),
    /// A rule is wrong.
    #[error(transparent)]
    Rule(#[from] Box<LangError>),
}

/// A saturated e-graph and how it came about.
#[derive(Clone, Debug)]
pub struct Rewritten {
    /// The classes.
    pub classes: EClasses,
    /// The class of each node of the graph, where it is still needed.
    pub class_of: Vec<Option<ClassId>>,
    /// What each phase did, and why it ended.
    pub phases: Vec<PhaseReport>,
    /// What each rule did.
    pub statistics: Vec<RuleStatistics>,
    /// Every application of a rule, in order.
    pub applications: Vec<Applied>,
    /// Where a rule was kept from a value, because a discontinuous op observes it.
    pub withheld: Vec<Observed>,
    /// The application that made each node first, by class and node; none for those of the program itself.
    makers: Vec<Vec<Option<usize>>>,
}

/// An application of a rule.
#[derive(Clone, Debug)]
pub struct Applied {
    /// The rule.
    pub rule: Arc<str>,
    /// The op that its variable of ops stands for, where it has one.
    pub op: Option<Op>,
    /// The classes of its roots, where they are still needed.
    pub roots: Vec<Option<ClassId>>,
    /// The classes of its tensor variables, in the order of `forall`, member by member.
    pub variables: Vec<(Arc<str>, Option<ClassId>)>,
    /// The nodes of its right side that can be chosen: class and node.
    pub made: Vec<(ClassId, usize)>,
    /// Whether it changed anything.
    pub changed: bool,
    /// The applications that made what it matched.
    pub after: Vec<usize>,
}

/// A rule that was not applied, because a discontinuous op observes the value that it would change.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The rule.
    pub rule: Arc<str>,
    /// The class of the value, where it is still needed.
    pub class: Option<ClassId>,
    /// The op.
    pub observer: Op,
}

impl Rewritten {
    /// The class of a node of the graph.
    pub fn class(&self, node: NodeId) -> Option<ClassId> {
        self.class_of.get(node.0 as usize).copied().flatten()
    }

    /// The applications, in order, that turned the program into this node of a class; empty for a node of the program.
    pub fn explain(&self, class: ClassId, node: usize) -> Vec<&Applied> {
        let mut steps: Vec<usize> = Vec::new();
        let mut open: Vec<usize> =
            self.makers.get(class).and_then(|nodes| nodes.get(node)).copied().flatten().into_iter().collect();
        while let Some(at) = open.pop() {
            if !steps.contains(&at) {
                steps.push(at);
                open.extend(&self.applications[at].after);
            }
        }
        steps.sort_unstable();
        steps.into_iter().map(|at| &self.applications[at]).collect()
    }
}

/// Saturates a graph with rules, phase by phase.
///
/// # Errors
/// When dims are unbound, a rule turns out to be wrong, an op has the name of another one that the rules declare, or a part of the program has no legal form in the end.
pub fn optimize(graph: &Graph, rules: &RuleSet, options: &Options) -> Result<Rewritten, RewriteError> {
    let graph = &*graph.observed();
    let rules = &*rules.with_ops_of(graph)?;
    let (engine, program, phases) = saturate(graph, rules, options)?;
    let Engine { egraph, log, statistics, withheld, .. } = engine;
    let outputs: Vec<Id> = graph.results().filter_map(|(_, node)| program[node.0 as usize].0).collect();
    let extracted = classes::extract(&egraph, &outputs, &program, &log, rules);
    legal(graph, &egraph, &program, &extracted)?;
    let given = program
        .iter()
        .zip(graph.nodes())
        .filter_map(|((id, _), (_, node))| Some((*id, node)).filter(|(id, _)| id.is_some()));
    let given: Vec<InternedNode> = given.filter_map(|(_, node)| original(&egraph, &program, node)).collect();
    let makers = log.makers(&egraph, given.into_iter());
    let class_of = program.iter().map(|(id, _)| extracted.number.get(&egraph.find((*id)?)).copied()).collect();
    let withheld = withheld.iter().map(|one| Observed {
        rule: rules.rules[one.rule].rule.name.clone(),
        class: extracted.number.get(&egraph.find(one.root)).copied(),
        observer: one.observer,
    });
    Ok(Rewritten {
        withheld: withheld.collect(),
        class_of,
        phases,
        statistics: merged(statistics),
        applications: applications(&egraph, &log, &makers, &rules.rules, &extracted),
        makers: extracted
            .nodes
            .iter()
            .map(|nodes| nodes.iter().map(|n| makers.of(n.head, &n.children)).collect())
            .collect(),
        classes: extracted.classes,
    })
}

/// For each node of a graph its class, if the node is live, and its origin.
pub(crate) type LiveNodes = Vec<(Option<Id>, Origin)>;

/// Runs the phases on a graph.
pub(crate) fn saturate<'r>(
    graph: &Graph,
    rules: &'r RuleSet,
    options: &Options,
) -> Result<(Engine<'r>, LiveNodes, Vec<PhaseReport>), RewriteError> {
    let (egraph, program) = start(&graph.observed())?;
    let mut engine = Engine::new(egraph, &rules.rules, options.limits).on(options.backend.clone());
    let mut phases = Vec::new();
    for phase in Phase::ALL.into_iter().filter(|p| options.until.is_none_or(|until| *p <= until)) {
        phases.push(engine.run(phase).map_err(|e| RewriteError::Rule(Box::new(e)))?);
    }
    Ok((engine, program, phases))
}

/// One entry for each rule, whatever the number of its legal forms.
pub(crate) fn merged(statistics: Vec<RuleStatistics>) -> Vec<RuleStatistics> {
    let mut merged: Vec<RuleStatistics> = Vec::new();
    for one in statistics {
        match merged.last_mut().filter(|last| last.name == one.name) {
            None => merged.push(one),
            Some(last) => last.add(&one),
        }
    }
    merged
}

/// The e-graph of a program, before any rule has run.
pub(crate) fn start(graph: &Graph) -> Result<(EGraph, LiveNodes), RewriteError> {
    let symbols = graph.symbols();
    if !symbols.is_empty() {
        return Err(RewriteError::Unbound(symbols.iter().map(|s| s.to_string()).collect()));
    }
    Ok(insert(graph))
}

/// The e-graph of a graph's live nodes.
fn insert(graph: &Graph) -> (EGraph, LiveNodes) {
    let mut live = vec![false; graph.len()];
    graph.results().for_each(|(_, node)| live[node.0 as usize] = true);
    let nodes: Vec<_> = graph.nodes().collect();
    for (id, node) in nodes.iter().rev() {
        if live[id.0 as usize] {
            node.operands.iter().for_each(|o| live[o.0 as usize] = true);
        }
    }
    let mut egraph = EGraph::new(Facts::default());
    let mut program: LiveNodes = Vec::with_capacity(graph.len());
    for (id, node) in nodes {
        let at = live[id.0 as usize].then(|| {
            let head = egraph.analysis.head(node.op, node.attrs.clone());
            let head = egraph.analysis.observed(head, node.observer);
            let children: Option<SmallVec<[Id; 4]>> = node.operands.iter().map(|o| program[o.0 as usize].0).collect();
            egraph.analysis.rank = id.0;
            egraph.add(InternedNode { head, op: node.op, children: children.expect("operands of live nodes are live") })
        });
        program.push((at, node.origin.clone()));
    }
    egraph.rebuild();
    (egraph, program)
}

/// A node of the graph as it stands in the e-graph.
fn original(egraph: &EGraph, program: &LiveNodes, node: &eutectic_ir::graph::Node) -> Option<InternedNode> {
    let head = egraph.analysis.find_head(node.op, &node.attrs, node.observer)?;
    let children: Option<SmallVec<[Id; 4]>> = node.operands.iter().map(|o| program[o.0 as usize].0).collect();
    Some(InternedNode { head, op: node.op, children: children? })
}

/// Whether every output can be computed.
fn legal(graph: &Graph, egraph: &EGraph, program: &LiveNodes, extracted: &Extracted) -> Result<(), RewriteError> {
    let outputs = &extracted.classes.outputs;
    if outputs.iter().all(|o| !extracted.classes.classes[*o].nodes.is_empty()) {
        return Ok(());
    }
    // The lowest nodes that have no legal form: what is above them follows.
    let has_legal = |id: Id| {
        egraph[egraph.find(id)].nodes.iter().any(|n| {
            let types: Vec<_> = n.children.iter().map(|c| egraph[*c].data.ty).collect();
            egraph.analysis.is_legal(n.head, &types)
        })
    };
    let illegal = graph.nodes().filter(|(id, _)| program[id.0 as usize].0.is_some_and(|id| !has_legal(id)));
    let shown = illegal.map(|(_, node)| {
        let operands: Vec<_> = node.operands.iter().map(|o| graph.ty(*o).to_string()).collect();
        format!("{}({}) in {}", node.op, operands.join(", "), node.origin)
    });
    Err(RewriteError::Illegal(shown.collect()))
}

/// The log with the numbers of the classes.
fn applications(
    egraph: &EGraph,
    log: &Log,
    makers: &Makers,
    rules: &[Arc<Compiled>],
    extracted: &Extracted,
) -> Vec<Applied> {
    let number = |id: &Id| extracted.number.get(&egraph.find(*id)).copied();
    let mut places = rustc_hash::FxHashMap::default();
    for (class, nodes) in extracted.nodes.iter().enumerate() {
        for (at, node) in nodes.iter().enumerate() {
            places.insert((node.head, node.children.clone()), (class, at));
        }
    }
    let applied = |(at, a): (usize, &crate::log::Application)| {
        let rule = &rules[a.rule].rule;
        let names: Vec<Arc<str>> = rule.tensors().map(|(v, ..)| Arc::from(v.name.as_str())).collect();
        let made = a.made.iter().filter_map(|(n, _)| places.get(&(n.head, canonical(egraph, &n.children))).copied());
        let mut after: Vec<usize> = a
            .matched
            .iter()
            .filter_map(|(head, children)| makers.of(*head, &canonical(egraph, children)))
            .filter(|m| *m < at)
            .collect();
        after.sort_unstable();
        after.dedup();
        Applied {
            rule: rule.name.clone(),
            op: a.op,
            roots: a.roots.iter().map(number).collect(),
            variables: names.iter().cycle().cloned().zip(a.variables.iter().map(number)).collect(),
            made: made.collect(),
            changed: a.changed,
            after,
        }
    };
    log.applications.iter().enumerate().map(applied).collect()
}
