//! Finds the cuts: chains of values, each computed from the one before in the same way.

use std::hash::{Hash, Hasher};

use crate::{
    Attr, Attrs, Class, Graph, NodeId, Op, Type,
    graph::Node,
    lang::typing::{DimPattern, DimsItem, SignatureResult, VarId},
    ops::Leaf,
};
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};
use smallvec::SmallVec;

/// The largest constant, in elements, that a body contains by value, because rules match on small constants. Larger
/// constants are passed like parameters.
const SMALL: usize = 64;

/// The number of earlier values of the same form that are tried as predecessor of a cut. A layer has few such values
/// on which all later computation depends (the sums of a residual stream: two).
const TRIES: usize = 6;

/// The facts about each node, by id.
pub struct Analysis<'g> {
    pub graph: &'g Graph,
    pub nodes: Vec<ChainFacts>,
    /// The operands of each node. Equal nodes are represented by the first of them, because exporters repeat a mask
    /// in each layer.
    operands: Vec<Operands>,
    /// The nodes that are computed at run time, in an order that depends only on the graph's structure. Nodes that
    /// depend on no contraction come first. Of a node's operands, the one with the longer path comes first.
    pub order: Vec<NodeId>,
}

type Operands = SmallVec<[NodeId; 3]>;

#[derive(Clone, Default)]
pub struct ChainFacts {
    /// Whether a result depends on the node.
    pub live: bool,
    /// Whether the node depends on an input or a state of the graph.
    pub runtime: bool,
    /// Whether it is computed from coordinates and single numbers alone, such as the mask of a position. Bodies compute
    /// it again instead of taking it as an input, because rules match its definition and kernels need not store it.
    pub portable: bool,
    /// The maximal number of contractions on a path to the node, itself included.
    pub contractions: u32,
    /// The run-time nodes that read the value.
    pub users: Vec<NodeId>,
    /// The position in [`Analysis::order`], counted from 1; 0 if the node is not in it.
    pub at: u32,
    /// The length of the longest path from a leaf.
    depth: u32,
    /// A hash of op, attributes and type. Inputs, parameters and states hash by type alone. A value that is not
    /// computed at run time hashes its whole computation.
    form: u64,
}

/// A chain of cuts `values[0] → values[1] → …`, with isomorphic computations from each to the next.
struct Chain {
    values: Vec<NodeId>,
    score: (u32, usize, usize),
}

/// The numbers of contractions that depend on a value.
struct Readers {
    /// Contractions that read the value directly or through views.
    direct: usize,
    /// Contractions that read the value through any ops other than contractions.
    reached: usize,
}

