//! Evaluates integers that depend on run-time extents, because files compute shapes with them. They are polynomials in
//! these extents.

use eutectic_ir::{
    Attr, Class, DType, Dim, NodeId, Origin, Shape, Tensor, Type, graph::Node, interp::evaluate_rounded,
    ops::eval::Value,
};

use super::{super::error::NodeError, Importer};

/// The largest number of integers in a value that is evaluated. It is far above the rank of any shape.
const MOST: usize = 64;

/// The first of the placeholders for integers that are not known numbers: `STANDS_FOR + n` replaces the n-th of them
/// while a view is applied. All extents are smaller.
const STANDS_FOR: i64 = 1 << 50;

impl Importer<'_> {
    /// Returns the extents of a value.
    pub fn shape(&self, id: NodeId) -> Shape {
        let shape = self.graph.shape(id);
        shape.expect("all values during the import are tensors").clone()
    }

    /// Returns the integers of a value that depends on nothing but constants and run-time extents.
    pub fn lengths(&self, id: NodeId) -> Option<Vec<Dim>> {
        if let Some(dims) = self.lengths.get(&id) {
            return Some(dims.clone());
        }
        let value = self.value(id).filter(|value| !value.dtype().is_float() && value.count() <= MOST)?;
        Some(value.to_i64().into_iter().map(Dim::Known).collect())
    }

    /// Adds a vector `i64[n]` with the given integers to the graph.
    pub fn integers(&mut self, dims: &[Dim]) -> Result<NodeId, NodeError> {
        let numbers: Option<Vec<i64>> = dims.iter().map(Dim::known).collect();
        if let Some(numbers) = numbers {
            return self.constant(Tensor::from_i64(DType::I64, &[numbers.len()], numbers));
        }
        let origin = Origin::default();
        let mut parts = dims.iter().map(|dim| {
            let number = self.length(dim)?;
            self.apply("reshape", &[number], &[("shape", super::shape(&[1_usize]))], &origin)
        });
        let first = parts.next().ok_or("a shape without axes depends on no run-time extent")??;
        let parts: Vec<NodeId> = parts.collect::<Result<_, _>>()?;
        let axis = [("axis", Attr::from(0))];
        let all = parts.into_iter().try_fold(first, |all, part| self.apply("concat", &[all, part], &axis, &origin))?;
        self.lengths.insert(all, dims.to_vec());
        Ok(all)
    }

    /// Adds a dim to the graph as a value `i64[]`. The graph computes a run-time extent as the sum of ones over an axis
    /// with that extent.
    pub fn length(&mut self, dim: &Dim) -> Result<NodeId, NodeError> {
        let (terms, constant) = dim.split_constant();
        let origin = Origin::default();
        let number = |importer: &mut Self, n: i64| importer.constant(Tensor::from_i64(DType::I64, &[], [n]));
        let mut sum = None;
        for (product, factor) in terms {
            let one = number(self, 1)?;
            let axes: Shape = [product].into_iter().collect();
            let ones = self.apply("expand", &[one], &[("shape", Attr::Shape(axes))], &origin)?;
            let attrs = [("axes", Attr::from(&[0_i64][..])), ("keep", false.into())];
            let count = self.apply("reduce-sum", &[ones], &attrs, &origin)?;
            let factor = number(self, factor)?;
            let term = self.apply("mul", &[count, factor], &[], &origin)?;
            sum = Some(match sum {
                Some(sum) => self.apply("add", &[sum, term], &[], &origin)?,
                None => term,
            });
        }
        let constant = number(self, constant)?;
        let all = sum.map_or(Ok(constant), |sum| self.apply("add", &[sum, constant], &[], &origin))?;
        if dim.known().is_none() {
            self.lengths.insert(all, vec![dim.clone()]);
        }
        Ok(all)
    }

    /// Replaces a value by a constant if its integers do not depend on run-time extents.
    pub(super) fn same_for_all(&mut self, id: NodeId, dims: &[Dim]) -> Result<NodeId, NodeError> {
        let ty = self.graph.ty(id).clone();
        let numbers = dims.iter().filter_map(Dim::known);
        let (dtype, dims) = (ty.dtype().unwrap_or(DType::I64), ty.dims().unwrap_or_default());
        self.constant(Tensor::from_i64(dtype, &dims, numbers))
    }

    /// Computes the integers of a node's result from those of its operands. Returns `None` if they are not polynomials
    /// in run-time extents.
    pub(super) fn lengths_of(&self, id: NodeId) -> Option<Vec<Dim>> {
        let node = self.graph.node(id);
        let (dims, dtype) = (node.ty.dims()?, node.ty.dtype()?);
        let is_small = !dtype.is_float() && dims.iter().product::<usize>() <= MOST;
        if !is_small || !node.operands.iter().any(|o| self.lengths.contains_key(o)) {
            return None;
        }
        let operands: Vec<Vec<Dim>> = node.operands.iter().map(|o| self.lengths(*o)).collect::<Option<_>>()?;
        match node.op.def().class {
            Class::View(_) => moved(id, node, self, &operands),
            Class::Pointwise => self.combined(node, &dims, &operands),
            _ => None,
        }
    }

    /// Applies a pointwise op to numbers and polynomials, element by element.
    fn combined(&self, node: &Node, dims: &[usize], operands: &[Vec<Dim>]) -> Option<Vec<Dim>> {
        let dtype = node.ty.dtype()?;
        let (low, high) = dtype.integers();
        let one = |element: usize| {
            let of = |(values, id): (&Vec<Dim>, &NodeId)| {
                let ty = self.graph.ty(*id);
                Some((values[place(element, dims, &ty.dims()?)].clone(), ty.dtype()?))
            };
            let of_operands: Vec<(Dim, DType)> = operands.iter().zip(&node.operands).map(of).collect::<Option<_>>()?;
            let numbers: Option<Vec<_>> = of_operands.iter().map(|(d, t)| Some((d.known()? as f64, *t))).collect();
            if let Some(numbers) = numbers {
                return node.op.fold(&node.attrs, &numbers, dtype).map(|n| Dim::Known(n as i64));
            }
            let given: Vec<Dim> = of_operands.into_iter().map(|(dim, _)| dim).collect();
            let made = (node.op.def().lengths)(&given, dtype)?;
            // A polynomial is not tracked if it may exceed the element type, because kernels would wrap it.
            made.range().filter(|(least, most)| low <= *least && *most <= high).map(|_| made)
        };
        (0..dims.iter().product()).map(one).collect()
    }
}

