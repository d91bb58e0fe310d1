//! Graphs: nodes in topological order, named outputs, and the builder methods that check each step.

mod build;
mod control;
mod expand;
mod op_name;
mod subgraph;
mod surface;
mod verify;

pub use op_name::OpName;
pub use subgraph::SubGraph;
pub use surface::DotAxes;

use std::{collections::BTreeMap, fmt, sync::Arc};

use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use crate::{
    Attr, Attrs, Class, Dim, Op, Shape, Symbol, Tensor, Type, dim::MOST_TERMS, lang::sexp::is_unseen, ops::Leaf,
};

/// The most nodes of a graph: what searches and plans a program takes memory and time for each of them, and a loop's steps are
/// nodes each for itself.
const MOST_NODES: usize = 1 << 18;

/// The most bytes of a value: no machine holds more.
const MOST_BYTES: usize = 1 << 38;

/// A node of a [`Graph`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

/// The model part that made a value: `encoder.layer.3.attention`; empty for the top of the model.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Origin(Arc<str>);

impl Origin {
    /// The part at `path`, dots between its levels.
    pub fn new(path: impl Into<Arc<str>>) -> Origin {
        Origin(path.into())
    }

    /// The path.
    pub fn path(&self) -> &str {
        &self.0
    }
}

impl Default for Origin {
    fn default() -> Origin {
        Origin::new("")
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(if self.0.is_empty() { "(top)" } else { &self.0 })
    }
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One op applied to values.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The op.
    pub op: Op,
    /// Its attributes, complete and normalised.
    pub attrs: Attrs,
    /// Its operands; all come before the node.
    pub operands: SmallVec<[NodeId; 3]>,
    /// The type of its result.
    pub ty: Type,
    /// The model part that made it.
    pub origin: Origin,
    /// The discontinuous op that observes its rounding, if one is known to ([`Graph::observed`]).
    pub observer: Option<Op>,
}

/// What is wrong with a node that was to be added: which op, of what, where, and what would be right.
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
    /// What does not fit.
    pub problem: String,
    /// What would be right.
    pub help: String,
}

/// The most operands that an error lists.
const MOST_LISTED: usize = 8;

/// Operands as an error lists them: the first ones, and how many more there are.
fn listed(operands: impl ExactSizeIterator<Item = impl fmt::Display>) -> String {
    let more = operands.len().saturating_sub(MOST_LISTED);
    let mut list: Vec<String> = operands.take(MOST_LISTED).map(|operand| operand.to_string()).collect();
    if more > 0 {
        list.push(format!("and {more} more"));
    }
    list.join(", ")
}

