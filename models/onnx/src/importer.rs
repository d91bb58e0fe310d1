//! The state of an import: the graph under construction, scopes of names, parameters, and values that are known before
//! any run.

mod lengths;
mod packed;
mod trip_count;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use eutectic_ir::{
    Attr, Class, DType, Dim, Graph, NodeId, OpName, Origin, Shape, Tensor, Type,
    interp::evaluate_rounded,
    ops::{Leaf, Ops, eval::Value},
};

pub(super) use self::trip_count::Carried;
use super::{
    error::{NodeError, Unsupported},
    model::{Model, TWICE, repeated_names},
    opsets::OpSets,
    proto::{GraphProto, NodeProto, TensorProto},
    stored::{Packed, StoredTensor},
};

/// The largest number of elements of a value that is evaluated in advance. Values that compute shapes are far smaller.
const LARGEST_KNOWN: usize = 4096;

/// The largest number of elements that are evaluated when a node asks for a large value. The count includes all values
/// that it is computed from.
const LARGEST_EVALUATED: usize = 1 << 22;

/// The largest size of a value in bytes, beyond the memory of any machine. With this limit, arithmetic on extents does
/// not overflow.
const LARGEST: usize = 1 << 40;

/// The limit on nested functions and subgraphs.
const DEEPEST: usize = 32;

/// The values of one graph or function by name. `None` stands for an output of a node that was refused.
#[derive(Default)]
pub(super) struct NamedValues {
    /// The number of enclosing loop bodies. The values belong to the graph of the innermost one.
    pub level: usize,
    pub values: HashMap<String, Option<NodeId>>,
    /// The outputs that programs cannot hold, with the reason. A node that reads one is refused with it.
    pub withheld: HashMap<String, String>,
}

/// A value that does not depend on inputs or parameters.
pub(super) struct Known {
    /// The elements. After each op they were rounded to its element type.
    value: Value<f64>,
    /// Whether all kernels compute the same bits, so that the value may become a constant of the program.
    is_exact: bool,
}

/// A graph that encloses the loop body under construction.
pub(super) struct OuterGraph {
    graph: Graph,
    known: HashMap<NodeId, Known>,
    lengths: HashMap<NodeId, Vec<Dim>>,
    /// The values of this graph that the body reads, each with the body input that receives it.
    captured: Vec<(NodeId, NodeId)>,
}

/// The imported body of a loop.
pub(super) struct LoopBody {
    pub graph: Graph,
    /// The values of the enclosing graph that the body reads, in the order of the body's last inputs.
    pub captured: Vec<NodeId>,
}

