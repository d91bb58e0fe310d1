//! One application of a rule: both of its sides as graphs, for given values of its variables. Checkers of rules draw
//! the values and compare the sides.

use std::sync::Arc;

use egg::Id;
use eutectic_ir::{Graph, GraphError, NodeId, lang::Bindings};
use rustc_hash::FxHashMap;

use crate::{
    built::{apply, insert, node_of},
    check::{add, leaf},
    egraph::{EGraph, Facts, classes_of},
    guard::{Sight, guard},
    instantiate::{Instantiator, NoInstance, Ref},
    pattern::Match,
    recipe::Compiled,
    rule::Rule,
    ruleset::RuleSet,
    sample::Sample,
};

/// A single rule with all legal forms of its left side.
#[derive(Clone, Debug)]
pub struct Probe {
    pub(crate) forms: Vec<Arc<Compiled>>,
}

/// Both sides of an application. Inputs and parameters are named after the rule's tensor variables, and outputs after
/// its roots.
#[derive(Clone, Debug)]
pub struct Sides {
    /// The left side as it is written.
    pub written: Graph,
    /// The left side in legal form, which is matched.
    pub left: Graph,
    /// The right side in legal form, as the engine makes it for the match.
    pub right: Graph,
}

/// The reason why a rule does not apply to given values.
#[derive(Clone, Debug, PartialEq)]
pub enum Unmatched {
    /// The operands do not fit the ops of the left side.
    IllTyped(String),
    /// The left side is well typed, but the rule does not match it.
    NoMatch,
    /// The right side has no value, for example because of an inexact quotient.
    NoRight,
    /// The sides have different types, or the right side has none.
    Types(String),
}

impl RuleSet {
    /// Returns each rule as a probe, in the order of names.
    pub fn probes(&self) -> impl Iterator<Item = Probe> {
        self.rules
            .chunk_by(|a, b| a.rule.name == b.rule.name)
            .map(|forms| Probe { forms: forms.iter().map(Arc::clone).collect() })
    }
}

impl Probe {
    /// Returns the rule.
    pub fn rule(&self) -> &Rule {
        &self.forms[0].rule
    }

    /// Returns a rule set with only this rule.
    pub fn rules(&self) -> RuleSet {
        RuleSet { rules: self.forms.clone(), ..RuleSet::default() }
    }

    /// Returns a probe of the changed rule `rule` (a mutant), which is matched by the original left side.
    pub fn with(&self, rule: Rule) -> Probe {
        let rule = Arc::new(rule);
        let form =
            |c: &Arc<Compiled>| Arc::new(Compiled { rule: rule.clone(), left: c.shared_left(), variant: c.variant });
        Probe { forms: self.forms.iter().map(form).collect() }
    }

    /// Returns the sides for one sample, or for one sample per member if the rule is a group rule. The left side as
    /// written is that of `rule`, which may differ from the matched left side.
    ///
    /// # Errors
    /// The reason why the rule does not apply.
    pub fn sides(&self, rule: &Rule, members: &[Sample]) -> Result<Sides, Unmatched> {
        let written = BuiltSide::new(rule, members, false)?;
        let mut legal = BuiltSide::new(rule, members, true)?;
        let matched = self.forms.iter().find_map(|form| Some((form, legal.matches(form)?)));
        let Some((form, matches)) = matched else { return Err(Unmatched::NoMatch) };
        let sights: Vec<&Sight> = matches.iter().map(|m| &m.1).collect();
        let bindings: Vec<Bindings> = matches.iter().map(|m| m.2.clone()).collect();
        let recipe = match form.recipe(&mut legal.egraph.analysis, &sights, &bindings) {
            Ok(Some(recipe)) => recipe,
            Ok(None) => return Err(Unmatched::NoRight),
            Err((message, _)) => return Err(Unmatched::Types(message)),
        };
        let mut right = legal.graph.clone();
        let variables: Vec<NodeId> = matches
            .iter()
            .flat_map(|(m, ..)| form.pattern().tensors.iter().map(|t| legal.node(m.classes[*t])))
            .collect();
        let nodes = insert(&mut right, &legal.egraph.analysis, &recipe.instrs, &variables).map_err(refused)?;
        outputs(&mut right, &recipe.tops, &variables, &nodes)?;
        right.prune();
        Ok(Sides { written: written.finished()?, left: legal.finished()?, right })
    }
}

/// A left side as a graph and as an e-graph.
struct BuiltSide {
    graph: Graph,
    egraph: EGraph,
    /// The node of each class.
    nodes: FxHashMap<Id, NodeId>,
    /// The class of each tensor variable, member by member.
    leaves: Vec<Id>,
    /// The class of each root, member by member.
    roots: Vec<Id>,
    members: usize,
}

