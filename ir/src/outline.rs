//! Outlining: splits a graph into blocks, so that a repeated layer is optimized once.
//!
//! The graph is cut at values on which all later computation depends, such as the output of a layer. The module
//! `chain` finds cuts by walking back from two candidates at once. A layer repeats if the computation from the output
//! before it matches the computation of the previous layer, node by node. Equal values count as one. The nodes
//! between two cuts become a block's body (module `body`), and calls with equal bodies share a block.

mod body;
mod chain;

use crate::{Graph, NodeId, Origin};
use rustc_hash::FxHashMap;

use body::{OutlinedBody, Partition};
use chain::Analysis;

/// A graph as a sequence of calls of blocks.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlined {
    /// The distinct bodies, in the order in which they are first called.
    pub blocks: Vec<Block>,
    /// The calls, in topological order. Together they compute every result of the graph exactly once.
    pub calls: Vec<BlockCall>,
    /// The run-time values that one call computes and another reads. They are stored in memory, because no kernel
    /// spans two calls.
    pub cuts: Vec<NodeId>,
}

/// A body that one or more calls share.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// The body. Its inputs are named `in0`…, its parameters `p0`…, its states `s0`… and its outputs `out0`…. If a
    /// value between calls is read by an op with an [`along`](crate::ops::OpDef::along), the body takes and returns
    /// it with that axis last.
    pub graph: Graph,
}

/// One call of a block. All ids are those of the outlined graph.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockCall {
    /// The index into [`Outlined::blocks`].
    pub block: usize,
    /// The inputs of the call: inputs of the graph, and outputs of earlier calls.
    pub inputs: Vec<NodeId>,
    /// The parameters, and constants of more than 64 elements.
    pub params: Vec<NodeId>,
    /// The states that the call reads.
    pub states: Vec<NodeId>,
    /// The values that the call computes.
    pub outputs: Vec<NodeId>,
    /// Pairs of model parts: the part in the body, and the corresponding part of this call.
    pub origins: Vec<(Origin, Origin)>,
}

/// Splits a graph into blocks if layers repeat. Otherwise the graph becomes one block.
pub fn outline(graph: &Graph) -> Outlined {
    let analysis = Analysis::new(graph);
    let cuts = chain::cuts(&analysis);
    if cuts.is_empty() {
        return assemble(graph, Partition::one(&analysis));
    }
    let outlined = assemble(graph, Partition::between(&analysis, &cuts));
    // If no block is called twice, cuts only prevent fusion.
    if outlined.calls.len() == outlined.blocks.len() { assemble(graph, Partition::one(&analysis)) } else { outlined }
}

/// Returns the graph as one block.
pub fn whole(graph: &Graph) -> Outlined {
    assemble(graph, Partition::one(&Analysis::new(graph)))
}

fn assemble(graph: &Graph, segments: Partition<'_, '_>) -> Outlined {
    let mut blocks: Vec<(OutlinedBody, Block)> = Vec::new();
    let mut by_hash: FxHashMap<u64, Vec<usize>> = FxHashMap::default();
    let mut calls = Vec::new();
    for body in segments.bodies() {
        let same = by_hash.entry(body.hash()).or_default();
        let found = same.iter().copied().find(|&block| blocks[block].0.same_structure(&body));
        let block = found.unwrap_or_else(|| {
            same.push(blocks.len());
            blocks.push((body.clone(), Block { graph: body.graph(graph) }));
            blocks.len() - 1
        });
        let origins = blocks[block].0.origins(&body, graph);
        let OutlinedBody { inputs, params, states, outputs, .. } = body;
        calls.push(BlockCall { block, inputs, params, states, outputs, origins });
    }
    let made: Vec<NodeId> = calls.iter().flat_map(|c: &BlockCall| c.outputs.iter().copied()).collect();
    let mut cuts: Vec<NodeId> =
        calls.iter().flat_map(|c| c.inputs.iter().copied()).filter(|v| made.contains(v)).collect();
    cuts.sort_unstable();
    cuts.dedup();
    Outlined { blocks: blocks.into_iter().map(|b| b.1).collect(), calls, cuts }
}
