//! Graphs: nodes in topological order and named outputs. The builder methods check each node that they add.

mod bind;
mod build;
mod control;
mod expand;
mod leaves;
mod op_name;
mod origin;
mod subgraph;
mod surface;
mod verify;

pub use op_name::OpName;
pub use origin::Origin;
pub use subgraph::SubGraph;
pub use surface::DotAxes;

use std::{fmt, sync::Arc};

use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use crate::{Attr, Attrs, Class, Dim, Op, Shape, Symbol, Type, dim::MOST_TERMS, lang::sexp::is_unseen, ops::Leaf};

/// The maximal number of nodes of a graph. Rewriting and planning take memory and time for each node. Each step of a
/// loop that is inlined adds its own nodes.
const MOST_NODES: usize = 1 << 18;

/// The maximal bytes of a value (256 GiB), more than a machine's memory holds.
const MOST_BYTES: usize = 1 << 38;

/// A node of a [`Graph`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

/// One op applied to values.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The op.
    pub op: Op,
    /// The op's attributes, complete and normalised.
    pub attrs: Attrs,
    /// The op's operands; all of them come before the node.
    pub operands: SmallVec<[NodeId; 3]>,
    /// The type of the node's result.
    pub ty: Type,
    /// The model part that made the node.
    pub origin: Origin,
    /// The discontinuous op, if one is known, whose result depends on how this value is rounded
    /// ([`Graph::observed`]).
    pub observer: Option<Op>,
}

/// The reason why a node cannot be added: the op, its operands, the model part, and a correction.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{op}({operands}){place}: {problem}{hint}", place = if .origin.path().is_empty() { String::new() } else { format!(" in {}", .origin) },
        hint = if .help.is_empty() { String::new() } else { format!("; {}", .help) })]
pub struct GraphError {
    /// The op's name.
    pub op: String,
    /// The operands' types.
    pub operands: String,
    /// The model part.
    pub origin: Origin,
    /// The problem.
    pub problem: String,
    /// The correction.
    pub help: String,
}

/// The maximal number of operands that an error lists.
const MOST_LISTED: usize = 8;

/// Returns operands as an error lists them: the first ones, and the number of further ones.
fn listed(operands: impl ExactSizeIterator<Item = impl fmt::Display>) -> String {
    let more = operands.len().saturating_sub(MOST_LISTED);
    let mut list: Vec<String> = operands.take(MOST_LISTED).map(|operand| operand.to_string()).collect();
    if more > 0 {
        list.push(format!("and {more} more"));
    }
    list.join(", ")
}

/// A tensor program: its nodes in topological order, its outputs, and the updates of its states.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    /// Its name.
    pub name: String,
    nodes: Vec<Node>,
    outputs: Vec<(String, NodeId)>,
    updates: Vec<(String, NodeId)>,
    scope: Vec<String>,
    /// The names of inputs, parameters and states.
    names: FxHashSet<Arc<str>>,
}

impl Graph {
    /// Returns an empty graph.
    pub fn new(name: impl Into<String>) -> Graph {
        Graph { name: name.into(), ..Graph::default() }
    }

