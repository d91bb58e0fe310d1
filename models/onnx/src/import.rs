//! From the nodes of a model to a graph: names and scopes, parameters and constants, and what is known while the model is read.

mod order;
mod packed;
mod turns;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use eutectic_ir::{
    Attr, Class, DType, Dim, Graph, NodeId, Origin, Tensor, Type,
    interp::evaluate_rounded,
    ops::{Leaf, eval::Value},
};

pub(super) use packed::Packed;
pub(super) use turns::Carried;

use super::{
    ImportOptions, Imported, Model, OnnxError, StoredTensor, TWICE, Unsupported,
    call::{NodeCall, shape},
    error::NodeError,
    ops::{self, Build},
    opsets::OpSets,
    proto::{FunctionProto, GraphProto, NodeProto, TensorProto, ValueInfoProto},
    repeated_names,
    types::ModelPort,
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
struct NamedValues {
    /// How many bodies of loops are around it: values are nodes of the innermost one's graph.
    level: usize,
    values: HashMap<String, Option<NodeId>>,
    /// Those that programs cannot hold, with the reason, which is told where one is read.
    withheld: HashMap<String, String>,
}

/// A value that does not depend on inputs or parameters.
struct Known {
    /// Each op that it is computed by was rounded to its element type.
    value: Value<f64>,
    /// Whether all kernels give the same bits, so that it may stand in the program.
    settled: bool,
}

/// A graph around the body of a loop that is being read.
struct Around {
    graph: Graph,
    known: HashMap<NodeId, Known>,
    /// What the body reads of the graph, and the body's inputs for that.
    captured: Vec<(NodeId, NodeId)>,
}

/// The body of a loop, which was read.
pub(super) struct LoopBody {
    pub graph: Graph,
    /// What it reads of the graph around it, in the order of its last inputs.
    pub captured: Vec<NodeId>,
}

/// A graph under construction.
pub(super) struct Importer<'m> {
    model: &'m Model,
    pub graph: Graph,
    params: BTreeMap<String, StoredTensor>,
    /// The element types of values that files keep several to a byte.
    packed: HashMap<NodeId, Packed>,
    /// Those that are small.
    known: HashMap<NodeId, Known>,
    scopes: Vec<NamedValues>,
    /// The graphs around the body that is being read, the outermost one first.
    around: Vec<Around>,
    /// The part of the model whose function is being put in.
    part: Option<Origin>,
    /// How deep functions and subgraphs are nested here.
    depth: usize,
    /// The most steps of a loop whose count the model does not state.
    pub most_times: usize,
    problems: Vec<Unsupported>,
    /// Warnings about a file that is read nevertheless.
    warnings: Vec<String>,
    /// The outputs of the node that is being mapped that programs cannot hold, with the reason.
    withheld: Vec<(usize, String)>,
    /// What was asked for beyond the end of an axis, and is not there: where shapes do not fit later, this is why.
    short: Vec<String>,
}

/// The graph of a model whose dimensions are bound, and its parameters.
///
/// # Errors
/// Everything that has no counterpart.
pub(super) fn import(model: &Model, options: &ImportOptions) -> Result<Imported, OnnxError> {
    let graph = model.graph();
    let mut importer = Importer {
        model,
        graph: Graph::new(graph.name()),
        params: BTreeMap::new(),
        packed: HashMap::new(),
        known: HashMap::new(),
        scopes: vec![NamedValues::default()],
        around: Vec::new(),
        part: None,
        depth: 0,
        most_times: options.most_times,
        problems: Vec::new(),
        warnings: Vec::new(),
        withheld: Vec::new(),
        short: Vec::new(),
    };
    importer.leaves(options);
    importer.nodes(&graph.node, &model.opsets);
    importer.outputs(graph, &options.shapes);
    if let (Some(problem), Some(short)) = (importer.problems.first_mut(), importer.short.first()) {
        problem.why = format!("{}; before it, {short}", problem.why);
    }
    if !importer.problems.is_empty() {
        return Err(OnnxError::Unsupported { path: model.path.clone(), problems: importer.problems });
    }
    importer.graph.prune();
    let Importer { graph, params, warnings, .. } = importer;
    Ok(Imported { graph, path: model.path.clone(), params, warnings })
}

