//! Reading by index, and what becomes an index: gathering, the place of an extremum, one-hot vectors.

use eutectic_ir::{DType, NodeId};

use super::{
    super::{
        call::{Built, NodeCall},
        error::Why,
    },
    Row, one,
};

pub(super) const OPS: &[Row] = &[
    one("Gather", 1, gather),
    one("GatherElements", 11, gather_elements),
    one("GatherND", 11, gather_nd),
    one("ArgMax", 1, |c| extremum(c, "reduce-max")),
    one("ArgMin", 1, |c| extremum(c, "reduce-min")),
    one("Hardmax", 1, |c| hardmax(c, true)),
    one("Hardmax", 13, |c| hardmax(c, false)),
    one("OneHot", 9, one_hot),
    one("CumSum", 11, |c| cumulative(c, "reduce-sum", 0.0)),
    one("CumProd", 26, |c| cumulative(c, "reduce-prod", 1.0)),
];

/// Negative ids count from the end; where none is known to be there, ids are taken as they are.
fn gather(c: &mut NodeCall<'_, '_>) -> Built {
    let (table, ids) = (c.input(0)?, c.input(1)?);
    let axis = c.axis(c.int_or("axis", 0)?, c.rank(table))?;
    let ids = match c.value(ids) {
        Some(known) if known.to_i64().iter().all(|&id| id >= 0) => ids,
        _ => from_start(c, ids, c.dims(table)[axis])?,
    };
    c.op("gather", &[table, ids], &[("axis", (axis as i64).into())])
}

/// Where negative ids count from the end.
pub(super) fn from_start(c: &mut NodeCall<'_, '_>, ids: NodeId, extent: usize) -> Built {
    let negative = c.with("lt", ids, 0.0)?;
    let shifted = c.with("add", ids, extent as f64)?;
    c.apply("where", [negative, shifted, ids])
}

fn gather_elements(c: &mut NodeCall<'_, '_>) -> Built {
    let (x, ids) = (c.input(0)?, c.input(1)?);
    let dims = c.dims(x);
    let axis = c.axis(c.int_or("axis", 0)?, dims.len())?;
    let ids = c.cast(ids, DType::I64)?;
    let ids = from_start(c, ids, dims[axis])?;
    elements_at(c, x, ids, axis)
}

/// A place, `stride` times a coordinate further. Nothing is added to nothing and multiplied by 1: what such forms are equal to would
/// multiply with those of ids that are broadcast.
fn further(c: &mut NodeCall<'_, '_>, at: Option<NodeId>, coordinate: NodeId, stride: usize) -> Built {
    let offset = if stride == 1 { coordinate } else { c.with("mul", coordinate, stride as f64)? };
    match at {
        Some(at) => c.apply("add", [at, offset]),
        None => Ok(offset),
    }
}

/// out[.. i ..] = x[.. ids[.. i ..] ..]: one gather of all elements, by their place in row-major order.
pub(super) fn elements_at(c: &mut NodeCall<'_, '_>, x: NodeId, ids: NodeId, axis: usize) -> Built {
    let (dims, wanted) = (c.dims(x), c.dims(ids));
    let (mut at, mut stride) = (None, 1);
    for i in (0..dims.len()).rev() {
        let coordinate = if i == axis { ids } else { c.iota(&wanted, i, DType::I64)? };
        at = Some(further(c, at, coordinate, stride)?);
        stride *= dims[i];
    }
    let at = at.map_or_else(|| c.full(0.0, DType::I64, &wanted), Ok)?;
    let flat = c.reshape(x, &[stride])?;
    c.op("gather", &[flat, at], &[("axis", 0.into())])
}

fn gather_nd(c: &mut NodeCall<'_, '_>) -> Built {
    let (x, ids) = (c.input(0)?, c.input(1)?);
    let batch = c.int_or("batch_dims", 0)?;
    let (rows, at) = rows_at(c, x, ids, batch)?;
    c.op("gather", &[rows, at], &[("axis", 0.into())])
}

/// The last axis of ids names a place along the axes after the batch ones: what it names, as rows, and the number of each.
pub(super) fn rows_at(c: &mut NodeCall<'_, '_>, x: NodeId, ids: NodeId, batch: i64) -> Result<(NodeId, NodeId), Why> {
    let (dims, wanted) = (c.dims(x), c.dims(ids));
    let batch = usize::try_from(batch)
        .ok()
        .filter(|&b| b < wanted.len())
        .ok_or_else(|| Why(format!("batch_dims is {batch}")))?;
    let (depth, outer) = (wanted[wanted.len() - 1], &wanted[..wanted.len() - 1]);
    if batch + depth > dims.len() {
        return Err(format!("ids of {depth} coordinates after {batch} batch axes, for {} axes", dims.len()).into());
    }
    let ids = c.cast(ids, DType::I64)?;
    let (mut at, mut stride) = (None, 1);
    for i in (0..batch + depth).rev() {
        let coordinate = if i < batch {
            c.iota(outer, i, DType::I64)?
        } else {
            let part = c.slice(ids, outer.len(), i - batch, 1)?;
            let part = c.reshape(part, outer)?;
            from_start(c, part, dims[i])?
        };
        at = Some(further(c, at, coordinate, stride)?);
        stride *= dims[i];
    }
    let at = at.map_or_else(|| c.full(0.0, DType::I64, outer), Ok)?;
    let rows = c.reshape(x, &[&[stride], &dims[batch + depth..]].concat())?;
    Ok((rows, at))
}

