//! Instances of a rule: values for its variables, and both its sides as graphs. What checks rules stands on this.

use std::sync::Arc;

use egg::Id;
use eutectic_ir::{
    Attr, Graph, GraphError, NodeId, Op, Type,
    lang::{
        Bindings,
        typing::{Bound, SlotKind},
    },
};
use rustc_hash::FxHashMap;

use crate::{
    check::{add, leaf},
    egraph::{EGraph, Facts, classes_of},
    guard::{Sight, guard},
    instantiate::{Builder, Fault, Instr, Ref},
    pattern::Match,
    recipe::Compiled,
    rule::{Rule, Term, VariableKind},
    ruleset::RuleSet,
    sample::{Draw, Palette, Sample, draw},
};

/// A rule by itself, with all legal forms of its left side.
#[derive(Clone, Debug)]
pub struct Probe {
    pub(crate) forms: Vec<Arc<Compiled>>,
}

/// Values for all variables of a rule.
#[derive(Clone, Debug)]
pub struct Instance {
    pub(crate) rule: Arc<Rule>,
    /// One for each member where the rule is a group, else one.
    pub(crate) members: Vec<Sample>,
}

/// Both sides of an instance. Inputs and parameters are named after the rule's tensor variables, outputs after its roots.
#[derive(Clone, Debug)]
pub struct Sides {
    /// The left side as it is written.
    pub written: Graph,
    /// The left side in legal form: what is matched.
    pub left: Graph,
    /// The right side in legal form: what the engine makes of the match.
    pub right: Graph,
}

/// Why an instance has no two sides.
#[derive(Clone, Debug, PartialEq)]
pub enum Unmatched {
    /// The ops of the left side do not take such operands.
    IllTyped(String),
    /// The left side is well typed, and the rule does not match it.
    NoMatch,
    /// A value of the right side does not work out.
    NoRight,
    /// The sides have different types, or the right side has none.
    Types(String),
}

impl RuleSet {
    /// Each rule by itself, in the order of their names.
    pub fn probes(&self) -> impl Iterator<Item = Probe> {
        self.rules
            .chunk_by(|a, b| a.rule.name == b.rule.name)
            .map(|forms| Probe { forms: forms.iter().map(Arc::clone).collect() })
    }
}

impl Probe {
    /// The rule.
    pub fn rule(&self) -> &Rule {
        &self.forms[0].rule
    }

    /// The rule as a set of its own.
    pub fn rules(&self) -> RuleSet {
        RuleSet { rules: self.forms.clone() }
    }

    /// Draws values for all variables; of three members where the rule is a group. `None` where what was drawn does not go
    /// together: draw again.
    pub fn draw(&self, random: &mut Draw, palette: &Palette) -> Option<Instance> {
        let rule = self.forms[0].rule.clone();
        let first = draw(&rule, random, palette, Bindings::default())?;
        let mut members = vec![first];
        if rule.group {
            for _ in 1..3 {
                let agreed = agreed(&rule, &members[0])?;
                members.push(draw(&rule, random, palette, agreed)?);
            }
        }
        Some(Instance { rule, members })
    }

    /// How many ops of the left side can be written the other way round.
    pub fn commutable(&self) -> usize {
        let mut seen = Vec::new();
        self.rule().roots.iter().for_each(|root| {
            commuted(&root.left, 0, &mut seen);
        });
        seen.len()
    }

    /// The sides of an instance, with the operands of the `n`th commutative op of the left side swapped where bit `n` is set.
    ///
    /// # Errors
    /// Why there are none.
    pub fn sides(&self, instance: &Instance, swaps: u64) -> Result<Sides, Unmatched> {
        if swaps == 0 {
            return self.sides_of(&instance.rule, &instance.members);
        }
        let mut rule = (*instance.rule).clone();
        let mut seen = Vec::new();
        for root in &mut rule.roots {
            root.left = commuted(&root.left, swaps, &mut seen);
        }
        self.sides_of(&rule, &instance.members)
    }

    /// The sides, where `rule` has another left side than the one that is matched.
    pub(crate) fn sides_of(&self, rule: &Rule, members: &[Sample]) -> Result<Sides, Unmatched> {
        let written = Built::new(rule, members, false)?;
        let mut legal = Built::new(rule, members, true)?;
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
        let variables: Vec<NodeId> =
            matches.iter().flat_map(|(m, ..)| form.pattern.tensors.iter().map(|t| legal.node(m.classes[*t]))).collect();
        let nodes = insert(&mut right, &legal.egraph.analysis, &recipe.instrs, &variables)?;
        outputs(&mut right, &recipe.tops, &variables, &nodes)?;
        right.prune();
        Ok(Sides { written: written.finished()?, left: legal.finished()?, right })
    }
}