/// Visits every node, those of subgraphs included.
pub(super) fn each_node(nodes: &[NodeProto], visit: &mut dyn FnMut(&NodeProto)) {
    for node in nodes {
        visit(node);
        for attribute in &node.attribute {
            attribute.g.iter().chain(&attribute.graphs).for_each(|inner| each_node(&inner.node, visit));
        }
    }
}

impl<'m> Importer<'m> {
    fn leaves(&mut self, options: &ImportOptions) {
        let model = self.model;
        for (name, port) in &model.inputs {
            let port = port.as_ref().map_err(|why| NodeError(why.clone()));
            let ty = port.and_then(|port| Ok(port.bind(&options.shapes)?));
            self.given(name, ty, options);
        }
        for (name, stored) in &model.stored {
            let Ok(stored) = stored else { continue };
            match model.defaults.get(name) {
                Some(port) if options.gives(name) => {
                    let port = port.as_ref().map_err(|why| NodeError(why.clone()));
                    let ty = port.and_then(|port| Ok(port.bind_like(&options.shapes, &stored.ty())?));
                    self.given(name, ty, options);
                }
                _ => {
                    let value = self.stored(name, stored).map_err(|why| self.problem("initializer", name, why));
                    self.define(name, value.ok());
                }
            }
        }
    }

    /// An input of the model: one of the graph, or a constant where its value is known.
    fn given(&mut self, name: &str, ty: Result<Type, NodeError>, options: &ImportOptions) {
        let input = ty.and_then(|ty| {
            in_memory(&ty)?;
            match options.fixed.get(name) {
                Some(value) if value.ty() != ty => Err(NodeError(format!("it is {ty}, but {} was given", value.ty()))),
                Some(value) => self.constant(value.clone()),
                None => Ok(self.graph.input(name, ty)?),
            }
        });
        let input = input.map_err(|why| self.problem("input", name, why));
        self.define(name, input.ok());
    }

    /// Compares an output with its declaration. As in ONNX Runtime, another element type is an error, and of another shape the user is
    /// warned: the computed one counts.
    fn declared(
        &mut self,
        output: &ValueInfoProto,
        value: NodeId,
        shapes: &BTreeMap<String, i64>,
    ) -> Result<(), NodeError> {
        let (Ok(port), ty) = (ModelPort::read(output), self.graph.ty(value)) else { return Ok(()) };
        let Type::Tensor(dtype, shape) = ty else { return Ok(()) };
        if port.dtype != *dtype {
            return Err(NodeError(format!(
                "it is declared as {port}, but its nodes compute {ty}; correct the declaration"
            )));
        }
        let number = |dim: &Dim| dim.bind(&|name| shapes.get(name).map(|n| Dim::Known(*n))).known().filter(|n| *n >= 0);
        let differs = port.shape.as_ref().is_some_and(|declared| {
            let another = |(declared, made): (&Dim, &Dim)| number(declared).is_some_and(|n| made.known() != Some(n));
            declared.rank() != shape.rank() || declared.iter().zip(shape.iter()).any(another)
        });
        if differs {
            let name = output.name();
            self.warnings
                .push(format!("the output `{name}` is declared as {port}, but its nodes compute {ty}; that counts"));
        }
        Ok(())
    }

    fn outputs(&mut self, graph: &GraphProto, shapes: &BTreeMap<String, i64>) {
        for output in &graph.output {
            let name = output.name();
            match self.lookup(name) {
                Ok(Some(Some(value))) => {
                    let made = self.graph.output(name, value).map_err(NodeError::from);
                    if let Err(why) = made.and_then(|()| self.declared(output, value, shapes)) {
                        self.problem("output", name, why);
                    }
                }
                Ok(Some(None)) => {}
                Ok(None) => self.problem("output", name, NodeError("no node computes it".into())),
                Err(why) => self.problem("output", name, why),
            }
        }
    }

    fn problem(&mut self, op: &str, node: &str, NodeError(why): NodeError) {
        let (op, node) = (op.to_string(), node.to_string());
        self.problems.push(Unsupported { op, opset: self.model.opsets.main(), node, why });
    }

    fn define(&mut self, name: &str, value: Option<NodeId>) {
        if let Some(scope) = self.scopes.last_mut().filter(|_| !name.is_empty()) {
            scope.values.insert(name.to_string(), value);
        }
    }

