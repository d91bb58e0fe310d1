//! Leaves and results of graphs: inputs, parameters, states and constants, outputs and updates of states.

use super::{Graph, GraphError, NodeId};
use crate::{Attr, Tensor, Type, lang::sexp::is_unseen};

impl Graph {
    /// Adds an input, a tensor that is given at each run.
    ///
    /// # Errors
    /// If the name is taken.
    pub fn input(&mut self, name: &str, ty: Type) -> Result<NodeId, GraphError> {
        self.apply("input", &[], &[("name", name.into()), ("type", Attr::Type(ty))])
    }

    /// Adds a parameter, a tensor that is given when the program is loaded.
    ///
    /// # Errors
    /// If the name is taken.
    pub fn param(&mut self, name: &str, ty: Type) -> Result<NodeId, GraphError> {
        self.apply("param", &[], &[("name", name.into()), ("type", Attr::Type(ty))])
    }

    /// Adds a state, a tensor that is kept from run to run. It starts with zeros, and [`Graph::update`] sets its
    /// later values.
    ///
    /// # Errors
    /// If the name is taken.
    pub fn state(&mut self, name: &str, ty: Type) -> Result<NodeId, GraphError> {
        self.apply("state", &[], &[("name", name.into()), ("type", Attr::Type(ty))])
    }

    /// Adds a constant.
    ///
    /// # Errors
    /// Never. The result only makes the method like the other builder methods.
    pub fn constant(&mut self, value: Tensor) -> Result<NodeId, GraphError> {
        self.apply("const", &[], &[("value", Attr::Tensor(value))])
    }

    /// Adds a constant of rank 0 with the element type of `like`.
    ///
    /// # Errors
    /// If `like` is a tuple.
    pub fn scalar(&mut self, value: f64, like: NodeId) -> Result<NodeId, GraphError> {
        self.known("const", &[like])?;
        let dtype = self.ty(like).dtype().ok_or_else(|| GraphError {
            op: "const".into(),
            operands: self.ty(like).to_string(),
            origin: self.origin(),
            problem: "a tuple has no element type".into(),
            help: "take one result out of it with `get`".into(),
        })?;
        self.constant(Tensor::from_f64(dtype, &[], [value]))
    }

    /// Makes a value an output of the program.
    ///
    /// # Errors
    /// If the name is taken, or the value is a tuple.
    pub fn output(&mut self, name: &str, value: NodeId) -> Result<(), GraphError> {
        self.known("output", &[value])?;
        let error = |problem: &str, help: &str| GraphError {
            op: "output".into(),
            operands: format!("{name} : {}", self.ty(value)),
            origin: self.origin(),
            problem: problem.into(),
            help: help.into(),
        };
        if name.contains(is_unseen) {
            return Err(error("its name has a control character", "give it a name that can be printed"));
        }
        if self.outputs.iter().any(|(taken, _)| taken == name) {
            return Err(error("there is an output of that name already", "give it another name"));
        }
        if self.ty(value).as_tensor().is_none() {
            return Err(error("an output cannot be a tuple", "take one result out of it with `get`"));
        }
        self.outputs.push((name.to_string(), value));
        Ok(())
    }

    /// Sets the value that a state takes at the end of each run. All readers of the state read its value before the
    /// run.
    ///
    /// # Errors
    /// If there is no state of that name, it has another type, or it already has an update.
    pub fn update(&mut self, state: &str, value: NodeId) -> Result<(), GraphError> {
        self.known("update", &[value])?;
        let error = |problem: String, help: &str| GraphError {
            op: "update".into(),
            operands: format!("{state} : {}", self.ty(value)),
            origin: self.origin(),
            problem,
            help: help.into(),
        };
        let Some((_, leaf)) = self.named("state").find(|(name, _)| *name == state) else {
            let names: Vec<_> = self.named("state").map(|(name, _)| name).collect();
            let known = if names.is_empty() {
                "the graph has none".into()
            } else {
                format!("its states are {}", names.join(", "))
            };
            return Err(error(format!("there is no state of that name; {known}"), "make it with `state`"));
        };
        if self.ty(leaf) != self.ty(value) {
            return Err(error(
                format!("the state has type {}", self.ty(leaf)),
                "the types must be equal; `cast` or `expand` first",
            ));
        }
        if self.updates.iter().any(|(taken, _)| taken == state) {
            return Err(error("it is updated already".into(), "update each state once"));
        }
        self.updates.push((state.to_string(), value));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    #[test]
    fn states_are_updated_once_by_a_value_of_their_type() {
        let mut graph = Graph::new("g");
        let ty = Type::tensor(DType::F32, &[2]);
        let sum = graph.state("sum", ty.clone()).unwrap();
        let x = graph.input("x", ty).unwrap();
        let wrong = graph.slice(x, 0, 0, 1).unwrap();
        let error = |graph: &mut Graph, name, value| graph.update(name, value).unwrap_err().to_string();
        assert!(error(&mut graph, "total", x).contains("no state of that name; its states are sum"));
        assert!(error(&mut graph, "sum", wrong).contains("the state has type f32[2]"));
        let next = graph.add(sum, x).unwrap();
        graph.update("sum", next).unwrap();
        assert!(error(&mut graph, "sum", x).contains("updated already"));
        assert!(graph.verify().is_ok());
        // The new value of a state counts as a result, even if the graph has no outputs.
        let new = graph.prune();
        assert_eq!((graph.len(), new[wrong.0 as usize], graph.updates()), (3, None, &[("sum".into(), NodeId(2))][..]));
    }
}
