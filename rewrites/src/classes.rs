//! Converts a saturated e-graph to plain data, with classes numbered by structure.
//!
//! A class is hashed from its structure: its type, its nodes, and the hashes of their operands. The hashes are
//! refined until no more classes are distinguished. The numbers follow from a walk from the outputs to their
//! operands, in the order of these hashes. So they depend neither on the ids of the e-graph nor on the order in which
//! rules ran.

use std::hash::{Hash, Hasher};

use egg::Id;
use eutectic_ir::{
    Op, Origin,
    eclasses::{Bundle, ClassId, EClass, EClasses, ENode, NodeChoice},
};
use petgraph::{algo::kosaraju_scc, graph::DiGraph};
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};

use crate::{
    egraph::{EGraph, Head, InternedNode, TypeId},
    log::{Log, canonical},
    recipe::Compiled,
    ruleset::RuleSet,
};
use std::sync::Arc;

/// The classes as plain data, and the corresponding classes and nodes of the e-graph.
pub(crate) struct Extracted {
    pub classes: EClasses,
    pub number: FxHashMap<Id, ClassId>,
    /// The nodes of the e-graph, in the order of the nodes of each class.
    pub nodes: Vec<Vec<InternedNode>>,
}

/// The nodes that a plan may choose: legal ones whose operands can be computed.
struct Usable {
    nodes: FxHashMap<Id, Vec<InternedNode>>,
    order: Vec<Id>,
}

pub(crate) fn extract(
    egraph: &EGraph,
    outputs: &[Id],
    program: &[(Option<Id>, Origin)],
    log: &Log,
    rules: &RuleSet,
) -> Extracted {
    let (rules, rounds_all) = (&rules.rules, rules.rounds_all);
    let outputs: Vec<Id> = outputs.iter().map(|o| egraph.find(*o)).collect();
    let usable = Usable::of(egraph, &outputs);
    let ops: Vec<(Op, u64)> = head_hashes(egraph);
    let hashes = hashes(egraph, &usable, &ops);
    let walk = Walk::from(&outputs, &usable, &hashes, &ops);
    let sources = sources(egraph, &walk.number, program);
    let mut classes = Vec::with_capacity(walk.order.len());
    let mut nodes = Vec::with_capacity(walk.order.len());
    for class in &walk.order {
        let data = &egraph[*class].data;
        let sorted = walk.sorted[class].clone();
        let number = |n: &InternedNode| ENode {
            op: n.op,
            attrs: egraph.analysis.attrs(n.head).clone(),
            operands: n.children.iter().map(|c| walk.number[&egraph.find(*c)]).collect(),
        };
        let mut from: Vec<Origin> = Vec::new();
        for rank in &sources[&walk.number[class]] {
            let origin = program.get(*rank as usize).map(|(_, o)| o.clone()).unwrap_or_default();
            if !from.contains(&origin) {
                from.push(origin);
            }
        }
        classes.push(EClass {
            ty: egraph.analysis.ty(data.ty).clone(),
            nodes: sorted.iter().map(number).collect(),
            constant: data.constant,
            scalar: data.scalar,
            observer: data.observer,
            origins: from,
        });
        nodes.push(sorted);
    }
    let outputs = outputs.iter().map(|o| walk.number[o]).collect();
    let bundles = bundles(egraph, log, rules, &walk.number, &nodes);
    let program = program.iter().filter(|(live, _)| live.is_some()).count();
    let classes = EClasses { classes, outputs, bundles, hints: Vec::new(), program, rounds_all };
    Extracted { classes, number: walk.number, nodes }
}

impl Usable {
    fn of(egraph: &EGraph, outputs: &[Id]) -> Usable {
        let mut order = Vec::new();
        let mut seen: FxHashSet<Id> = FxHashSet::default();
        // Outputs of the same class are visited once.
        let mut open: Vec<Id> = outputs.iter().copied().filter(|output| seen.insert(*output)).collect();
        let mut nodes: FxHashMap<Id, Vec<InternedNode>> = FxHashMap::default();
        while let Some(class) = open.pop() {
            order.push(class);
            // A node that reads its own class (a reshape to the same shape) computes nothing.
            let reads_itself = |n: &InternedNode| n.children.iter().any(|c| egraph.find(*c) == class);
            let usable = |n: &&InternedNode| is_legal(egraph, n) && !reads_itself(n);
            let mut legal: Vec<InternedNode> = egraph[class].nodes.iter().filter(usable).cloned().collect();
            if egraph[class].data.observer.is_some() {
                once_each(egraph, &mut legal);
            }
            for child in legal.iter().flat_map(|n| n.children.iter()) {
                let child = egraph.find(*child);
                if seen.insert(child) {
                    open.push(child);
                }
            }
            nodes.insert(class, legal);
        }
        let mut usable = Usable { nodes, order };
        usable.drop_uncomputable(egraph);
        usable
    }

