//! Scans along an axis (`CumSum`, `CumProd`), and the first elements of sorted rows (`TopK`).

use eutectic_ir::{DType, NodeId};

use super::{
    super::{
        call::{NodeCall, NodeResult},
        error::NodeError,
    },
    row::{OpRow, Outputs, many, one},
};

pub(super) const OPS: &[OpRow] = &[
    one("CumSum", 11, |c| cumulative(c, "scan-sum")),
    one("CumProd", 26, |c| cumulative(c, "scan-prod")),
    many("TopK", 10, top_k),
];

/// Imports a scan along an axis as the op `scan`.
fn cumulative(c: &mut NodeCall<'_, '_>, scan: &str) -> NodeResult {
    let x = c.input(0)?;
    let axis = c.axis(c.known_int(1)?, c.rank(x))?;
    let (reverse, exclusive) = (c.flag("reverse")?, c.flag("exclusive")?);
    c.op(scan, &[x], &[("axis", (axis as i64).into()), ("reverse", reverse.into()), ("exclusive", exclusive.into())])
}

/// Returns the k largest or smallest elements of each row, sorted. Equal elements keep their order.
fn top_k(c: &mut NodeCall<'_, '_>) -> Outputs {
    let x = c.input(0)?;
    let dims = c.dims(x);
    let axis = c.axis(c.int_or("axis", -1)?, dims.len())?;
    let k = c.known_int(1)?;
    if !(0..=dims[axis] as i64).contains(&k) {
        return Err(format!("its k is {k}, but the axis has {} elements", dims[axis]).into());
    }
    let (k, descending) = (k as usize, c.int_or("largest", 1)? != 0);
    // The axis becomes the columns of a matrix.
    let mut order: Vec<usize> = (0..dims.len()).collect();
    let last = order.remove(axis);
    order.push(last);
    let rows = c.transpose(x, &order)?;
    let rows = c.reshape(rows, &[dims.iter().product::<usize>() / dims[axis].max(1), dims[axis]])?;
    let results = in_order(c, rows, k, descending)?;
    let moved: Vec<usize> = order.iter().map(|&d| if d == axis { k } else { dims[d] }).collect();
    let mut back: Vec<usize> = (0..dims.len() - 1).collect();
    back.insert(axis, dims.len() - 1);
    let results = results.map(|result| {
        let result = c.reshape(result, &moved)?;
        c.transpose(result, &back)
    });
    results.into_iter().collect()
}

/// Returns the k first elements of each sorted row [R D], and their indices. Each element is scattered to the position
/// of its rank.
fn in_order(c: &mut NodeCall<'_, '_>, x: NodeId, k: usize, descending: bool) -> Result<[NodeId; 2], NodeError> {
    let [rows, extent] = c.dims(x)[..] else { return Err("its rows are not a matrix".into()) };
    let rank = c.op("ranking", &[x], &[("most", (k as i64).into()), ("descending", descending.into())])?;
    let rank = c.reshape(rank, &[rows, extent, 1])?;
    let number = c.iota(&[rows, extent, 1], 1, DType::I64)?;
    let x = c.reshape(x, &[rows, extent, 1])?;
    let mut first = |part: NodeId| {
        let none = c.full(0.0, c.dtype(part), &[rows, k, 1])?;
        let first = c.op("scatter", &[none, part, rank], &[])?;
        c.reshape(first, &[rows, k])
    };
    Ok([first(x)?, first(number)?])
}
