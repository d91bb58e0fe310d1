//! Running totals, and the largest of a row, part by part.

use eutectic_ir::{DType, NodeId};

use super::{
    super::call::{NodeCall, NodeResult},
    OpRow, Outputs,
    index::elements_at,
    many, one,
    scatter::apart,
};

pub(super) const OPS: &[OpRow] = &[
    one("CumSum", 11, |c| cumulative(c, Monoid { reduction: "reduce-sum", op: "add", neutral: 0.0 })),
    one("CumProd", 26, |c| cumulative(c, Monoid { reduction: "reduce-prod", op: "mul", neutral: 1.0 })),
    many("TopK", 10, top_k),
];

/// How long the parts of ranked rows are at least: devices that do not sort compare each element of a part with each.
const PART: usize = 1024;
/// How long the parts of rows are of which totals are taken.
const TOTALS: usize = 16;

/// An associative op.
#[derive(Clone, Copy)]
struct Monoid {
    reduction: &'static str,
    op: &'static str,
    neutral: f64,
}

/// The dims with one axis in two: so many parts, of equal length.
fn in_parts(dims: &[usize], axis: usize, parts: usize, length: usize) -> Vec<usize> {
    [&dims[..axis], &[parts, length], &dims[axis + 1..]].concat()
}

fn with_extent(dims: &[usize], axis: usize, extent: usize) -> Vec<usize> {
    let mut dims = dims.to_vec();
    dims[axis] = extent;
    dims
}

fn cumulative(c: &mut NodeCall<'_, '_>, monoid: Monoid) -> NodeResult {
    let x = c.input(0)?;
    let axis = c.axis(c.known_int(1)?, c.rank(x))?;
    let (reverse, exclusive) = (c.flag("reverse")?, c.flag("exclusive")?);
    running(c, x, axis, monoid, Running { reverse, exclusive })
}

/// Which elements a running total takes.
#[derive(Clone, Copy)]
struct Running {
    /// Those after an element instead of those before it.
    reverse: bool,
    /// Not the element itself.
    exclusive: bool,
}

/// The total up to each element: that of its part, and of all parts before.
fn running(c: &mut NodeCall<'_, '_>, x: NodeId, axis: usize, monoid: Monoid, which: Running) -> NodeResult {
    let dims = c.dims(x);
    let extent = dims[axis];
    if extent <= TOTALS {
        return doubled(c, x, axis, monoid, which);
    }
    let parts = extent.div_ceil(TOTALS);
    let rest = with_extent(&dims, axis, parts * TOTALS - extent);
    let rest = c.full(monoid.neutral, c.dtype(x), &rest)?;
    let whole = c.concat(&[x, rest], axis)?;
    let split = c.reshape(whole, &in_parts(&dims, axis, parts, TOTALS))?;
    let inside = doubled(c, split, axis + 1, monoid, which)?;
    let totals = c.reduce(monoid.reduction, split, &[axis + 1])?;
    let totals = c.reshape(totals, &with_extent(&dims, axis, parts))?;
    let before = running(c, totals, axis, monoid, Running { exclusive: true, ..which })?;
    let before = apart(c, before, axis + 1)?;
    let all = c.apply(monoid.op, [before, inside])?;
    let all = c.reshape(all, &with_extent(&dims, axis, parts * TOTALS))?;
    c.slice(all, axis, 0, extent)
}

/// The same in steps, each of which doubles how many elements a total is of (Hillis and Steele, 1986).
fn doubled(c: &mut NodeCall<'_, '_>, x: NodeId, axis: usize, monoid: Monoid, which: Running) -> NodeResult {
    let extent = c.dims(x)[axis];
    let moved = |c: &mut NodeCall<'_, '_>, x: NodeId, by: usize| {
        let (from, before, after) = if which.reverse { (by, 0, by) } else { (0, by, 0) };
        let kept = c.slice(x, axis, from, extent - by)?;
        let (axis, before, after) = ((axis as i64).into(), (before as i64).into(), (after as i64).into());
        c.op("pad", &[kept], &[("axis", axis), ("before", before), ("after", after), ("value", monoid.neutral.into())])
    };
    let mut totals = if which.exclusive && extent > 0 { moved(c, x, 1)? } else { x };
    let mut of = 1;
    while of < extent {
        let before = moved(c, totals, of)?;
        totals = c.apply(monoid.op, [before, totals])?;
        of *= 2;
    }
    Ok(totals)
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