    /// Removes nodes with an operand that cannot be computed, because it depends on values without a legal form.
    fn drop_uncomputable(&mut self, egraph: &EGraph) {
        let mut computable: FxHashSet<Id> = FxHashSet::default();
        // The nodes that read each class, once for each operand, and the number of uncomputed operands of each node.
        let mut readers: FxHashMap<Id, Vec<(Id, usize)>> = FxHashMap::default();
        let mut waiting: FxHashMap<(Id, usize), usize> = FxHashMap::default();
        let mut open: Vec<Id> = Vec::new();
        for &class in &self.order {
            for (at, node) in self.nodes[&class].iter().enumerate() {
                if node.children.is_empty() && computable.insert(class) {
                    open.push(class);
                }
                waiting.insert((class, at), node.children.len());
                for child in &node.children {
                    readers.entry(egraph.find(*child)).or_default().push((class, at));
                }
            }
        }
        while let Some(class) = open.pop() {
            for reader in readers.get(&class).into_iter().flatten() {
                let left = waiting.entry(*reader).or_default();
                *left -= 1;
                if *left == 0 && computable.insert(reader.0) {
                    open.push(reader.0);
                }
            }
        }
        for nodes in self.nodes.values_mut() {
            nodes.retain(|n| n.children.iter().all(|c| computable.contains(&egraph.find(*c))));
        }
    }
}

/// Keeps one node of those that differ only in their observers.
fn once_each(egraph: &EGraph, nodes: &mut Vec<InternedNode>) {
    let mut seen = FxHashSet::default();
    let facts = &egraph.analysis;
    nodes.retain(|n| seen.insert((n.op, facts.attrs(n.head).clone(), canonical(egraph, &n.children))));
}

fn is_legal(egraph: &EGraph, node: &InternedNode) -> bool {
    let types: Vec<TypeId> = node.children.iter().map(|c| egraph[*c].data.ty).collect();
    egraph.analysis.is_legal(node.head, &types)
}

fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = FxHasher::default();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Returns the op and a hash of each head. The hash contains the op's name, because the op's number depends on the
/// order of the table.
fn head_hashes(egraph: &EGraph) -> Vec<(Op, u64)> {
    let facts = &egraph.analysis;
    let of = |n: u32| {
        let (op, attrs) = (facts.op(Head(n)), facts.attrs(Head(n)));
        let hash = match facts.observer(Head(n)) {
            None => hash_of(&(op.name(), attrs)),
            Some(observer) => hash_of(&(op.name(), attrs, observer.name())),
        };
        (op, hash)
    };
    (0..facts.heads() as u32).map(of).collect()
}

/// Returns a hash for each class from its type and its nodes with the hashes of their operands. Operands are hashed
/// first. Classes in a cycle are hashed in rounds, starting from their types, until no more of them are
/// distinguished.
fn hashes(egraph: &EGraph, usable: &Usable, heads: &[(Op, u64)]) -> FxHashMap<Id, u64> {
    let place: FxHashMap<Id, usize> = usable.order.iter().enumerate().map(|(n, c)| (*c, n)).collect();
    let nodes: Vec<Vec<(u64, Vec<usize>)>> = usable
        .order
        .iter()
        .map(|class| {
            let node = |n: &InternedNode| {
                (heads[n.head.0 as usize].1, n.children.iter().map(|c| place[&egraph.find(*c)]).collect())
            };
            usable.nodes[class].iter().map(node).collect()
        })
        .collect();
    let mut hashes: Vec<u64> = usable.order.iter().map(|c| hash_of(egraph.analysis.ty(egraph[*c].data.ty))).collect();
    let refined = |hashes: &[u64], at: usize| {
        let mut each: Vec<u64> = nodes[at]
            .iter()
            .map(|(head, children)| hash_of(&(head, children.iter().map(|c| hashes[*c]).collect::<Vec<_>>())))
            .collect();
        each.sort_unstable();
        each.dedup();
        hash_of(&(hashes[at], each))
    };
    let reads = |at: usize| nodes[at].iter().flat_map(|(_, children)| children.iter().copied());
    let edges = (0..nodes.len()).flat_map(|at| reads(at).map(move |child| (at as u32, child as u32)));
    let mut graph: DiGraph<(), ()> = DiGraph::from_edges(edges);
    while graph.node_count() < nodes.len() {
        graph.add_node(());
    }
    for circle in kosaraju_scc(&graph) {
        let circle: Vec<usize> = circle.into_iter().map(|node| node.index()).collect();
        let mut told_apart = 0;
        loop {
            let new: Vec<u64> = circle.iter().map(|&at| refined(&hashes, at)).collect();
            circle.iter().zip(&new).for_each(|(&at, &hash)| hashes[at] = hash);
            let now = new.into_iter().collect::<FxHashSet<_>>().len();
            if now <= told_apart || circle.len() == 1 {
                break;
            }
            told_apart = now;
        }
    }
    usable.order.iter().copied().zip(hashes).collect()
}

