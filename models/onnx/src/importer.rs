//! The state of an import: the graph under construction, the scopes of names, parameters, and values that the importer
//! evaluates.

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

/// The largest number of elements of a value that is evaluated as soon as its node is imported. Values that decide
/// shapes are far smaller.
const LARGEST_KNOWN: usize = 4096;

/// The largest number of elements that are evaluated when a node asks for a large value. All values that it is computed
/// from count as well.
const LARGEST_EVALUATED: usize = 1 << 22;

/// The largest size of a value in bytes, beyond the memory of any machine. With this limit, arithmetic on extents does
/// not overflow.
const LARGEST: usize = 1 << 40;

/// The limit on the nesting of functions and subgraphs.
const DEEPEST: usize = 32;

/// The values of one graph or function by name. A value is `None` if the node that computes it was refused.
#[derive(Default)]
pub(super) struct NamedValues {
    /// The number of loop bodies around these values. The values belong to the graph of the innermost body.
    pub level: usize,
    pub values: HashMap<String, Option<NodeId>>,
    /// The names of outputs that programs cannot represent, with the reason. A node that reads one of them is refused
    /// with that reason.
    pub withheld: HashMap<String, String>,
}

/// The elements of a value that does not depend on inputs or parameters.
pub(super) struct Known {
    /// The elements, rounded to the element type after each op.
    value: Value<f64>,
    /// Whether all kernels compute the same bits. Only then may the value become a constant of the program.
    is_exact: bool,
}

/// The state of a graph outside of the loop body under construction.
pub(super) struct OuterGraph {
    graph: Graph,
    known: HashMap<NodeId, Known>,
    lengths: HashMap<NodeId, Vec<Dim>>,
    /// Values of this graph that the body reads, each with the input of the body that receives it.
    captured: Vec<(NodeId, NodeId)>,
}

/// The imported body of a loop.
pub(super) struct LoopBody {
    pub graph: Graph,
    /// The values of the enclosing graph that the body reads, in the order of the body's last inputs.
    pub captured: Vec<NodeId>,
}

