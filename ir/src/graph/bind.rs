//! Binds the symbols of a graph to numbers or to extents at run time.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::{Graph, GraphError, Origin};
use crate::{Attr, Class, Dim, Symbol, Type, ops::Leaf};

impl Graph {
    /// Returns the program with its symbols bound to numbers. Types are inferred again.
    ///
    /// # Errors
    /// If a shape is invalid for these numbers (a reshape that does not divide), or a symbol is not bound.
    pub fn bind(&self, values: &BTreeMap<String, i64>) -> Result<Graph, GraphError> {
        self.bind_dims(&values.iter().map(|(name, n)| (name.clone(), Dim::Known(*n))).collect())
    }

    /// Returns the program with its symbols bound to numbers or to extents at run time ([`Dim::between`]). Types are
    /// inferred again.
    ///
    /// # Errors
    /// If a shape is invalid for these numbers or for some length of the extents, or a symbol is not bound.
    pub fn bind_dims(&self, values: &BTreeMap<String, Dim>) -> Result<Graph, GraphError> {
        let value = |name: &str| values.get(name).cloned();
        let mut bound = Graph::new(self.name.clone());
        for node in &self.nodes {
            let attrs: SmallVec<[(&str, Attr); 4]> = node
                .op
                .def()
                .attrs
                .iter()
                .zip(&node.attrs)
                .map(|(def, attr)| {
                    let attr = match attr {
                        Attr::Shape(s) => Attr::Shape(s.iter().map(|d| d.bind(&value)).collect()),
                        Attr::Type(t) => Attr::Type(t.bind(&value)),
                        other => other.clone(),
                    };
                    (def.name, attr)
                })
                .collect();
            bound.apply_at(node.op, &node.operands, &attrs, node.origin.clone())?;
        }
        (bound.outputs, bound.updates) = (self.outputs.clone(), self.updates.clone());
        let error = |origin: &Origin, problem: String, help: &str| {
            let (op, operands) = ("bind".into(), String::new());
            GraphError { op, operands, origin: origin.clone(), problem, help: help.into() }
        };
        let open = bound.symbols();
        if !open.is_empty() {
            return Err(error(
                &Origin::default(),
                format!("cannot bind the graph because these dimensions have no number: {}", open.join(", ")),
                "bind each of them",
            ));
        }
        if let Some(pair) = bound.extents().windows(2).find(|pair| pair[0].name == pair[1].name) {
            let range =
                |symbol: &Symbol| symbol.bounds.map_or(String::new(), |(least, most)| format!("{least} to {most}"));
            let problem = format!("the extent {} has the ranges {} and {}", pair[0], range(&pair[0]), range(&pair[1]));
            return Err(error(&Origin::default(), problem, "give an extent the same range everywhere"));
        }
        for node in &bound.nodes {
            let Type::Tensor(_, shape) = &node.ty else { continue };
            if let Some(dim) = shape.iter().find(|d| d.range().is_some_and(|(least, _)| least < 0)) {
                let problem = format!("`{}` of type {}: {dim} may be negative", node.op, node.ty);
                return Err(error(&node.origin, problem, "bind its symbols to greater numbers"));
            }
            if let Class::Leaf(Leaf::Param) = node.op.def().class
                && shape.varies()
            {
                let problem = format!("the shape of a parameter of type {} would vary from run to run", node.ty);
                return Err(error(&node.origin, problem, "bind its dimensions to numbers, or make it an input"));
            }
        }
        Ok(bound)
    }
}