impl BuiltSide {
    fn new(rule: &Rule, members: &[Sample], legal: bool) -> Result<BuiltSide, Unmatched> {
        let mut egraph = EGraph::new(Facts::default());
        let mut graph = Graph::new(&*rule.name);
        let (mut leaves, mut leaf_nodes) = (Vec::new(), Vec::new());
        let splatted = rule.splatted();
        let mut made: FxHashMap<String, NodeId> = FxHashMap::default();
        for (number, member) in members.iter().enumerate() {
            let variables = rule.variables.iter().enumerate().filter(|(_, v)| v.is_tensor());
            for ((at, variable), ty) in variables.zip(&member.types) {
                let own = if splatted[at] && number > 0 { format!(".{number}") } else { String::new() };
                let name = format!("{}{own}", variable.name);
                let (op, attrs) = leaf(variable, &name, ty);
                let node = match made.get(&name) {
                    Some(node) => *node,
                    None => apply(&mut graph, op, &attrs, &[]).map_err(refused)?,
                };
                made.insert(name, node);
                let head = egraph.analysis.head(op, attrs);
                leaves.push(egraph.add(crate::egraph::InternedNode { head, op, children: Default::default() }));
                leaf_nodes.push(node);
            }
        }
        let types: Vec<_> = members.iter().flat_map(|m| &m.types).map(|t| egraph.analysis.type_id(t.clone())).collect();
        let bindings: Vec<Bindings> = members.iter().map(|m| m.bindings.clone()).collect();
        let mut builder = Instantiator::new(&mut egraph.analysis, rule, &bindings, &types);
        builder.legal &= legal;
        let mut tops = Vec::new();
        for member in 0..members.len() {
            for root in &rule.roots {
                tops.push(builder.term(&root.left, member, None).map_err(ill_typed)?.0);
            }
        }
        let instrs = builder.instrs;
        let nodes = insert(&mut graph, &egraph.analysis, &instrs, &leaf_nodes).map_err(refused)?;
        let ids = add(&mut egraph, &instrs, &leaves);
        egraph.rebuild();
        let of_leaf = leaves.iter().copied().zip(leaf_nodes);
        let of_instr = ids.iter().copied().zip(nodes);
        let nodes = of_leaf.chain(of_instr).map(|(id, node)| (egraph.find(id), node)).collect();
        let root = |top: &Ref| match top {
            Ref::Class(n) => leaves[*n],
            Ref::Instr(n) => ids[*n],
            Ref::Number(_) => unreachable!("instances have no number without an element type"),
        };
        let roots = tops.iter().map(root).collect();
        Ok(BuiltSide { graph, egraph, nodes, leaves, roots, members: members.len() })
    }

    fn node(&self, class: Id) -> NodeId {
        self.nodes[&self.egraph.find(class)]
    }

    /// Returns a match for each member at its roots, or `None` if a member has none. A match is preferred if its
    /// variables are bound to the member's own leaves.
    fn matches(&mut self, form: &Compiled) -> Option<Vec<(Match, Sight, Bindings)>> {
        let roots = self.roots.len() / self.members;
        let tensors = self.leaves.len() / self.members;
        let mut found: Vec<Match> = Vec::new();
        for class in classes_of(&self.egraph, form.pattern().entry().1.ops()) {
            form.pattern().search(&self.egraph, class, &mut |m: &Match| {
                found.push(m.clone());
                true
            });
        }
        (0..self.members)
            .map(|member| {
                let (roots, leaves) =
                    (&self.roots[member * roots..][..roots], &self.leaves[member * tensors..][..tensors]);
                let at_roots = |m: &&Match| form.pattern().roots.iter().zip(roots).all(|(r, id)| m.classes[*r] == *id);
                let foreign = |m: &&Match| {
                    form.pattern().tensors.iter().zip(leaves).filter(|(t, id)| m.classes[**t] != **id).count()
                };
                // Only classes with a node in the graph are allowed, because the e-graph contains additional numbers.
                let there = |m: &&Match| form.pattern().tensors.iter().all(|t| self.nodes.contains_key(&m.classes[*t]));
                let mut candidates: Vec<&Match> = found.iter().filter(at_roots).filter(there).collect();
                candidates.sort_by_key(foreign);
                candidates.into_iter().find_map(|m| {
                    let sight = Sight::of(form.pattern(), &self.egraph, m);
                    let bindings = guard(&form.rule, form.pattern(), &mut self.egraph.analysis, &sight).ok()?;
                    Some((m.clone(), sight, bindings))
                })
            })
            .collect()
    }

    /// Adds the roots as outputs, and returns the graph.
    fn finished(mut self) -> Result<Graph, Unmatched> {
        for (at, root) in self.roots.clone().into_iter().enumerate() {
            let node = self.node(root);
            self.graph.output(&format!("root{at}"), node).map_err(refused)?;
        }
        Ok(self.graph)
    }
}

fn ill_typed(fault: NoInstance) -> Unmatched {
    match fault {
        NoInstance::Inapplicable => {
            Unmatched::IllTyped("the left side has no value, for example because of an inexact quotient".into())
        }
        NoInstance::Wrong { message, .. } => Unmatched::IllTyped(message),
    }
}

fn refused(error: GraphError) -> Unmatched {
    Unmatched::IllTyped(error.to_string())
}

fn outputs(graph: &mut Graph, tops: &[Ref], classes: &[NodeId], nodes: &[NodeId]) -> Result<(), Unmatched> {
    for (at, top) in tops.iter().enumerate() {
        graph.output(&format!("root{at}"), node_of(*top, classes, nodes)).map_err(refused)?;
    }
    Ok(())
}