/// A tensor program: nodes in topological order, and which of them are its results.
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
    /// An empty graph.
    pub fn new(name: impl Into<String>) -> Graph {
        Graph { name: name.into(), ..Graph::default() }
    }

    /// The nodes, operands before users.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = (NodeId, &Node)> {
        self.nodes.iter().enumerate().map(|(i, n)| (NodeId(i as u32), n))
    }

    /// One node.
    ///
    /// # Panics
    /// If the id comes from another graph.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// The type of a value.
    pub fn ty(&self, id: NodeId) -> &Type {
        &self.node(id).ty
    }

    /// The results, with their names.
    pub fn outputs(&self) -> &[(String, NodeId)] {
        &self.outputs
    }

    /// What states become at the end of a run, by their names; other states stay.
    pub fn updates(&self) -> &[(String, NodeId)] {
        &self.updates
    }

    /// The values that a run computes, with their names: outputs, then what states become.
    pub fn results(&self) -> impl DoubleEndedIterator<Item = &(String, NodeId)> {
        self.outputs.iter().chain(&self.updates)
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether it has no node.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The leaves of an op (`input`, `param`, `state`) by name.
    pub fn named(&self, op: &str) -> impl Iterator<Item = (&str, NodeId)> {
        let op = Op::named(op);
        self.nodes().filter(move |(_, n)| Some(n.op) == op).filter_map(|(id, n)| Some((n.attrs.first()?.word()?, id)))
    }

    /// The symbols that are to be bound before compilation, sorted.
    pub fn symbols(&self) -> Vec<Arc<str>> {
        self.all_symbols().into_iter().filter(|s| s.bounds.is_none()).map(|s| s.name).collect()
    }

    /// The extents at run time, by name.
    pub fn extents(&self) -> Vec<Symbol> {
        self.all_symbols().into_iter().filter(|s| s.bounds.is_some()).collect()
    }

    /// Both of these.
    pub(crate) fn all_symbols(&self) -> Vec<Symbol> {
        let shapes = self.nodes.iter().filter_map(|n| n.ty.as_tensor()).map(|(_, shape)| shape);
        let mut symbols: Vec<_> = shapes.flat_map(|shape| shape.iter()).flat_map(Dim::symbols).collect();
        symbols.sort();
        symbols.dedup();
        symbols
    }

    /// Runs `build` with `part` added to the path that new nodes remember.
    pub fn within<T>(&mut self, part: &str, build: impl FnOnce(&mut Graph) -> T) -> T {
        // A path is printed wherever something is said of the part.
        self.scope.push(part.replace(is_unseen, "?"));
        let result = build(self);
        self.scope.pop();
        result
    }

    /// The path that new nodes remember.
    pub fn origin(&self) -> Origin {
        Origin::new(self.scope.join("."))
    }

    /// Adds an op, by its name where it is built in; attributes by name, those with a default may be left out.
    ///
    /// # Errors
    /// When operands or attributes do not fit the op's signature.
    pub fn apply<'n>(
        &mut self,
        op: impl Into<OpName<'n>>,
        operands: &[NodeId],
        attrs: &[(&str, Attr)],
    ) -> Result<NodeId, GraphError> {
        let origin = self.origin();
        self.push(op.into(), operands, attrs, origin)
    }

    /// As [`Graph::apply`], with the model part given.
    ///
    /// # Errors
    /// As [`Graph::apply`].
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

    /// Says which op observes the rounding of a value.
    pub fn set_observer(&mut self, id: NodeId, observer: Option<Op>) {
        self.nodes[id.0 as usize].observer = observer;
    }

    /// Replaces the attributes of a node by others that give it the same type.
    pub(crate) fn set_attrs(&mut self, id: NodeId, attrs: Attrs) {
        self.nodes[id.0 as usize].attrs = attrs;
    }

    /// Refuses nodes for which a graph has no room, before any of them is made.
    fn room(&self, op: &str, more: usize) -> Result<(), GraphError> {
        let nodes = self.len().saturating_add(more);
        if nodes <= MOST_NODES {
            return Ok(());
        }
        let help = "take fewer or smaller loops and branches: each step is nodes of its own";
        Err(self.refuse_at(op, format!("the graph would have {nodes} nodes, {MOST_NODES} is the most"), help))
    }

    /// Refuses values of other graphs.
    fn known(&self, op: &str, values: &[NodeId]) -> Result<(), GraphError> {
        let Some(NodeId(id)) = values.iter().find(|id| id.0 as usize >= self.len()) else { return Ok(()) };
        let problem = format!("value {id} is none of this graph, which has {} nodes", self.len());
        Err(self.refuse_at(op, problem, "take values from the builder of this very graph"))
    }

    /// Refuses values that no machine holds.
    ///
    /// # Errors
    /// The first of them, with its place in the model.
    pub fn fits(&self) -> Result<(), GraphError> {
        let large = self.nodes.iter().find(|node| node.ty.bytes() > MOST_BYTES);
        large.map_or(Ok(()), |node| {
            let problem = format!("a value of type {} in {} does not fit into memory", node.ty, node.origin);
            let operands = listed(node.operands.iter().map(|id| self.ty(*id)));
            let (op, origin, help) = (node.op.name().into(), node.origin.clone(), "bind smaller dimensions".into());
            Err(GraphError { op, operands, origin, problem, help })
        })
    }

    /// Whether a run of it gives anything.
    ///
    /// # Errors
    /// When it has no output and updates no state.
    pub fn computes(&self) -> Result<(), GraphError> {
        self.results().next().map(drop).ok_or_else(|| GraphError {
            op: self.name.clone(),
            operands: String::new(),
            origin: Origin::default(),
            problem: "it computes nothing: it has no output, and updates no state".into(),
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
            let help =
                "`eutectic ops` lists them; an op that a rule file declares is applied by its `Op`, not by its name";
            return Err(error("there is no such op".into(), help.into()));
        };
        let shapes = attrs.iter().filter_map(|(_, attr)| match attr {
            Attr::Shape(shape) => Some(shape),
            Attr::Type(ty) => ty.as_tensor().map(|(_, shape)| shape),
            _ => None,
        });
        for shape in shapes {
            few_terms(shape).map_err(|problem| error(problem, "bind its dimensions".into()))?;
        }
        let attrs = known.attributes(attrs, &types).map_err(|(problem, help)| error(problem, help))?;
        let ty = known.infer(&attrs, &types).map_err(|m| {
            let signature = known.signature();
            error(m.describe(&signature.scope), format!("its signature is {}", known.def().signature))
        })?;
        if let Type::Tensor(_, shape) = &ty {
            few_terms(shape).map_err(|problem| error(problem, "bind its dimensions".into()))?;
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

    /// A tensor that is given at each run.
    ///
    /// # Errors
    /// When the name is taken.
    pub fn input(&mut self, name: &str, ty: Type) -> Result<NodeId, GraphError> {
        self.apply("input", &[], &[("name", name.into()), ("type", Attr::Type(ty))])
    }

    /// A tensor that is given when the program is loaded.
    ///
    /// # Errors
    /// When the name is taken.
    pub fn param(&mut self, name: &str, ty: Type) -> Result<NodeId, GraphError> {
        self.apply("param", &[], &[("name", name.into()), ("type", Attr::Type(ty))])
    }

    /// A tensor that is kept from run to run: all zeros at first, then what [`Graph::update`] says.
    ///
    /// # Errors
    /// When the name is taken.
    pub fn state(&mut self, name: &str, ty: Type) -> Result<NodeId, GraphError> {
        self.apply("state", &[], &[("name", name.into()), ("type", Attr::Type(ty))])
    }

    /// A constant.
    ///
    /// # Errors
    /// Never, as things are; the builder's methods all return a result.
    pub fn constant(&mut self, value: Tensor) -> Result<NodeId, GraphError> {
        self.apply("const", &[], &[("value", Attr::Tensor(value))])
    }

    /// A constant of rank 0 with the element type of `like`.
    ///
    /// # Errors
    /// When `like` is a tuple.
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

    /// Makes a value a result of the program.
    ///
    /// # Errors
    /// When the name is taken, or the value is a tuple.
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
            return Err(error("a tuple is no output", "take one result out of it with `get`"));
        }
        self.outputs.push((name.to_string(), value));
        Ok(())
    }

    /// Makes a value what a state becomes at the end of each run. Whatever reads the state reads what it was before the run.
    ///
    /// # Errors
    /// When there is no state of that name, it has another type, or it is updated already.
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
            let known =
                if names.is_empty() { "the graph has none".into() } else { format!("there is {}", names.join(", ")) };
            return Err(error(format!("there is no state of that name; {known}"), "make it with `state`"));
        };
        if self.ty(leaf) != self.ty(value) {
            return Err(error(
                format!("the state is {}", self.ty(leaf)),
                "the types must be equal; `cast` or `expand` first",
            ));
        }
        if self.updates.iter().any(|(taken, _)| taken == state) {
            return Err(error("it is updated already".into(), "a state becomes one value at the end of a run"));
        }
        self.updates.push((state.to_string(), value));
        Ok(())
    }

    /// The same program with symbols bound to numbers; types are inferred anew.
    ///
    /// # Errors
    /// When a shape does not work out for these numbers (a reshape that does not divide), or a symbol stays unbound.
    pub fn bind(&self, values: &BTreeMap<String, i64>) -> Result<Graph, GraphError> {
        self.bind_dims(&values.iter().map(|(name, n)| (name.clone(), Dim::Known(*n))).collect())
    }

    /// The same program with symbols bound to numbers or to extents at run time ([`Dim::between`]); types are inferred anew.
    ///
    /// # Errors
    /// When a shape does not work out for these numbers and for every length of the extents, or a symbol stays unbound.
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
                format!("unbound dimensions: {}", open.join(", ")),
                "give each a number",
            ));
        }
        if let Some(pair) = bound.extents().windows(2).find(|pair| pair[0].name == pair[1].name) {
            let range =
                |symbol: &Symbol| symbol.bounds.map_or(String::new(), |(least, most)| format!("{least} to {most}"));
            let problem = format!("{} is {} and {}", pair[0], range(&pair[0]), range(&pair[1]));
            return Err(error(&Origin::default(), problem, "an extent at run time has one range"));
        }
        for node in &bound.nodes {
            let Type::Tensor(_, shape) = &node.ty else { continue };
            if let Some(dim) = shape.iter().find(|d| d.range().is_some_and(|(least, _)| least < 0)) {
                let problem = format!("`{}` of type {}: {dim} may be negative", node.op, node.ty);
                return Err(error(&node.origin, problem, "bind the dimensions in it to more"));
            }
            if let Class::Leaf(Leaf::Param) = node.op.def().class
                && shape.varies()
            {
                let problem = format!("a parameter of type {} has another shape in each run", node.ty);
                return Err(error(&node.origin, problem, "bind its dimensions to numbers, or make it an input"));
            }
        }
        Ok(bound)
    }

    /// Drops what no output and no state needs; inputs and states stay, because whoever runs the program knows them. Returns the
    /// new number of each old node.
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
        let renumber = |id: &mut NodeId| *id = new[id.0 as usize].expect("what is needed is kept");
        let gone = self.nodes.iter().zip(&needed).filter(|(_, needed)| !**needed);
        for name in gone.filter_map(|(n, _)| name_of(n.op, &n.attrs)) {
            self.names.remove(&name);
        }
        let mut keep = needed.iter();
        self.nodes.retain(|_| *keep.next().expect("one mark a node"));
        self.nodes.iter_mut().flat_map(|n| &mut n.operands).for_each(renumber);
        self.outputs.iter_mut().chain(&mut self.updates).for_each(|(_, id)| renumber(id));
        new
    }

    /// The extents of a value, once all symbols are bound.
    pub fn shape(&self, id: NodeId) -> Option<&Shape> {
        self.ty(id).as_tensor().map(|(_, s)| s)
    }
}

