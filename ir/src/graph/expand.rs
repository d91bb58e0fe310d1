//! Replaces declared ops by their definitions.

use std::borrow::Cow;

use super::{Graph, GraphError, Node, NodeId};
use crate::{Attr, Class, Origin, ops::Leaf};

impl Graph {
    /// Returns the graph with each declared op replaced by the ops of its definition. Declared ops in the bodies of
    /// loops stay.
    ///
    /// # Errors
    /// If the graph becomes too large.
    pub fn expanded(&self) -> Result<Cow<'_, Graph>, GraphError> {
        if self.nodes().all(|(_, node)| node.op.definition().is_none()) {
            return Ok(Cow::Borrowed(self));
        }
        let mut expanded = Graph::new(self.name.clone());
        let mut made: Vec<NodeId> = Vec::with_capacity(self.len());
        for (_, node) in self.nodes() {
            let operands: Vec<NodeId> = node.operands.iter().map(|operand| made[operand.0 as usize]).collect();
            made.push(expanded.copied(node, &operands, &node.origin)?);
        }
        for (name, value) in self.outputs() {
            expanded.output(name, made[value.0 as usize])?;
        }
        for (name, value) in self.updates() {
            expanded.update(name, made[value.0 as usize])?;
        }
        Ok(Cow::Owned(expanded))
    }

    /// Adds a node of another graph. A declared op is added as the nodes of its definition.
    fn copied(&mut self, node: &Node, operands: &[NodeId], origin: &Origin) -> Result<NodeId, GraphError> {
        let Some(definition) = node.op.definition() else {
            let attrs: Vec<(&str, Attr)> =
                node.op.def().attrs.iter().map(|def| def.name).zip(node.attrs.iter().cloned()).collect();
            return self.apply_at(node.op, operands, &attrs, origin.clone());
        };
        let types: Vec<_> = operands.iter().map(|id| self.ty(*id).clone()).collect();
        let body = definition.graph(&node.attrs, &types.iter().collect::<Vec<_>>());
        let body = body.map_err(|why| self.refuse_at(node.op.name(), why, ""))?;
        let mut inputs = operands.iter().copied();
        let mut made: Vec<NodeId> = Vec::with_capacity(body.len());
        for (_, inner) in body.nodes() {
            let is_input = matches!(inner.op.def().class, Class::Leaf(Leaf::Input));
            let operand = if is_input { inputs.next() } else { None };
            let operands: Vec<NodeId> = inner.operands.iter().map(|operand| made[operand.0 as usize]).collect();
            made.push(operand.map_or_else(|| self.copied(inner, &operands, origin), Ok)?);
        }
        let result = body.outputs().first().map(|(_, id)| made[id.0 as usize]);
        result.ok_or_else(|| self.refuse_at(node.op.name(), "its definition has no result".into(), ""))
    }
}
