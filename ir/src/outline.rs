//! Outlining: cuts a graph into blocks, so that a repeated layer is optimized once and reused.
//!
//! The cuts are values on which everything later depends, such as the output of a layer. They are found by walking back
//! from two candidates at once (`chain`). A layer repeats if the cone of its output matches the cone of the output
//! before it, down to that very value. Equal values count as one, however often they are written. The nodes between two
//! cuts become a block's body (`body`), and calls with equal bodies share the block.

mod body;
mod chain;

use crate::{Graph, NodeId, Origin};
use rustc_hash::FxHashMap;

use body::{OutlinedBody, Partition};
use chain::Analysis;

/// A graph as calls of blocks.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlined {
    /// The distinct bodies, in the order in which they are first called.
    pub blocks: Vec<Block>,
    /// In topological order; together they compute every result of the graph, each exactly once.
    pub calls: Vec<BlockCall>,
    /// The run-time values that one call makes and another reads. They are stored; fusion across them is given up.
    pub cuts: Vec<NodeId>,
}

/// A body that one or more calls share.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Its inputs are named `in0`…, its parameters `p0`…, its states `s0`…, its outputs `out0`…. A value that an op
    /// with an
    /// [`along`](crate::ops::OpDef::along) reads across a cut goes in and out with that axis last.
    pub graph: Graph,
}

/// One use of a block. All ids are those of the graph that was outlined.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockCall {
    /// The index into [`Outlined::blocks`].
    pub block: usize,
    /// The inputs of the call: inputs of the graph, and outputs of earlier calls.
    pub inputs: Vec<NodeId>,
    /// The parameters, and constants of more than 64 elements.
    pub params: Vec<NodeId>,
    /// The states that it reads.
    pub states: Vec<NodeId>,
    /// The values that come out.
    pub outputs: Vec<NodeId>,
    /// For each model part that the body remembers: the corresponding part of this call.
    pub origins: Vec<(Origin, Origin)>,
}

/// Cuts a graph into blocks where layers repeat; one block where nothing does.
pub fn outline(graph: &Graph) -> Outlined {
    let analysis = Analysis::new(graph);
    let cuts = chain::cuts(&analysis);
    if cuts.is_empty() {
        return assemble(graph, Partition::one(&analysis));
    }
    let outlined = assemble(graph, Partition::between(&analysis, &cuts));
    // Cuts that no block profits from only cost fusion.
    if outlined.calls.len() == outlined.blocks.len() { assemble(graph, Partition::one(&analysis)) } else { outlined }
}

/// Returns the whole graph as one block.
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
