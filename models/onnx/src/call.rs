//! A node that is being mapped: its inputs, its attributes, and the ops of ours that it becomes.

use std::{cell::RefCell, collections::BTreeSet, fmt::Debug, ops::Range};

use eutectic_ir::{Attr, DType, Dim, NodeId, OpName, Origin, Tensor, Type, attr::Number, graph::SubGraph, ops::Ids};

use super::{
    error::NodeError,
    importer::{Carried, Importer, LoopBody, shape},
    opsets::OpSets,
    proto::{AttributeProto, GraphProto, NodeProto, attribute_proto::AttributeType},
    stored::{Packed, StoredTensor},
    types::dtype,
};

/// A value of ours, or why there is none.
pub(super) type NodeResult = Result<NodeId, NodeError>;

/// A node with its inputs mapped.
pub(super) struct NodeCall<'c, 'm> {
    importer: &'c mut Importer<'m>,
    node: &'c NodeProto,
    inputs: Vec<Option<NodeId>>,
    opsets: &'c OpSets,
    origin: Origin,
    /// The extents at run time that it was asked for as numbers.
    varying: RefCell<BTreeSet<String>>,
}

/// The node's own side: inputs and attributes.
impl<'c, 'm> NodeCall<'c, 'm> {
    pub fn new(
        importer: &'c mut Importer<'m>,
        node: &'c NodeProto,
        inputs: Vec<Option<NodeId>>,
        opsets: &'c OpSets,
        origin: Origin,
    ) -> NodeCall<'c, 'm> {
        NodeCall { importer, node, inputs, opsets, origin, varying: RefCell::default() }
    }

