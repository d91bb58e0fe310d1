//! Running totals, and the largest of a row, part by part. For the latter each element is compared with all others of its part of the row,
//! and parts with each other, so that the pairs stay few where rows are long.

use eutectic_ir::{DType, NodeId};

use super::{
    super::{
        call::{NodeCall, NodeResult},
        error::NodeError,
    },
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

/// How long the parts of ranked rows are at least.
const PART: usize = 128;
/// How long the parts of rows are of which totals are taken.
const TOTALS: usize = 16;

/// The most pairs of elements of a row that are compared: a byte each may be kept.
const MOST_PAIRS: usize = 1 << 28;

/// The type of numbers along an axis, whose pairs are few enough for it.
const NUMBER: DType = DType::I32;

/// An associative op.
#[derive(Clone, Copy)]
struct Monoid {
    reduction: &'static str,
    op: &'static str,
    neutral: f64,
}

/// A row of elements against itself.
struct Pairs {
    /// The number of the first along an axis, that of the second along the next one; the extent of all others is 1, so that what follows
    /// from numbers alone is the same for all rows.
    first: NodeId,
    second: NodeId,
}

impl Pairs {
    fn along(c: &mut NodeCall<'_, '_>, dims: &[usize], axis: usize) -> Result<Pairs, NodeError> {
        let extent = dims[axis];
        if extent.checked_mul(extent).is_none_or(|pairs| pairs > MOST_PAIRS) {
            return Err(
                format!("it compares all pairs of {extent} elements, of which {MOST_PAIRS} are the most").into()
            );
        }
        let numbers = |at: usize| (0..dims.len() + 1).map(|d| if d == at { extent } else { 1 }).collect::<Vec<_>>();
        let first = c.iota(&numbers(axis), axis, NUMBER)?;
        let second = c.iota(&numbers(axis + 1), axis + 1, NUMBER)?;
        Ok(Pairs { first, second })
    }
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
    let axis = c.axis(c.known_number(1)? as i64, c.rank(x))?;
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

/// How elements compare with others that come behind them.
#[derive(Clone, Copy)]
struct Better {
    strictly: &'static str,
    or_equal: &'static str,
}

/// Elements of a row in order, and their places in it.
struct Ranked {
    values: NodeId,
    places: NodeId,
}

/// The k largest or smallest of each row, in order, the first of equal ones first.
fn top_k(c: &mut NodeCall<'_, '_>) -> Outputs {
    let x = c.input(0)?;
    let dims = c.dims(x);
    let axis = c.axis(c.int_or("axis", -1)?, dims.len())?;
    let k = c.known_number(1)?;
    if !(0.0..=dims[axis] as f64).contains(&k) {
        return Err(format!("the {k} first of {} elements", dims[axis]).into());
    }
    let better = match c.int_or("largest", 1)? {
        0 => Better { strictly: "lt", or_equal: "le" },
        _ => Better { strictly: "gt", or_equal: "ge" },
    };
    let Ranked { values, places } = ranked(c, x, axis, k as usize, better)?;
    Ok(vec![values, places])
}

/// The k best of a row: of the k best of each part, and of what is left over.
fn ranked(c: &mut NodeCall<'_, '_>, x: NodeId, axis: usize, k: usize, better: Better) -> Result<Ranked, NodeError> {
    let dims = c.dims(x);
    let extent = dims[axis];
    // So that a quarter is left at most, and the next round has less to do.
    let length = PART.max(4 * k);
    if extent < 2 * length {
        return ranked_by_pairs(c, x, axis, k, better);
    }
    let parts = extent / length;
    let split = c.slice(x, axis, 0, parts * length)?;
    let split = c.reshape(split, &in_parts(&dims, axis, parts, length))?;
    let best = ranked_by_pairs(c, split, axis + 1, k, better)?;
    let part = c.iota(&in_parts(&vec![1; dims.len()], axis, parts, 1), axis, DType::I64)?;
    let start = c.with("mul", part, length as f64)?;
    let places = c.apply("add", [best.places, start])?;
    // Of equal elements the first still comes first: parts are in order, and so are the best of each.
    let left = with_extent(&dims, axis, parts * k);
    let (mut values, mut places) = (c.reshape(best.values, &left)?, c.reshape(places, &left)?);
    let over = extent - parts * length;
    if over > 0 {
        let rest = c.slice(x, axis, parts * length, over)?;
        let numbers = c.iota(&with_extent(&dims, axis, over), axis, DType::I64)?;
        let numbers = c.with("add", numbers, (parts * length) as f64)?;
        (values, places) = (c.concat(&[values, rest], axis)?, c.concat(&[places, numbers], axis)?);
    }
    let best = ranked(c, values, axis, k, better)?;
    let places = elements_at(c, places, best.places, axis)?;
    Ok(Ranked { values: best.values, places })
}

/// An element's rank is how many come before it.
fn ranked_by_pairs(
    c: &mut NodeCall<'_, '_>,
    x: NodeId,
    axis: usize,
    k: usize,
    better: Better,
) -> Result<Ranked, NodeError> {
    let dims = c.dims(x);
    let pairs = Pairs::along(c, &dims, axis)?;
    let (own, other) = (apart(c, x, axis + 1)?, apart(c, x, axis)?);
    let (sooner, later) = (c.apply(better.or_equal, [other, own])?, c.apply(better.strictly, [other, own])?);
    let earlier = c.apply("lt", [pairs.second, pairs.first])?;
    let before = c.apply("where", [earlier, sooner, later])?;
    let before = c.cast(before, NUMBER)?;
    let rank = c.reduce("reduce-sum", before, &[axis + 1])?;
    let rank = c.reshape(rank, &dims)?;
    // Of the elements [.. k N ..] that have the rank.
    let rank = apart(c, rank, axis)?;
    let mut numbers = vec![1; dims.len() + 1];
    numbers[axis] = k;
    let wanted = c.iota(&numbers, axis, NUMBER)?;
    let found = c.apply("eq", [wanted, rank])?;
    let other = c.number_of(0.0, NUMBER)?;
    let place = c.apply("where", [found, pairs.second, other])?;
    let place = c.reduce("reduce-max", place, &[axis + 1])?;
    let places = c.reshape(place, &with_extent(&dims, axis, k))?;
    let places = c.cast(places, DType::I64)?;
    Ok(Ranked { values: elements_at(c, x, places, axis)?, places })
}
