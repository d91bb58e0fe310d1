//! Builds op forms of importers from other ops and views: general products (`dot_general`), and masks of every rank.

use super::{Graph, GraphError, NodeId};
use crate::{Dim, Shape, lang::relation::broadcast};

/// The axes of a general product. In each pair, the first list has axes of the left operand and the second axes of
/// the right. They correspond by position.
#[derive(Clone, Copy, Debug, Default)]
pub struct DotAxes<'a> {
    /// Axes that are summed over.
    pub contract: (&'a [i64], &'a [i64]),
    /// Batch axes, which both operands and the result have.
    pub batch: (&'a [i64], &'a [i64]),
}

impl Graph {
    /// Returns the general product (XLA's `dot_general`), which sums over the contracted axes. The result has the
    /// batch axes, then the remaining axes of the left operand, then those of the right. It consists of views around
    /// one `matmul`. Views that change nothing are left out.
    ///
    /// # Errors
    /// If an axis is out of range or named twice, or corresponding axes differ in number or extent.
    pub fn dot_general(&mut self, lhs: NodeId, rhs: NodeId, axes: DotAxes<'_>) -> Result<NodeId, GraphError> {
        let left = self.side(lhs, axes.batch.0, axes.contract.0, "left")?;
        let right = self.side(rhs, axes.batch.1, axes.contract.1, "right")?;
        for (what, l, r) in [("batch", &left.batch, &right.batch), ("contracted", &left.contract, &right.contract)] {
            if l != r {
                let problem = format!("the {what} axes have extents {l} on the left and {r} on the right");
                return Err(self.refuse_at(
                    "dot-general",
                    problem,
                    "axes correspond by position; list equal extents at equal positions",
                ));
            }
        }
        let a = self.arranged(lhs, &[&left.batch_axes, &left.outer_axes, &left.contract_axes])?;
        let b = self.arranged(rhs, &[&right.batch_axes, &right.contract_axes, &right.outer_axes])?;
        let (depth, batch) = (left.contract.count(), &left.batch);
        let a = self.shaped(a, batch.iter().cloned().chain([left.outer.count(), depth.clone()]).collect())?;
        let b = self.shaped(b, batch.iter().cloned().chain([depth, right.outer.count()]).collect())?;
        let product = self.matmul(a, b)?;
        let result = batch.iter().chain(left.outer.iter()).chain(right.outer.iter()).cloned().collect();
        self.shaped(product, result)
    }

    /// Returns a mask in the form that expands to scores [batch.. heads queries keys]: with the batch axes first, and
    /// with axes of extent 1 for the missing ones. The mask may lack the heads, or heads and queries. It may also
    /// broadcast to the scores already by NumPy's rules.
    ///
    /// # Errors
    /// If the mask fits neither way, or fits both ways with different meanings.
    pub fn mask_of_scores(&mut self, mask: NodeId, batch: &Shape, scores: [Dim; 3]) -> Result<NodeId, GraphError> {
        let whole: Shape = batch.iter().chain(&scores).cloned().collect();
        self.known("mask", &[mask])?;
        let Some(shape) = self.shape(mask).cloned() else {
            return Err(self.refuse_at(
                "mask",
                "a mask cannot be a tuple".into(),
                "take one result out of it with `get`",
            ));
        };
        let fits = |form: &Shape| broadcast(form, &whole).as_ref() == Ok(&whole);
        let missing = whole.rank().saturating_sub(shape.rank());
        let outer = batch.rank().min(shape.rank());
        let ones = std::iter::repeat_n(Dim::Known(1), missing);
        let spread: Shape = shape[..outer].iter().cloned().chain(ones).chain(shape[outer..].iter().cloned()).collect();
        // If all batch axes have extent 1, the shapes `spread` and `shape` broadcast to the scores in the same way.
        let same = missing == 0 || shape[..outer].iter().all(|d| *d == Dim::Known(1));
        match (fits(&spread) && shape.rank() > batch.rank(), fits(&shape)) {
            (true, true) if !same => {
                let problem = format!("a mask {shape} of scores {whole} can be read as {spread} and as {shape}");
                Err(self.refuse_at("mask", problem, "reshape it to as many axes as the scores have"))
            }
            (true, _) => self.shaped(mask, spread),
            (false, true) => Ok(mask),
            (false, false) => {
                let problem = format!("a mask {shape} does not expand to scores {whole}");
                let help = "give it the form [batch.. keys], [batch.. queries keys] or [batch.. heads queries keys]";
                Err(self.refuse_at("mask", problem, help))
            }
        }
    }

    /// Returns the axes of an operand, divided into batch, contracted and remaining ones.
    fn side(&self, id: NodeId, batch: &[i64], contract: &[i64], name: &str) -> Result<ProductSide, GraphError> {
        self.known("dot-general", &[id])?;
        let Some(shape) = self.shape(id) else {
            let problem = format!("the {name} operand is a tuple");
            return Err(self.refuse_at("dot-general", problem, "take one result out of it with `get`"));
        };
        let mut taken = vec![false; shape.rank()];
        let mut place = |axis: &i64| match shape.position(*axis) {
            Some(at) if !std::mem::replace(&mut taken[at], true) => Ok(at),
            Some(_) => Err(format!("axis {axis} of the {name} operand is named twice")),
            None => Err(format!("the {name} operand {shape} has no axis {axis}")),
        };
        let mut places = |axes: &[i64]| axes.iter().map(&mut place).collect::<Result<Vec<usize>, _>>();
        let both = places(batch).and_then(|batch| Ok((batch, places(contract)?)));
        let help = "name each axis once, as batch or contracted, or leave it out";
        let (batch_axes, contract_axes) = both.map_err(|problem| self.refuse_at("dot-general", problem, help))?;
        let outer_axes: Vec<usize> = (0..shape.rank()).filter(|at| !taken[*at]).collect();
        let pick = |axes: &[usize]| axes.iter().map(|at| shape[*at].clone()).collect::<Shape>();
        let (batch, outer, contract) = (pick(&batch_axes), pick(&outer_axes), pick(&contract_axes));
        Ok(ProductSide { batch_axes, outer_axes, contract_axes, batch, outer, contract })
    }

    /// Transposes a value so that its axes are in the order of `parts`. Returns the value itself if they already are.
    fn arranged(&mut self, id: NodeId, parts: &[&Vec<usize>; 3]) -> Result<NodeId, GraphError> {
        let order: Vec<i64> = parts.iter().flat_map(|part| part.iter().map(|at| *at as i64)).collect();
        match order.iter().copied().eq(0..order.len() as i64) {
            true => Ok(id),
            false => self.transpose(id, &order),
        }
    }

    /// Reshapes a value to this shape. Returns the value itself if it already has the shape.
    fn shaped(&mut self, id: NodeId, shape: Shape) -> Result<NodeId, GraphError> {
        match self.shape(id) == Some(&shape) {
            true => Ok(id),
            false => self.reshape(id, shape),
        }
    }
}

/// The axes of an operand of a general product (`dot_general`), and their extents.
struct ProductSide {
    batch_axes: Vec<usize>,
    outer_axes: Vec<usize>,
    contract_axes: Vec<usize>,
    batch: Shape,
    outer: Shape,
    contract: Shape,
}