/// Refuses shapes whose number of elements cannot be said in few words: ops compare these.
fn few_terms(shape: &Shape) -> Result<(), String> {
    match shape.count_terms() {
        0..=MOST_TERMS => Ok(()),
        terms => Err(format!("the number of elements of {shape} has {terms} terms, {MOST_TERMS} is the most")),
    }
}

/// The name of an input, a parameter or a state.
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
    fn states_are_updated_once_by_a_value_of_their_type() {
        let mut graph = Graph::new("g");
        let ty = Type::tensor(DType::F32, &[2]);
        let sum = graph.state("sum", ty.clone()).unwrap();
        let x = graph.input("x", ty).unwrap();
        let wrong = graph.slice(x, 0, 0, 1).unwrap();
        let error = |graph: &mut Graph, name, value| graph.update(name, value).unwrap_err().to_string();
        assert!(error(&mut graph, "total", x).contains("no state of that name; there is sum"));
        assert!(error(&mut graph, "sum", wrong).contains("the state is f32[2]"));
        let next = graph.add(sum, x).unwrap();
        graph.update("sum", next).unwrap();
        assert!(error(&mut graph, "sum", x).contains("updated already"));
        assert!(graph.verify().is_ok());
        // What a state becomes is needed, although no output is.
        let new = graph.prune();
        assert_eq!((graph.len(), new[wrong.0 as usize], graph.updates()), (3, None, &[("sum".into(), NodeId(2))][..]));
    }

    #[test]
    fn values_of_other_graphs_and_values_that_nothing_holds_are_refused() {
        let mut graph = Graph::new("g");
        let x = graph.state("x", Type::tensor(DType::F32, &[2])).unwrap();
        let foreign = NodeId(7);
        let none = |result: Result<(), GraphError>| result.unwrap_err().to_string().contains("none of this graph");
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
        // A name is free again once its node is gone.
        let ty = Type::tensor(DType::F32, &[2]);
        assert!(graph.param("dead", ty.clone()).is_ok() && graph.param("x", ty).is_err());
    }
}
