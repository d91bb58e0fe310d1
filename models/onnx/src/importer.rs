//! The graph that is made of a model: names and scopes, parameters and constants, and what is known while the model is read.

mod lengths;
mod packed;
mod turns;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use eutectic_ir::{
    Attr, Class, DType, Dim, Graph, NodeId, OpName, Origin, Shape, Tensor, Type,
    interp::evaluate_rounded,
    ops::{Leaf, Ops, eval::Value},
};

pub(super) use self::turns::Carried;
use super::{
    error::{NodeError, Unsupported},
    model::{Model, TWICE, repeated_names},
    opsets::OpSets,
    proto::{GraphProto, NodeProto, TensorProto},
    stored::{Packed, StoredTensor},
};

/// Values of more elements are not evaluated while the model is read: what computes shapes is far smaller.
const LARGEST_KNOWN: usize = 4096;

/// Where a node asks for a value that is larger, it is evaluated if it and all that it is computed from have at most so many elements.
const LARGEST_EVALUATED: usize = 1 << 22;

/// No machine holds a value of more bytes. With this limit, arithmetic on extents does not overflow.
const LARGEST: usize = 1 << 40;

/// How deep functions and subgraphs may be nested.
const DEEPEST: usize = 32;

/// The values of one graph or function by name; `None` where an unsupported node would have made it.
#[derive(Default)]
pub(super) struct NamedValues {
    /// How many bodies of loops are around it: values are nodes of the innermost one's graph.
    pub level: usize,
    pub values: HashMap<String, Option<NodeId>>,
    /// Those that programs cannot hold, with the reason, which is told where one is read.
    pub withheld: HashMap<String, String>,
}

/// A value that does not depend on inputs or parameters.
pub(super) struct Known {
    /// Each op that it is computed by was rounded to its element type.
    value: Value<f64>,
    /// Whether all kernels give the same bits, so that it may stand in the program.
    settled: bool,
}

/// A graph around the body of a loop that is being read.
pub(super) struct Around {
    graph: Graph,
    known: HashMap<NodeId, Known>,
    lengths: HashMap<NodeId, Vec<Dim>>,
    /// What the body reads of the graph, and the body's inputs for that.
    captured: Vec<(NodeId, NodeId)>,
}

/// The body of a loop, which was read.
pub(super) struct LoopBody {
    pub graph: Graph,
    /// What it reads of the graph around it, in the order of its last inputs.
    pub captured: Vec<NodeId>,
}

/// How nodes are mapped: the table of ops is above this file.
pub(super) type MapNodes = fn(&mut Importer<'_>, &[NodeProto], &OpSets);

/// A graph under construction.
pub(super) struct Importer<'m> {
    pub model: &'m Model,
    pub graph: Graph,
    pub params: BTreeMap<String, StoredTensor>,
    /// The element types of values that files keep several to a byte.
    pub packed: HashMap<NodeId, Packed>,
    /// Those that are small.
    pub known: HashMap<NodeId, Known>,
    /// The integers of small values that depend on extents at run time and on nothing else.
    pub lengths: HashMap<NodeId, Vec<Dim>>,
    pub scopes: Vec<NamedValues>,
    /// The graphs around the body that is being read, the outermost one first.
    pub around: Vec<Around>,
    /// The part of the model whose function is being put in.
    pub part: Option<Origin>,
    /// How deep functions and subgraphs are nested here.
    pub depth: usize,
    /// The declared ops, which nodes may stand for.
    pub ops: Ops,
    /// The most steps of a loop whose count the model does not state.
    pub most_times: usize,
    pub problems: Vec<Unsupported>,
    /// Warnings about a file that is read nevertheless.
    pub warnings: Vec<String>,
    /// The outputs of the node that is being mapped that programs cannot hold, with the reason.
    pub withheld: Vec<(usize, String)>,
    /// What was asked for beyond the end of an axis, and is not there: where shapes do not fit later, this is why.
    pub short: Vec<String>,
    /// Maps the nodes of a graph or a function.
    pub map: MapNodes,
}

