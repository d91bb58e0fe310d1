//! Checks a finished graph independently of the builder's checks.

use std::collections::BTreeSet;

use super::{Graph, GraphError, Node, NodeId, listed};
use crate::{Attr, Class, ops::Leaf};

impl Graph {
    /// Checks every invariant of a graph. Operands come before users, attributes are complete and normalised, and
    /// types agree with the signatures. Names are unique and printable, and outputs are tensors.
    ///
    /// # Errors
    /// All problems, in the order of the nodes.
    pub fn verify(&self) -> Result<(), Vec<GraphError>> {
        let mut problems = Vec::new();
        let mut names = BTreeSet::new();
        for (id, node) in self.nodes() {
            problems.extend(self.verify_node(id, node));
            let bodies = node.attrs.iter().filter_map(Attr::graph);
            problems.extend(bodies.filter_map(|body| body.verify().err()).flatten());
            if let (Class::Leaf(Leaf::Input | Leaf::Param | Leaf::State), Some(Attr::Word(name))) =
                (node.op.def().class, node.attrs.first())
                && !names.insert(name.clone())
            {
                problems.push(problem(
                    node,
                    format!("the name {name} is taken"),
                    "give each input, parameter and state its own name",
                ));
            }
        }
        problems.extend(self.verify_outputs());
        for symbol in self.symbols() {
            let word = !symbol.is_empty() && symbol.parse::<i64>().is_err();
            if !word || symbol.contains(|c: char| c.is_whitespace() || "()[]{}\";".contains(c)) {
                problems.push(general(
                    format!("the dimension name {symbol:?} is not a word, so the text form cannot express it"),
                    "use a word, such as B",
                ));
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    fn verify_node(&self, id: NodeId, node: &Node) -> Option<GraphError> {
        if let Some(operand) = node.operands.iter().find(|o| **o >= id) {
            let what = format!("value {} is used before it is computed", operand.0);
            return Some(problem(node, what, "operands come before their users"));
        }
        let types: Vec<_> = node.operands.iter().map(|o| self.ty(*o)).collect();
        let given: Vec<_> = node.op.def().attrs.iter().map(|a| a.name).zip(node.attrs.iter().cloned()).collect();
        match node.op.attributes(&given, &types) {
            Err((what, help)) => return Some(problem(node, what, help)),
            Ok(attrs) if attrs != node.attrs => {
                return Some(problem(node, "attributes are not in normal form", "count axes from the end"));
            }
            Ok(_) => {}
        }
        match node.op.infer(&node.attrs, &types) {
            Err(m) => Some(problem(node, m.describe(&node.op.signature().scope), node.op.def().signature)),
            Ok(ty) if ty != node.ty => Some(problem(node, format!("the type is {ty}, not {}", node.ty), "")),
            Ok(_) => None,
        }
    }

    fn verify_outputs(&self) -> Vec<GraphError> {
        let mut problems = Vec::new();
        let mut names = BTreeSet::new();
        for (name, id) in &self.outputs {
            if !names.insert(name) {
                problems.push(general(format!("two outputs are named {name}"), "give each its own name"));
            }
            if self.nodes.get(id.0 as usize).is_none_or(|n| n.ty.as_tensor().is_none()) {
                problems.push(general(
                    format!("output {name} is not a tensor of this graph"),
                    "output a tensor that this graph computes",
                ));
            }
        }
        let mut updated = BTreeSet::new();
        for (name, id) in &self.updates {
            let state = self.named("state").find(|(state, _)| state == name).map(|(_, state)| self.ty(state));
            if state.is_none() || state != self.nodes.get(id.0 as usize).map(|n| &n.ty) || !updated.insert(name) {
                let help = "a state is updated once, by a value of its type";
                problems.push(general(
                    format!("cannot update {name} because it is no state, has another type or is updated twice"),
                    help,
                ));
            }
        }
        problems
    }
}

fn problem(node: &Node, problem: impl Into<String>, help: impl Into<String>) -> GraphError {
    GraphError {
        op: node.op.to_string(),
        operands: listed(node.operands.iter().map(|o| o.0)),
        origin: node.origin.clone(),
        problem: problem.into(),
        help: help.into(),
    }
}

fn general(problem: String, help: &str) -> GraphError {
    GraphError {
        op: "graph".into(),
        operands: String::new(),
        origin: super::Origin::default(),
        problem,
        help: help.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Type};

    #[test]
    fn every_problem_is_found() {
        let mut graph = Graph::new("broken");
        let x = graph.input("x", Type::tensor(DType::F32, &[2, 3])).unwrap();
        let y = graph.softmax(x, -1).unwrap();
        let z = graph.exp(y).unwrap();
        graph.output("z", z).unwrap();
        assert!(graph.verify().is_ok());
        graph.nodes[1].attrs[0] = Attr::Int(1);
        graph.nodes[2].operands[0] = NodeId(2);
        graph.nodes.push(graph.nodes[0].clone());
        graph.nodes[3].ty = Type::tensor(DType::F32, &[2]);
        graph.outputs.push(("z".into(), NodeId(9)));
        let problems = graph.verify().unwrap_err();
        assert_eq!(problems.len(), 6, "{problems:#?}");
    }
}
