//! Graphs as Graphviz DOT: values as boxes, grouped by the model part that made them.

use std::{
    collections::BTreeMap,
    fmt::{self, Write},
};

use petgraph::{
    dot::{Config, Dot},
    graph::DiGraph,
};

use crate::{Graph, NodeId, ops::AttrKind};

/// The text that one line of a box shows.
struct DotLabel(String);

impl fmt::Display for DotLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the graph in the DOT language, which `dot -Tsvg` draws.
pub fn dot(graph: &Graph) -> String {
    let mut boxes = DiGraph::<DotLabel, &str>::new();
    let ids: Vec<_> = graph.nodes().map(|(id, _)| boxes.add_node(DotLabel(label(graph, id)))).collect();
    for (id, node) in graph.nodes() {
        for operand in &node.operands {
            boxes.add_edge(ids[operand.0 as usize], ids[id.0 as usize], "");
        }
    }
    for (kind, results) in [("output", graph.outputs()), ("update", graph.updates())] {
        for (name, id) in results {
            let result = boxes.add_node(DotLabel(format!("{kind} {name}")));
            boxes.add_edge(ids[id.0 as usize], result, "");
        }
    }
    let content = Dot::with_config(&boxes, &[Config::GraphContentOnly, Config::EdgeNoLabel]);
    let mut text = format!("digraph {:?} {{\n    node [shape=box]\n{content}", graph.name);
    let mut parts: BTreeMap<&str, Vec<NodeId>> = BTreeMap::new();
    for (id, node) in graph.nodes().filter(|(_, n)| !n.origin.path().is_empty()) {
        parts.entry(node.origin.path()).or_default().push(id);
    }
    for (i, (part, ids)) in parts.iter().enumerate() {
        let ids: Vec<_> = ids.iter().map(|id| id.0.to_string()).collect();
        let _ = writeln!(text, "    subgraph cluster_{i} {{ label = {part:?}; {} }}", ids.join("; "));
    }
    text + "}\n"
}

/// Returns op, attributes and type of a node. The elements of constants are left out.
fn label(graph: &Graph, id: NodeId) -> String {
    let node = graph.node(id);
    let mut text = node.op.to_string();
    for (def, value) in node.op.def().attrs.iter().zip(&node.attrs) {
        let shown = !matches!(def.kind, AttrKind::Tensor | AttrKind::Type | AttrKind::Graph) && !def.is_default(value);
        if shown {
            let _ = write!(text, " :{} {value}", def.name);
        }
    }
    format!("{text}\n{}", node.ty)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Type};

    #[test]
    fn shows_values_edges_and_parts() {
        let mut graph = Graph::new("g");
        let x = graph.input("x", Type::tensor(DType::F32, &[2])).unwrap();
        let y = graph.within("layer", |g| g.exp(x)).unwrap();
        graph.output("y", y).unwrap();
        let text = dot(&graph);
        for part in ["digraph \"g\"", "0 -> 1", "1 -> 2", "exp\\lf32[2]", "cluster_0 { label = \"layer\"; 1 }"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
