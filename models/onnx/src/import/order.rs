//! Sorts nodes topologically. Otherwise they keep the order of the file.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap, HashMap},
};

use super::super::{model::each_node, proto::NodeProto};

/// Returns the indices of nodes in an order in which operands precede their users. Among nodes that are ready, the
/// first one in the file comes next. Nodes on a cycle come last, in the order of the file.
pub(super) fn ordered(nodes: &[NodeProto]) -> Vec<usize> {
    let mut makers: HashMap<&str, usize> = HashMap::new();
    for (at, node) in nodes.iter().enumerate() {
        for name in node.output.iter().filter(|name| !name.is_empty()) {
            makers.entry(name).or_insert(at);
        }
    }
    let needed: Vec<BTreeSet<usize>> = nodes
        .iter()
        .enumerate()
        .map(|(at, node)| {
            let read = read_by(node);
            read.iter().filter_map(|name| makers.get(name.as_str()).copied()).filter(|maker| *maker != at).collect()
        })
        .collect();
    if needed.iter().enumerate().all(|(at, needed)| needed.iter().all(|other| *other < at)) {
        return (0..nodes.len()).collect();
    }
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    for (at, needed) in needed.iter().enumerate() {
        needed.iter().for_each(|maker| readers[*maker].push(at));
    }
    let mut waiting: Vec<usize> = needed.iter().map(BTreeSet::len).collect();
    let mut ready: BinaryHeap<Reverse<usize>> = (0..nodes.len()).filter(|at| waiting[*at] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(Reverse(at)) = ready.pop() {
        order.push(at);
        for reader in &readers[at] {
            waiting[*reader] -= 1;
            if waiting[*reader] == 0 {
                ready.push(Reverse(*reader));
            }
        }
    }
    order.extend((0..nodes.len()).filter(|at| waiting[*at] > 0));
    order
}

/// Returns the names that a node and its subgraphs read.
fn read_by(node: &NodeProto) -> Vec<String> {
    let mut names = Vec::new();
    each_node(std::slice::from_ref(node), &mut |inner| {
        names.extend(inner.input.iter().cloned());
        let graphs = inner.attribute.iter().flat_map(|attribute| attribute.g.iter().chain(&attribute.graphs));
        names.extend(graphs.flat_map(|graph| graph.output.iter().map(|output| output.name().to_string())));
    });
    names
}
