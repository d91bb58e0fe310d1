//! The bodies between cuts. Their nodes are numbered so that isomorphic bodies are equal.

use std::hash::{Hash, Hasher};

use crate::{Attr, Attrs, Class, Graph, NodeId, Op, Origin, Type, ops::Leaf};
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};
use smallvec::SmallVec;

use super::chain::{Analysis, is_given, is_leaf};

/// A partition of the computed nodes into segments, in topological order.
pub struct Partition<'a, 'g> {
    analysis: &'a Analysis<'g>,
    /// The segment of each node, in the order of [`Analysis::order`].
    of: Vec<usize>,
    count: usize,
}

/// The nodes between two cuts.
#[derive(Clone)]
pub struct OutlinedBody {
    nodes: Vec<BodyNode>,
    results: Vec<u32>,
    pub inputs: Vec<NodeId>,
    pub params: Vec<NodeId>,
    pub states: Vec<NodeId>,
    pub outputs: Vec<NodeId>,
}

#[derive(Clone)]
struct BodyNode {
    key: NodeKey,
    /// The node of the outlined graph that this node copies.
    stands_for: NodeId,
}

/// The computation of a node, with operands as node numbers. Nodes with equal keys are merged.
#[derive(Clone, PartialEq, Eq, Hash)]
struct NodeKey {
    op: Op,
    attrs: Attrs,
    operands: SmallVec<[u32; 3]>,
    observer: Option<Op>,
}

impl<'a, 'g> Partition<'a, 'g> {
    /// Returns the partition with all nodes in one segment.
    pub fn one(analysis: &'a Analysis<'g>) -> Partition<'a, 'g> {
        Partition { analysis, of: vec![0; analysis.order.len()], count: 1 }
    }

    /// Returns the partition with these cuts. A node belongs to the segment after the last cut on which it depends.
    /// If all of its users are in one later segment, it moves there.
    pub fn between(analysis: &'a Analysis<'g>, cuts: &[NodeId]) -> Partition<'a, 'g> {
        let behind: FxHashMap<NodeId, usize> = cuts.iter().enumerate().map(|(i, &cut)| (cut, i + 1)).collect();
        let mut of: Vec<usize> = Vec::with_capacity(analysis.order.len());
        for &id in &analysis.order {
            let level = |o: &NodeId| {
                let at = analysis.of(*o).at as usize;
                behind.get(o).copied().unwrap_or_else(|| if at > 0 { of[at - 1] } else { 0 })
            };
            let segment = analysis.operands(id).iter().map(level).max().unwrap_or(0);
            of.push(segment);
        }
        let kept: FxHashSet<NodeId> = analysis.graph.results().map(|o| o.1).chain(cuts.iter().copied()).collect();
        for (i, id) in analysis.order.iter().enumerate().rev() {
            let mut users = analysis.of(*id).users.iter().map(|u| of[analysis.of(*u).at as usize - 1]);
            // A result that is taken out of a tuple stays in the tuple's segment, because tuples are not stored.
            if !kept.contains(id)
                && !matches!(analysis.graph.node(*id).op.def().class, Class::Project)
                && let Some(segment) = users.next()
                && users.all(|s| s == segment)
            {
                of[i] = segment;
            }
        }
        Partition { analysis, of, count: cuts.len() + 1 }
    }