    /// Refuses what was made with numbers in the place of extents at run time.
    ///
    /// # Errors
    /// Which extents these are.
    pub fn fixed(&self) -> Result<(), NodeError> {
        let varying = self.varying.borrow();
        match varying.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => Ok(()),
            names => Err(NodeError(format!("it depends on {names}, which it takes as numbers only"))),
        }
    }

    /// An input that must be there.
    pub fn input(&self, at: usize) -> NodeResult {
        self.optional(at).ok_or_else(|| NodeError(format!("its input {at} is missing")))
    }

    /// An input, if it is there.
    pub fn optional(&self, at: usize) -> Option<NodeId> {
        self.inputs.get(at).copied().flatten()
    }

    /// All inputs that are there.
    pub fn inputs(&self) -> Vec<NodeId> {
        self.inputs.iter().copied().flatten().collect()
    }

    /// Whether the output is wanted.
    pub fn wants(&self, output: usize) -> bool {
        self.node.output.get(output).is_some_and(|name| !name.is_empty())
    }

    /// How many outputs the node has.
    pub fn outputs(&self) -> usize {
        self.node.output.len()
    }

    fn attribute(&self, name: &str, kind: AttributeType) -> Result<Option<&'c AttributeProto>, NodeError> {
        let node: &'c NodeProto = self.node;
        let found = node.attribute.iter().find(|a| a.name() == name);
        match found {
            // Files of old format versions leave the type out.
            Some(a) if a.r#type() != kind && a.r#type() != AttributeType::Undefined => {
                Err(NodeError(format!("its attribute `{name}` is no {}", kind.as_str_name().to_lowercase())))
            }
            found => Ok(found),
        }
    }

    /// The names of its attributes.
    pub fn attribute_names(&self) -> impl Iterator<Item = &'c str> {
        self.node.attribute.iter().map(AttributeProto::name)
    }

    /// How many inputs it has, those that are left out among them.
    pub fn count(&self) -> usize {
        self.inputs.len()
    }

    /// An integer.
    pub fn int(&self, name: &str) -> Result<Option<i64>, NodeError> {
        Ok(self.attribute(name, AttributeType::Int)?.map(AttributeProto::i))
    }

    /// An integer, or its default.
    pub fn int_or(&self, name: &str, default: i64) -> Result<i64, NodeError> {
        Ok(self.int(name)?.unwrap_or(default))
    }

    /// A truth value that is false where it is not given.
    pub fn flag(&self, name: &str) -> Result<bool, NodeError> {
        Ok(self.int_or(name, 0)? != 0)
    }

    /// A number.
    pub fn float(&self, name: &str) -> Result<Option<f64>, NodeError> {
        Ok(self.attribute(name, AttributeType::Float)?.map(|a| f64::from(a.f())))
    }

    /// A number, or its default, which is an f32 as the given one would be.
    pub fn float_or(&self, name: &str, default: f32) -> Result<f64, NodeError> {
        Ok(self.float(name)?.unwrap_or(f64::from(default)))
    }

    /// A word.
    pub fn word(&self, name: &str) -> Result<Option<&'c str>, NodeError> {
        let attribute = self.attribute(name, AttributeType::String)?;
        let text =
            |a: &'c AttributeProto| std::str::from_utf8(a.s()).map_err(|_| NodeError(format!("`{name}` is no text")));
        attribute.map(text).transpose()
    }

    /// Words.
    pub fn words(&self, name: &str) -> Result<Option<Vec<&'c str>>, NodeError> {
        let attribute = self.attribute(name, AttributeType::Strings)?;
        let text = |bytes| std::str::from_utf8(bytes).map_err(|_| NodeError(format!("`{name}` is no text")));
        attribute.map(|a| a.strings.iter().map(|word| text(word)).collect()).transpose()
    }

    /// Integers.
    pub fn ints(&self, name: &str) -> Result<Option<Vec<i64>>, NodeError> {
        Ok(self.attribute(name, AttributeType::Ints)?.map(|a| a.ints.clone()))
    }

    /// Numbers.
    pub fn floats(&self, name: &str) -> Result<Option<Vec<f64>>, NodeError> {
        let wide = |a: &AttributeProto| a.floats.iter().map(|x| f64::from(*x)).collect();
        Ok(self.attribute(name, AttributeType::Floats)?.map(wide))
    }

    /// An element type.
    pub fn dtype_attr(&self, name: &str) -> Result<Option<DType>, NodeError> {
        let code = self.int(name)?.map(|code| i32::try_from(code).unwrap_or(-1));
        Ok(code.map(dtype).transpose()?)
    }

    /// A tensor.
    pub fn tensor_attr(&mut self, name: &str) -> Result<Option<NodeId>, NodeError> {
        let tensor = self.attribute(name, AttributeType::Tensor)?.and_then(|a| a.t.as_ref());
        let label = self.node.output.first().map_or("", |o| o);
        tensor.map(|tensor| self.importer.attribute(label, tensor)).transpose()
    }

    /// Withholds an output, which programs cannot hold, and says why to those who read it. What is given for it is not used.
    pub fn withhold(&mut self, output: usize, why: String) {
        self.importer.withhold(output, why);
    }

    /// Warns of something in a file that is read nevertheless.
    pub fn warn(&mut self, what: String) {
        self.importer.warn(what);
    }

    /// The name of an output; nothing for one that is not there.
    pub fn output_name(&self, at: usize) -> &'c str {
        let node: &'c NodeProto = self.node;
        node.output.get(at).map_or("", |name| name)
    }

    /// Numbers made of attributes, as weights of the model.
    pub fn weights(&mut self, label: &str, tensor: Tensor) -> NodeResult {
        let name = format!("{}.{label}", self.output_name(0));
        self.importer.stored(&name, &StoredTensor::from(tensor))
    }

    /// The values of a tensor.
    pub fn tensor_value(&self, name: &str) -> Result<Option<Tensor>, NodeError> {
        let tensor = self.attribute(name, AttributeType::Tensor)?.and_then(|a| a.t.as_ref());
        let value = tensor.map(|tensor| self.importer.read(tensor)).transpose();
        value.map_err(|NodeError(why)| NodeError(format!("its attribute `{name}`: {why}")))
    }

    /// Whether there is an attribute of that name.
    pub fn has(&self, name: &str) -> bool {
        self.node.attribute.iter().any(|a| a.name() == name)
    }

    /// Maps a subgraph of these values in the place of the node, and returns its outputs.
    pub fn subgraph(&mut self, name: &str, inputs: &[NodeId]) -> Result<Vec<NodeId>, NodeError> {
        let graph: &GraphProto = self
            .attribute(name, AttributeType::Graph)?
            .and_then(|a| a.g.as_ref())
            .ok_or_else(|| NodeError(format!("it has no `{name}`")))?;
        self.importer.subgraph(graph, self.opsets, inputs)
    }

    /// A subgraph in the body that is being made, given these values.
    pub fn subgraph_of(&mut self, name: &str, inputs: &[NodeId]) -> Result<Vec<NodeId>, NodeError> {
        let graph = self.attribute(name, AttributeType::Graph)?.and_then(|a| a.g.as_ref());
        self.importer.body(graph.ok_or_else(|| NodeError(format!("it has no `{name}`")))?, self.opsets, inputs)
    }

    /// The body of a loop, whose outputs `build` makes; its inputs come first ([`NodeCall::body_input`]).
    pub fn body(
        &mut self,
        name: &str,
        build: impl FnOnce(&mut Self) -> Result<Vec<NodeId>, NodeError>,
    ) -> Result<LoopBody, NodeError> {
        self.importer.enter(name);
        let outputs = build(self).and_then(|outputs| {
            for (at, value) in outputs.into_iter().enumerate() {
                self.importer.graph.output(&format!("out{at}"), value)?;
            }
            Ok(())
        });
        let body = self.importer.leave();
        outputs.map(|()| body)
    }

    /// What a body is given, in order: what is carried, then its part of what is scanned.
    pub fn body_input(&mut self, ty: Type) -> NodeResult {
        let name = format!("given {}", self.importer.graph.named("input").count());
        Ok(self.importer.graph.input(&name, ty)?)
    }

    /// In a body, a value of what is around it.
    pub fn around(&mut self, value: NodeId) -> NodeResult {
        self.importer.taken_in(value)
    }

    /// The most steps of a loop whose count the model does not state.
    pub fn most_times(&self) -> usize {
        self.importer.most_times
    }

    /// In a body, how often the loop runs where that follows from known values: see [`Importer::turns`].
    pub fn turns(&self, number: NodeId, carried: &[Carried], most: usize) -> Option<usize> {
        self.importer.turns(number, carried, most)
    }

    /// The value where the truth value is false; where it is true, runs end with an error in that place.
    pub fn unless(&mut self, fails: NodeId, x: NodeId, place: &str) -> NodeResult {
        let checked = Origin::new(format!("{}: {place}", self.origin));
        let part = std::mem::replace(&mut self.origin, checked);
        let mut build = || {
            // A table of one element would be read without its id.
            let table = self.constant(Tensor::from_i64(DType::Bool, &[2], [1, 0]))?;
            let at = self.cast(fails, DType::I64)?;
            let at = self.with("mul", at, 2.0)?;
            let holds = self.op("gather", &[table, at], &[("axis", 0.into())])?;
            let dtype = self.dtype(x);
            let zero = match dtype.is_float() {
                true => self.number_of(0.0, dtype)?,
                false => self.constant(Tensor::from_i64(dtype, &[], [0]))?,
            };
            self.apply("where", [holds, x, zero])
        };
        let checked = build();
        self.origin = part;
        checked
    }

    /// The results of a loop; `condition` is the number of the carried truth value that ends it.
    pub fn looped(
        &mut self,
        body: LoopBody,
        times: usize,
        starts: &[NodeId],
        scanned: &[NodeId],
        condition: Option<usize>,
    ) -> Result<Vec<NodeId>, NodeError> {
        let operands = [starts, scanned, &body.captured].concat();
        let count = body.graph.outputs().len() as i64;
        let attrs = [
            ("body", Attr::Graph(SubGraph::from(body.graph))),
            ("times", (times as i64).into()),
            ("carried", (starts.len() as i64).into()),
            ("scanned", (scanned.len() as i64).into()),
            ("while", condition.map_or(-1, |at| at as i64).into()),
        ];
        let all = self.op("loop", &operands, &attrs)?;
        (0..count).map(|at| self.op("get", &[all], &[("index", at.into())])).collect()
    }

    /// The type of a value.
    pub fn ty(&self, x: NodeId) -> Type {
        self.importer.graph.ty(x).clone()
    }

    /// The values of an input that must not depend on the model's inputs, because shapes depend on it.
    pub fn known(&self, at: usize) -> Result<Tensor, NodeError> {
        let input = self.input(at)?;
        self.evaluated(input)?.ok_or_else(|| {
            let name = self.node.input.get(at).map_or("", |n| n);
            if let Some(dims) = self.lengths(input) {
                return NodeError(format!("its input `{name}` is {dims:?}, which it takes as numbers only"));
            }
            NodeError(format!("its input `{name}` depends on the model's inputs, but decides about shapes"))
        })
    }

    /// The integers of an input that must not depend on the model's inputs but by extents at run time, because shapes depend on it.
    pub fn known_dims(&self, at: usize) -> Result<Vec<Dim>, NodeError> {
        match self.lengths(self.input(at)?) {
            Some(dims) => Ok(dims),
            None => Ok(self.known_ints(at)?.into_iter().map(Dim::Known).collect()),
        }
    }

    /// Returns the integers of a value that is small and known, or depends on extents at run time alone.
    pub fn lengths(&self, id: NodeId) -> Option<Vec<Dim>> {
        self.importer.lengths(id)
    }

    /// The value, where it does not depend on the model's inputs: for decisions, not for the program. Where kernels approximate, it is
    /// the correctly rounded one.
    pub fn value(&self, id: NodeId) -> Option<Tensor> {
        self.importer.value(id)
    }

    /// The value, where it is known and kernels give the same bits.
    pub fn settled(&self, id: NodeId) -> Option<Tensor> {
        self.importer.settled(id)
    }

    /// As [`NodeCall::value`], of values that are too large to be evaluated unless a node asks for them.
    pub fn evaluated(&self, id: NodeId) -> Result<Option<Tensor>, NodeError> {
        self.importer.evaluated(id)
    }

    /// The integers of an input, as [`NodeCall::known`].
    pub fn known_ints(&self, at: usize) -> Result<Vec<i64>, NodeError> {
        Ok(self.known(at)?.to_i64())
    }

    /// Integers that older op sets have as an attribute and newer ones as an input.
    pub fn list(&self, attr: &str, at: usize) -> Result<Option<Vec<i64>>, NodeError> {
        match self.optional(at) {
            Some(_) => Ok(Some(self.known_ints(at)?)),
            None => self.ints(attr),
        }
    }

    /// One element of a known input.
    fn known_element(&self, at: usize) -> Result<Tensor, NodeError> {
        let value = self.known(at)?;
        match value.count() {
            1 => Ok(value),
            n => Err(NodeError(format!("its input {at} has {n} elements, not one"))),
        }
    }

    /// One number of a known input.
    pub fn known_number(&self, at: usize) -> Result<f64, NodeError> {
        Ok(self.known_element(at)?.to_f64()[0])
    }

    /// One integer of a known input; a float is truncated.
    pub fn known_int(&self, at: usize) -> Result<i64, NodeError> {
        Ok(self.known_element(at)?.to_i64()[0])
    }

    /// One number of a known input, exactly.
    pub fn known_exactly(&self, at: usize) -> Result<Number, NodeError> {
        let value = self.known_element(at)?;
        Ok(if value.dtype().is_float() { value.to_f64()[0].into() } else { value.to_i64()[0].into() })
    }
}

