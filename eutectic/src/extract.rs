//! Extracts one program from saturated e-graphs as a graph, for inspection between phases and as the program of a plan.

use eutectic_ir::{
    Attr, Class, Graph, GraphError, NodeId, Op, Origin, Tensor,
    eclasses::{ClassId, EClass, EClasses},
    ops::Leaf,
    outline::Outlined,
};
use eutectic_lowering::PlannedBlock;
use rustc_hash::FxHashMap;

/// Returns the program that a choice of e-nodes computes.
///
/// # Errors
/// If a node of the e-graph does not fit its op, which is a defect.
pub(crate) fn program(name: &str, classes: &EClasses, choice: &[usize]) -> Result<Graph, GraphError> {
    let mut graph = Graph::new(name);
    let (given, made) = (FxHashMap::default(), FxHashMap::default());
    let mut extraction = Extraction { classes, choice, graph: &mut graph, given, made };
    for (at, &class) in classes.outputs.iter().enumerate() {
        let value = extraction.value(class)?;
        extraction.graph.output(&format!("out{at}"), value)?;
    }
    Ok(graph)
}

/// Returns the program that the plans of a graph's blocks compute together.
///
/// # Errors
/// See [`program`].
pub(crate) fn whole(graph: &Graph, outlined: &Outlined, blocks: &[PlannedBlock]) -> Result<Graph, GraphError> {
    let mut whole = Graph::new(&graph.name);
    let mut made: FxHashMap<NodeId, NodeId> = FxHashMap::default();
    for call in &outlined.calls {
        let mut given = FxHashMap::default();
        for (prefix, values) in [("in", &call.inputs), ("p", &call.params), ("s", &call.states)] {
            for (at, &id) in values.iter().enumerate() {
                given.insert(format!("{prefix}{at}"), value(graph, id, &mut whole, &mut made)?);
            }
        }
        let PlannedBlock { classes, searched } = &blocks[call.block];
        let choice = &searched.plan.choice;
        let mut extraction = Extraction { classes, choice, graph: &mut whole, given, made: FxHashMap::default() };
        for (&class, &id) in classes.outputs.iter().zip(&call.outputs) {
            made.insert(id, extraction.value(class)?);
        }
    }
    for (name, id) in graph.outputs() {
        let value = value(graph, *id, &mut whole, &mut made)?;
        whole.output(name, value)?;
    }
    for (name, id) in graph.updates() {
        let value = value(graph, *id, &mut whole, &mut made)?;
        whole.update(name, value)?;
    }
    Ok(whole)
}

/// Returns the value of the extracted program for a value of the graph. An earlier block computed it, or it is an
/// input, parameter or state.
fn value(
    graph: &Graph,
    id: NodeId,
    whole: &mut Graph,
    made: &mut FxHashMap<NodeId, NodeId>,
) -> Result<NodeId, GraphError> {
    if let Some(&made) = made.get(&id) {
        return Ok(made);
    }
    let node = graph.node(id);
    let value = whole.apply_at(node.op, &[], &named(node.op, &node.attrs), node.origin.clone())?;
    made.insert(id, value);
    Ok(value)
}

/// Returns attributes with their names.
fn named(op: Op, attrs: &[Attr]) -> Vec<(&'static str, Attr)> {
    op.def().attrs.iter().zip(attrs).map(|(def, value)| (def.name, value.clone())).collect()
}

/// Returns, for each class, the e-node of its smallest program. The size is the number of ops of the program as a tree.
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

/// Returns the size of an operand. A class with a known value counts as one leaf.
fn operand_size(classes: &EClasses, best: &[(f64, usize)], class: ClassId) -> f64 {
    if classes.classes[class].scalar.is_some() { 1.0 } else { best[class].0 }
}

struct Extraction<'a> {
    classes: &'a EClasses,
    choice: &'a [usize],
    graph: &'a mut Graph,
    /// The graph's values for inputs, parameters and states of the block, by name. Other leaves become leaves of the
    /// program.
    given: FxHashMap<String, NodeId>,
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
        // A class with a leaf uses that leaf, like the plan does. The class may also contain ops on itself: `x` may
        // equal `cast(cast x)`.
        let given = c.nodes.iter().find(|node| matches!(node.op.def().class, Class::Leaf(_)));
        let node = given.unwrap_or(&c.nodes[self.choice[class]]);
        if let (Class::Leaf(Leaf::Input | Leaf::Param | Leaf::State), Some(Attr::Word(name))) =
            (node.op.def().class, node.attrs.first())
            && let Some(&given) = self.given.get(&**name)
        {
            return Ok(given);
        }
        let operands: Vec<NodeId> = node.operands.iter().map(|&o| self.value(o)).collect::<Result<_, _>>()?;
        self.graph.apply_at(node.op, &operands, &named(node.op, &node.attrs), origin(c))
    }

    /// Adds a constant whose elements are all the same number.
    fn scalar(&mut self, c: &EClass, value: f64) -> Result<NodeId, GraphError> {
        let (dtype, shape) = c.ty.as_tensor().expect("a number is a tensor");
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
