//! From the nodes of a model to a graph: names and scopes, parameters and constants, and what is known while the model is read.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use eutectic_ir::{
    Attr, Class, DType, Graph, NodeId, Op, Origin, Tensor, Type,
    interp::evaluate,
    ops::{Leaf, eval::Value},
};

use super::{
    Model, OnnxError, Stored, Unsupported,
    call::NodeCall,
    error::Why,
    is_own,
    ops::{self, Build},
    proto::{FunctionProto, GraphProto, NodeProto, TensorProto},
};

/// Values of more elements are not evaluated while the model is read: what computes shapes is far smaller.
const LARGEST_KNOWN: usize = 4096;

/// Values of more elements are not worked out either where that is asked for: ids of elements that are written.
const LARGEST_WORKED_OUT: usize = 1 << 20;

/// No machine holds a value of more bytes. With this limit, arithmetic on extents does not overflow.
const LARGEST: usize = 1 << 40;

/// How deep functions and subgraphs may be nested.
const DEEPEST: usize = 32;

/// The values of one graph or function by name; `None` where an unsupported node would have made it.
type Scope = HashMap<String, Option<NodeId>>;

/// A graph under construction.
pub(super) struct Importer<'m> {
    model: &'m Model,
    pub graph: Graph,
    params: BTreeMap<String, Stored>,
    /// Values that do not depend on inputs or parameters, and are small.
    known: HashMap<NodeId, Value<f64>>,
    scopes: Vec<Scope>,
    /// The part of the model whose function is being put in.
    part: Option<Origin>,
    /// How deep functions and subgraphs are nested here.
    depth: usize,
    problems: Vec<Unsupported>,
}

