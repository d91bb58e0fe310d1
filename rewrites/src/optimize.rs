//! The entry point: saturates a graph with rules, and returns the e-graph as plain data.

use std::sync::Arc;

use egg::Id;
use eutectic_ir::{
    Graph, NodeId, Op, Origin,
    eclasses::{ClassId, EClasses, NodeChoice, PriceHint},
    lang::LangError,
};
use smallvec::SmallVec;

use crate::{
    classes::{self, Extracted},
    device::Device,
    egraph::{EGraph, Facts, InternedNode},
    engine::{Engine, EngineLimits, PhaseReport, RuleStatistics},
    log::{Log, Makers, canonical},
    own_ops::OpClash,
    recipe::Compiled,
    rule::Phase,
    ruleset::RuleSet,
};

/// Options of [`optimize`].
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The limits of the engine.
    pub limits: EngineLimits,
    /// The last phase to run. If it is `None`, all phases run.
    pub until: Option<Phase>,
    /// The device for which rules run.
    pub device: Device,
}

/// The reason why a graph cannot be rewritten.
#[derive(Debug, thiserror::Error)]
pub enum RewriteError {
    /// Some dimensions have neither a value nor bounds.
    #[error("cannot rewrite the graph because dimensions are not bound: {}", .0.join(", "))]
    Unbound(Vec<String>),
    /// A part of the program has no legal form with the chosen rules.
    #[error("cannot compute these because no rule brings them into legal form: {}", .0.join("; "))]
    Illegal(Vec<String>),
    /// Two ops with different declarations have the same name.
    #[error(transparent)]
    Ops(#[from] OpClash),
    /// A rule is wrong.
    #[error(transparent)]
    Rule(#[from] Box<LangError>),
}

/// A saturated e-graph with the log of its rewriting.
#[derive(Clone, Debug)]
pub struct Rewritten {
    /// The classes.
    pub classes: EClasses,
    /// The class of each node of the graph. A node on which no output depends has no class.
    pub class_of: Vec<Option<ClassId>>,
    /// The result of each phase.
    pub phases: Vec<PhaseReport>,
    /// The statistics of each rule.
    pub statistics: Vec<RuleStatistics>,
    /// Every application of a rule, in order.
    pub applications: Vec<Applied>,
    /// The rules that were not applied because a discontinuous op observes the rounding of the value.
    pub withheld: Vec<Observed>,
    /// The application that first made each node, by class and node; `None` for nodes of the program itself.
    makers: Vec<Vec<Option<usize>>>,
}

/// An application of a rule.
#[derive(Clone, Debug)]
pub struct Applied {
    /// The rule.
    pub rule: Arc<str>,
    /// The op to which the rule's variable of ops is bound, if it has one.
    pub op: Option<Op>,
    /// The classes of the rule's roots. A root on which no output depends has no class.
    pub roots: Vec<Option<ClassId>>,
    /// The classes of the rule's tensor variables, in the order of `forall`, for one member after the other.
    pub variables: Vec<(Arc<str>, Option<ClassId>)>,
    /// The nodes of the right side that a plan can choose.
    pub made: Vec<NodeChoice>,
    /// Whether the application changed the e-graph.
    pub changed: bool,
    /// The indices of the applications that made the matched nodes.
    pub after: Vec<usize>,
}

/// A rule that was not applied because a discontinuous op observes the rounding of the value.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The rule.
    pub rule: Arc<str>,
    /// The class of the value; `None` if no output depends on it.
    pub class: Option<ClassId>,
    /// The op that observes the value.
    pub observer: Op,
}

impl Rewritten {
    /// Returns the class of a node of the graph.
    pub fn class(&self, node: NodeId) -> Option<ClassId> {
        self.class_of.get(node.0 as usize).copied().flatten()
    }

    /// Returns the nodes that follow from rules with these names, grouped by class. A node follows from a rule if an
    /// application of the rule made it, or if the application that made it matched such a node.
    pub fn led_by(&self, is: impl Fn(&str) -> bool) -> Vec<(ClassId, Vec<usize>)> {
        let mut led: Vec<bool> = Vec::with_capacity(self.applications.len());
        for applied in &self.applications {
            led.push(is(&applied.rule) || applied.after.iter().any(|before| led[*before]));
        }
        let nodes = |makers: &Vec<Option<usize>>| -> Vec<usize> {
            makers
                .iter()
                .enumerate()
                .filter(|(_, maker)| maker.is_some_and(|at| led[at]))
                .map(|(node, _)| node)
                .collect()
        };
        let all = self.makers.iter().enumerate().map(|(class, makers)| (class, nodes(makers)));
        all.filter(|(_, nodes)| !nodes.is_empty()).collect()
    }