impl<'m> Importer<'m> {
    pub fn problem(&mut self, op: &str, node: &str, NodeError(why): NodeError) {
        let (op, node) = (op.to_string(), node.to_string());
        self.problems.push(Unsupported { op, opset: self.model.opsets.main(), node, why });
    }

    pub fn define(&mut self, name: &str, value: Option<NodeId>) {
        if let Some(scope) = self.scopes.last_mut().filter(|_| !name.is_empty()) {
            scope.values.insert(name.to_string(), value);
        }
    }

    /// The value of that name; the inner option is empty where an unsupported node would have made it. What a body reads of graphs
    /// around it is given to it.
    pub fn lookup(&mut self, name: &str) -> Result<Option<Option<NodeId>>, NodeError> {
        let of_name =
            |scope: &NamedValues| Some((scope.level, *scope.values.get(name)?, scope.withheld.get(name).cloned()));
        let found = match self.scopes.iter().rev().find_map(of_name) {
            Some((_, _, Some(why))) => return Err(NodeError(why)),
            found => found.map(|(level, value, _)| (level, value)),
        };
        match found {
            Some((level, Some(value))) => self.captured(value, level).map(|value| Some(Some(value))),
            found => Ok(found.map(|(_, value)| value)),
        }
    }

    /// A value of the graph around so many bodies, in the graph that is being made.
    fn captured(&mut self, mut value: NodeId, level: usize) -> Result<NodeId, NodeError> {
        for at in level..self.around.len() {
            value = self.capture(value, at)?;
        }
        Ok(value)
    }

    /// A value of one of the graphs around, in the next one: a constant is one there too, because shapes may depend on it.
    fn capture(&mut self, value: NodeId, at: usize) -> Result<NodeId, NodeError> {
        let (outer, inner) = self.around.split_at_mut(at + 1);
        let outer = &mut outer[at];
        if let Some((_, known)) = outer.captured.iter().find(|(of, _)| *of == value) {
            return Ok(*known);
        }
        let graph = inner.first_mut().map_or(&mut self.graph, |around| &mut around.graph);
        let node = outer.graph.node(value);
        let known = outer.known.get(&value);
        let constant = match node.attrs.first() {
            Some(Attr::Tensor(tensor)) if matches!(node.op.def().class, Class::Leaf(_)) => Some(tensor.clone()),
            _ => known.filter(|known| known.settled).map(|known| known.value.to_tensor()),
        };
        let (known, id) = match constant {
            Some(tensor) => {
                let known = Known { value: Value::from_tensor(&tensor), settled: true };
                (Some(known), graph.constant(tensor)?)
            }
            None => {
                let known = known.map(|known| Known { value: known.value.clone(), settled: false });
                let id = graph.input(&format!("captured {}", outer.captured.len()), outer.graph.ty(value).clone())?;
                outer.captured.push((value, id));
                (known, id)
            }
        };
        let lengths = outer.lengths.get(&value).cloned();
        inner.first_mut().map_or(&mut self.lengths, |around| &mut around.lengths).extend(lengths.map(|all| (id, all)));
        let known_there = inner.first_mut().map_or(&mut self.known, |around| &mut around.known);
        known_there.extend(known.filter(|known| known.value.count() <= LARGEST_KNOWN).map(|known| (id, known)));
        Ok(id)
    }

    /// From here on a body is read: what is made is part of it.
    pub fn enter(&mut self, name: &str) {
        let graph = std::mem::replace(&mut self.graph, Graph::new(name));
        let (known, lengths) = (std::mem::take(&mut self.known), std::mem::take(&mut self.lengths));
        self.around.push(Around { graph, known, lengths, captured: Vec::new() });
        self.scopes.push(NamedValues { level: self.around.len(), ..NamedValues::default() });
    }

