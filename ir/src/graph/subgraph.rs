//! A graph as an attribute: the body of a loop.

use std::{
    cmp::Ordering,
    hash::{Hash, Hasher},
    ops::Deref,
    sync::Arc,
};

use super::{Graph, Node};
use crate::Op;

/// A graph that a node holds. It is shared and never changed.
#[derive(Clone, Debug, PartialEq)]
pub struct SubGraph(Arc<Graph>);

// The constants in a graph compare by their bits, so that equality is total even with NaNs.
impl Eq for SubGraph {}

impl From<Graph> for SubGraph {
    fn from(graph: Graph) -> SubGraph {
        SubGraph(Arc::new(graph))
    }
}

impl Deref for SubGraph {
    type Target = Graph;

    fn deref(&self) -> &Graph {
        &self.0
    }
}

impl Hash for SubGraph {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for (_, node) in self.nodes() {
            (node.op, &node.attrs, &node.operands, &node.ty).hash(state);
        }
        self.outputs().hash(state);
    }
}

impl Ord for SubGraph {
    fn cmp(&self, other: &SubGraph) -> Ordering {
        let node = |node: &Node| {
            let (op, observer) = (node.op.name(), node.observer.map(Op::name));
            (op, node.attrs.clone(), node.operands.clone(), node.ty.clone(), node.origin.clone(), observer)
        };
        let parts = |graph: &SubGraph| {
            let nodes: Vec<_> = graph.nodes().map(|(_, of)| node(of)).collect();
            (nodes, graph.name.clone(), graph.outputs().to_vec(), graph.updates().to_vec())
        };
        if Arc::ptr_eq(&self.0, &other.0) {
            return Ordering::Equal;
        }
        parts(self).cmp(&parts(other))
    }
}

impl PartialOrd for SubGraph {
    fn partial_cmp(&self, other: &SubGraph) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
