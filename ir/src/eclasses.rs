//! A saturated e-graph as plain data, the input of the plan search.
//!
//! Classes are numbered by structure. This order does not depend on the e-graph's own ids, so that every decision by
//! order repeats on every run.

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
    /// The ways to compute it, in structural order. Forms that no backend takes (not legal) are left out.
    pub nodes: Vec<ENode>,
    /// Whether it depends on parameters and constants only.
    pub constant: bool,
    /// The common value of all elements, if it is known.
    pub scalar: Option<f64>,
    /// The discontinuous op that observes its rounding, where one does: kernels round it to its type even where they do
    /// not store it.
    pub observer: Option<Op>,
    /// The model parts that it stems from: the first is the one that made it.
    pub origins: Vec<Origin>,
}

/// The choice of an e-node of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeChoice {
    /// The class.
    pub class: ClassId,
    /// The number of the e-node in the class.
    pub node: usize,
}

/// Choices that one rule application made possible and that only pay together.
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
    /// The node.
    pub node: usize,
    /// The factor: positive and finite.
    pub factor: f64,
}

/// A saturated e-graph.
#[derive(Clone, Debug, Default)]
pub struct EClasses {
    /// The classes.
    pub classes: Vec<EClass>,
    /// The program's results, in order: outputs, then what states become. A class may occur twice.
    pub outputs: Vec<ClassId>,
    /// The choices that one rule application made together.
    pub bundles: Vec<Bundle>,
    /// The factors that rules give for kernels with their results.
    pub hints: Vec<PriceHint>,
    /// The number of the program's nodes that a result depends on.
    pub program: usize,
    /// Whether kernels round every 16-bit value to its type, even if they do not store it; otherwise only observed
    /// values are rounded.
    pub rounds_all: bool,
}

impl EClasses {
    /// Returns the e-graph of a graph without rewriting: one class per node. A class is empty if the node's form is not
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
        EClasses { program: classes.len(), classes, outputs, bundles: Vec::new(), hints: Vec::new(), rounds_all: false }
    }
}
