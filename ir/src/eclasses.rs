//! A saturated e-graph as plain data, the input of the plan search.
//!
//! Classes are numbered by structure, independently of the e-graph's own ids. So every decision that depends on their
//! order is the same in every run.

use smallvec::SmallVec;

use crate::{Attrs, Graph, Op, Origin, Type, ops::Class};

/// The number of an e-class in [`EClasses::classes`].
pub type ClassId = usize;

/// An e-node: one way to compute its class.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ENode {
    /// The op.
    pub op: Op,
    /// The op's attributes.
    pub attrs: Attrs,
    /// The classes of the operands.
    pub operands: SmallVec<[ClassId; 4]>,
}

/// An e-class: a value, and every way to compute it that was found.
#[derive(Clone, Debug)]
pub struct EClass {
    /// Its type; all dims are known.
    pub ty: Type,
    /// The ways to compute it, in structural order. Forms that are not legal, which no backend computes, are left
    /// out.
    pub nodes: Vec<ENode>,
    /// Whether it depends on parameters and constants only.
    pub constant: bool,
    /// The common value of all elements, if it is known.
    pub scalar: Option<f64>,
    /// The discontinuous op, if any, whose result depends on how this value is rounded. Kernels then round the value
    /// to its type even if they do not store it.
    pub observer: Option<Op>,
    /// The model parts that the value stems from. The first is the part that made it.
    pub origins: Vec<Origin>,
}

/// The choice of an e-node of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeChoice {
    /// The class.
    pub class: ClassId,
    /// The index of the e-node in the class.
    pub node: usize,
}

/// Choices that one rule application made possible and that only pay off together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    /// The rule.
    pub rule: String,
    /// The e-node to choose for each class.
    pub choices: Vec<NodeChoice>,
}

/// A factor by which a rule corrects the predicted time of kernels that compute its result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PriceHint {
    /// The class.
    pub class: ClassId,
    /// The index of the e-node in the class.
    pub node: usize,
    /// The factor: positive and finite.
    pub factor: f64,
}

/// A saturated e-graph.
#[derive(Clone, Debug, Default)]
pub struct EClasses {
    /// The classes.
    pub classes: Vec<EClass>,
    /// The classes of the program's results: the outputs, then the next values of the states. A class may occur
    /// twice.
    pub outputs: Vec<ClassId>,
    /// The choices that one rule application made together.
    pub bundles: Vec<Bundle>,
    /// The corrections that rules give for the predicted times of their results.
    pub hints: Vec<PriceHint>,
    /// The number of the program's nodes on which a result depends.
    pub program: usize,
    /// Whether kernels round every 16-bit value to its type even if they do not store it. Otherwise they round only
    /// values with an observer.
    pub rounds_all: bool,
}

impl EClasses {
    /// Returns the e-graph of a graph without rewriting, with one class per node. A class is empty if the node's form
    /// is not legal.
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
        EClasses { program: classes.len(), classes, outputs, bundles: Vec::new(), hints: Vec::new(), rounds_all: false }
    }
}