/// Our side: ops, and what is known of values.
impl NodeCall<'_, '_> {
    /// Remembers that `wanted` elements are asked for of an axis that has fewer: ONNX gives what there is, and later shapes do not fit.
    pub fn short(&mut self, wanted: i64, extent: i64) {
        let name = self.node.input.first().map_or("", |n| n);
        self.importer.short(format!(
            "`{}` takes {wanted} elements of an axis of `{name}` that has {extent}: if these are positions, the sequence is longer \
             than the model's table of positions",
            self.node.name()
        ));
    }

    /// The extents.
    pub fn shape(&self, x: NodeId) -> Vec<Dim> {
        self.importer.shape(x).0.into_vec()
    }

    /// The extents as numbers. The node is refused if one of them varies.
    pub fn dims(&self, x: NodeId) -> Vec<usize> {
        self.shape(x).iter().map(|dim| self.fix(dim)).collect()
    }

    /// Some of the extents as numbers, as [`NodeCall::dims`].
    pub fn extents(&self, x: NodeId, axes: Range<usize>) -> Vec<usize> {
        self.shape(x).get(axes).unwrap_or(&[]).iter().map(|dim| self.fix(dim)).collect()
    }

    /// An extent as a number, as [`NodeCall::dims`].
    pub fn extent(&self, x: NodeId, axis: usize) -> usize {
        self.fix(&self.shape(x)[axis])
    }

