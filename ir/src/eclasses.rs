//! A saturated e-graph as plain data: what the rewriter hands to the plan search.
//!
//! Classes are numbered by structure (a stable order that does not depend on the e-graph's own ids), so that whatever
//! is decided by order is decided the same way on every run.

use smallvec::SmallVec;

use crate::{Attrs, Graph, Op, Origin, Type, ops::Class};

/// The number of an e-class in [`EClasses::classes`].
pub type ClassId = usize;

/// An e-node: one way to compute its class.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ENode {
    /// The op.
    pub op: Op,
    /// Its attributes.
    pub attrs: Attrs,
    /// Its operands.
    pub operands: SmallVec<[ClassId; 4]>,
}

/// An e-class: a value, and every way to compute it that was found.
#[derive(Clone, Debug)]
pub struct EClass {
    /// Its type; all dims are known.
    pub ty: Type,
    /// The ways to compute it, in structural order. Those whose form no backend takes (not legal) are left out.
    pub nodes: Vec<ENode>,
    /// Whether it depends on parameters and constants only.
    pub constant: bool,
    /// The value of all its elements, where they are known to be equal.
    pub scalar: Option<f64>,
    /// The discontinuous op that observes its rounding, where one does: kernels round it to its type even where they do not store it.
    pub observer: Option<Op>,
    /// The model parts that it stems from: the first is the one that made it.
    pub origins: Vec<Origin>,
}

/// Choices that one rule application made possible and that only pay together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    /// The rule.
    pub rule: String,
    /// The node to choose for each class.
    pub choices: Vec<(ClassId, usize)>,
}

/// A saturated e-graph.
#[derive(Clone, Debug, Default)]
pub struct EClasses {
    /// The classes.
    pub classes: Vec<EClass>,
    /// The program's results, in order: outputs, then what states become. A class may occur twice.
    pub outputs: Vec<ClassId>,
    /// What can be flipped together.
    pub bundles: Vec<Bundle>,
    /// How many nodes the program has that anything depends on.
    pub program: usize,
    /// Whether kernels round every 16-bit value to its type, even where they do not store it; else only those that are observed.
    pub rounds_all: bool,
}

impl EClasses {
    /// The e-graph of a graph as it stands, nothing rewritten: one class a node; a class is empty where the node's form is not
    /// legal.
    pub fn of(graph: &Graph) -> EClasses {
        let mut classes: Vec<EClass> = Vec::with_capacity(graph.len());
        for (_, node) in graph.nodes() {
            let operands: SmallVec<[ClassId; 4]> = node.operands.iter().map(|id| id.0 as usize).collect();
            let constant = match node.op.def().class {
                Class::Leaf(leaf) => leaf.is_constant(),
                _ => operands.iter().all(|&c| classes[c].constant),
            };
            let types: Vec<&Type> = operands.iter().map(|&c| &classes[c].ty).collect();
            let legal = node.op.is_legal(&node.attrs, &types);
            drop(types);
            let enode = ENode { op: node.op, attrs: node.attrs.clone(), operands };
            classes.push(EClass {
                ty: node.ty.clone(),
                nodes: legal.then_some(enode).into_iter().collect(),
                constant,
                scalar: None,
                observer: node.observer,
                origins: vec![node.origin.clone()],
            });
        }
        let outputs = graph.results().map(|(_, id)| id.0 as usize).collect();
        EClasses { program: classes.len(), classes, outputs, bundles: Vec::new(), rounds_all: false }
    }
}