/// The coordinate of the first, or the last, element that is equal to the extremum of its row; `keep` with an extent of 1.
fn place_of(c: &mut NodeCall<'_, '_>, x: NodeId, how: &str, axis: usize, last: bool) -> Built {
    let dims = c.dims(x);
    let extremum = c.reduce(how, x, &[axis])?;
    let found = c.apply("eq", [x, extremum])?;
    let coordinate = c.iota(&dims, axis, DType::I64)?;
    let nowhere = c.number_of(if last { -1.0 } else { dims[axis] as f64 }, DType::I64)?;
    let candidate = c.apply("where", [found, coordinate, nowhere])?;
    c.reduce(if last { "reduce-max" } else { "reduce-min" }, candidate, &[axis])
}

fn extremum(c: &mut NodeCall<'_, '_>, how: &str) -> Built {
    let x = c.input(0)?;
    let mut dims = c.dims(x);
    let axis = c.axis(c.int_or("axis", 0)?, dims.len())?;
    if dims[axis] == 0 {
        return Err(format!("axis {axis} has no elements, none of which is the extreme one").into());
    }
    let place = place_of(c, x, how, axis, c.flag("select_last_index")?)?;
    if c.int_or("keepdims", 1)? == 0 {
        dims.remove(axis);
        return c.reshape(place, &dims);
    }
    Ok(place)
}

/// 1 at the first of the largest elements; before opset 13 over all axes from `axis` on.
fn hardmax(c: &mut NodeCall<'_, '_>, rest: bool) -> Built {
    super::norm::over_rows(c, rest, |c, x, axis| {
        let place = place_of(c, x, "reduce-max", axis, false)?;
        let dims = c.dims(x);
        let coordinate = c.iota(&dims, axis, DType::I64)?;
        let hit = c.apply("eq", [coordinate, place])?;
        c.cast(hit, c.dtype(x))
    })
}

/// `values` are what stands for off and on; ids outside of the depth are off everywhere.
fn one_hot(c: &mut NodeCall<'_, '_>) -> Built {
    let (ids, values) = (c.input(0)?, c.input(2)?);
    let depth = c.known_number(1)?;
    if !(0.0..1e9).contains(&depth) {
        return Err(format!("a depth of {depth}").into());
    }
    let mut dims = c.dims(ids);
    let axis = c.axis(c.int_or("axis", -1)?, dims.len() + 1)?;
    dims.insert(axis, 1);
    let ids = c.cast(ids, DType::I64)?;
    let ids = c.reshape(ids, &dims)?;
    let ids = from_start(c, ids, depth as usize)?;
    dims[axis] = depth as usize;
    let coordinate = c.iota(&dims, axis, DType::I64)?;
    let hit = c.apply("eq", [coordinate, ids])?;
    let mut value = |at: usize| {
        let one = c.slice(values, 0, at, 1)?;
        c.reshape(one, &[])
    };
    let (off, on) = (value(0)?, value(1)?);
    c.apply("where", [hit, on, off])
}

/// Over j the x[j] where j ≤ i (or < i; or ≥, > in reverse): a masked reduction over an axis that is put in for it.
fn cumulative(c: &mut NodeCall<'_, '_>, how: &str, neutral: f64) -> Built {
    let x = c.input(0)?;
    let dims = c.dims(x);
    let axis = c.axis(c.known_number(1)? as i64, dims.len())?;
    let mut pairs = dims.clone();
    pairs.insert(axis, dims[axis]);
    let (i, j) = (c.iota(&pairs, axis, DType::I32)?, c.iota(&pairs, axis + 1, DType::I32)?);
    let compare = match (c.flag("reverse")?, c.flag("exclusive")?) {
        (false, false) => "le",
        (false, true) => "lt",
        (true, false) => "ge",
        (true, true) => "gt",
    };
    let taken = c.apply(compare, [j, i])?;
    let mut apart = dims.clone();
    apart.insert(axis, 1);
    let (column, neutral) = (c.reshape(x, &apart)?, c.number(neutral, x)?);
    let column = c.expand(column, &pairs)?;
    let terms = c.apply("where", [taken, column, neutral])?;
    let result = c.reduce(how, terms, &[axis + 1])?;
    c.reshape(result, &dims)
}
