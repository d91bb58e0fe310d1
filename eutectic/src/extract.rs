//! One program out of a saturated e-graph, as a graph: what people look at between phases.

use eutectic_ir::{
    Attr, Class, Graph, GraphError, NodeId, Origin, Tensor,
    eclasses::{ClassId, EClass, EClasses},
};
use rustc_hash::FxHashMap;

/// The program that a choice of e-nodes computes.
///
/// # Errors
/// When the e-graph holds what does not fit its ops: a defect.
pub(crate) fn program(name: &str, classes: &EClasses, choice: &[usize]) -> Result<Graph, GraphError> {
    let mut extraction = Extraction { classes, choice, graph: Graph::new(name), made: FxHashMap::default() };
    for (at, &class) in classes.outputs.iter().enumerate() {
        let value = extraction.value(class)?;
        extraction.graph.output(&format!("out{at}"), value)?;
    }
    Ok(extraction.graph)
}

/// For each class, the e-node that makes its program smallest, counted in ops as a tree.
pub(crate) fn fewest_ops(classes: &EClasses) -> Vec<usize> {
    let mut best: Vec<(f64, usize)> = vec![(f64::INFINITY, 0); classes.classes.len()];
    loop {
        let mut changed = false;
        for (class, c) in classes.classes.iter().enumerate() {
            for (at, node) in c.nodes.iter().enumerate() {
                let size = node.operands.iter().fold(1.0, |sum, &o| sum + operand_size(classes, &best, o));
                if size < best[class].0 {
                    best[class] = (size, at);
                    changed = true;
                }
            }
        }
        if !changed {
            return best.into_iter().map(|b| b.1).collect();
        }
    }
}

/// A class of which the value is known needs no op.
fn operand_size(classes: &EClasses, best: &[(f64, usize)], class: ClassId) -> f64 {
    if classes.classes[class].scalar.is_some() { 1.0 } else { best[class].0 }
}

struct Extraction<'a> {
    classes: &'a EClasses,
    choice: &'a [usize],
    graph: Graph,
    made: FxHashMap<ClassId, NodeId>,
}

impl Extraction<'_> {
    fn value(&mut self, class: ClassId) -> Result<NodeId, GraphError> {
        if let Some(&made) = self.made.get(&class) {
            return Ok(made);
        }
        let c = &self.classes.classes[class];
        let value = match c.scalar {
            Some(scalar) => self.scalar(c, scalar)?,
            None => self.node(class)?,
        };
        self.made.insert(class, value);
        Ok(value)
    }

    fn node(&mut self, class: ClassId) -> Result<NodeId, GraphError> {
        let c = &self.classes.classes[class];
        // What is given needs no other way to it, and plans choose none: `x` may be known to be `cast(cast x)`.
        let given = c.nodes.iter().find(|node| matches!(node.op.def().class, Class::Leaf(_)));
        let node = given.unwrap_or(&c.nodes[self.choice[class]]);
        let operands: Vec<NodeId> = node.operands.iter().map(|&o| self.value(o)).collect::<Result<_, _>>()?;
        let attrs: Vec<(&str, Attr)> =
            node.op.def().attrs.iter().zip(&node.attrs).map(|(def, value)| (def.name, value.clone())).collect();
        self.graph.apply_at(node.op.name(), &operands, &attrs, origin(c))
    }

    /// The same number everywhere.
    fn scalar(&mut self, c: &EClass, value: f64) -> Result<NodeId, GraphError> {
        let (dtype, shape) = c.ty.as_tensor().expect("a number is no tuple");
        let one = [("value", Attr::Tensor(Tensor::from_f64(dtype, &[], [value])))];
        let one = self.graph.apply_at("const", &[], &one, origin(c))?;
        if shape.rank() == 0 {
            return Ok(one);
        }
        self.graph.apply_at("expand", &[one], &[("shape", shape.clone().into())], origin(c))
    }
}

fn origin(class: &EClass) -> Origin {
    class.origins.first().cloned().unwrap_or_default()
}
