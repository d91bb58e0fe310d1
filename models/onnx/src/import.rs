//! Translates the nodes of a model into a graph. The tables of ops (`ops/`) define the translation of each op.

mod order;

use std::collections::{BTreeMap, HashMap};

use eutectic_ir::{Dim, Graph, NodeId, Origin, Tensor, Type};

use super::{
    call::NodeCall,
    error::{NodeError, OnnxError, Unsupported},
    importer::{Importer, NamedValues, in_memory},
    model::{ImportOptions, Imported, Model, each_node},
    ops::{self, Build},
    opsets::OpSets,
    proto::{AttributeProto, FunctionProto, GraphProto, NodeProto, ValueInfoProto},
    types::ModelPort,
};

impl Model {
    /// Imports the model. `shapes` has a number or a run-time extent for each open dimension. The values of parameters
    /// are not read.
    ///
    /// # Errors
    /// If a dimension has no number, if `shapes` names an unknown dimension, or if nodes cannot be imported. The error
    /// lists all such nodes.
    pub fn import(&self, shapes: &BTreeMap<String, Dim>) -> Result<Imported, OnnxError> {
        self.import_with(shapes, &BTreeMap::new())
    }

    /// Imports the model with fixed values for some inputs. They become constants, so shapes may depend on them.
    ///
    /// # Errors
    /// In the cases of [`Model::import`], and if the type of a value differs from that of its input.
    pub fn import_with(
        &self,
        shapes: &BTreeMap<String, Dim>,
        fixed: &BTreeMap<String, Tensor>,
    ) -> Result<Imported, OnnxError> {
        self.import_as(&ImportOptions { shapes: shapes.clone(), fixed: fixed.clone(), ..ImportOptions::default() })
    }

    /// Imports the model with all options.
    ///
    /// # Errors
    /// In the cases of [`Model::import_with`], and if `given` names an input without a default.
    pub fn import_as(&self, options: &ImportOptions) -> Result<Imported, OnnxError> {
        let shapes = &options.shapes;
        let mut known = self.symbols();
        let open: Vec<_> = known.iter().filter(|name| !shapes.contains_key(*name)).cloned().collect();
        for (_, port) in self.defaults.iter().filter(|(name, _)| options.gives(name)) {
            known.extend(port.iter().flat_map(ModelPort::symbols));
        }
        if let Some(name) = shapes.keys().find(|name| !known.contains(name)) {
            return Err(OnnxError::NoSuchDim { path: self.path.clone(), name: name.clone(), known });
        }
        if let Some(name) = options.given.iter().find(|name| !self.defaults.contains_key(*name)) {
            let known = self.defaults.keys().cloned().collect();
            return Err(OnnxError::NoDefault { path: self.path.clone(), name: name.clone(), known });
        }
        if !open.is_empty() {
            return Err(OnnxError::Unbound { path: self.path.clone(), open });
        }
        let problems = self.unusable();
        if !problems.is_empty() {
            return Err(OnnxError::Tensors { path: self.path.clone(), problems });
        }
        import(self, options)
    }

    /// Returns a message for each tensor of the file that cannot be used.
    pub fn unusable(&self) -> Vec<String> {
        self.stored.iter().filter_map(|(name, t)| Some(format!("{name}: {}", t.as_ref().err()?))).collect()
    }

    /// Returns the nodes that cannot be imported, whatever numbers the open dimensions get. It imports the model with
    /// two sets of numbers, and returns the problems that both imports report in the same words.
    pub fn refused(&self, shapes: &BTreeMap<String, Dim>) -> Vec<Unsupported> {
        let open: Vec<_> = self.symbols().into_iter().filter(|name| !shapes.contains_key(name)).collect();
        let problems = |number: i64| {
            let numbers = open.iter().map(|name| (name.clone(), Dim::Known(number)));
            match self.import(&shapes.clone().into_iter().chain(numbers).collect()) {
                Err(OnnxError::Unsupported { problems, .. }) => problems,
                _ => Vec::new(),
            }
        };
        let [mut refused, others] = TRIED.map(problems);
        refused.retain(|problem| others.contains(problem));
        let unknown = self.unknown_ops();
        refused.extend(
            unknown.into_iter().filter(|p| !refused.iter().any(|known| known.node == p.node)).collect::<Vec<_>>(),
        );
        refused
    }

    /// Returns the nodes whose op cannot be translated at all. Attributes and shapes are not checked.
    pub fn unknown_ops(&self) -> Vec<Unsupported> {
        let mut unknown = Vec::new();
        let functions = &self.proto.functions;
        let mut visit = |node: &NodeProto| {
            let local = functions.iter().any(|f| (f.domain(), f.name()) == (node.domain(), node.op_type()));
            let version = self.opsets.version(node.domain());
            if let (false, Err(why)) = (local, ops::find(node.domain(), node.op_type(), version)) {
                unknown.push(Unsupported::at(node, version, why));
            }
        };
        each_node(&self.graph().node, &mut visit);
        functions.iter().for_each(|f| each_node(&f.node, &mut visit));
        unknown
    }
}