    /// Adds the price factors of rules. Each factor applies to the nodes that the rule made first, in the classes of
    /// its roots.
    fn hint(&mut self, rules: &RuleSet) {
        let price = |name: &str| rules.get(name).map_or(1.0, |rule| rule.price);
        let mut hints = Vec::new();
        for (class, makers) in self.makers.iter().enumerate() {
            for (node, at) in makers.iter().enumerate().filter_map(|(node, at)| Some((node, (*at)?))) {
                let applied = &self.applications[at];
                let factor = price(&applied.rule);
                if factor != 1.0 && applied.roots.contains(&Some(class)) {
                    hints.push(PriceHint { class, node, factor });
                }
            }
        }
        self.classes.hints = hints;
    }

    /// Returns the applications, in order, that derive this node of a class from the program. A node of the program
    /// has none.
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
/// If dims are unbound, a rule is wrong, or two ops with different declarations have the same name. If a part of the
/// program has no legal form after the last phase.
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
    let mut rewritten = Rewritten {
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
    };
    if rules.iter().any(|rule| rule.price != 1.0) {
        rewritten.hint(rules);
    }
    Ok(rewritten)
}

/// For each node of a graph, its class and its origin. Nodes on which no output depends have no class.
pub(crate) type LiveNodes = Vec<(Option<Id>, Origin)>;

/// Runs all phases on a graph.
pub(crate) fn saturate<'r>(
    graph: &Graph,
    rules: &'r RuleSet,
    options: &Options,
) -> Result<(Engine<'r>, LiveNodes, Vec<PhaseReport>), RewriteError> {
    let (egraph, program) = start(&graph.observed())?;
    let mut engine = Engine::new(egraph, &rules.rules, options.limits).on(options.device.clone());
    let mut phases = Vec::new();
    for phase in rules.phases().iter().filter(|p| options.until.as_ref().is_none_or(|until| *p <= until)) {
        phases.push(engine.run(phase).map_err(|e| RewriteError::Rule(Box::new(e)))?);
    }
    Ok((engine, program, phases))
}

/// Merges the statistics of the legal forms of each rule.
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

/// Returns the e-graph of a program before any rule runs.
pub(crate) fn start(graph: &Graph) -> Result<(EGraph, LiveNodes), RewriteError> {
    let symbols = graph.symbols();
    if !symbols.is_empty() {
        return Err(RewriteError::Unbound(symbols.iter().map(|s| s.to_string()).collect()));
    }
    Ok(insert(graph))
}

/// Returns the e-graph of the nodes on which outputs depend.
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
            egraph.add(InternedNode {
                head,
                op: node.op,
                children: children.expect("the operands of a live node are live"),
            })
        });
        program.push((at, node.origin.clone()));
    }
    egraph.rebuild();
    (egraph, program)
}

/// Returns the e-node of a node of the graph.
fn original(egraph: &EGraph, program: &LiveNodes, node: &eutectic_ir::graph::Node) -> Option<InternedNode> {
    let head = egraph.analysis.find_head(node.op, &node.attrs, node.observer)?;
    let children: Option<SmallVec<[Id; 4]>> = node.operands.iter().map(|o| program[o.0 as usize].0).collect();
    Some(InternedNode { head, op: node.op, children: children? })
}

/// Checks that every output can be computed.
fn legal(graph: &Graph, egraph: &EGraph, program: &LiveNodes, extracted: &Extracted) -> Result<(), RewriteError> {
    let outputs = &extracted.classes.outputs;
    if outputs.iter().all(|o| !extracted.classes.classes[*o].nodes.is_empty()) {
        return Ok(());
    }
    // The error names the first nodes without a legal form. Nodes that depend on them may have none only for that
    // reason.
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

/// Converts the log to the numbering of the extracted classes.
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
            places.insert((node.head, node.children.clone()), NodeChoice { class, node: at });
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
