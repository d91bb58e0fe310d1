//! Builds the Eutectic ops that replace a node.

use eutectic_ir::{Attr, DType, Dim, NodeId, OpName, Origin, Tensor, attr::Number, ops::Ids};

use super::{
    super::{
        importer::shape,
        stored::{Packed, StoredTensor},
    },
    NodeCall, NodeResult,
};

impl NodeCall<'_, '_> {
    /// Adds a parameter whose value the import computes from attributes.
    pub fn weights(&mut self, label: &str, tensor: Tensor) -> NodeResult {
        let name = format!("{}.{label}", self.output_name(0));
        self.importer.stored(&name, &StoredTensor::from(tensor))
    }

    /// Returns `x` if the Boolean `fails` is false. If it is true, the run ends with an error whose message contains
    /// `place`.
    pub fn fail_if(&mut self, fails: NodeId, x: NodeId, place: &str) -> NodeResult {
        let checked = Origin::new(format!("{}: {place}", self.origin));
        let part = std::mem::replace(&mut self.origin, checked);
        let mut build = || {
            // The id is 0 or 2, and 2 is out of range for the table of two elements. A table of one element would not
            // work: a gather from it ignores the id, and so skips the range check.
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

    /// Unpacks elements from bytes: `u8[.., n]` becomes `u8` or `i8[.., n · 8 / bits]`.
    pub fn unpacked(&mut self, bytes: NodeId, packed: Packed) -> NodeResult {
        self.importer.unpacked(bytes, packed, &self.origin)
    }

    /// Applies a Eutectic op.
    pub fn op<'n>(&mut self, op: impl Into<OpName<'n>>, operands: &[NodeId], attrs: &[(&str, Attr)]) -> NodeResult {
        self.importer.apply(op, operands, attrs, &self.origin)
    }

    /// Applies the op `checked-id`. Its error in a run names the node.
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

    /// Applies a Eutectic op without attributes.
    pub fn apply<const N: usize>(&mut self, op: &str, operands: [NodeId; N]) -> NodeResult {
        self.op(op, &operands, &[])
    }

    /// Applies a Eutectic op without attributes to the node's inputs.
    pub fn same(&mut self, op: &str) -> NodeResult {
        self.op(op, &self.inputs(), &[])
    }

    /// Returns a scalar constant of this element type.
    pub fn number_of(&mut self, value: impl Into<Number>, dtype: DType) -> NodeResult {
        self.importer.constant(value.into().tensor(dtype))
    }

    /// Returns a scalar constant with the element type of `like`.
    pub fn number(&mut self, value: impl Into<Number>, like: NodeId) -> NodeResult {
        self.number_of(value, self.dtype(like))
    }

    /// Applies a binary op to a value and a scalar constant.
    pub fn with(&mut self, op: &str, x: NodeId, number: impl Into<Number>) -> NodeResult {
        let number = self.number(number, x)?;
        self.apply(op, [x, number])
    }

    /// Returns a constant vector `i64[n]`.
    pub fn known_integers(&mut self, values: &[i64]) -> NodeResult {
        self.importer.constant(Tensor::from_i64(DType::I64, &[values.len()], values.iter().copied()))
    }

    /// Returns a vector `i64[n]`. Its integers may depend on run-time extents.
    pub fn integers(&mut self, values: &[Dim]) -> NodeResult {
        self.importer.integers(values)
    }

    /// Returns a dim as a value `i64[]`.
    pub fn length(&mut self, dim: &Dim) -> NodeResult {
        self.importer.length(dim)
    }

    /// Adds a constant to the graph.
    pub fn constant(&mut self, tensor: Tensor) -> NodeResult {
        self.importer.constant(tensor)
    }

    /// Returns a tensor that is filled with one number.
    pub fn full<D: Clone + Into<Dim>>(&mut self, value: f64, dtype: DType, dims: &[D]) -> NodeResult {
        let number = self.number_of(value, dtype)?;
        self.expand(number, dims)
    }

    /// Returns a tensor whose elements are their own coordinates along an axis.
    pub fn iota<D: Clone + Into<Dim>>(&mut self, dims: &[D], axis: usize, dtype: DType) -> NodeResult {
        self.op("iota", &[], &[("shape", shape(dims)), ("axis", (axis as i64).into()), ("dtype", dtype.into())])
    }

    /// Converts a value to an element type, unless it already has that type.
    pub fn cast(&mut self, x: NodeId, to: DType) -> NodeResult {
        if self.dtype(x) == to { Ok(x) } else { self.op("cast", &[x], &[("to", to.into())]) }
    }

    /// Reshapes a value, unless it already has that shape.
    pub fn reshape<D: Clone + Into<Dim>>(&mut self, x: NodeId, dims: &[D]) -> NodeResult {
        let is_same = self.shape(x).into_iter().eq(dims.iter().cloned().map(D::into));
        if is_same { Ok(x) } else { self.op("reshape", &[x], &[("shape", shape(dims))]) }
    }

    /// Reshapes a value of one element to a scalar.
    pub fn scalar(&mut self, x: NodeId) -> NodeResult {
        self.reshape::<Dim>(x, &[])
    }

    /// Broadcasts a value to a shape, unless it already has that shape.
    pub fn expand<D: Clone + Into<Dim>>(&mut self, x: NodeId, dims: &[D]) -> NodeResult {
        let is_same = self.shape(x).into_iter().eq(dims.iter().cloned().map(D::into));
        if is_same { Ok(x) } else { self.op("expand", &[x], &[("shape", shape(dims))]) }
    }

    /// Permutes the axes of a value, unless `perm` is the identity.
    pub fn transpose(&mut self, x: NodeId, perm: &[usize]) -> NodeResult {
        if perm.iter().copied().eq(0..self.rank(x)) {
            return Ok(x);
        }
        let perm: Vec<i64> = perm.iter().map(|&p| p as i64).collect();
        self.op("transpose", &[x], &[("perm", perm.as_slice().into())])
    }

    /// Returns a contiguous slice of an axis. Adds no op if the slice is the whole axis.
    pub fn slice(&mut self, x: NodeId, axis: usize, at: usize, len: usize) -> NodeResult {
        match at == 0 && self.shape(x).get(axis) == Some(&Dim::from(len)) {
            true => Ok(x),
            false => self.slice_by(x, axis, at as i64, len, 1),
        }
    }

    /// Returns every `step`-th element of an axis: `len` elements, starting at `at`. Both `at` and `len` may depend on
    /// run-time extents.
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

    /// Returns every `step`-th element of an axis: `len` elements, starting at `at`.
    pub fn slice_by(&mut self, x: NodeId, axis: usize, at: i64, len: usize, step: i64) -> NodeResult {
        let attrs =
            [("axis", (axis as i64).into()), ("at", at.into()), ("len", (len as i64).into()), ("step", step.into())];
        self.op("slice", &[x], &attrs)
    }

    /// Concatenates values along an axis.
    pub fn concat(&mut self, parts: &[NodeId], axis: usize) -> NodeResult {
        let (first, rest) = parts.split_first().ok_or("it has nothing to concatenate")?;
        rest.iter().try_fold(*first, |all, part| self.op("concat", &[all, *part], &[("axis", (axis as i64).into())]))
    }

    /// Applies a reduction. Reduced axes stay, with extent 1. Without axes, it returns the value itself.
    pub fn reduce(&mut self, op: &str, x: NodeId, axes: &[usize]) -> NodeResult {
        if axes.is_empty() {
            return Ok(x);
        }
        // A kernel reduces over one axis, so several axes become one whose extent is their product. In that product,
        // only the outermost factor may be a run-time extent. Otherwise each axis is reduced on its own.
        if axes.len() > 1 && axes.iter().any(|&axis| self.shape(x)[axis].varies()) {
            return axes.iter().rev().try_fold(x, |x, axis| self.reduce(op, x, &[*axis]));
        }
        let axes: Vec<i64> = axes.iter().map(|&a| a as i64).collect();
        self.op(op, &[x], &[("axes", axes.as_slice().into()), ("keep", true.into())])
    }

    /// Returns the mean over axes. They stay, with extent 1. If the number of elements depends on run-time extents, the
    /// graph computes it.
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
}