    /// Returns the bodies that compute something, in topological order.
    pub fn bodies(&self) -> impl Iterator<Item = OutlinedBody> + '_ {
        let outputs = self.outputs();
        (0..self.count).zip(outputs).filter(|(_, outputs)| !outputs.is_empty()).map(|(segment, outputs)| {
            let mut builder = BodyBuilder {
                segments: self,
                segment,
                numbers: FxHashMap::default(),
                known: FxHashMap::default(),
                body: OutlinedBody::new(),
            };
            builder.body.results = outputs.iter().map(|id| builder.result(*id)).collect();
            builder.body.outputs = outputs;
            builder.body
        })
    }

    /// Returns the permutation in which a value is stored between segments; `None` if it is stored unchanged. An op
    /// that reads the value along another axis than the last has that axis stored last.
    fn stored_order(&self, id: NodeId) -> Option<Vec<i64>> {
        let graph = self.analysis.graph;
        let facts = self.analysis.of(id);
        if facts.at == 0 || graph.results().any(|(_, result)| *result == id) {
            return None;
        }
        let along = facts.users.iter().find_map(|user| {
            graph.node(*user).op.def().along.filter(|_| self.analysis.operands(*user).first() == Some(&id))
        })?;
        let rank = graph.ty(id).as_tensor()?.1.rank() as i64;
        Some((-rank..0).filter(|&axis| axis != along).chain([along]).collect())
    }

    /// Returns the outputs of each segment: values that other segments read, and results of the program. The last
    /// segment also has the results that need no computation at run time.
    fn outputs(&self) -> Vec<Vec<NodeId>> {
        let mut outputs = vec![Vec::new(); self.count];
        let results: FxHashSet<NodeId> = self.analysis.graph.results().map(|o| o.1).collect();
        for (&id, &segment) in self.analysis.order.iter().zip(&self.of) {
            let read_elsewhere = |u: &NodeId| self.of[self.analysis.of(*u).at as usize - 1] != segment;
            let facts = self.analysis.of(id);
            if results.contains(&id) || !facts.portable && facts.users.iter().any(read_elsewhere) {
                outputs[segment].push(id);
            }
        }
        let last = outputs.last_mut().expect("a program has at least one segment");
        for (_, id) in self.analysis.graph.results() {
            if !self.analysis.computed(*id) && !last.contains(id) {
                last.push(*id);
            }
        }
        outputs
    }
}

struct BodyBuilder<'s, 'a, 'g> {
    segments: &'s Partition<'a, 'g>,
    segment: usize,
    numbers: FxHashMap<NodeId, u32>,
    known: FxHashMap<NodeKey, u32>,
    body: OutlinedBody,
}

impl BodyBuilder<'_, '_, '_> {
    /// Returns the number of a value in the body. The nodes that it depends on are added first, operands in order.
    fn number(&mut self, id: NodeId) -> u32 {
        let analysis = self.segments.analysis;
        let mut stack = vec![id];
        while let Some(&next) = stack.last() {
            if self.numbers.contains_key(&next) {
                stack.pop();
                continue;
            }
            let (node, operands) = (analysis.graph.node(next), analysis.operands(next));
            let from_outside = self.is_outside(next);
            let missing = |o: &&NodeId| !self.numbers.contains_key(o);
            if !from_outside && operands.iter().any(|o| missing(&o)) {
                stack.extend(operands.iter().rev().filter(missing));
                continue;
            }
            let number = match from_outside {
                true => self.outside(next),
                false => {
                    let operands = operands.iter().map(|o| self.numbers[o]).collect();
                    let (attrs, observer) = (node.attrs.clone(), node.observer);
                    self.add(NodeKey { op: node.op, attrs, operands, observer }, next)
                }
            };
            self.numbers.insert(next, number);
        }
        self.numbers[&id]
    }

    /// Returns the number of a node in the body, and adds the node if it is new.
    fn add(&mut self, key: NodeKey, stands_for: NodeId) -> u32 {
        *self.known.entry(key.clone()).or_insert_with(|| {
            self.body.nodes.push(BodyNode { key, stands_for });
            self.body.nodes.len() as u32 - 1
        })
    }

    fn transpose(&mut self, perm: &[i64], operand: u32, stands_for: NodeId) -> u32 {
        let op = Op::named("transpose").expect("the op table has transposes");
        let attrs = [Attr::from(perm)].into_iter().collect();
        // A transpose of an observed value is observed too, because the same op reads it.
        let observer = self.body.nodes[operand as usize].key.observer;
        self.add(NodeKey { op, attrs, operands: SmallVec::from_slice(&[operand]), observer }, stands_for)
    }

    /// Returns the number of the node that computes an output. Adds a transpose if the output is stored with its axes
    /// in another order.
    fn result(&mut self, id: NodeId) -> u32 {
        let number = self.number(id);
        match self.segments.stored_order(id) {
            Some(perm) => self.transpose(&perm, number, id),
            None => number,
        }
    }

    fn is_outside(&self, id: NodeId) -> bool {
        match self.segments.analysis.of(id).at {
            0 => is_given(self.segments.analysis.graph.node(id)),
            at => self.segments.of[at as usize - 1] != self.segment && !self.segments.analysis.of(id).portable,
        }
    }

    /// Returns the number of a value that the body takes from outside. Adds a leaf for it, and a transpose that
    /// restores the order of its axes.
    fn outside(&mut self, id: NodeId) -> u32 {
        let (kind, name, list) = match self.segments.analysis.of(id).runtime {
            true if is_leaf(self.segments.analysis.graph.node(id), Leaf::State) => {
                (Leaf::State, "s", &mut self.body.states)
            }
            true => (Leaf::Input, "in", &mut self.body.inputs),
            false => (Leaf::Param, "p", &mut self.body.params),
        };
        let op = Op::all()
            .find(|op| matches!(op.def().class, Class::Leaf(leaf) if leaf == kind))
            .expect("the op table has every leaf");
        let order = self.segments.stored_order(id);
        let mut ty: Type = self.segments.analysis.graph.ty(id).clone();
        if let (Some(perm), Type::Tensor(_, shape)) = (&order, &mut ty) {
            *shape = perm.iter().map(|&axis| shape[(axis + shape.rank() as i64) as usize].clone()).collect();
        }
        let name = format!("{name}{}", list.len());
        list.push(id);
        let attrs = [Attr::from(name.as_str()), Attr::Type(ty)].into_iter().collect();
        let observer = self.segments.analysis.graph.node(id).observer;
        let leaf = self.add(NodeKey { op, attrs, operands: SmallVec::new(), observer }, id);
        let Some(perm) = order else { return leaf };
        let rank = perm.len() as i64;
        let place = |axis: i64| perm.iter().position(|&p| p == axis).map_or(axis, |at| at as i64 - rank);
        self.transpose(&(-rank..0).map(place).collect::<Vec<_>>(), leaf, id)
    }
}