    /// A number in the place of an extent: the node is refused if that varies.
    pub fn fix(&self, dim: &Dim) -> usize {
        if dim.varies() {
            self.varying.borrow_mut().extend(dim.symbols().into_iter().map(|symbol| symbol.name.to_string()));
        }
        dim.capacity().and_then(|n| usize::try_from(n).ok()).expect("dimensions are bound while a model is read")
    }

    /// Returns the element type of a value that the file keeps several to a byte.
    pub fn packed(&self, x: NodeId) -> Option<Packed> {
        self.importer.packed(x)
    }

    /// Takes elements out of bytes: u8[.., n] becomes u8 or i8[.., n · 8 / bits].
    pub fn unpacked(&mut self, bytes: NodeId, packed: Packed) -> NodeResult {
        self.importer.unpacked(bytes, packed, &self.origin)
    }

    /// The number of axes.
    pub fn rank(&self, x: NodeId) -> usize {
        self.importer.shape(x).rank()
    }

    /// The element type.
    pub fn dtype(&self, x: NodeId) -> DType {
        self.importer.graph.ty(x).dtype().expect("values of the model are tensors")
    }

    /// An axis, counted from the start, of a value with so many.
    pub fn axis(&self, axis: i64, rank: usize) -> Result<usize, NodeError> {
        let rank = rank as i64;
        let at = if axis < 0 { axis + rank } else { axis };
        if (0..rank).contains(&at) {
            Ok(at as usize)
        } else {
            Err(NodeError(format!("there is no axis {axis} of {rank}")))
        }
    }