    /// The value of that name; the inner option is empty where an unsupported node would have made it. What a body reads of graphs
    /// around it is given to it.
    fn lookup(&mut self, name: &str) -> Result<Option<Option<NodeId>>, NodeError> {
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
        let known_there = inner.first_mut().map_or(&mut self.known, |around| &mut around.known);
        known_there.extend(known.filter(|known| known.value.count() <= LARGEST_KNOWN).map(|known| (id, known)));
        Ok(id)
    }

    /// From here on a body is read: what is made is part of it.
    pub fn enter(&mut self, name: &str) {
        let graph = std::mem::replace(&mut self.graph, Graph::new(name));
        let known = std::mem::take(&mut self.known);
        self.around.push(Around { graph, known, captured: Vec::new() });
        self.scopes.push(NamedValues { level: self.around.len(), ..NamedValues::default() });
    }

    /// What was read since the last [`Importer::enter`].
    pub fn leave(&mut self) -> LoopBody {
        self.scopes.pop();
        let around = self.around.pop().expect("a body was entered");
        self.known = around.known;
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

    /// Maps nodes, each after those that it depends on. One that cannot be mapped is a problem; those that only depend on it are not.
    fn nodes(&mut self, nodes: &[NodeProto], opsets: &OpSets) {
        for node in order::ordered(nodes).into_iter().map(|at| &nodes[at]) {
            let version = opsets.version(node.domain());
            let outputs = self.node(node, opsets).unwrap_or_else(|NodeError(why)| {
                self.problems.push(Unsupported::at(node, version, why));
                Vec::new()
            });
            let withheld = std::mem::take(&mut self.withheld);
            for (at, name) in node.output.iter().enumerate() {
                // Which of the two a later node means, nobody can say.
                if self.scopes.last().is_some_and(|scope| scope.values.contains_key(name)) {
                    let why = format!("its output `{name}` is defined already");
                    self.problems.push(Unsupported::at(node, version, why));
                }
                self.define(name, outputs.get(at).copied().flatten());
            }
            let named = withheld.into_iter().filter_map(|(at, why)| Some((node.output.get(at)?.clone(), why)));
            if let Some(scope) = self.scopes.last_mut() {
                scope.withheld.extend(named);
            }
        }
    }

    /// The outputs of a node; they are empty where it depends on one that is not supported.
    fn node(&mut self, node: &NodeProto, opsets: &OpSets) -> Result<Vec<Option<NodeId>>, NodeError> {
        let function = self.function(node);
        let build = ops::find(node.domain(), node.op_type(), opsets.version(node.domain()));
        if function.is_none() {
            build.as_ref().map_err(|why| NodeError(why.clone()))?;
        }
        let mut inputs = Vec::new();
        for name in &node.input {
            if name.is_empty() {
                inputs.push(None);
                continue;
            }
            inputs.push(match self.lookup(name)? {
                Some(Some(value)) => Some(value),
                Some(None) => return Ok(Vec::new()),
                None => return Err(NodeError(format!("its input `{name}` is computed nowhere before it"))),
            });
        }
        if let Some(function) = function {
            return self.inline(function, node, &inputs);
        }
        let origin = self.part.clone().unwrap_or_else(|| place(node));
        let mut call = NodeCall::new(self, node, inputs, opsets, origin);
        let outputs: Vec<_> = match build? {
            Build::Op(op) => vec![Some(call.same(op)?)],
            Build::One(build) => vec![Some(build(&mut call)?)],
            Build::Many(build) => build(&mut call)?.into_iter().map(Some).collect(),
        };
        let missing = node.output.iter().skip(outputs.len()).find(|name| !name.is_empty());
        match missing {
            Some(name) => Err(NodeError(format!("its output `{name}` is not supported"))),
            None => Ok(outputs),
        }
    }

    /// The function of the model that a node calls.
    fn function(&self, node: &NodeProto) -> Option<&'m FunctionProto> {
        let of_node = |f: &&FunctionProto| {
            (f.domain(), f.name(), f.overload()) == (node.domain(), node.op_type(), node.overload())
        };
        self.model.proto.functions.iter().find(of_node)
    }

