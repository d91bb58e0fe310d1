//! One node during import: reads its inputs and attributes, and builds the Eutectic ops that replace it.

mod body;
mod build;
mod known;

use std::{cell::RefCell, collections::BTreeSet, fmt::Debug, ops::Range};

use eutectic_ir::{DType, Dim, NodeId, Origin, Tensor, Type};

use super::{
    error::NodeError,
    importer::Importer,
    opsets::OpSets,
    proto::{AttributeProto, NodeProto, attribute_proto::AttributeType},
    stored::Packed,
    types::dtype,
};

/// The value that replaces an output of a node, or the reason why the node cannot be imported.
pub(super) type NodeResult = Result<NodeId, NodeError>;

/// A node whose inputs have already been imported.
pub(super) struct NodeCall<'c, 'm> {
    importer: &'c mut Importer<'m>,
    node: &'c NodeProto,
    inputs: Vec<Option<NodeId>>,
    opsets: &'c OpSets,
    origin: Origin,
    /// The names of run-time extents that the translation of this node has read as numbers. Such a node cannot be
    /// imported, because these numbers are upper limits.
    varying: RefCell<BTreeSet<String>>,
}

/// Access to the node's inputs, outputs and attributes.
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

    /// Checks that the translation did not read a run-time extent as a number.
    ///
    /// # Errors
    /// If it read one. The message names all such extents.
    pub fn fixed(&self) -> Result<(), NodeError> {
        let varying = self.varying.borrow();
        match varying.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => Ok(()),
            names => Err(NodeError(format!(
                "it depends on the run-time extents {names}, and this op needs fixed numbers; give these dimensions numbers"
            ))),
        }
    }

    /// Returns a required input.
    pub fn input(&self, at: usize) -> NodeResult {
        self.optional(at).ok_or_else(|| NodeError(format!("its input {at} is missing")))
    }

    /// Returns an input, or `None` if the node omits it.
    pub fn optional(&self, at: usize) -> Option<NodeId> {
        self.inputs.get(at).copied().flatten()
    }

    /// Returns all inputs that the node does not omit.
    pub fn inputs(&self) -> Vec<NodeId> {
        self.inputs.iter().copied().flatten().collect()
    }

    /// Returns the number of inputs, including omitted ones.
    pub fn count(&self) -> usize {
        self.inputs.len()
    }

    /// Returns whether the graph uses this output.
    pub fn wants(&self, output: usize) -> bool {
        self.node.output.get(output).is_some_and(|name| !name.is_empty())
    }

    /// Returns the number of outputs.
    pub fn outputs(&self) -> usize {
        self.node.output.len()
    }

    /// Returns the name of an output, or an empty string if the node has no such output.
    pub fn output_name(&self, at: usize) -> &'c str {
        let node: &'c NodeProto = self.node;
        node.output.get(at).map_or("", |name| name)
    }

    /// Returns the names of the node's attributes.
    pub fn attribute_names(&self) -> impl Iterator<Item = &'c str> {
        self.node.attribute.iter().map(AttributeProto::name)
    }

    /// Returns whether the node has an attribute of this name.
    pub fn has(&self, name: &str) -> bool {
        self.node.attribute.iter().any(|a| a.name() == name)
    }

    fn attribute(&self, name: &str, kind: AttributeType) -> Result<Option<&'c AttributeProto>, NodeError> {
        let node: &'c NodeProto = self.node;
        let found = node.attribute.iter().find(|a| a.name() == name);
        match found {
            // Files of IR versions before 2 do not store an attribute's type.
            Some(a) if a.r#type() != kind && a.r#type() != AttributeType::Undefined => {
                Err(NodeError(format!("its attribute `{name}` is not of type {}", kind.as_str_name().to_lowercase())))
            }
            found => Ok(found),
        }
    }

    /// Returns an integer attribute.
    pub fn int(&self, name: &str) -> Result<Option<i64>, NodeError> {
        Ok(self.attribute(name, AttributeType::Int)?.map(AttributeProto::i))
    }

    /// Returns an integer attribute, or the default.
    pub fn int_or(&self, name: &str, default: i64) -> Result<i64, NodeError> {
        Ok(self.int(name)?.unwrap_or(default))
    }

    /// Reads an integer attribute as a Boolean. A missing attribute is false.
    pub fn flag(&self, name: &str) -> Result<bool, NodeError> {
        Ok(self.int_or(name, 0)? != 0)
    }

    /// Returns a float attribute.
    pub fn float(&self, name: &str) -> Result<Option<f64>, NodeError> {
        Ok(self.attribute(name, AttributeType::Float)?.map(|a| f64::from(a.f())))
    }

    /// Returns a float attribute, or the default. The default is an `f32` because the format stores floats as `f32`.
    pub fn float_or(&self, name: &str, default: f32) -> Result<f64, NodeError> {
        Ok(self.float(name)?.unwrap_or(f64::from(default)))
    }

    /// Returns a string attribute.
    pub fn word(&self, name: &str) -> Result<Option<&'c str>, NodeError> {
        let attribute = self.attribute(name, AttributeType::String)?;
        let text = |a: &'c AttributeProto| {
            std::str::from_utf8(a.s()).map_err(|_| NodeError(format!("its attribute `{name}` is not UTF-8 text")))
        };
        attribute.map(text).transpose()
    }

    /// Returns an attribute that is a list of strings.
    pub fn words(&self, name: &str) -> Result<Option<Vec<&'c str>>, NodeError> {
        let attribute = self.attribute(name, AttributeType::Strings)?;
        let text = |bytes| {
            std::str::from_utf8(bytes).map_err(|_| NodeError(format!("its attribute `{name}` is not UTF-8 text")))
        };
        attribute.map(|a| a.strings.iter().map(|word| text(word)).collect()).transpose()
    }

    /// Returns an attribute that is a list of integers.
    pub fn ints(&self, name: &str) -> Result<Option<Vec<i64>>, NodeError> {
        Ok(self.attribute(name, AttributeType::Ints)?.map(|a| a.ints.clone()))
    }

    /// Returns an attribute that is a list of floats.
    pub fn floats(&self, name: &str) -> Result<Option<Vec<f64>>, NodeError> {
        let wide = |a: &AttributeProto| a.floats.iter().map(|x| f64::from(*x)).collect();
        Ok(self.attribute(name, AttributeType::Floats)?.map(wide))
    }

    /// Returns an attribute that is the number of an ONNX element type.
    pub fn dtype_attr(&self, name: &str) -> Result<Option<DType>, NodeError> {
        let code = self.int(name)?.map(|code| i32::try_from(code).unwrap_or(-1));
        Ok(code.map(dtype).transpose()?)
    }

    /// Adds the tensor of an attribute to the graph, as a constant or a parameter.
    pub fn tensor_attr(&mut self, name: &str) -> Result<Option<NodeId>, NodeError> {
        let tensor = self.attribute(name, AttributeType::Tensor)?.and_then(|a| a.t.as_ref());
        let label = self.node.output.first().map_or("", |o| o);
        tensor.map(|tensor| self.importer.attribute(label, tensor)).transpose()
    }

    /// Reads the elements of a tensor attribute.
    pub fn tensor_value(&self, name: &str) -> Result<Option<Tensor>, NodeError> {
        let tensor = self.attribute(name, AttributeType::Tensor)?.and_then(|a| a.t.as_ref());
        let value = tensor.map(|tensor| self.importer.read(tensor)).transpose();
        value.map_err(|NodeError(why)| NodeError(format!("its attribute `{name}`: {why}")))
    }

    /// Marks an output that programs cannot represent. The importer ignores the value that the translation returns for
    /// it. A node that reads the output is refused with the reason `why`.
    pub fn withhold(&mut self, output: usize, why: String) {
        self.importer.withhold(output, why);
    }

    /// Adds a warning. The import continues.
    pub fn warn(&mut self, what: String) {
        self.importer.warn(what);
    }
}

