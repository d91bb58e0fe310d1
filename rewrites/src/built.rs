//! Adds instances of terms to a graph.

use eutectic_ir::{Attr, Graph, GraphError, NodeId, Op};

use crate::{
    egraph::Facts,
    instantiate::{NodeRecipe, Ref},
};

/// Adds an op, given all of its attributes.
pub(crate) fn apply(graph: &mut Graph, op: Op, attrs: &[Attr], operands: &[NodeId]) -> Result<NodeId, GraphError> {
    let attrs: Vec<(&str, Attr)> = op.def().attrs.iter().map(|d| d.name).zip(attrs.iter().cloned()).collect();
    graph.apply(op, operands, &attrs)
}

/// Adds the nodes of instructions to a graph. `classes` are the values of the rule's tensor variables.
pub(crate) fn insert(
    graph: &mut Graph,
    facts: &Facts,
    instrs: &[NodeRecipe],
    classes: &[NodeId],
) -> Result<Vec<NodeId>, GraphError> {
    let mut nodes: Vec<NodeId> = Vec::with_capacity(instrs.len());
    for instr in instrs {
        let operands: Vec<NodeId> = instr.args.iter().map(|r| node_of(*r, classes, &nodes)).collect();
        nodes.push(apply(graph, facts.op(instr.head), facts.attrs(instr.head), &operands)?);
    }
    Ok(nodes)
}

/// Returns the graph node that a reference stands for.
pub(crate) fn node_of(r: Ref, classes: &[NodeId], nodes: &[NodeId]) -> NodeId {
    match r {
        Ref::Class(n) => classes[n],
        Ref::Instr(n) => nodes[n],
        Ref::Number(_) => unreachable!("instances have no number without an element type"),
    }
}