    /// Returns the nodes, operands before users.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = (NodeId, &Node)> {
        self.nodes.iter().enumerate().map(|(i, n)| (NodeId(i as u32), n))
    }

    /// Returns one node.
    ///
    /// # Panics
    /// If the id comes from another graph.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// Returns the type of a value.
    pub fn ty(&self, id: NodeId) -> &Type {
        &self.node(id).ty
    }

    /// Returns the named outputs of the program.
    pub fn outputs(&self) -> &[(String, NodeId)] {
        &self.outputs
    }

    /// Returns the new values of states at the end of a run, by the states' names. A state without a new value keeps
    /// its contents.
    pub fn updates(&self) -> &[(String, NodeId)] {
        &self.updates
    }

    /// Returns the named values that a run computes: the outputs, then the new values of states.
    pub fn results(&self) -> impl DoubleEndedIterator<Item = &(String, NodeId)> {
        self.outputs.iter().chain(&self.updates)
    }

    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns whether the graph has no nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the leaves of an op (`input`, `param`, `state`) by name.
    pub fn named(&self, op: &str) -> impl Iterator<Item = (&str, NodeId)> {
        let op = Op::named(op);
        self.nodes().filter(move |(_, n)| Some(n.op) == op).filter_map(|(id, n)| Some((n.attrs.first()?.word()?, id)))
    }

    /// Returns the symbols that must be bound before compilation, sorted.
    pub fn symbols(&self) -> Vec<Arc<str>> {
        self.all_symbols().into_iter().filter(|s| s.bounds.is_none()).map(|s| s.name).collect()
    }

    /// Returns the extents at run time, sorted by name.
    pub fn extents(&self) -> Vec<Symbol> {
        self.all_symbols().into_iter().filter(|s| s.bounds.is_some()).collect()
    }

    /// Returns all symbols, those to bind before compilation and the extents at run time.
    pub(crate) fn all_symbols(&self) -> Vec<Symbol> {
        let shapes = self.nodes.iter().filter_map(|n| n.ty.as_tensor()).map(|(_, shape)| shape);
        let mut symbols: Vec<_> = shapes.flat_map(|shape| shape.iter()).flat_map(Dim::symbols).collect();
        symbols.sort();
        symbols.dedup();
        symbols
    }

    /// Runs `build` with `part` added to the path that new nodes remember.
    pub fn within<T>(&mut self, part: &str, build: impl FnOnce(&mut Graph) -> T) -> T {
        // Messages print the path, so characters that a terminal would not show are replaced.
        self.scope.push(part.replace(is_unseen, "?"));
        let result = build(self);
        self.scope.pop();
        result
    }

    /// Returns the path of the model part in which new nodes are made.
    pub fn origin(&self) -> Origin {
        Origin::new(self.scope.join("."))
    }

    /// Adds an op, given by its name if it is built in. Attributes are given by name, and those with a default may be
    /// left out.
    ///
    /// # Errors
    /// If operands or attributes do not fit the op's signature.
    pub fn apply<'n>(
        &mut self,
        op: impl Into<OpName<'n>>,
        operands: &[NodeId],
        attrs: &[(&str, Attr)],
    ) -> Result<NodeId, GraphError> {
        let origin = self.origin();
        self.push(op.into(), operands, attrs, origin)
    }

    /// Adds an op like [`Graph::apply`], for a given model part.
    ///
    /// # Errors
    /// If operands or attributes do not fit the op's signature.
    pub fn apply_at<'n>(
        &mut self,
        op: impl Into<OpName<'n>>,
        operands: &[NodeId],
        attrs: &[(&str, Attr)],
        origin: Origin,
    ) -> Result<NodeId, GraphError> {
        self.push(op.into(), operands, attrs, origin)
    }

    fn push(
        &mut self,
        op: OpName<'_>,
        operands: &[NodeId],
        attrs: &[(&str, Attr)],
        origin: Origin,
    ) -> Result<NodeId, GraphError> {
        self.room(op.text(), 1)?;
        self.known(op.text(), operands)?;
        let (op, attrs, ty) = self.check(op, operands, attrs, &origin)?;
        self.names.extend(name_of(op, &attrs));
        self.nodes.push(Node { op, attrs, operands: operands.into(), ty, origin, observer: None });
        Ok(NodeId(self.nodes.len() as u32 - 1))
    }

    /// Sets the op whose result depends on how a value is rounded.
    pub fn set_observer(&mut self, id: NodeId, observer: Option<Op>) {
        self.nodes[id.0 as usize].observer = observer;
    }

    /// Replaces the attributes of a node by others that give it the same type.
    pub(crate) fn set_attrs(&mut self, id: NodeId, attrs: Attrs) {
        self.nodes[id.0 as usize].attrs = attrs;
    }

    /// Returns an error if `more` further nodes would exceed the limit of a graph. Callers ask before they make
    /// nodes.
    fn room(&self, op: &str, more: usize) -> Result<(), GraphError> {
        let nodes = self.len().saturating_add(more);
        if nodes <= MOST_NODES {
            return Ok(());
        }
        let help = "use fewer or smaller loops and branches, because each step of a loop has its own nodes";
        Err(self.refuse_at(
            op,
            format!("the graph would have {nodes} nodes, but at most {MOST_NODES} are allowed"),
            help,
        ))
    }

    /// Returns an error if a value is not in this graph.
    fn known(&self, op: &str, values: &[NodeId]) -> Result<(), GraphError> {
        let Some(NodeId(id)) = values.iter().find(|id| id.0 as usize >= self.len()) else { return Ok(()) };
        let problem = format!("value {id} is not in this graph, which has {} nodes", self.len());
        Err(self.refuse_at(op, problem, "use values that the builder of this graph returned"))
    }

    /// Checks that every value fits into the memory of some machine.
    ///
    /// # Errors
    /// If a value is too large. The error names the first one and its model part.
    pub fn fits(&self) -> Result<(), GraphError> {
        let large = self.nodes.iter().find(|node| node.ty.bytes() > MOST_BYTES);
        large.map_or(Ok(()), |node| {
            let problem = format!("a value of type {} in {} does not fit into memory", node.ty, node.origin);
            let operands = listed(node.operands.iter().map(|id| self.ty(*id)));
            let (op, origin, help) = (node.op.name().into(), node.origin.clone(), "bind smaller dimensions".into());
            Err(GraphError { op, operands, origin, problem, help })
        })
    }

    /// Checks that a run of the graph computes something.
    ///
    /// # Errors
    /// If the graph has no output and updates no state.
    pub fn computes(&self) -> Result<(), GraphError> {
        self.results().next().map(drop).ok_or_else(|| GraphError {
            op: self.name.clone(),
            operands: String::new(),
            origin: Origin::default(),
            problem: "the graph computes nothing because it has no output and updates no state".into(),
            help: "name a value as its output".into(),
        })
    }

    fn check(
        &self,
        op: OpName<'_>,
        operands: &[NodeId],
        attrs: &[(&str, Attr)],
        origin: &Origin,
    ) -> Result<(Op, Attrs, Type), GraphError> {
        let types: SmallVec<[&Type; 4]> = operands.iter().map(|id| self.ty(*id)).collect();
        let error = |problem: String, help: String| GraphError {
            op: op.text().to_string(),
            operands: listed(types.iter()),
            origin: origin.clone(),
            problem,
            help,
        };
        let Some(known) = op.op() else {
            let help = "`eutectic ops` lists the built-in ops; apply an op of a rule file by its `Op`, not by its name";
            return Err(error("there is no such op".into(), help.into()));
        };
        let shapes = attrs.iter().filter_map(|(_, attr)| match attr {
            Attr::Shape(shape) => Some(shape),
            Attr::Type(ty) => ty.as_tensor().map(|(_, shape)| shape),
            _ => None,
        });
        for shape in shapes {
            few_terms(shape).map_err(|problem| error(problem, "bind its dimensions to numbers".into()))?;
        }
        let attrs = known.attributes(attrs, &types).map_err(|(problem, help)| error(problem, help))?;
        let ty = known.infer(&attrs, &types).map_err(|m| {
            let signature = known.signature();
            error(m.describe(&signature.scope), format!("its signature is {}", known.def().signature))
        })?;
        if let Type::Tensor(_, shape) = &ty {
            few_terms(shape).map_err(|problem| error(problem, "bind its dimensions to numbers".into()))?;
        }
        if name_of(known, &attrs).is_some_and(|name| name.contains(is_unseen)) {
            return Err(error("its name has a control character".into(), "give it a name that can be printed".into()));
        }
        if let Some(name) = name_of(known, &attrs).filter(|name| self.names.contains(name)) {
            let problem = format!("there is an input, a parameter or a state named {name} already");
            return Err(error(problem, "give it another name, or use the node that you have".into()));
        }
        Ok((known, attrs, ty))
    }

    /// Drops the nodes on which no output and no state depends. Inputs and states stay, because callers know them.
    /// Returns the new number of each old node.
    pub fn prune(&mut self) -> Vec<Option<NodeId>> {
        let mut needed: Vec<bool> =
            self.nodes.iter().map(|n| matches!(n.op.def().class, Class::Leaf(Leaf::Input | Leaf::State))).collect();
        self.results().for_each(|(_, id)| needed[id.0 as usize] = true);
        for i in (0..self.nodes.len()).rev() {
            if needed[i] {
                self.nodes[i].operands.iter().for_each(|o| needed[o.0 as usize] = true);
            }
        }
        let mut kept = 0;
        let number = |&needed: &bool| {
            needed.then(|| {
                kept += 1;
                NodeId(kept - 1)
            })
        };
        let new: Vec<Option<NodeId>> = needed.iter().map(number).collect();
        let renumber = |id: &mut NodeId| *id = new[id.0 as usize].expect("the operands of a kept node are kept");
        let gone = self.nodes.iter().zip(&needed).filter(|(_, needed)| !**needed);
        for name in gone.filter_map(|(n, _)| name_of(n.op, &n.attrs)) {
            self.names.remove(&name);
        }
        let mut keep = needed.iter();
        self.nodes.retain(|_| *keep.next().expect("`needed` has an entry for each node"));
        self.nodes.iter_mut().flat_map(|n| &mut n.operands).for_each(renumber);
        self.outputs.iter_mut().chain(&mut self.updates).for_each(|(_, id)| renumber(id));
        new
    }

    /// Returns the shape of a value, or `None` for a tuple.
    pub fn shape(&self, id: NodeId) -> Option<&Shape> {
        self.ty(id).as_tensor().map(|(_, s)| s)
    }
}