    /// The outputs of a function, its body put in the place of the call.
    fn inline(
        &mut self,
        function: &FunctionProto,
        call: &NodeProto,
        inputs: &[Option<NodeId>],
    ) -> Result<Vec<Option<NodeId>>, NodeError> {
        let opsets = self.model.opsets.with(&function.opset_import);
        let mut scope = NamedValues { level: self.around.len(), ..NamedValues::default() };
        for (name, value) in function.input.iter().zip(inputs) {
            scope.values.extend(value.map(|value| (name.clone(), Some(value))));
        }
        let nodes: Vec<_> = function.node.iter().map(|node| substituted(node, function, call)).collect();
        // A body sees its own names only.
        let scopes = std::mem::replace(&mut self.scopes, vec![scope]);
        let part = self.part.clone();
        self.part.get_or_insert_with(|| place(call));
        let done = self.deep(|importer| importer.nodes(&nodes, &opsets));
        let outputs = function.output.iter().map(|name| Ok(self.lookup(name)?.flatten())).collect();
        (self.scopes, self.part) = (scopes, part);
        done.and(outputs)
    }

    /// The outputs of a subgraph that sees the names around it, as the branches of `If` do.
    pub fn subgraph(&mut self, graph: &GraphProto, opsets: &OpSets) -> Result<Vec<NodeId>, NodeError> {
        self.scopes.push(NamedValues { level: self.around.len(), ..NamedValues::default() });
        let outputs = self.inner(graph, opsets);
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
        let done = self.deep(|importer| importer.nodes(&graph.node, opsets));
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
    fn deep(&mut self, work: impl FnOnce(&mut Importer<'m>)) -> Result<(), NodeError> {
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
    pub fn apply(
        &mut self,
        op: &str,
        operands: &[NodeId],
        attrs: &[(&str, Attr)],
        origin: &Origin,
    ) -> Result<NodeId, NodeError> {
        let id = self.graph.apply_at(op, operands, attrs, origin.clone())?;
        let node = self.graph.node(id);
        in_memory(&node.ty)?;
        let known: Option<Vec<&Known>> = operands.iter().map(|o| self.known.get(o)).collect();
        let small = matches!(node.ty, Type::Tensor(..)) && node.ty.count() <= LARGEST_KNOWN;
        let Some(known) = known.filter(|_| small) else { return Ok(id) };
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
fn in_memory(ty: &Type) -> Result<(), NodeError> {
    // An extent of 0 hides the others from the product.
    let longest = ty.dims().and_then(|dims| dims.into_iter().max()).unwrap_or(0);
    if ty.bytes().max(longest) > LARGEST {
        Err(NodeError(format!("a value of type {ty} fits into no memory")))
    } else {
        Ok(())
    }
}

/// The part of the model that a node belongs to: exporters name nodes `/layer.0/attention/MatMul`, or say the path of the module in the
/// node's properties.
fn place(node: &NodeProto) -> Origin {
    if let Some(scopes) = node.metadata_props.iter().find(|p| p.key() == NAME_SCOPES) {
        return Origin::new(module(scopes.value()));
    }
    let name = node.name().trim_start_matches('/');
    Origin::new(name.rsplit_once('/').map_or(name, |(part, _)| part).replace('/', "."))
}

/// The property in which torch's exporter by torch.export says where a node comes from.
const NAME_SCOPES: &str = "pkg.torch.onnx.name_scopes";

/// The path of the innermost module of a list as Python writes it, `['', 'layer', 'layer.0', 'linear']`, whose last entry is the
/// node's own name.
fn module(scopes: &str) -> String {
    let list = scopes.trim().trim_start_matches('[').trim_end_matches(']');
    let mut names = list.split(',').map(|name| name.trim().trim_matches(['\'', '"'])).rev();
    names.nth(1).unwrap_or_default().to_string()
}

/// A node of a function's body with the attributes of the call.
fn substituted(node: &NodeProto, function: &FunctionProto, call: &NodeProto) -> NodeProto {
    let mut node = node.clone();
    node.attribute.retain_mut(|attribute| {
        let wanted = attribute.ref_attr_name().to_string();
        if wanted.is_empty() {
            return true;
        }
        let of_call = call.attribute.iter().find(|a| a.name() == wanted);
        let default = || function.attribute_proto.iter().find(|a| a.name() == wanted);
        match of_call.or_else(default) {
            Some(value) => {
                *attribute = super::proto::AttributeProto { name: attribute.name.clone(), ..value.clone() };
                true
            }
            None => false,
        }
    });
    node
}