impl Instance {
    /// Name and value of every variable that is no tensor, member by member.
    pub fn values(&self) -> Vec<(String, String)> {
        let mut values: Vec<(String, String)> = Vec::new();
        for member in &self.members {
            for (slot, (name, _)) in self.rule.scope.variables.iter().enumerate() {
                let value = member.bindings.get(slot).map_or("?".to_string(), Bound::to_string);
                let value = (name.to_string(), value);
                if !values.contains(&value) {
                    values.push(value);
                }
            }
        }
        values
    }

    /// The number of elements of all tensors together.
    pub fn size(&self) -> usize {
        self.members.iter().flat_map(|m| &m.types).map(Type::count).sum()
    }

    /// The element types of its tensors.
    pub fn dtypes(&self) -> impl Iterator<Item = eutectic_ir::DType> {
        self.members.iter().flat_map(|m| &m.types).filter_map(Type::dtype)
    }
}

/// What the members of a group agree in: attributes, and the types of what the right side does not splat.
fn agreed(rule: &Rule, first: &Sample) -> Option<Bindings> {
    let mut bindings = Bindings::default();
    for (slot, (_, kind)) in rule.scope.variables.iter().enumerate() {
        if let (SlotKind::Attr | SlotKind::DType(_), Some(bound)) = (kind, first.bindings.get(slot)) {
            bindings.bind(slot, bound.clone()).ok()?;
        }
    }
    let splatted = rule.splatted();
    for (at, variable) in rule.variables.iter().enumerate() {
        if let (VariableKind::Tensor { ty, .. }, false) = (&variable.kind, splatted[at]) {
            ty.unify(&first.types[rule.tensor(at)], &mut bindings).ok()?;
        }
    }
    Some(bindings)
}

/// A term with the operands of its commutative ops swapped as the bits say; equal subterms go together.
fn commuted(term: &Term, swaps: u64, seen: &mut Vec<Term>) -> Term {
    let Term::Call(call) = term else { return term.clone() };
    let mut swapped = call.clone();
    swapped.args = call.args.iter().map(|a| commuted(a, swaps, seen)).collect();
    if call.op.def().commutative && call.args.len() == 2 && call.args[0] != call.args[1] {
        let at = seen.iter().position(|t| t == term).unwrap_or_else(|| {
            seen.push(term.clone());
            seen.len() - 1
        });
        if at < 64 && swaps >> at & 1 == 1 {
            swapped.args.swap(0, 1);
        }
    }
    Term::Call(swapped)
}