/// Returns the index of the operand's element that broadcasting takes for element `element` of the result.
fn place(mut element: usize, result: &[usize], operand: &[usize]) -> usize {
    let (mut at, mut stride) = (0, 1);
    for (axis, &extent) in result.iter().enumerate().rev() {
        let coordinate = element % extent;
        element /= extent;
        let Some(axis) = (axis + operand.len()).checked_sub(result.len()) else { continue };
        at += if operand[axis] == 1 { 0 } else { coordinate * stride };
        stride *= operand[axis];
    }
    at
}

/// Applies a view to placeholders. The placeholders in its result show which operand element each result comes from.
fn moved(id: NodeId, node: &Node, importer: &Importer<'_>, operands: &[Vec<Dim>]) -> Option<Vec<Dim>> {
    let mut open = Vec::new();
    let mut values = Vec::new();
    for (dims, operand) in operands.iter().zip(&node.operands) {
        let number = |dim: &Dim| {
            dim.known().unwrap_or_else(|| {
                open.push(dim.clone());
                STANDS_FOR + open.len() as i64 - 1
            })
        };
        let numbers: Vec<i64> = dims.iter().map(number).collect();
        let extents = importer.graph.ty(*operand).dims()?;
        // Placeholders may not fit in the element type, but fit in `i64`.
        values.push(Value::from_tensor(&Tensor::from_i64(DType::I64, &extents, numbers)));
    }
    let wide = Node { ty: Type::tensor(DType::I64, &node.ty.dims().unwrap_or_default()), ..node.clone() };
    let values: Vec<&Value<f64>> = values.iter().collect();
    // The evaluation fails if the node uses a placeholder as an id, because the placeholder is out of range.
    let moved = evaluate_rounded(id, &wide, &values).ok()?.pop()?;
    let dim = |n: i64| match usize::try_from(n - STANDS_FOR) {
        Ok(at) => open.get(at).cloned().unwrap_or(Dim::Known(n)),
        Err(_) => Dim::Known(n),
    };
    Some(moved.to_tensor().to_i64().into_iter().map(dim).collect())
}
