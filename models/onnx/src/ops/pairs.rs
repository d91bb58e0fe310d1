//! Running combinations along an axis, and the largest elements of a row, part by part.

use eutectic_ir::{DType, NodeId};

use super::{
    super::call::{NodeCall, NodeResult},
    index::elements_at,
    row::{OpRow, Outputs, many, one},
};

pub(super) const OPS: &[OpRow] = &[
    one("CumSum", 11, |c| cumulative(c, "scan-sum")),
    one("CumProd", 26, |c| cumulative(c, "scan-prod")),
    many("TopK", 10, top_k),
];

/// How long the parts of ranked rows are at least: devices that do not sort compare each element of a part with each.
const PART: usize = 1024;

/// The combination of the elements up to each one, by the scan of this name.
fn cumulative(c: &mut NodeCall<'_, '_>, scan: &str) -> NodeResult {
    let x = c.input(0)?;
    let axis = c.axis(c.known_int(1)?, c.rank(x))?;
    let (reverse, exclusive) = (c.flag("reverse")?, c.flag("exclusive")?);
    c.op(scan, &[x], &[("axis", (axis as i64).into()), ("reverse", reverse.into()), ("exclusive", exclusive.into())])
}

/// The k largest or smallest of each row, in order, the first of equal ones first.
fn top_k(c: &mut NodeCall<'_, '_>) -> Outputs {
    let x = c.input(0)?;
    let dims = c.dims(x);
    let axis = c.axis(c.int_or("axis", -1)?, dims.len())?;
    let k = c.known_int(1)?;
    if !(0..=dims[axis] as i64).contains(&k) {
        return Err(format!("the {k} first of {} elements", dims[axis]).into());
    }
    let (k, descending) = (k as usize, c.int_or("largest", 1)? != 0);
    // Rows lie along the last of two axes.
    let mut order: Vec<usize> = (0..dims.len()).collect();
    let last = order.remove(axis);
    order.push(last);
    let rows = c.transpose(x, &order)?;
    let rows = c.reshape(rows, &[dims.iter().product::<usize>() / dims[axis].max(1), dims[axis]])?;
    let places = first_places(c, rows, k, descending)?;
    let values = elements_at(c, rows, places, 1)?;
    let moved: Vec<usize> = order.iter().map(|&d| if d == axis { k } else { dims[d] }).collect();
    let mut back: Vec<usize> = (0..dims.len() - 1).collect();
    back.insert(axis, dims.len() - 1);
    let results = [values, places].map(|result| {
        let result = c.reshape(result, &moved)?;
        c.transpose(result, &back)
    });
    results.into_iter().collect()
}

/// Where the k first of rows [R D] are: of the k first of each part, and of what is left over.
fn first_places(c: &mut NodeCall<'_, '_>, x: NodeId, k: usize, descending: bool) -> NodeResult {
    let [rows, extent] = c.dims(x)[..] else { return Err("rows that are none".into()) };
    // So that a quarter is left at most, and the next round has less to do.
    let length = PART.max(4 * k);
    if extent < 2 * length {
        return first_in_order(c, x, k, descending);
    }
    let parts = extent / length;
    let split = c.slice(x, 1, 0, parts * length)?;
    let split = c.reshape(split, &[rows * parts, length])?;
    let places = first_in_order(c, split, k, descending)?;
    let places = c.reshape(places, &[rows, parts, k])?;
    let part = c.iota(&[1, parts, 1], 1, DType::I64)?;
    let start = c.with("mul", part, length as f64)?;
    let places = c.apply("add", [places, start])?;
    // Of equal elements the first still comes first: parts are in order, and so are the first of each.
    let mut places = c.reshape(places, &[rows, parts * k])?;
    let over = extent - parts * length;
    if over > 0 {
        let numbers = c.iota(&[rows, over], 1, DType::I64)?;
        let numbers = c.with("add", numbers, (parts * length) as f64)?;
        places = c.concat(&[places, numbers], 1)?;
    }
    let values = elements_at(c, x, places, 1)?;
    let first = first_places(c, values, k, descending)?;
    elements_at(c, places, first, 1)
}

/// The same of rows as they are: each of the first elements writes its number to its place among them.
fn first_in_order(c: &mut NodeCall<'_, '_>, x: NodeId, k: usize, descending: bool) -> NodeResult {
    let [rows, extent] = c.dims(x)[..] else { return Err("rows that are none".into()) };
    let rank = c.op("ranking", &[x], &[("most", (k as i64).into()), ("descending", descending.into())])?;
    let rank = c.reshape(rank, &[rows, extent, 1])?;
    let number = c.iota(&[rows, extent, 1], 1, DType::I32)?;
    let places = c.full(0.0, DType::I32, &[rows, k, 1])?;
    let places = c.op("scatter", &[places, number, rank], &[])?;
    let places = c.reshape(places, &[rows, k])?;
    c.cast(places, DType::I64)
}