/// A walk from the outputs to their operands. Operands come before users, and nodes are in structural order.
struct Walk {
    order: Vec<Id>,
    number: FxHashMap<Id, ClassId>,
    sorted: FxHashMap<Id, Vec<InternedNode>>,
}

impl Walk {
    fn from(outputs: &[Id], usable: &Usable, hashes: &FxHashMap<Id, u64>, heads: &[(Op, u64)]) -> Walk {
        let mut walk = Walk { order: Vec::new(), number: FxHashMap::default(), sorted: FxHashMap::default() };
        let mut entered: FxHashSet<Id> = FxHashSet::default();
        for output in outputs {
            // A stack of classes, each with its unvisited children. Recursion would overflow on deep programs.
            let mut stack: Vec<(Id, Vec<Id>)> = Vec::new();
            if entered.insert(*output) {
                stack.push((*output, walk.enter(*output, usable, hashes, heads)));
            }
            while let Some((class, open)) = stack.last_mut() {
                match open.pop() {
                    Some(child) if entered.insert(child) => {
                        let children = walk.enter(child, usable, hashes, heads);
                        stack.push((child, children));
                    }
                    Some(_) => {}
                    None => {
                        walk.number.insert(*class, walk.order.len());
                        walk.order.push(*class);
                        stack.pop();
                    }
                }
            }
        }
        walk
    }

    /// Sorts the nodes of a class. Returns their operands in reverse order.
    fn enter(&mut self, class: Id, usable: &Usable, hashes: &FxHashMap<Id, u64>, heads: &[(Op, u64)]) -> Vec<Id> {
        let mut nodes = usable.nodes[&class].clone();
        nodes.sort_by_cached_key(|n| {
            let children: Vec<u64> = n.children.iter().map(|c| hashes.get(c).copied().unwrap_or(0)).collect();
            let (op, hash) = heads[n.head.0 as usize];
            (op.name(), hash, children)
        });
        let children = nodes.iter().flat_map(|n| n.children.iter().copied()).rev().collect();
        self.sorted.insert(class, nodes);
        children
    }
}

/// Returns for each class the program's nodes from which it stems, in program order: those in the class, or else the
/// node whose match made the class.
fn sources(
    egraph: &EGraph,
    number: &FxHashMap<Id, ClassId>,
    program: &[(Option<Id>, Origin)],
) -> FxHashMap<ClassId, Vec<u32>> {
    let mut sources: FxHashMap<ClassId, Vec<u32>> = FxHashMap::default();
    for (rank, (id, _)) in program.iter().enumerate() {
        if let Some(class) = id.and_then(|id| number.get(&egraph.find(id))) {
            sources.entry(*class).or_default().push(rank as u32);
        }
    }
    for (class, at) in number {
        sources.entry(*at).or_insert_with(|| vec![egraph[*class].data.rank]);
    }
    sources
}

/// Returns the bundles: sets of nodes that one rule application made, if they are choices in several classes.
fn bundles(
    egraph: &EGraph,
    log: &Log,
    rules: &[Arc<Compiled>],
    number: &FxHashMap<Id, ClassId>,
    nodes: &[Vec<InternedNode>],
) -> Vec<Bundle> {
    let mut seen = FxHashSet::default();
    let mut bundles = Vec::new();
    let mut places: FxHashMap<(Head, &[Id]), NodeChoice> = FxHashMap::default();
    for (class, nodes) in nodes.iter().enumerate() {
        for (at, node) in nodes.iter().enumerate() {
            places.insert((node.head, &node.children), NodeChoice { class, node: at });
        }
    }
    for application in &log.applications {
        let mut choices: Vec<NodeChoice> = Vec::new();
        for (node, class) in &application.made {
            if !number.contains_key(&egraph.find(*class)) {
                continue;
            }
            let children = canonical(egraph, &node.children);
            if let Some(place) = places.get(&(node.head, children.as_slice()))
                && nodes[place.class].len() > 1
                && !choices.iter().any(|other| other.class == place.class)
            {
                choices.push(*place);
            }
        }
        choices.sort_unstable();
        let rule = rules[application.rule].rule.name.to_string();
        if choices.len() > 1 && seen.insert((rule.clone(), choices.clone())) {
            bundles.push(Bundle { rule, choices });
        }
    }
    bundles.sort_by(|a, b| (&a.choices, &a.rule).cmp(&(&b.choices, &b.rule)));
    bundles
}
