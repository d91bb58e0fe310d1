//! Determinants by Gaussian elimination.

use eutectic_ir::{DType, NodeId};

use super::{
    super::{
        call::{NodeCall, NodeResult},
        error::NodeError,
    },
    index::{elements_at, place_of},
    row::{OpRow, one},
};

pub(super) const OPS: &[OpRow] = &[one("Det", 11, determinant)];

/// The largest number of rows of a matrix. Elimination is unrolled, so the number of ops grows with the number of rows.
const MOST: usize = 128;

/// Computes the product of the pivots, and changes its sign with each exchange of rows. The pivot is the element of the
/// first column with the largest magnitude.
fn determinant(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    let dims = c.dims(x);
    let (outer, n) = match dims[..] {
        [ref outer @ .., n, m] if n == m => (outer.to_vec(), n),
        _ => return Err(format!("its input has extents {dims:?}, but must be square matrices").into()),
    };
    if n > MOST {
        return Err(format!("its matrices have {n} rows; at most {MOST} are supported").into());
    }
    let count = outer.iter().product::<usize>();
    let mut rest = c.reshape(x, &[count, n, n])?;
    let mut product = c.full(1.0, c.dtype(x), &[count, 1, 1])?;
    for left in (1..=n).rev() {
        let (pivot, below) = eliminated(c, rest, count, left)?;
        product = c.apply("mul", [product, pivot])?;
        rest = below;
    }
    c.reshape(product, &outer)
}

/// Performs one step of elimination on matrices [count n n]. Returns the pivot [count 1 1], negated if rows were
/// exchanged, and the remaining matrices of n − 1 rows.
fn eliminated(c: &mut NodeCall<'_, '_>, x: NodeId, count: usize, n: usize) -> Result<(NodeId, NodeId), NodeError> {
    let column = c.slice(x, 2, 0, 1)?;
    let size = c.apply("abs", [column])?;
    let place = place_of(c, size, "reduce-max", 1, false)?;
    let place = c.cast(place, DType::I64)?;
    let ids = c.expand(place, &[count, 1, n])?;
    let top = elements_at(c, x, ids, 1)?;
    let pivot = c.slice(top, 2, 0, 1)?;
    let (exchanged, opposite) = (c.with("ne", place, 0)?, c.apply("neg", [pivot])?);
    let signed = c.apply("where", [exchanged, opposite, pivot])?;
    if n == 1 {
        return Ok((signed, x));
    }
    // The first row moves to the place of the pivot's row, which leaves the matrix.
    let (number, first) = (c.iota(&[1, n, 1], 1, DType::I64)?, c.slice(x, 1, 0, 1)?);
    let here = c.apply("eq", [number, place])?;
    let rows = c.apply("where", [here, first, x])?;
    let rows = c.slice(rows, 1, 1, n - 1)?;
    let (nothing, one) = (c.with("eq", pivot, 0.0)?, c.number(1.0, pivot)?);
    let divisor = c.apply("where", [nothing, one, pivot])?;
    let (of_rows, right) = (c.slice(rows, 2, 0, 1)?, c.slice(rows, 2, 1, n - 1)?);
    let factor = c.apply("div", [of_rows, divisor])?;
    let above = c.slice(top, 2, 1, n - 1)?;
    let change = c.apply("mul", [factor, above])?;
    Ok((signed, c.apply("sub", [right, change])?))
}