/// A left side as a graph and as an e-graph.
struct Built {
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

impl Built {
    fn new(rule: &Rule, members: &[Sample], legal: bool) -> Result<Built, Unmatched> {
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
                    None => apply(&mut graph, op, &attrs, &[])?,
                };
                made.insert(name, node);
                let head = egraph.analysis.head(op, attrs);
                leaves.push(egraph.add(crate::egraph::Node { head, op, children: Default::default() }));
                leaf_nodes.push(node);
            }
        }
        let types: Vec<_> = members.iter().flat_map(|m| &m.types).map(|t| egraph.analysis.type_id(t.clone())).collect();
        let bindings: Vec<Bindings> = members.iter().map(|m| m.bindings.clone()).collect();
        let mut builder = Builder::new(&mut egraph.analysis, rule, &bindings, &types);
        builder.legal &= legal;
        let mut tops = Vec::new();
        for member in 0..members.len() {
            for root in &rule.roots {
                tops.push(builder.term(&root.left, member, None).map_err(ill_typed)?.0);
            }
        }
        let instrs = builder.instrs;
        let nodes = insert(&mut graph, &egraph.analysis, &instrs, &leaf_nodes)?;
        let ids = add(&mut egraph, &instrs, &leaves);
        egraph.rebuild();
        let of_leaf = leaves.iter().copied().zip(leaf_nodes);
        let of_instr = ids.iter().copied().zip(nodes);
        let nodes = of_leaf.chain(of_instr).map(|(id, node)| (egraph.find(id), node)).collect();
        let root = |top: &Ref| match top {
            Ref::Class(n) => leaves[*n],
            Ref::Instr(n) => ids[*n],
            Ref::Number(_) => unreachable!("numbers stay open only where a pattern is compiled"),
        };
        let roots = tops.iter().map(root).collect();
        Ok(Built { graph, egraph, nodes, leaves, roots, members: members.len() })
    }

    fn node(&self, class: Id) -> NodeId {
        self.nodes[&self.egraph.find(class)]
    }

    /// A match of each member at its roots, if every member has one; that of the variables with their own leaves first.
    fn matches(&mut self, form: &Compiled) -> Option<Vec<(Match, Sight, Bindings)>> {
        let roots = self.roots.len() / self.members;
        let tensors = self.leaves.len() / self.members;
        let (_, op) = form.pattern.entry();
        let mut found: Vec<Match> = Vec::new();
        for class in classes_of(&self.egraph, op) {
            form.pattern.search(&self.egraph, class, &mut |m: &Match| {
                found.push(m.clone());
                true
            });
        }
        (0..self.members)
            .map(|member| {
                let (roots, leaves) =
                    (&self.roots[member * roots..][..roots], &self.leaves[member * tensors..][..tensors]);
                let at_roots = |m: &&Match| form.pattern.roots.iter().zip(roots).all(|(r, id)| m.classes[*r] == *id);
                let foreign = |m: &&Match| {
                    form.pattern.tensors.iter().zip(leaves).filter(|(t, id)| m.classes[**t] != **id).count()
                };
                // The e-graph has numbers that the graph does not.
                let there = |m: &&Match| form.pattern.tensors.iter().all(|t| self.nodes.contains_key(&m.classes[*t]));
                let mut candidates: Vec<&Match> = found.iter().filter(at_roots).filter(there).collect();
                candidates.sort_by_key(foreign);
                candidates.into_iter().find_map(|m| {
                    let sight = Sight::of(&form.pattern, &self.egraph, m);
                    let bindings = guard(&form.rule, &form.pattern, &mut self.egraph.analysis, &sight).ok()?;
                    Some((m.clone(), sight, bindings))
                })
            })
            .collect()
    }

    /// The graph with its outputs.
    fn finished(mut self) -> Result<Graph, Unmatched> {
        for (at, root) in self.roots.clone().into_iter().enumerate() {
            let node = self.node(root);
            self.graph.output(&format!("root{at}"), node).map_err(refused)?;
        }
        Ok(self.graph)
    }
}

fn ill_typed(fault: Fault) -> Unmatched {
    match fault {
        Fault::Inapplicable => Unmatched::IllTyped("a value on the left does not work out".into()),
        Fault::Wrong { message, .. } => Unmatched::IllTyped(message),
    }
}

fn refused(error: GraphError) -> Unmatched {
    Unmatched::IllTyped(error.to_string())
}

fn apply(graph: &mut Graph, op: Op, attrs: &[Attr], operands: &[NodeId]) -> Result<NodeId, Unmatched> {
    let attrs: Vec<(&str, Attr)> = op.def().attrs.iter().map(|d| d.name).zip(attrs.iter().cloned()).collect();
    graph.apply(op.name(), operands, &attrs).map_err(refused)
}

/// Adds instructions to a graph.
fn insert(graph: &mut Graph, facts: &Facts, instrs: &[Instr], classes: &[NodeId]) -> Result<Vec<NodeId>, Unmatched> {
    let mut nodes: Vec<NodeId> = Vec::with_capacity(instrs.len());
    for instr in instrs {
        let operands: Vec<NodeId> = instr.args.iter().map(|r| node_of(*r, classes, &nodes)).collect();
        nodes.push(apply(graph, facts.op(instr.head), facts.attrs(instr.head), &operands)?);
    }
    Ok(nodes)
}

fn node_of(r: Ref, classes: &[NodeId], nodes: &[NodeId]) -> NodeId {
    match r {
        Ref::Class(n) => classes[n],
        Ref::Instr(n) => nodes[n],
        Ref::Number(_) => unreachable!("numbers stay open only where a pattern is compiled"),
    }
}

fn outputs(graph: &mut Graph, tops: &[Ref], classes: &[NodeId], nodes: &[NodeId]) -> Result<(), Unmatched> {
    for (at, top) in tops.iter().enumerate() {
        graph.output(&format!("root{at}"), node_of(*top, classes, nodes)).map_err(refused)?;
    }
    Ok(())
}