/// The graph of a model whose dimensions are bound, and its parameters.
///
/// # Errors
/// Everything that has no counterpart.
pub(super) fn import(
    model: &Model,
    shapes: &BTreeMap<String, i64>,
    fixed: &BTreeMap<String, Tensor>,
) -> Result<(Graph, BTreeMap<String, Stored>), OnnxError> {
    let graph = model.graph();
    let mut importer = Importer {
        model,
        graph: Graph::new(graph.name()),
        params: BTreeMap::new(),
        known: HashMap::new(),
        scopes: vec![Scope::new()],
        part: None,
        depth: 0,
        problems: Vec::new(),
    };
    importer.leaves(shapes, fixed);
    importer.nodes(&graph.node, model.opset);
    importer.outputs(graph);
    if !importer.problems.is_empty() {
        return Err(OnnxError::Unsupported { path: model.path.clone(), problems: importer.problems });
    }
    importer.graph.prune();
    Ok((importer.graph, importer.params))
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
    fn leaves(&mut self, shapes: &BTreeMap<String, i64>, fixed: &BTreeMap<String, Tensor>) {
        let model = self.model;
        for (name, port) in &model.inputs {
            let input = port.as_ref().map_err(|why| Why(why.clone())).and_then(|port| {
                let ty = port.bind(shapes).map_err(Why)?;
                in_memory(&ty)?;
                match fixed.get(name) {
                    Some(value) if value.ty() != ty => Err(Why(format!("it is {ty}, but {} was given", value.ty()))),
                    Some(value) => self.constant(value.clone()),
                    None => Ok(self.graph.input(name, ty)?),
                }
            });
            let input = input.map_err(|why| self.problem("input", name, why));
            self.define(name, input.ok());
        }
        for (name, stored) in &model.stored {
            if let Ok(stored) = stored {
                let value = self.stored(name, stored).map_err(|why| self.problem("initializer", name, why));
                self.define(name, value.ok());
            }
        }
    }

    fn outputs(&mut self, graph: &GraphProto) {
        for output in &graph.output {
            let name = output.name();
            match self.lookup(name) {
                Some(Some(value)) => {
                    if let Err(error) = self.graph.output(name, value) {
                        self.problem("output", name, error.into());
                    }
                }
                Some(None) => {}
                None => self.problem("output", name, Why("no node computes it".into())),
            }
        }
    }

    fn problem(&mut self, op: &str, node: &str, Why(why): Why) {
        let (op, node) = (op.to_string(), node.to_string());
        self.problems.push(Unsupported { op, opset: self.model.opset, node, why });
    }

    fn define(&mut self, name: &str, value: Option<NodeId>) {
        if let Some(scope) = self.scopes.last_mut().filter(|_| !name.is_empty()) {
            scope.insert(name.to_string(), value);
        }
    }

    /// The value of that name; the inner option is empty where an unsupported node would have made it.
    fn lookup(&self, name: &str) -> Option<Option<NodeId>> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name)).copied()
    }

    /// Maps nodes in order. One that cannot be mapped is a problem; those that only depend on it are not.
    fn nodes(&mut self, nodes: &[NodeProto], opset: i64) {
        for node in nodes {
            let outputs = self.node(node, opset).unwrap_or_else(|Why(why)| {
                self.problems.push(Unsupported::at(node, opset, why));
                Vec::new()
            });
            for (at, name) in node.output.iter().enumerate() {
                // Which of the two a later node means, nobody can say.
                if self.scopes.last().is_some_and(|scope| scope.contains_key(name)) {
                    let why = format!("its output `{name}` is defined already");
                    self.problems.push(Unsupported::at(node, opset, why));
                }
                self.define(name, outputs.get(at).copied().flatten());
            }
        }
    }

    /// The outputs of a node; they are empty where it depends on one that is not supported.
    fn node(&mut self, node: &NodeProto, opset: i64) -> Result<Vec<Option<NodeId>>, Why> {
        let function = self.function(node);
        let build = ops::find(node.domain(), node.op_type(), opset);
        if function.is_none() {
            build.as_ref().map_err(|why| Why(why.clone()))?;
        }
        let mut inputs = Vec::new();
        for name in &node.input {
            inputs.push(match (name.is_empty(), self.lookup(name)) {
                (true, _) => None,
                (false, Some(Some(value))) => Some(value),
                (false, Some(None)) => return Ok(Vec::new()),
                (false, None) => return Err(Why(format!("its input `{name}` is computed nowhere before it"))),
            });
        }
        if let Some(function) = function {
            return self.inline(function, node, &inputs);
        }
        let origin = self.part.clone().unwrap_or_else(|| place(node));
        let mut call = NodeCall::new(self, node, inputs, opset, origin);
        let outputs: Vec<_> = match build? {
            Build::Op(op) => vec![Some(call.same(op)?)],
            Build::One(build) => vec![Some(build(&mut call)?)],
            Build::Many(build) => build(&mut call)?.into_iter().map(Some).collect(),
        };
        let missing = node.output.iter().skip(outputs.len()).find(|name| !name.is_empty());
        match missing {
            Some(name) => Err(Why(format!("its output `{name}` is not supported"))),
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
    ) -> Result<Vec<Option<NodeId>>, Why> {
        let own = function.opset_import.iter().find(|set| is_own(set.domain()));
        let opset = own.map_or(self.model.opset, |set| set.version());
        let mut scope = Scope::new();
        for (name, value) in function.input.iter().zip(inputs) {
            scope.extend(value.map(|value| (name.clone(), Some(value))));
        }
        let nodes: Vec<_> = function.node.iter().map(|node| substituted(node, function, call)).collect();
        // A body sees its own names only.
        let scopes = std::mem::replace(&mut self.scopes, vec![scope]);
        let part = self.part.clone();
        self.part.get_or_insert_with(|| place(call));
        let done = self.deep(|importer| importer.nodes(&nodes, opset));
        let outputs = function.output.iter().map(|name| self.lookup(name).flatten()).collect();
        (self.scopes, self.part) = (scopes, part);
        done.map(|()| outputs)
    }

    /// The outputs of a subgraph that sees the names around it, as the branches of `If` do.
    pub fn subgraph(&mut self, graph: &GraphProto, opset: i64) -> Result<Vec<NodeId>, Why> {
        self.scopes.push(Scope::new());
        let before = self.problems.len();
        for tensor in &graph.initializer {
            let value = Stored::read(tensor, &self.model.folder)
                .map_err(Why)
                .and_then(|stored| self.stored(tensor.name(), &stored))
                .map_err(|why| self.problem("initializer", tensor.name(), why));
            self.define(tensor.name(), value.ok());
        }
        let done = self.deep(|importer| importer.nodes(&graph.node, opset));
        let outputs: Option<Vec<_>> = graph.output.iter().map(|o| self.lookup(o.name()).flatten()).collect();
        self.scopes.pop();
        done?;
        match outputs {
            Some(outputs) => Ok(outputs),
            None if self.problems.len() > before => Err(Why("its branch is not supported".into())),
            None => Err(Why("an output of its branch is computed nowhere".into())),
        }
    }

    /// Does something one level further down.
    fn deep(&mut self, work: impl FnOnce(&mut Importer<'m>)) -> Result<(), Why> {
        if self.depth == DEEPEST {
            return Err(Why(format!("functions and subgraphs are nested deeper than {DEEPEST}")));
        }
        self.depth += 1;
        work(self);
        self.depth -= 1;
        Ok(())
    }

    /// A tensor of the file: a constant, where it is a number or integers that may say shapes; else a parameter.
    pub fn stored(&mut self, name: &str, stored: &Stored) -> Result<NodeId, Why> {
        let ty = stored.ty();
        in_memory(&ty)?;
        let dtype = ty.dtype().unwrap_or(DType::F32);
        if ty.count() == 1 || (!dtype.is_float() && ty.count() <= LARGEST_KNOWN) {
            return self.constant(stored.tensor().map_err(Why)?);
        }
        // Subgraphs and functions may use a name again.
        let taken =
            |name: &str, graph: &Graph| graph.named("param").chain(graph.named("input")).any(|(n, _)| n == name);
        let mut unique = name.to_string();
        while taken(&unique, &self.graph) {
            unique.push('\'');
        }
        let param = self.graph.param(&unique, ty)?;
        self.params.insert(unique, stored.clone());
        Ok(param)
    }

    /// A tensor of an attribute.
    pub fn attribute(&mut self, name: &str, tensor: &TensorProto) -> Result<NodeId, Why> {
        let stored = Stored::read(tensor, &self.model.folder).map_err(Why)?;
        self.stored(name, &stored)
    }

    /// A constant.
    pub fn constant(&mut self, tensor: Tensor) -> Result<NodeId, Why> {
        let value = (tensor.count() <= LARGEST_KNOWN).then(|| Value::from_tensor(&tensor));
        let id = self.graph.constant(tensor)?;
        self.known.extend(value.map(|value| (id, value)));
        Ok(id)
    }

    /// The value, where it does not depend on inputs: evaluated on the way, or a tensor of the file.
    pub fn value(&self, id: NodeId) -> Option<Tensor> {
        if let Some(value) = self.known.get(&id) {
            return Some(value.to_tensor());
        }
        let node = self.graph.node(id);
        match (node.op.def().class, node.attrs.first()) {
            (Class::Leaf(_), Some(Attr::Tensor(tensor))) => Some(tensor.clone()),
            (Class::Leaf(_), Some(Attr::Word(name))) => self.params.get(&**name)?.tensor().ok(),
            _ => None,
        }
    }

    /// The value, as [`Importer::value`], worked out now where it has more elements than what is evaluated on the way.
    pub fn worked_out(&self, id: NodeId) -> Option<Tensor> {
        let (mut needed, mut open) = (BTreeSet::from([id]), vec![id]);
        let mut values: HashMap<NodeId, Value<f64>> = HashMap::new();
        while let Some(at) = open.pop() {
            let node = self.graph.node(at);
            if let Some(tensor) = self.value(at) {
                values.insert(at, Value::from_tensor(&tensor));
            } else if !is_computed(node.op) || node.ty.count() > LARGEST_WORKED_OUT {
                return None;
            } else {
                open.extend(node.operands.iter().filter(|operand| needed.insert(**operand)));
            }
        }
        // Operands were there before what reads them.
        for at in needed {
            if !values.contains_key(&at) {
                let node = self.graph.node(at);
                let operands: Vec<_> = node.operands.iter().map(|o| values.get(o)).collect::<Option<_>>()?;
                let value = evaluate(at, node, &operands).ok()?.pop()?;
                values.insert(at, value);
            }
        }
        values.get(&id).map(Value::to_tensor)
    }

    /// Applies an op of ours. Of known operands the result is known too; a single number becomes a constant, because
    /// that is where rules look for numbers.
    pub fn apply(
        &mut self,
        op: &str,
        operands: &[NodeId],
        attrs: &[(&str, Attr)],
        origin: &Origin,
    ) -> Result<NodeId, Why> {
        let id = self.graph.apply_at(op, operands, attrs, origin.clone())?;
        let node = self.graph.node(id);
        in_memory(&node.ty)?;
        let values: Option<Vec<&Value<f64>>> = operands.iter().map(|o| self.known.get(o)).collect();
        let small = matches!(node.ty, Type::Tensor(..)) && node.ty.count() <= LARGEST_KNOWN;
        let Some(values) = values.filter(|_| small) else { return Ok(id) };
        let Some(value) = evaluate(id, node, &values)?.pop() else { return Ok(id) };
        if value.count() == 1 {
            return self.constant(value.to_tensor());
        }
        self.known.insert(id, value);
        Ok(id)
    }
}

/// Whether an op is a function of its operands alone, with one result.
fn is_computed(op: Op) -> bool {
    match op.def().class {
        Class::Leaf(leaf) => leaf == Leaf::Iota,
        Class::Update(_) | Class::Project => false,
        _ => true,
    }
}

/// That a value is one that a machine can hold.
fn in_memory(ty: &Type) -> Result<(), Why> {
    // An extent of 0 hides the others from the product.
    let longest = ty.dims().and_then(|dims| dims.into_iter().max()).unwrap_or(0);
    if ty.bytes().max(longest) > LARGEST {
        Err(Why(format!("a value of type {ty} fits into no memory")))
    } else {
        Ok(())
    }
}

/// The part of the model that a node belongs to: exporters name nodes `/layer.0/attention/MatMul`.
fn place(node: &NodeProto) -> Origin {
    let name = node.name().trim_start_matches('/');
    Origin::new(name.rsplit_once('/').map_or(name, |(part, _)| part).replace('/', "."))
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