/// A function that imports nodes. [`Importer`] stores a pointer to it, because a direct call would make the two modules
/// depend on each other.
pub(super) type MapNodes = fn(&mut Importer<'_>, &[NodeProto], &OpSets);

/// The state of an import.
pub(super) struct Importer<'m> {
    pub model: &'m Model,
    pub graph: Graph,
    pub params: BTreeMap<String, StoredTensor>,
    /// The element types of values that the file stores with several elements per byte.
    pub packed: HashMap<NodeId, Packed>,
    /// The elements of small known values.
    pub known: HashMap<NodeId, Known>,
    /// The integers of small values that depend on nothing but constants and run-time extents.
    pub lengths: HashMap<NodeId, Vec<Dim>>,
    pub scopes: Vec<NamedValues>,
    /// The graphs outside of the loop body under construction, the outermost first.
    pub outer: Vec<OuterGraph>,
    /// The module of the model that called the function under construction.
    pub part: Option<Origin>,
    /// The current nesting depth of functions and subgraphs.
    pub depth: usize,
    /// The ops that the user declares. They replace nodes by domain and name.
    pub ops: Ops,
    /// The limit on iterations for a loop whose trip count the model does not state.
    pub most_times: usize,
    pub problems: Vec<Unsupported>,
    /// Warnings about the file that do not prevent the import.
    pub warnings: Vec<String>,
    /// The outputs of the current node that programs cannot represent, with the reason.
    pub withheld: Vec<(usize, String)>,
    /// Notes on slices that end before the requested length. They explain shapes that do not match later.
    pub cut_slices: Vec<String>,
    /// The function that imports the nodes of a graph or a function.
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

    /// Returns the value with a name. The inner option is `None` if the node that computes it was refused. A value
    /// outside of the loop body under construction becomes an input of the body.
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

    /// Passes a value from the graph at nesting level `level` into each inner body, down to the one under construction.
    fn captured(&mut self, mut value: NodeId, level: usize) -> Result<NodeId, NodeError> {
        for at in level..self.outer.len() {
            value = self.capture(value, at)?;
        }
        Ok(value)
    }

    /// Makes a value of the graph `outer[at]` an input of the next inner body. Copies a constant instead, because
    /// shapes may depend on it.
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
        let outer = self.outer.pop().expect("`leave` follows `enter`");
        (self.known, self.lengths) = (outer.known, outer.lengths);
        let graph = std::mem::replace(&mut self.graph, outer.graph);
        LoopBody { graph, captured: outer.captured.into_iter().map(|(of, _)| of).collect() }
    }

    /// Passes a value of the innermost enclosing graph to the body under construction.
    pub fn capture_innermost(&mut self, value: NodeId) -> Result<NodeId, NodeError> {
        self.capture(value, self.outer.len() - 1)
    }

    /// Imports the nodes of a loop body with `inputs` as its inputs. Returns its outputs.
    pub fn body(&mut self, graph: &GraphProto, opsets: &OpSets, inputs: &[NodeId]) -> Result<Vec<NodeId>, NodeError> {
        if graph.input.len() != inputs.len() {
            return Err(NodeError(format!("its body has {} inputs, but receives {}", graph.input.len(), inputs.len())));
        }
        for (input, value) in graph.input.iter().zip(inputs) {
            self.define(input.name(), Some(*value));
        }
        self.inner(graph, opsets)
    }

    /// Imports a subgraph with `inputs` as its inputs. Returns its outputs. The subgraph sees all names of the graphs
    /// around it, like a branch of `If`.
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

    /// Imports the tensors and nodes of a subgraph into the innermost scope. Returns the subgraph's outputs.
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

    /// Runs `work` with the nesting depth increased by one.
    ///
    /// # Errors
    /// If the limit on nesting is reached.
    pub fn deep(&mut self, work: impl FnOnce(&mut Importer<'m>)) -> Result<(), NodeError> {
        if self.depth == DEEPEST {
            return Err(NodeError(format!("its functions and subgraphs are nested more than {DEEPEST} deep")));
        }
        self.depth += 1;
        work(self);
        self.depth -= 1;
        Ok(())
    }

    /// Adds a tensor of the file to the graph. Ops unpack elements of fewer than 8 bits from the tensor's bytes.
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

    /// Returns the element type of a value that the file stores with several elements per byte. Returns `None` for
    /// other values.
    pub fn packed(&self, value: NodeId) -> Option<Packed> {
        self.packed.get(&value).copied()
    }

    /// Adds a tensor of the file as it is stored. Single elements and small integer tensors become constants, because
    /// they may decide shapes. Other tensors become parameters.
    fn leaf(&mut self, name: &str, stored: &StoredTensor) -> Result<NodeId, NodeError> {
        let ty = stored.ty();
        in_memory(&ty)?;
        let dtype = ty.dtype().unwrap_or(DType::F32);
        if ty.count() == 1 || (!dtype.is_float() && ty.count() <= LARGEST_KNOWN) {
            return self.constant(stored.tensor().map_err(NodeError)?);
        }
        // Tensors of subgraphs and functions may have the same name.
        let taken =
            |name: &str, graph: &Graph| graph.named("param").chain(graph.named("input")).any(|(n, _)| n == name);
        let mut unique = name.to_string();
        // Parameters belong to the outermost graph. Loop bodies receive them as inputs.
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

    /// Records a note on a slice that goes beyond the end of an axis.
    pub fn note_cut_slice(&mut self, what: String) {
        self.cut_slices.push(what);
    }

    /// Marks an output of the current node that programs cannot represent.
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

    /// Returns the elements of a known value if every kernel computes exactly the same bits.
    pub fn exact_value(&self, id: NodeId) -> Option<Tensor> {
        if self.known.get(&id).is_some_and(|known| !known.is_exact) { None } else { self.value(id) }
    }

    /// Returns the elements of a value that does not depend on inputs. They were evaluated during the import, or are
    /// read from the file.
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

    /// Returns the elements of a value, and evaluates it if [`Importer::value`] has no elements for it. The results are
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
        // Ids of operands are less than those of their users, so the sorted set is in dependency order.
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

    /// Applies an op, and evaluates the result if all operands are known. A single element becomes a constant if every
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

/// Rejects types that are larger than any memory.
pub(super) fn in_memory(ty: &Type) -> Result<(), NodeError> {
    // The size of a tensor with an extent of 0 is 0, so the longest extent is checked as well.
    let longest = ty.dims().and_then(|dims| dims.into_iter().max()).unwrap_or(0);
    if ty.bytes().max(longest) > LARGEST {
        Err(NodeError(format!("it has a value of type {ty}, which is larger than any memory")))
    } else {
        Ok(())
    }
}

/// Returns extents as the attribute `shape`.
pub(super) fn shape<D: Clone + Into<Dim>>(dims: &[D]) -> Attr {
    Attr::Shape(dims.iter().cloned().collect::<Shape>())
}
