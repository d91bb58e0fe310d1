//! Instances of terms as nodes of a graph.

use eutectic_ir::{Attr, Graph, GraphError, NodeId, Op};

use crate::{
    egraph::Facts,
    instantiate::{NodeRecipe, Ref},
};

/// Adds an op with all of its attributes.
pub(crate) fn apply(graph: &mut Graph, op: Op, attrs: &[Attr], operands: &[NodeId]) -> Result<NodeId, GraphError> {
    let attrs: Vec<(&str, Attr)> = op.def().attrs.iter().map(|d| d.name).zip(attrs.iter().cloned()).collect();
    graph.apply(op, operands, &attrs)
}

/// Adds instructions to a graph.
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

/// Returns the node that an instruction reads.
pub(crate) fn node_of(r: Ref, classes: &[NodeId], nodes: &[NodeId]) -> NodeId {
    match r {
        Ref::Class(n) => classes[n],
        Ref::Instr(n) => nodes[n],
        Ref::Number(_) => unreachable!("numbers stay open only where a pattern is compiled"),
    }
}
