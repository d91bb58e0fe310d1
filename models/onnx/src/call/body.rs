//! Imports subgraphs of a node: branches, and bodies of loops.

use eutectic_ir::{Attr, NodeId, Type, graph::SubGraph};

use super::{
    super::{
        error::NodeError,
        importer::{Carried, LoopBody},
        proto::{GraphProto, attribute_proto::AttributeType},
    },
    NodeCall, NodeResult,
};

impl NodeCall<'_, '_> {
    /// Imports a subgraph in place of the node, with `inputs` as its inputs. Returns its outputs.
    pub fn subgraph(&mut self, name: &str, inputs: &[NodeId]) -> Result<Vec<NodeId>, NodeError> {
        let graph: &GraphProto = self
            .attribute(name, AttributeType::Graph)?
            .and_then(|a| a.g.as_ref())
            .ok_or_else(|| NodeError(format!("its attribute `{name}` is missing")))?;
        self.importer.subgraph(graph, self.opsets, inputs)
    }

    /// Imports a subgraph into the loop body under construction, with `inputs` as its inputs. Returns its outputs.
    pub fn subgraph_of(&mut self, name: &str, inputs: &[NodeId]) -> Result<Vec<NodeId>, NodeError> {
        let graph = self.attribute(name, AttributeType::Graph)?.and_then(|a| a.g.as_ref());
        let graph = graph.ok_or_else(|| NodeError(format!("its attribute `{name}` is missing")))?;
        self.importer.body(graph, self.opsets, inputs)
    }

    /// Builds the body of a loop. `build` must first create the body's inputs with [`NodeCall::body_input`], and
    /// returns its outputs.
    pub fn body(
        &mut self,
        name: &str,
        build: impl FnOnce(&mut Self) -> Result<Vec<NodeId>, NodeError>,
    ) -> Result<LoopBody, NodeError> {
        self.importer.enter(name);
        let outputs = build(self).and_then(|outputs| {
            for (at, value) in outputs.into_iter().enumerate() {
                self.importer.graph.output(&format!("out{at}"), value)?;
            }
            Ok(())
        });
        let body = self.importer.leave();
        outputs.map(|()| body)
    }

    /// Adds an input to the body. Inputs for carried values come first, then those for slices of scanned values.
    pub fn body_input(&mut self, ty: Type) -> NodeResult {
        let name = format!("given {}", self.importer.graph.named("input").count());
        Ok(self.importer.graph.input(&name, ty)?)
    }

    /// Makes a value of the enclosing graph available in the body.
    pub fn capture(&mut self, value: NodeId) -> NodeResult {
        self.importer.capture_innermost(value)
    }

    /// Returns the limit on iterations for a loop whose trip count the model does not state.
    pub fn most_times(&self) -> usize {
        self.importer.most_times
    }

    /// Returns the trip count of the loop whose body is under construction, if it follows from known values
    /// (`Importer::trip_count`).
    pub fn trip_count(&self, number: NodeId, carried: &[Carried], most: usize) -> Option<usize> {
        self.importer.trip_count(number, carried, most)
    }

    /// Applies the op `loop` and returns its outputs. `condition` is the index of the carried Boolean that ends the
    /// loop when it is false.
    pub fn looped(
        &mut self,
        body: LoopBody,
        times: usize,
        starts: &[NodeId],
        scanned: &[NodeId],
        condition: Option<usize>,
    ) -> Result<Vec<NodeId>, NodeError> {
        let operands = [starts, scanned, &body.captured].concat();
        let count = body.graph.outputs().len() as i64;
        let attrs = [
            ("body", Attr::Graph(SubGraph::from(body.graph))),
            ("times", (times as i64).into()),
            ("carried", (starts.len() as i64).into()),
            ("scanned", (scanned.len() as i64).into()),
            ("while", condition.map_or(-1, |at| at as i64).into()),
        ];
        let all = self.op("loop", &operands, &attrs)?;
        (0..count).map(|at| self.op("get", &[all], &[("index", at.into())])).collect()
    }
}