/// Types and extents of values, and checks of shapes.
impl NodeCall<'_, '_> {
    /// Records that the node takes `wanted` elements of an axis that has only `extent`. ONNX silently returns the
    /// shorter slice. If shapes do not match later, the error message names this slice as a likely cause.
    pub fn note_cut_slice(&mut self, wanted: i64, extent: i64) {
        let name = self.node.input.first().map_or("", |n| n);
        self.importer.note_cut_slice(format!(
            "`{}` takes {wanted} elements of an axis of `{name}` that has {extent}; if these are positions, the sequence is longer than the model's table of positions",
            self.node.name()
        ));
    }

    /// Returns the type of a value.
    pub fn ty(&self, x: NodeId) -> Type {
        self.importer.graph.ty(x).clone()
    }

    /// Returns the extents of a value.
    pub fn shape(&self, x: NodeId) -> Vec<Dim> {
        self.importer.shape(x).0.into_vec()
    }

    /// Returns the extents as numbers. A run-time extent makes [`NodeCall::fixed`] refuse the node afterwards.
    pub fn dims(&self, x: NodeId) -> Vec<usize> {
        self.shape(x).iter().map(|dim| self.fix(dim)).collect()
    }

    /// Returns the extents of some axes as numbers, with the effect of [`NodeCall::dims`].
    pub fn extents(&self, x: NodeId, axes: Range<usize>) -> Vec<usize> {
        self.shape(x).get(axes).unwrap_or(&[]).iter().map(|dim| self.fix(dim)).collect()
    }

    /// Returns the extent of an axis as a number, with the effect of [`NodeCall::dims`].
    pub fn extent(&self, x: NodeId, axis: usize) -> usize {
        self.fix(&self.shape(x)[axis])
    }

    /// Returns a dim as a number. A run-time extent makes [`NodeCall::fixed`] refuse the node afterwards.
    pub fn fix(&self, dim: &Dim) -> usize {
        if dim.varies() {
            self.varying.borrow_mut().extend(dim.symbols().into_iter().map(|symbol| symbol.name.to_string()));
        }
        dim.capacity()
            .and_then(|n| usize::try_from(n).ok())
            .expect("each dim has a number or a limit during the import")
    }

    /// Returns the element type of a value that the file stores with several elements per byte. Returns `None` for
    /// other values.
    pub fn packed(&self, x: NodeId) -> Option<Packed> {
        self.importer.packed(x)
    }

    /// Returns the number of axes.
    pub fn rank(&self, x: NodeId) -> usize {
        self.importer.shape(x).rank()
    }

    /// Returns the element type.
    pub fn dtype(&self, x: NodeId) -> DType {
        self.importer.graph.ty(x).dtype().expect("values of the model are tensors")
    }

    /// Converts an axis number to one that counts from 0. A negative number counts from the last of `rank` axes.
    pub fn axis(&self, axis: i64, rank: usize) -> Result<usize, NodeError> {
        let rank = rank as i64;
        let at = if axis < 0 { axis + rank } else { axis };
        if (0..rank).contains(&at) {
            Ok(at as usize)
        } else {
            Err(NodeError(format!("axis {axis} is out of range for {rank} axes")))
        }
    }

    /// Returns the shape to which both shapes broadcast by NumPy's rules.
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
            _ => Err(NodeError(format!("the shapes {a:?} and {b:?} do not broadcast"))),
        };
        (0..rank).map(both).collect()
    }
}