/// A function that imports nodes. It is a parameter because the table of ops imports this file.
pub(super) type MapNodes = fn(&mut Importer<'_>, &[NodeProto], &OpSets);

/// A graph under construction.
pub(super) struct Importer<'m> {
    pub model: &'m Model,
    pub graph: Graph,
    pub params: BTreeMap<String, StoredTensor>,
    /// The element types of values that files store with several elements in a byte.
    pub packed: HashMap<NodeId, Packed>,
    /// The known values that are small enough to be kept.
    pub known: HashMap<NodeId, Known>,
    /// The integers of small values that depend on run-time extents only.
    pub lengths: HashMap<NodeId, Vec<Dim>>,
    pub scopes: Vec<NamedValues>,
    /// The graphs around the body under construction, the outermost first.
    pub outer: Vec<OuterGraph>,
    /// The part of the model that called the function under construction.
    pub part: Option<Origin>,
    /// The current nesting depth of functions and subgraphs.
    pub depth: usize,
    /// The declared ops. They replace nodes by domain and name.
    pub ops: Ops,
    /// The limit on iterations for a loop whose trip count the model does not state.
    pub most_times: usize,
    pub problems: Vec<Unsupported>,
    /// Warnings about a file that is read nevertheless.
    pub warnings: Vec<String>,
    /// The outputs of the current node that programs cannot hold, with the reason.
    pub withheld: Vec<(usize, String)>,
    /// Notes on slices that were cut short at the end of an axis. They explain shapes that do not match later.
    pub cut_slices: Vec<String>,
    /// Imports the nodes of a graph or a function.
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

    /// Returns the value of a name. The inner option is `None` if the node that computes it was refused. A value of an
    /// enclosing graph becomes an input of the body.
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

    /// Passes a value of the graph at nesting level `level` down to the graph under construction.
    fn captured(&mut self, mut value: NodeId, level: usize) -> Result<NodeId, NodeError> {
        for at in level..self.outer.len() {
            value = self.capture(value, at)?;
        }
        Ok(value)
    }

    /// Passes a value of one enclosing graph to the next inner one. A constant is copied, because shapes may depend on
    /// it.
    fn capture(&mut self, value: NodeId, at: usize) -> Result<NodeId, NodeError> {
        let (outer, inner) = self.outer.split_at_mut(at + 1);
        let outer = &mut outer[at];
        if let Some((_, known)) = outer.captured.iter().find(|(of, _)| *of == value) {
            return Ok(*known);
        }
        let graph = inner.first_mut().map_or(&mut self.graph, |outer| &mut outer.graph);
        let node = outer.graph.node(value);
        let known = outer.known.get(&value);
        let constant = match node.attrs.first() {
            Some(Attr::Tensor(tensor)) if matches!(node.op.def().class, Class::Leaf(_)) => Some(tensor.clone()),
            _ => known.filter(|known| known.is_exact).map(|known| known.value.to_tensor()),
        };
        let (known, id) = match constant {
            Some(tensor) => {
                let known = Known { value: Value::from_tensor(&tensor), is_exact: true };
                (Some(known), graph.constant(tensor)?)
            }
            None => {
                let known = known.map(|known| Known { value: known.value.clone(), is_exact: false });
                let id = graph.input(&format!("captured {}", outer.captured.len()), outer.graph.ty(value).clone())?;
                outer.captured.push((value, id));
                (known, id)
            }
        };
        let lengths = outer.lengths.get(&value).cloned();
        inner.first_mut().map_or(&mut self.lengths, |outer| &mut outer.lengths).extend(lengths.map(|all| (id, all)));
        let known_there = inner.first_mut().map_or(&mut self.known, |outer| &mut outer.known);
        known_there.extend(known.filter(|known| known.value.count() <= LARGEST_KNOWN).map(|known| (id, known)));
        Ok(id)
    }

    /// Starts the graph of a loop body.
    pub fn enter(&mut self, name: &str) {
        let graph = std::mem::replace(&mut self.graph, Graph::new(name));
        let (known, lengths) = (std::mem::take(&mut self.known), std::mem::take(&mut self.lengths));
        self.outer.push(OuterGraph { graph, known, lengths, captured: Vec::new() });
        self.scopes.push(NamedValues { level: self.outer.len(), ..NamedValues::default() });
    }

    /// Ends the body that the last [`Importer::enter`] started.
    pub fn leave(&mut self) -> LoopBody {
        self.scopes.pop();
        let outer = self.outer.pop().expect("a body was entered");
        (self.known, self.lengths) = (outer.known, outer.lengths);
        let graph = std::mem::replace(&mut self.graph, outer.graph);
        LoopBody { graph, captured: outer.captured.into_iter().map(|(of, _)| of).collect() }
    }

    /// Passes a value of the innermost enclosing graph to the body under construction.
    pub fn capture_innermost(&mut self, value: NodeId) -> Result<NodeId, NodeError> {
        self.capture(value, self.outer.len() - 1)
    }

    /// Imports the nodes of a body with these values as its inputs, and returns its outputs.
    pub fn body(&mut self, graph: &GraphProto, opsets: &OpSets, inputs: &[NodeId]) -> Result<Vec<NodeId>, NodeError> {
        if graph.input.len() != inputs.len() {
            return Err(NodeError(format!("its body has {} inputs, but receives {}", graph.input.len(), inputs.len())));
        }
        for (input, value) in graph.input.iter().zip(inputs) {
            self.define(input.name(), Some(*value));
        }
        self.inner(graph, opsets)
    }

    /// Imports a subgraph with these values as its inputs, and returns its outputs. It sees all names of the enclosing
    /// graphs, as the branches of `If` do.
    pub fn subgraph(
        &mut self,
        graph: &GraphProto,
        opsets: &OpSets,
        inputs: &[NodeId],
    ) -> Result<Vec<NodeId>, NodeError> {
        self.scopes.push(NamedValues { level: self.outer.len(), ..NamedValues::default() });
        let outputs = self.body(graph, opsets, inputs);
        self.scopes.pop();
        outputs
    }

    /// Imports the nodes of a subgraph into the innermost scope, and returns its outputs.
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
            None if self.problems.len() > before => {
                Err(NodeError("its subgraph has nodes that cannot be imported".into()))
            }
            None => Err(NodeError("no node computes an output of its subgraph".into())),
        }
    }

    /// Runs `work` one nesting level deeper.
    ///
    /// # Errors
    /// If the limit on nesting is reached.
    pub fn deep(&mut self, work: impl FnOnce(&mut Importer<'m>)) -> Result<(), NodeError> {
        if self.depth == DEEPEST {
            return Err(NodeError(format!("functions and subgraphs are nested deeper than {DEEPEST}")));
        }
        self.depth += 1;
        work(self);
        self.depth -= 1;
        Ok(())
    }

    /// Adds a tensor of the file to the graph. Elements of fewer than 8 bits are unpacked from its bytes.
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

    /// Returns the element type of a value that a file stores with several elements in a byte.
    pub fn packed(&self, value: NodeId) -> Option<Packed> {
        self.packed.get(&value).copied()
    }

    /// Adds a tensor of the file as it is stored. A single number, and integers that may decide shapes, become
    /// constants. Others become parameters.
    fn leaf(&mut self, name: &str, stored: &StoredTensor) -> Result<NodeId, NodeError> {
        let ty = stored.ty();
        in_memory(&ty)?;
        let dtype = ty.dtype().unwrap_or(DType::F32);
        if ty.count() == 1 || (!dtype.is_float() && ty.count() <= LARGEST_KNOWN) {
            return self.constant(stored.tensor().map_err(NodeError)?);
        }
        // A name can occur again in subgraphs and functions.
        let taken =
            |name: &str, graph: &Graph| graph.named("param").chain(graph.named("input")).any(|(n, _)| n == name);
        let mut unique = name.to_string();
        // Parameters belong to the outermost graph. Bodies receive them as inputs.
        let whole = self.outer.first_mut().map_or(&mut self.graph, |outer| &mut outer.graph);
        while taken(&unique, whole) {
            unique.push('\'');
        }
        let param = whole.param(&unique, ty)?;
        self.params.insert(unique, stored.clone());
        self.captured(param, 0)
    }

    /// Adds a tensor of an attribute to the graph.
    pub fn attribute(&mut self, name: &str, tensor: &TensorProto) -> Result<NodeId, NodeError> {
        let stored = StoredTensor::read(tensor, &self.model.folder).map_err(NodeError)?;
        self.stored(name, &stored)
    }

    /// Reads the elements of a tensor of an attribute.
    pub fn read(&self, tensor: &TensorProto) -> Result<Tensor, NodeError> {
        let stored = StoredTensor::read_plain(tensor, &self.model.folder).map_err(NodeError)?;
        stored.tensor().map_err(NodeError)
    }

    /// Records that a node slices beyond the end of an axis.
    pub fn note_cut_slice(&mut self, what: String) {
        self.cut_slices.push(what);
    }

    /// Marks an output of the current node as one that programs cannot hold.
    pub fn withhold(&mut self, output: usize, why: String) {
        self.withheld.push((output, why));
    }

    /// Adds a warning. The import continues.
    pub fn warn(&mut self, what: String) {
        self.warnings.push(what);
    }

    /// Adds a constant.
    pub fn constant(&mut self, tensor: Tensor) -> Result<NodeId, NodeError> {
        let small = tensor.count() <= LARGEST_KNOWN;
        let known = small.then(|| Known { value: Value::from_tensor(&tensor), is_exact: true });
        let id = self.graph.constant(tensor)?;
        self.known.extend(known.map(|known| (id, known)));
        Ok(id)
    }

    /// Returns the elements of a known value if every kernel computes exactly these bits.
    pub fn exact_value(&self, id: NodeId) -> Option<Tensor> {
        if self.known.get(&id).is_some_and(|known| !known.is_exact) { None } else { self.value(id) }
    }

    /// Returns the elements of a value that does not depend on inputs. They were evaluated when the value was created,
    /// or are read from the file.
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

    /// Returns the elements as [`Importer::value`] does, but also evaluates large values on request. The results are
    /// not cached.
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
        // Ids ascend from operands to users, and the set is sorted.
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

    /// Applies an op. If all operands are known, the result is evaluated. A single number becomes a constant if every
    /// kernel computes the same bits, because rules match constants.
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
        let op_is_exact = node.op.is_settled(values.iter().map(|value| value.dtype), value.dtype, zero);
        let is_exact = op_is_exact && known.iter().all(|known| known.is_exact);
        if is_exact && value.count() == 1 {
            return self.constant(value.to_tensor());
        }
        self.known.insert(id, Known { value, is_exact });
        Ok(id)
    }
}

/// Checks that a value is no larger than the memory of any machine.
pub(super) fn in_memory(ty: &Type) -> Result<(), NodeError> {
    // An extent of 0 makes the product 0, however large the others are.
    let longest = ty.dims().and_then(|dims| dims.into_iter().max()).unwrap_or(0);
    if ty.bytes().max(longest) > LARGEST {
        Err(NodeError(format!("a value of type {ty} is larger than any memory")))
    } else {
        Ok(())
    }
}

/// Returns extents as an attribute.
pub(super) fn shape<D: Clone + Into<Dim>>(dims: &[D]) -> Attr {
    Attr::Shape(dims.iter().cloned().collect::<Shape>())
}