    /// What was read since the last [`Importer::enter`].
    pub fn leave(&mut self) -> LoopBody {
        self.scopes.pop();
        let around = self.around.pop().expect("a body was entered");
        (self.known, self.lengths) = (around.known, around.lengths);
        let graph = std::mem::replace(&mut self.graph, around.graph);
        LoopBody { graph, captured: around.captured.into_iter().map(|(of, _)| of).collect() }
    }

    /// A value of the graph around the body that is being read, in it.
    pub fn taken_in(&mut self, value: NodeId) -> Result<NodeId, NodeError> {
        self.capture(value, self.around.len() - 1)
    }

    /// The nodes of a body's graph, whose inputs are these values; its outputs.
    pub fn body(&mut self, graph: &GraphProto, opsets: &OpSets, inputs: &[NodeId]) -> Result<Vec<NodeId>, NodeError> {
        if graph.input.len() != inputs.len() {
            return Err(NodeError(format!("its body has {} inputs, {} are given", graph.input.len(), inputs.len())));
        }
        for (input, value) in graph.input.iter().zip(inputs) {
            self.define(input.name(), Some(*value));
        }
        self.inner(graph, opsets)
    }

    /// The outputs of a subgraph of these values, which sees the names around it, as the branches of `If` do.
    pub fn subgraph(
        &mut self,
        graph: &GraphProto,
        opsets: &OpSets,
        inputs: &[NodeId],
    ) -> Result<Vec<NodeId>, NodeError> {
        self.scopes.push(NamedValues { level: self.around.len(), ..NamedValues::default() });
        let outputs = self.body(graph, opsets, inputs);
        self.scopes.pop();
        outputs
    }

    /// The outputs of a subgraph, whose names go to the innermost scope.
    fn inner(&mut self, graph: &GraphProto, opsets: &OpSets) -> Result<Vec<NodeId>, NodeError> {
        let before = self.problems.len();
        let twice = repeated_names(graph);
        for tensor in &graph.initializer {
            let value = StoredTensor::read(tensor, &self.model.folder)
                .and_then(|stored| if twice.contains(tensor.name()) { Err(TWICE.into()) } else { Ok(stored) })
                .map_err(NodeError)
                .and_then(|stored| self.stored(tensor.name(), &stored))
                .map_err(|why| self.problem("initializer", tensor.name(), why));
            self.define(tensor.name(), value.ok());
        }
        let done = self.deep(|importer| (importer.map)(importer, &graph.node, opsets));
        let outputs = graph.output.iter().map(|o| self.lookup(o.name()));
        let outputs: Vec<Option<Option<NodeId>>> = outputs.collect::<Result<_, _>>()?;
        done?;
        match outputs.into_iter().map(Option::flatten).collect::<Option<Vec<_>>>() {
            Some(outputs) => Ok(outputs),
            None if self.problems.len() > before => Err(NodeError("its subgraph is not supported".into())),
            None => Err(NodeError("an output of its subgraph is computed nowhere".into())),
        }
    }