impl OutlinedBody {
    fn new() -> OutlinedBody {
        OutlinedBody {
            nodes: Vec::new(),
            results: Vec::new(),
            inputs: Vec::new(),
            params: Vec::new(),
            states: Vec::new(),
            outputs: Vec::new(),
        }
    }

    /// Returns a hash of the body's structure.
    pub fn hash(&self) -> u64 {
        let mut hash = FxHasher::default();
        self.results.hash(&mut hash);
        for node in &self.nodes {
            node.key.hash(&mut hash);
        }
        hash.finish()
    }

    /// Returns whether two bodies compute the same function of their inputs and parameters, node by node.
    pub fn same_structure(&self, other: &OutlinedBody) -> bool {
        self.results == other.results
            && self.nodes.len() == other.nodes.len()
            && self.nodes.iter().zip(&other.nodes).all(|(a, b)| a.key == b.key)
    }

    /// Returns the body as a graph. `graph` is the outlined graph.
    pub fn graph(&self, graph: &Graph) -> Graph {
        let mut block = Graph::new(graph.name.clone());
        for BodyNode { key, stands_for } in &self.nodes {
            let attrs: SmallVec<[(&str, Attr); 4]> =
                key.op.def().attrs.iter().zip(&key.attrs).map(|(def, attr)| (def.name, attr.clone())).collect();
            let operands: SmallVec<[NodeId; 4]> = key.operands.iter().map(|n| NodeId(*n)).collect();
            let origin = graph.node(*stands_for).origin.clone();
            let made = block.apply_at(key.op, &operands, &attrs, origin);
            block.set_observer(made.expect("the outlined graph was checked"), key.observer);
        }
        for (i, result) in self.results.iter().enumerate() {
            block
                .output(&format!("out{i}"), NodeId(*result))
                .expect("results are tensors and their names are distinct");
        }
        block
    }

    /// Returns pairs of model parts: each part of this body, and the corresponding part of `other`, a body of the
    /// same structure.
    pub fn origins(&self, other: &OutlinedBody, graph: &Graph) -> Vec<(Origin, Origin)> {
        let mut seen = FxHashSet::default();
        let origin = |node: &BodyNode| graph.node(node.stands_for).origin.clone();
        let pairs = self.nodes.iter().zip(&other.nodes).map(|(a, b)| (origin(a), origin(b)));
        pairs.filter(|(mine, _)| seen.insert(mine.clone())).collect()
    }
}