/// Returns an error if a shape's number of elements has too many terms. Ops compare such numbers, which takes time
/// for each term.
fn few_terms(shape: &Shape) -> Result<(), String> {
    match shape.count_terms() {
        0..=MOST_TERMS => Ok(()),
        terms => {
            Err(format!("the number of elements of {shape} has {terms} terms, but at most {MOST_TERMS} are allowed"))
        }
    }
}

/// Returns the name of an input, a parameter or a state; `None` for other ops.
fn name_of(op: Op, attrs: &Attrs) -> Option<Arc<str>> {
    match (op.def().class, attrs.first()) {
        (Class::Leaf(_), Some(Attr::Word(name))) => Some(name.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    #[test]
    fn values_of_other_graphs_and_values_that_nothing_holds_are_refused() {
        let mut graph = Graph::new("g");
        let x = graph.state("x", Type::tensor(DType::F32, &[2])).unwrap();
        let foreign = NodeId(7);
        let none = |result: Result<(), GraphError>| result.unwrap_err().to_string().contains("not in this graph");
        assert!(none(graph.apply("add", &[x, foreign], &[]).map(drop)) && none(graph.output("y", foreign)));
        assert!(none(graph.update("x", foreign)) && none(graph.scalar(1.0, foreign).map(drop)));
        assert!(none(graph.reshape(foreign, Default::default()).map(drop)));
        assert!(none(graph.branch(foreign, &Graph::new("a"), &Graph::new("b"), &[]).map(drop)));
        assert!(none(graph.inline(&Graph::new("a"), &[foreign]).map(drop)));
        assert!(graph.fits().is_ok());
        let evil = Type::tensor(DType::F32, &[2]);
        assert!(graph.input("\u{1b}[2J", evil).is_err() && graph.output("\u{7}", x).is_err());
        graph.input("huge", Type::tensor(DType::F32, &[usize::MAX, usize::MAX])).unwrap();
        assert!(graph.fits().unwrap_err().to_string().contains("does not fit into memory"));
    }

    #[test]
    fn pruning_keeps_what_outputs_and_callers_need() {
        let mut graph = Graph::new("g");
        let ty = Type::tensor(DType::F32, &[2]);
        let unused = graph.input("unused", ty.clone()).unwrap();
        let dead = graph.param("dead", ty.clone()).unwrap();
        let sum = graph.add(unused, dead).unwrap();
        let x = graph.param("x", ty).unwrap();
        let y = graph.exp(x).unwrap();
        graph.output("y", y).unwrap();
        let new = graph.prune();
        assert_eq!([new[unused.0 as usize], new[dead.0 as usize], new[sum.0 as usize]], [Some(NodeId(0)), None, None]);
        assert_eq!((graph.len(), graph.outputs()[0].1), (3, NodeId(2)));
        assert!(graph.verify().is_ok());
        // A name may be used again after its node is pruned.
        let ty = Type::tensor(DType::F32, &[2]);
        assert!(graph.param("dead", ty.clone()).is_ok() && graph.param("x", ty).is_err());
    }
}