    /// An op of ours.
    pub fn op<'n>(&mut self, op: impl Into<OpName<'n>>, operands: &[NodeId], attrs: &[(&str, Attr)]) -> NodeResult {
        self.importer.apply(op, operands, attrs, &self.origin)
    }

    /// A check that ids are legal, under the name of the node, because users look for that.
    pub fn checked_id(&mut self, ids: NodeId, legal: Ids) -> NodeResult {
        let names =
            [self.node.name().rsplit('/').next().unwrap_or(""), self.node.output.first().map_or("", |name| name)];
        let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or("(no name)");
        let origin = match self.origin.path() {
            "" => Origin::new(name),
            part if part == name => self.origin.clone(),
            part => Origin::new(format!("{part}.{name}")),
        };
        let attrs = [("extent", legal.extent.into()), ("from-end", legal.from_end.into())];
        self.importer.apply("checked-id", &[ids], &attrs, &origin)
    }

    /// An op of ours without attributes.
    pub fn apply<const N: usize>(&mut self, op: &str, operands: [NodeId; N]) -> NodeResult {
        self.op(op, &operands, &[])
    }

    /// An op of ours on the node's inputs.
    pub fn same(&mut self, op: &str) -> NodeResult {
        self.op(op, &self.inputs(), &[])
    }

    /// A number of that element type, without axes.
    pub fn number_of(&mut self, value: impl Into<Number>, dtype: DType) -> NodeResult {
        self.importer.constant(value.into().tensor(dtype))
    }

    /// A number with the element type of `like`.
    pub fn number(&mut self, value: impl Into<Number>, like: NodeId) -> NodeResult {
        self.number_of(value, self.dtype(like))
    }

    /// An op of ours on a value and a number.
    pub fn with(&mut self, op: &str, x: NodeId, number: impl Into<Number>) -> NodeResult {
        let number = self.number(number, x)?;
        self.apply(op, [x, number])
    }

    /// Numbers as a value.
    pub fn known_integers(&mut self, values: &[i64]) -> NodeResult {
        self.importer.constant(Tensor::from_i64(DType::I64, &[values.len()], values.iter().copied()))
    }

    /// Integers that may depend on extents at run time, as a value.
    pub fn integers(&mut self, values: &[Dim]) -> NodeResult {
        self.importer.integers(values)
    }

    /// An integer as a value without axes.
    pub fn length(&mut self, dim: &Dim) -> NodeResult {
        self.importer.length(dim)
    }

    /// A constant.
    pub fn constant(&mut self, tensor: Tensor) -> NodeResult {
        self.importer.constant(tensor)
    }

    /// A number, repeated to a shape.
    pub fn full<D: Clone + Into<Dim>>(&mut self, value: f64, dtype: DType, dims: &[D]) -> NodeResult {
        let number = self.number_of(value, dtype)?;
        self.expand(number, dims)
    }

    /// The coordinate along an axis.
    pub fn iota<D: Clone + Into<Dim>>(&mut self, dims: &[D], axis: usize, dtype: DType) -> NodeResult {
        self.op("iota", &[], &[("shape", shape(dims)), ("axis", (axis as i64).into()), ("dtype", dtype.into())])
    }

    /// The value as another element type; itself, if it is of that one.
    pub fn cast(&mut self, x: NodeId, to: DType) -> NodeResult {
        if self.dtype(x) == to { Ok(x) } else { self.op("cast", &[x], &[("to", to.into())]) }
    }

    /// The same elements in another shape; itself, if it is of that one.
    pub fn reshape<D: Clone + Into<Dim>>(&mut self, x: NodeId, dims: &[D]) -> NodeResult {
        let is_same = self.shape(x).into_iter().eq(dims.iter().cloned().map(D::into));
        if is_same { Ok(x) } else { self.op("reshape", &[x], &[("shape", shape(dims))]) }
    }

    /// One element, without axes.
    pub fn scalar(&mut self, x: NodeId) -> NodeResult {
        self.reshape::<Dim>(x, &[])
    }

    /// Repeated to a shape; itself, if it is of that one.
    pub fn expand<D: Clone + Into<Dim>>(&mut self, x: NodeId, dims: &[D]) -> NodeResult {
        let is_same = self.shape(x).into_iter().eq(dims.iter().cloned().map(D::into));
        if is_same { Ok(x) } else { self.op("expand", &[x], &[("shape", shape(dims))]) }
    }

    /// The axes in another order; itself, if that is the order.
    pub fn transpose(&mut self, x: NodeId, perm: &[usize]) -> NodeResult {
        if perm.iter().copied().eq(0..self.rank(x)) {
            return Ok(x);
        }
        let perm: Vec<i64> = perm.iter().map(|&p| p as i64).collect();
        self.op("transpose", &[x], &[("perm", perm.as_slice().into())])
    }

    /// Part of an axis; all of it is the value itself.
    pub fn slice(&mut self, x: NodeId, axis: usize, at: usize, len: usize) -> NodeResult {
        match at == 0 && self.shape(x).get(axis) == Some(&Dim::from(len)) {
            true => Ok(x),
            false => self.slice_by(x, axis, at as i64, len, 1),
        }
    }

    /// Every `step`-th element of an axis, `len` of them from `at` on, both of which may vary.
    pub fn part(&mut self, x: NodeId, axis: usize, [at, len]: [&Dim; 2], step: i64) -> NodeResult {
        let number = |dim: &Dim| dim.known().and_then(|n| usize::try_from(n).ok());
        match (number(at), number(len)) {
            (_, Some(0)) => self.slice(x, axis, 0, 0),
            (Some(at), Some(len)) if step == 1 || len == 1 => self.slice(x, axis, at, len),
            (Some(at), Some(len)) => self.slice_by(x, axis, at as i64, len, step),
            _ if *at == Dim::Known(0) && step == 1 && self.shape(x)[axis] == *len => Ok(x),
            _ => {
                let count = self.iota(std::slice::from_ref(len), 0, DType::I64)?;
                let steps = if step == 1 { count } else { self.with("mul", count, step)? };
                let at = self.length(at)?;
                let ids = self.apply("add", [steps, at])?;
                self.op("gather", &[x, ids], &[("axis", (axis as i64).into())])
            }
        }
    }

    /// Every `step`-th element of an axis.
    pub fn slice_by(&mut self, x: NodeId, axis: usize, at: i64, len: usize, step: i64) -> NodeResult {
        let attrs =
            [("axis", (axis as i64).into()), ("at", at.into()), ("len", (len as i64).into()), ("step", step.into())];
        self.op("slice", &[x], &attrs)
    }

    /// Values one after the other along an axis.
    pub fn concat(&mut self, parts: &[NodeId], axis: usize) -> NodeResult {
        let (first, rest) = parts.split_first().ok_or("there is nothing to put together")?;
        rest.iter().try_fold(*first, |all, part| self.op("concat", &[all, *part], &[("axis", (axis as i64).into())]))
    }

    /// A reduction of ours that keeps the axes with extent 1; over no axes it is the value itself.
    pub fn reduce(&mut self, op: &str, x: NodeId, axes: &[usize]) -> NodeResult {
        if axes.is_empty() {
            return Ok(x);
        }
        // Rows of kernels are one axis, of which only the outermost part may vary.
        if axes.len() > 1 && axes.iter().any(|&axis| self.shape(x)[axis].varies()) {
            return axes.iter().rev().try_fold(x, |x, axis| self.reduce(op, x, &[*axis]));
        }
        let axes: Vec<i64> = axes.iter().map(|&a| a as i64).collect();
        self.op(op, &[x], &[("axes", axes.as_slice().into()), ("keep", true.into())])
    }

    /// The mean over axes, which are kept with extent 1. Where an extent varies, so does the divisor.
    pub fn mean(&mut self, x: NodeId, axes: &[usize]) -> NodeResult {
        let count = axes.iter().fold(Dim::Known(1), |n, &axis| &n * &self.shape(x)[axis]);
        if !count.varies() {
            return self.reduce("reduce-mean", x, axes);
        }
        let sum = self.reduce("reduce-sum", x, axes)?;
        let count = self.length(&count)?;
        let count = self.cast(count, self.dtype(x))?;
        self.apply("div", [sum, count])
    }

    /// The shape that both broadcast to the NumPy way.
    pub fn broadcast<D>(&self, a: &[D], b: &[D]) -> Result<Vec<D>, NodeError>
    where
        D: Clone + PartialEq + Debug + From<usize>,
    {
        let rank = a.len().max(b.len());
        let one = D::from(1);
        let extent =
            |dims: &[D], at: usize| (at + dims.len()).checked_sub(rank).map_or(one.clone(), |i| dims[i].clone());
        let both = |at| match (extent(a, at), extent(b, at)) {
            (m, n) | (n, m) if m == one => Ok(n),
            (n, m) if n == m => Ok(n),
            _ => Err(NodeError(format!("{a:?} and {b:?} do not broadcast"))),
        };
        (0..rank).map(both).collect()
    }
}