impl<'g> Analysis<'g> {
    pub fn new(graph: &'g Graph) -> Analysis<'g> {
        let nodes = vec![ChainFacts::default(); graph.len()];
        let mut analysis = Analysis { graph, nodes, operands: merged(graph), order: Vec::new() };
        analysis.mark_live();
        analysis.describe();
        analysis.number();
        analysis
    }

    pub fn of(&self, id: NodeId) -> &ChainFacts {
        &self.nodes[id.0 as usize]
    }

    /// Returns the operands of a node, each represented by the first node of equal value.
    pub fn operands(&self, id: NodeId) -> &[NodeId] {
        &self.operands[id.0 as usize]
    }

    /// Returns whether the node is computed at run time, that is, neither a leaf nor a function of parameters only.
    pub fn computed(&self, id: NodeId) -> bool {
        self.of(id).at > 0
    }

    fn mark_live(&mut self) {
        let mut stack: Vec<_> = self.graph.results().map(|o| o.1).collect();
        while let Some(id) = stack.pop() {
            if !std::mem::replace(&mut self.nodes[id.0 as usize].live, true) {
                stack.extend(&self.operands[id.0 as usize]);
            }
        }
    }

    fn describe(&mut self) {
        let mut contracting: FxHashMap<Op, bool> = FxHashMap::default();
        for (id, node) in self.graph.nodes() {
            if !self.of(id).live {
                continue;
            }
            let of = |o: &NodeId| &self.nodes[o.0 as usize];
            let operands = &self.operands[id.0 as usize];
            let runtime =
                is_leaf(node, Leaf::Input) || is_leaf(node, Leaf::State) || operands.iter().any(|o| of(o).runtime);
            let number = |o: &NodeId| is_leaf(self.graph.node(*o), Leaf::Input) && self.graph.ty(*o).count() == 1;
            let portable = runtime
                && matches!(node.op.def().class, Class::Pointwise | Class::View(_))
                && operands.iter().all(|o| of(o).portable || !of(o).runtime || number(o));
            let above = operands.iter().map(|o| of(o).contractions).max().unwrap_or(0);
            let here = runtime && *contracting.entry(node.op).or_insert_with(|| contracts(node.op));
            let depth = operands.iter().map(|o| of(o).depth + 1).max().unwrap_or(0);
            let form = self.form(id, runtime);
            let facts = &mut self.nodes[id.0 as usize];
            (facts.runtime, facts.portable, facts.depth, facts.form) = (runtime, portable, depth, form);
            facts.contractions = if runtime { above + u32::from(here) } else { 0 };
            if runtime {
                for operand in &self.operands[id.0 as usize] {
                    let users = &mut self.nodes[operand.0 as usize].users;
                    if users.last() != Some(&id) {
                        users.push(id);
                    }
                }
            }
        }
    }

    fn form(&self, id: NodeId, runtime: bool) -> u64 {
        let (node, operands) = (self.graph.node(id), self.operands(id));
        let mut hash = FxHasher::default();
        node.ty.hash(&mut hash);
        if is_given(node) {
            return hash.finish();
        }
        (node.op, &node.attrs, operands.len()).hash(&mut hash);
        if !runtime {
            for operand in operands {
                self.of(*operand).form.hash(&mut hash);
            }
        }
        hash.finish()
    }

    fn number(&mut self) {
        for first in [true, false] {
            let mut seen = vec![false; self.nodes.len()];
            let mut stack: Vec<_> = self.graph.results().rev().map(|o| (o.1, false)).collect();
            while let Some((id, operands_done)) = stack.pop() {
                let (facts, operands) = (self.of(id), self.operands(id));
                if operands_done {
                    if first == (facts.contractions == 0) {
                        self.order.push(id);
                        self.nodes[id.0 as usize].at = self.order.len() as u32;
                    }
                } else if facts.runtime && !operands.is_empty() && !seen[id.0 as usize] {
                    seen[id.0 as usize] = true;
                    stack.push((id, true));
                    let mut operands = operands.to_vec();
                    operands.sort_by_key(|o| self.of(*o).depth);
                    stack.extend(operands.into_iter().map(|o| (o, false)));
                }
            }
        }
    }

    /// Walks back from `later` and `earlier` at once until the first walk reaches `earlier`. Returns the value that
    /// the second walk reaches at that point, if both computations have the same form.
    fn step(&self, later: NodeId, earlier: NodeId) -> Option<NodeId> {
        let mut image: FxHashMap<NodeId, NodeId> = FxHashMap::default();
        let mut stack = vec![(later, earlier)];
        while let Some((a, b)) = stack.pop() {
            if let Some(known) = image.get(&a) {
                if *known != b {
                    return None;
                }
                continue;
            }
            let (of_a, of_b) = (self.of(a), self.of(b));
            image.insert(a, b);
            if a == earlier {
                if self.graph.ty(a) != self.graph.ty(b) || !of_b.runtime {
                    return None;
                }
            } else if !of_a.runtime {
                if of_b.runtime || of_a.form != of_b.form {
                    return None;
                }
            } else if is_leaf(self.graph.node(a), Leaf::State) && is_leaf(self.graph.node(b), Leaf::State) {
                // Each step of a chain has its own states.
                if of_a.form != of_b.form {
                    return None;
                }
            } else if a != b {
                // All other values from before the step, such as a mask, must be the same for all steps.
                let (m, n) = (self.operands(a), self.operands(b));
                let own = of_a.portable && of_b.portable || of_a.at > self.of(earlier).at;
                if !own || of_a.form != of_b.form || m.len() != n.len() {
                    return None;
                }
                stack.extend(m.iter().copied().zip(n.iter().copied()));
            }
        }
        image.get(&earlier).copied().filter(|first| *first != earlier)
    }

    /// Returns for each position the last earlier value that is still needed after it. That value would be alive at a
    /// cut there too.
    fn companions(&self) -> Vec<Option<NodeId>> {
        let last_use = |id: NodeId| self.of(id).users.iter().map(|u| self.of(*u).at).max().unwrap_or(0);
        let mut alive: Vec<(NodeId, u32)> = Vec::new();
        self.order
            .iter()
            .map(|&id| {
                let at = self.of(id).at;
                while alive.last().is_some_and(|(_, last)| *last <= at) {
                    alive.pop();
                }
                let companion = alive.last().map(|a| a.0);
                alive.push((id, last_use(id)));
                companion
            })
            .collect()
    }

    /// Returns the numbers of contractions that read a value.
    fn readers(&self, id: NodeId) -> Readers {
        let next = self.of(id).contractions + 1;
        let reach = |through: &dyn Fn(NodeId) -> bool| {
            let (mut seen, mut stack) = (FxHashSet::default(), vec![id]);
            let mut found = 0;
            while let Some(value) = stack.pop() {
                for &user in &self.of(value).users {
                    if !seen.insert(user) {
                        continue;
                    }
                    if self.of(user).contractions == next && contracts(self.graph.node(user).op) {
                        found += 1;
                    } else if self.of(user).contractions < next && through(user) {
                        stack.push(user);
                    }
                }
            }
            found
        };
        let is_view = |user: NodeId| matches!(self.graph.node(user).op.def().class, Class::View(_));
        Readers { direct: reach(&is_view), reached: reach(&|_| true) }
    }

    fn chain(&self, end: NodeId, earlier: &[NodeId], possible: &impl Fn(NodeId, NodeId) -> bool) -> Option<Chain> {
        let candidates = earlier.iter().rev().take(TRIES);
        let (second, first) = candidates.filter(|u| possible(end, **u)).find_map(|&u| Some((u, self.step(end, u)?)))?;
        let mut values = vec![end, second, first];
        while let [.., later, earlier] = values[..]
            && let Some(image) = self.step(later, earlier)
        {
            values.push(image);
        }
        values.reverse();
        let per_step = self.of(end).contractions - self.of(second).contractions;
        let saved = per_step * (values.len() as u32 - 2);
        // The last value is read by the ops after the layers, so the readers of the value before it are counted.
        let Readers { direct, reached } = self.readers(second);
        Some(Chain { values, score: (saved, direct, reached) })
    }
}

/// Returns the operands of each node, with equal nodes replaced by the first of them. Large constants count as
/// different if their nodes differ.
fn merged(graph: &Graph) -> Vec<Operands> {
    let mut first: FxHashMap<(Op, &Attrs, Operands), NodeId> = FxHashMap::default();
    let mut stands_for: Vec<NodeId> = Vec::with_capacity(graph.len());
    let mut merged = Vec::with_capacity(graph.len());
    for (id, node) in graph.nodes() {
        let operands: Operands = node.operands.iter().map(|o| stands_for[o.0 as usize]).collect();
        let one =
            if is_given(node) { id } else { *first.entry((node.op, &node.attrs, operands.clone())).or_insert(id) };
        stands_for.push(one);
        merged.push(operands);
    }
    merged
}

/// Returns the values at which the outline cuts the graph, in order. Each is in a selected chain. Chains that save
/// more contractions are selected first, and a chain that overlaps a selected one is skipped.
pub fn cuts(analysis: &Analysis<'_>) -> Vec<NodeId> {
    let companions = analysis.companions();
    // A cut may keep one more value alive, its companion. If the companion is at least one step older than the cut,
    // all steps of the chain read the same value.
    let possible = |later: NodeId, earlier: NodeId| {
        let (to, from) = (analysis.of(later).contractions, analysis.of(earlier).contractions);
        let shared = |c: NodeId| match analysis.of(c).contractions {
            0 => true,
            n => n + (to - from) <= from,
        };
        to > from && companions[analysis.of(earlier).at as usize - 1].is_none_or(shared)
    };
    let mut alike: FxHashMap<u64, Vec<NodeId>> = FxHashMap::default();
    for &id in &analysis.order {
        let mut hash = FxHasher::default();
        (analysis.of(id).form, analysis.operands(id).iter().map(|o| analysis.of(*o).form).collect::<Vec<_>>())
            .hash(&mut hash);
        alike.entry(hash.finish()).or_default().push(id);
    }
    let mut chains = Vec::new();
    for mut values in alike.into_values() {
        let mut taken = FxHashSet::default();
        while let Some(end) = values.pop() {
            if taken.contains(&end) || !matches!(analysis.graph.ty(end), Type::Tensor(..)) {
                continue;
            }
            if let Some(chain) = analysis.chain(end, &values, &possible) {
                taken.extend(chain.values.iter().copied());
                chains.push(chain);
            }
        }
    }
    let at = |id: &NodeId| analysis.of(*id).at;
    chains.sort_by_key(|c| (std::cmp::Reverse(c.score), at(&c.values[0])));
    let mut cuts: Vec<NodeId> = Vec::new();
    let mut spans: Vec<(u32, u32)> = Vec::new();
    for chain in chains {
        let span = (at(&chain.values[0]), at(&chain.values[chain.values.len() - 1]));
        if spans.iter().all(|s| span.1 <= s.0 || s.1 <= span.0) {
            spans.push(span);
            cuts.extend(chain.values);
        }
    }
    cuts.sort_by_key(|c| (at(c), *c));
    cuts.dedup();
    cuts
}

/// Returns whether a body takes the value from outside: an input, a parameter, a state, or a large constant.
pub fn is_given(node: &Node) -> bool {
    match node.op.def().class {
        Class::Leaf(Leaf::Input | Leaf::Param | Leaf::State) => true,
        Class::Leaf(Leaf::Const) => matches!(node.attrs.first(), Some(Attr::Tensor(t)) if t.count() > SMALL),
        _ => false,
    }
}

pub fn is_leaf(node: &Node, leaf: Leaf) -> bool {
    matches!(node.op.def().class, Class::Leaf(l) if l == leaf)
}

/// Returns whether an op sums over a dimension that its first operand shares with another operand, according to its
/// signature.
fn contracts(op: Op) -> bool {
    let signature = op.signature();
    let Some((first, others)) = signature.operands.split_first() else { return false };
    let dims = |items: &[DimsItem]| {
        let mut slots = Vec::new();
        for item in items {
            if let DimsItem::One(dim) = item {
                variables(dim, &mut slots);
            }
        }
        slots
    };
    let kept: Vec<_> = signature
        .results
        .iter()
        .flat_map(|r| match r {
            SignatureResult::Pattern(p) => dims(&p.dims.0),
            SignatureResult::Attr(_) => Vec::new(),
        })
        .collect();
    let shared: Vec<_> = others.iter().flat_map(|p| dims(&p.dims.0)).collect();
    dims(&first.dims.0).iter().any(|slot| shared.contains(slot) && !kept.contains(slot))
}

fn variables(dim: &DimPattern, slots: &mut Vec<VarId>) {
    match dim {
        DimPattern::Number(_) => {}
        DimPattern::Var(slot) => slots.push(*slot),
        DimPattern::Sum(items) | DimPattern::Product(items) => items.iter().for_each(|p| variables(p, slots)),
        DimPattern::Difference(pair) | DimPattern::Quotient(pair) | DimPattern::Floor(pair) | DimPattern::Mod(pair) => {
            pair.iter().for_each(|p| variables(p, slots))
        }
    }
}