/// The extents that [`Model::refused`] tries. Both are divisible by 2 several times, so that windows with a stride of 2
/// fit.
const TRIED: [i64; 2] = [64, 128];

/// Imports a model for which all open dimensions have a number or a run-time extent.
///
/// # Errors
/// If nodes cannot be imported.
fn import(model: &Model, options: &ImportOptions) -> Result<Imported, OnnxError> {
    let graph = model.graph();
    let mut importer = Importer {
        model,
        graph: Graph::new(graph.name()),
        params: BTreeMap::new(),
        packed: HashMap::new(),
        known: HashMap::new(),
        lengths: HashMap::new(),
        scopes: vec![NamedValues::default()],
        outer: Vec::new(),
        part: None,
        depth: 0,
        most_times: options.most_times,
        ops: options.ops.clone(),
        problems: Vec::new(),
        warnings: Vec::new(),
        withheld: Vec::new(),
        cut_slices: Vec::new(),
        map: |importer, nodes, opsets| importer.nodes(nodes, opsets),
    };
    importer.leaves(options);
    importer.nodes(&graph.node, &model.opsets);
    importer.outputs(graph, &options.shapes);
    if let (Some(problem), Some(cut)) = (importer.problems.first_mut(), importer.cut_slices.first()) {
        problem.why = format!("{}; before it, {cut}", problem.why);
    }
    if !importer.problems.is_empty() {
        return Err(OnnxError::Unsupported { path: model.path.clone(), problems: importer.problems });
    }
    importer.graph.prune();
    let Importer { graph, params, warnings, .. } = importer;
    Ok(Imported { graph, path: model.path.clone(), params, warnings })
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

    /// Defines an input of the model: as an input of the graph, or as a constant if its value is fixed.
    fn given(&mut self, name: &str, ty: Result<Type, NodeError>, options: &ImportOptions) {
        let input = ty.and_then(|ty| {
            in_memory(&ty)?;
            match options.fixed.get(name) {
                Some(value) if value.ty() != ty => {
                    Err(NodeError(format!("its type is {ty}, but the given value has type {}", value.ty())))
                }
                Some(value) => self.constant(value.clone()),
                None => Ok(self.graph.input(name, ty)?),
            }
        });
        let input = input.map_err(|why| self.problem("input", name, why));
        self.define(name, input.ok());
    }

    /// Compares an output's type with its declaration in the file. Another element type is an error, as in ONNX
    /// Runtime. Another shape is a warning, and the computed shape is used.
    fn declared(
        &mut self,
        output: &ValueInfoProto,
        value: NodeId,
        shapes: &BTreeMap<String, Dim>,
    ) -> Result<(), NodeError> {
        let (Ok(port), ty) = (ModelPort::read(output), self.graph.ty(value)) else { return Ok(()) };
        let Type::Tensor(dtype, shape) = ty else { return Ok(()) };
        if port.dtype != *dtype {
            return Err(NodeError(format!(
                "it is declared as {port}, but its nodes compute {ty}; correct the declaration"
            )));
        }
        let number = |dim: &Dim| dim.bind(&|name| shapes.get(name).cloned()).known().filter(|n| *n >= 0);
        let differs = port.shape.as_ref().is_some_and(|declared| {
            let another = |(declared, made): (&Dim, &Dim)| number(declared).is_some_and(|n| made.known() != Some(n));
            declared.rank() != shape.rank() || declared.iter().zip(shape.iter()).any(another)
        });
        if differs {
            let name = output.name();
            self.warnings.push(format!(
                "the output `{name}` is declared as {port}, but its nodes compute {ty}; the computed shape is used"
            ));
        }
        Ok(())
    }

    fn outputs(&mut self, graph: &GraphProto, shapes: &BTreeMap<String, Dim>) {
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

    /// Imports nodes in dependency order. A node that fails is recorded as a problem. Nodes that depend on it are
    /// skipped without a report.
    fn nodes(&mut self, nodes: &[NodeProto], opsets: &OpSets) {
        for node in order::ordered(nodes).into_iter().map(|at| &nodes[at]) {
            let version = opsets.version(node.domain());
            let outputs = self.node(node, opsets).unwrap_or_else(|NodeError(why)| {
                self.problems.push(Unsupported::at(node, version, why));
                Vec::new()
            });
            let withheld = std::mem::take(&mut self.withheld);
            for (at, name) in node.output.iter().enumerate() {
                // If two nodes have an output of one name, a node that reads the name could mean either.
                if self.scopes.last().is_some_and(|scope| scope.values.contains_key(name)) {
                    let why = format!("another node already defines its output `{name}`");
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

    /// Imports a node and returns its outputs. Returns no outputs if the node depends on a node that was refused.
    fn node(&mut self, node: &NodeProto, opsets: &OpSets) -> Result<Vec<Option<NodeId>>, NodeError> {
        let declared = self.ops.onnx(node.domain(), node.op_type());
        // An op that the user declares has precedence over a function in the file, and also over the reader's own
        // translation.
        let function = if declared.is_some() { None } else { self.function(node) };
        let build = match declared {
            Some(op) => Ok(Build::Declared(op)),
            None => ops::find(node.domain(), node.op_type(), opsets.version(node.domain())),
        };
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
                None => return Err(NodeError(format!("no node and no input defines its input `{name}`"))),
            });
        }
        if let Some(function) = function {
            return self.inline(function, node, &inputs);
        }
        let origin = self.part.clone().unwrap_or_else(|| place(node));
        let mut call = NodeCall::new(self, node, inputs, opsets, origin);
        let outputs = match build? {
            Build::Op(op) => call.same(op).map(|value| vec![value]),
            Build::One(build) => build(&mut call).map(|value| vec![value]),
            Build::Declared(op) => ops::declared(&mut call, op).map(|value| vec![value]),
            Build::Many(build) => build(&mut call),
        };
        // An error of `build` may quote an upper limit of a run-time extent, which confuses the user. So the check of
        // run-time extents comes first.
        call.fixed()?;
        let outputs: Vec<_> = outputs?.into_iter().map(Some).collect();
        let missing = node.output.iter().skip(outputs.len()).find(|name| !name.is_empty());
        match missing {
            Some(name) => Err(NodeError(format!("its output `{name}` is not supported"))),
            None => Ok(outputs),
        }
    }

    /// Returns the function of the file that a node calls, or `None` if the node is an op.
    fn function(&self, node: &NodeProto) -> Option<&'m FunctionProto> {
        let of_node = |f: &&FunctionProto| {
            (f.domain(), f.name(), f.overload()) == (node.domain(), node.op_type(), node.overload())
        };
        self.model.proto.functions.iter().find(of_node)
    }

    /// Imports the body of a function in place of its call. Returns the outputs of the call.
    fn inline(
        &mut self,
        function: &FunctionProto,
        call: &NodeProto,
        inputs: &[Option<NodeId>],
    ) -> Result<Vec<Option<NodeId>>, NodeError> {
        let opsets = self.model.opsets.with(&function.opset_import);
        let mut scope = NamedValues { level: self.outer.len(), ..NamedValues::default() };
        for (name, value) in function.input.iter().zip(inputs) {
            scope.values.extend(value.map(|value| (name.clone(), Some(value))));
        }
        let nodes: Vec<_> = function.node.iter().map(|node| substituted(node, function, call)).collect();
        // The body of a function sees only the names that it defines.
        let scopes = std::mem::replace(&mut self.scopes, vec![scope]);
        let part = self.part.clone();
        self.part.get_or_insert_with(|| place(call));
        let done = self.deep(|importer| importer.nodes(&nodes, &opsets));
        let outputs = function.output.iter().map(|name| Ok(self.lookup(name)?.flatten())).collect();
        (self.scopes, self.part) = (scopes, part);
        done.and(outputs)
    }
}

/// Returns the module of the model that a node belongs to. Some exporters prefix node names with its path
/// (`/layer.0/attention/MatMul`). Others store the path in a property of the node.
fn place(node: &NodeProto) -> Origin {
    if let Some(scopes) = node.metadata_props.iter().find(|p| p.key() == NAME_SCOPES) {
        return Origin::new(module(scopes.value()));
    }
    let name = node.name().trim_start_matches('/');
    Origin::new(name.rsplit_once('/').map_or(name, |(part, _)| part).replace('/', "."))
}

/// The property that stores a node's module path, in files that `torch.onnx.export` writes for programs of
/// `torch.export`.
const NAME_SCOPES: &str = "pkg.torch.onnx.name_scopes";

/// Returns the path of the innermost module in a list in Python's syntax, such as `['', 'layer', 'layer.0', 'linear']`.
/// The last entry is the name of the node itself.
fn module(scopes: &str) -> String {
    let list = scopes.trim().trim_start_matches('[').trim_end_matches(']');
    let mut names = list.split(',').map(|name| name.trim().trim_matches(['\'', '"'])).rev();
    names.nth(1).unwrap_or_default().to_string()
}

/// Copies a node of a function's body. References to attributes of the function become the attributes of the call.
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
                *attribute = AttributeProto { name: attribute.name.clone(), ..value.clone() };
                true
            }
            None => false,
        }
    });
    node
}