    /// Does something one level further down.
    pub fn deep(&mut self, work: impl FnOnce(&mut Importer<'m>)) -> Result<(), NodeError> {
        if self.depth == DEEPEST {
            return Err(NodeError(format!("functions and subgraphs are nested deeper than {DEEPEST}")));
        }
        self.depth += 1;
        work(self);
        self.depth -= 1;
        Ok(())
    }

    /// A tensor of the file; elements of fewer than 8 bits are taken out of its bytes.
    pub fn stored(&mut self, name: &str, stored: &StoredTensor) -> Result<NodeId, NodeError> {
        let bytes = self.leaf(name, stored)?;
        let Some((packed, dims)) = stored.packed() else { return Ok(bytes) };
        let (count, origin) = (dims.iter().product::<usize>(), Origin::default());
        let mut all = self.unpacked(bytes, packed, &origin)?;
        if self.graph.ty(all).count() != count {
            let attrs = [("axis", 0.into()), ("at", 0.into()), ("len", (count as i64).into()), ("step", 1.into())];
            all = self.apply("slice", &[all], &attrs, &origin)?;
        }
        let value = self.apply("reshape", &[all], &[("shape", shape(dims))], &origin)?;
        self.packed.insert(value, packed);
        Ok(value)
    }

    /// Returns the element type of a value that a file keeps several to a byte.
    pub fn packed(&self, value: NodeId) -> Option<Packed> {
        self.packed.get(&value).copied()
    }

    /// A tensor of the file: a constant, where it is a number or integers that may say shapes; else a parameter.
    fn leaf(&mut self, name: &str, stored: &StoredTensor) -> Result<NodeId, NodeError> {
        let ty = stored.ty();
        in_memory(&ty)?;
        let dtype = ty.dtype().unwrap_or(DType::F32);
        if ty.count() == 1 || (!dtype.is_float() && ty.count() <= LARGEST_KNOWN) {
            return self.constant(stored.tensor().map_err(NodeError)?);
        }
        // Subgraphs and functions may use a name again.
        let taken =
            |name: &str, graph: &Graph| graph.named("param").chain(graph.named("input")).any(|(n, _)| n == name);
        let mut unique = name.to_string();
        // Parameters are the whole model's; a body is given them.
        let whole = self.around.first_mut().map_or(&mut self.graph, |around| &mut around.graph);
        while taken(&unique, whole) {
            unique.push('\'');
        }
        let param = whole.param(&unique, ty)?;
        self.params.insert(unique, stored.clone());
        self.captured(param, 0)
    }

    /// A tensor of an attribute.
    pub fn attribute(&mut self, name: &str, tensor: &TensorProto) -> Result<NodeId, NodeError> {
        let stored = StoredTensor::read(tensor, &self.model.folder).map_err(NodeError)?;
        self.stored(name, &stored)
    }

    /// The values of a tensor of an attribute.
    pub fn read(&self, tensor: &TensorProto) -> Result<Tensor, NodeError> {
        let stored = StoredTensor::read_plain(tensor, &self.model.folder).map_err(NodeError)?;
        stored.tensor().map_err(NodeError)
    }

    /// Remembers that a node asks for more than there is.
    pub fn short(&mut self, what: String) {
        self.short.push(what);
    }

    /// Withholds an output of the node that is being mapped: programs cannot hold it.
    pub fn withhold(&mut self, output: usize, why: String) {
        self.withheld.push((output, why));
    }

    /// Warns of something in a file that is read nevertheless.
    pub fn warn(&mut self, what: String) {
        self.warnings.push(what);
    }

    /// A constant.
    pub fn constant(&mut self, tensor: Tensor) -> Result<NodeId, NodeError> {
        let small = tensor.count() <= LARGEST_KNOWN;
        let known = small.then(|| Known { value: Value::from_tensor(&tensor), settled: true });
        let id = self.graph.constant(tensor)?;
        self.known.extend(known.map(|known| (id, known)));
        Ok(id)
    }

    /// As [`Importer::value`], where all kernels give the same bits.
    pub fn settled(&self, id: NodeId) -> Option<Tensor> {
        if self.known.get(&id).is_some_and(|known| !known.settled) { None } else { self.value(id) }
    }

    /// The value, where it does not depend on inputs: evaluated on the way, or a tensor of the file.
    pub fn value(&self, id: NodeId) -> Option<Tensor> {
        if let Some(known) = self.known.get(&id) {
            return Some(known.value.to_tensor());
        }
        let node = self.graph.node(id);
        match (node.op.def().class, node.attrs.first()) {
            (Class::Leaf(_), Some(Attr::Tensor(tensor))) => Some(tensor.clone()),
            (Class::Leaf(Leaf::Param), Some(Attr::Word(name))) => self.params.get(&**name)?.tensor().ok(),
            _ => None,
        }
    }

    /// As [`Importer::value`], of larger values too: what they are computed from is evaluated now, and not kept.
    pub fn evaluated(&self, id: NodeId) -> Result<Option<Tensor>, NodeError> {
        if let Some(value) = self.value(id) {
            return Ok(Some(value));
        }
        let (mut needed, mut waiting, mut left) = (BTreeSet::new(), vec![id], LARGEST_EVALUATED);
        while let Some(at) = waiting.pop() {
            let node = self.graph.node(at);
            if self.known.contains_key(&at) || !needed.insert(at) {
                continue;
            }
            let given = matches!(node.op.def().class, Class::Leaf(Leaf::Input | Leaf::Param | Leaf::State));
            let count = matches!(node.ty, Type::Tensor(..)).then(|| node.ty.count());
            match count.and_then(|count| left.checked_sub(count)) {
                Some(rest) if !given || self.value(at).is_some() => left = rest,
                _ => return Ok(None),
            }
            waiting.extend(&node.operands);
        }
        // Operands come before what reads them.
        let mut done = HashMap::new();
        for at in needed {
            let value = match self.value(at) {
                Some(tensor) => Value::from_tensor(&tensor),
                None => {
                    let node = self.graph.node(at);
                    let known = |o| self.known.get(o).map(|known| &known.value);
                    let operands = node.operands.iter().map(|o| done.get(o).or_else(|| known(o)));
                    let Some(operands) = operands.collect::<Option<Vec<&Value<f64>>>>() else { return Ok(None) };
                    let Some(value) = evaluate_rounded(at, node, &operands)?.pop() else { return Ok(None) };
                    value
                }
            };
            done.insert(at, value);
        }
        Ok(done.get(&id).map(Value::to_tensor))
    }

    /// Applies an op of ours. Of known operands the result is known too; a single number that is settled becomes a constant, because
    /// that is where rules look for numbers.
    pub fn apply<'n>(
        &mut self,
        op: impl Into<OpName<'n>>,
        operands: &[NodeId],
        attrs: &[(&str, Attr)],
        origin: &Origin,
    ) -> Result<NodeId, NodeError> {
        let id = self.graph.apply_at(op, operands, attrs, origin.clone())?;
        let node = self.graph.node(id);
        in_memory(&node.ty)?;
        let known: Option<Vec<&Known>> = operands.iter().map(|o| self.known.get(o)).collect();
        let small = node.ty.dims().is_some() && node.ty.count() <= LARGEST_KNOWN;
        let Some(known) = known.filter(|_| small) else {
            return match self.lengths_of(id) {
                Some(dims) if dims.iter().all(|dim| dim.known().is_some()) => self.same_for_all(id, &dims),
                Some(dims) => {
                    self.lengths.insert(id, dims);
                    Ok(id)
                }
                None => Ok(id),
            };
        };
        let values: Vec<&Value<f64>> = known.iter().map(|known| &known.value).collect();
        let Some(value) = evaluate_rounded(id, node, &values)?.pop() else { return Ok(id) };
        let zero = || values.iter().any(|value| value.has_negative_zero());
        let op_settles = node.op.is_settled(values.iter().map(|value| value.dtype), value.dtype, zero);
        let settled = op_settles && known.iter().all(|known| known.settled);
        if settled && value.count() == 1 {
            return self.constant(value.to_tensor());
        }
        self.known.insert(id, Known { value, settled });
        Ok(id)
    }
}

/// That a value is one that a machine can hold.
pub(super) fn in_memory(ty: &Type) -> Result<(), NodeError> {
    // An extent of 0 hides the others from the product.
    let longest = ty.dims().and_then(|dims| dims.into_iter().max()).unwrap_or(0);
    if ty.bytes().max(longest) > LARGEST {
        Err(NodeError(format!("a value of type {ty} fits into no memory")))
    } else {
        Ok(())
    }
}

/// Extents as an attribute.
pub(super) fn shape<D: Clone + Into<Dim>>(dims: &[D]) -> Attr {
    Attr::Shape(dims.iter().cloned().collect::<Shape>())
}
