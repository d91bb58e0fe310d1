//! Ops that read by index, or return indices: gather, arg-max, one-hot.

use eutectic_ir::{DType, Dim, NodeId, ops::Ids};

use super::{
    super::{
        call::{NodeCall, NodeResult},
        error::NodeError,
    },
    ids,
    row::{OpRow, one},
};

pub(super) const OPS: &[OpRow] = &[
    one("Gather", 1, gather),
    one("GatherElements", 11, gather_elements),
    one("GatherND", 11, gather_nd),
    one("ReverseSequence", 10, reverse_sequence),
    one("ArgMax", 1, |c| extremum(c, "reduce-max")),
    one("ArgMin", 1, |c| extremum(c, "reduce-min")),
    one("Hardmax", 1, |c| hardmax(c, true)),
    one("Hardmax", 13, |c| hardmax(c, false)),
    one("OneHot", 9, one_hot),
];

/// Imports `Gather`. Negative ids count from the end.
fn gather(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (table, ids) = (c.input(0)?, c.input(1)?);
    let axis = c.axis(c.int_or("axis", 0)?, c.rank(table))?;
    if c.shape(table)[axis].varies() {
        return gather_along(c, table, ids, axis);
    }
    let extent = c.extent(table, axis);
    let beyond = c.value(ids).is_some_and(|ids| ids.to_i64().iter().any(|&id| id >= extent as i64));
    let named = ids::named(c, ids, extent).map_err(|NodeError(why)| match beyond {
        true => NodeError(format!(
            "{why}; if ids are positions, the sequence is longer than the model's table of positions"
        )),
        false => NodeError(why),
    })?;
    c.op("gather", &[table, named], &[("axis", (axis as i64).into())])
}

/// Gathers along an axis whose extent is a run-time extent.
fn gather_along(c: &mut NodeCall<'_, '_>, table: NodeId, ids: NodeId, axis: usize) -> NodeResult {
    let along = ("axis", (axis as i64).into());
    let extent = c.shape(table)[axis].clone();
    match c.value(ids).map(|known| known.to_i64()) {
        Some(known) if known.iter().all(|&id| id >= 0) => return c.op("gather", &[table, ids], &[along]),
        Some(known) if known.len() == 1 => {
            let last = c.part(table, axis, [&(&extent + &Dim::Known(known[0])), &Dim::Known(1)], 1)?;
            let mut dims = c.shape(table);
            dims.splice(axis..=axis, c.shape(ids));
            return c.reshape(last, &dims);
        }
        _ => {}
    }
    let ids = c.cast(ids, DType::I64)?;
    let (negative, extent) = (c.with("lt", ids, 0.0)?, c.length(&extent)?);
    let shifted = c.apply("add", [ids, extent])?;
    let ids = c.apply("where", [negative, shifted, ids])?;
    c.op("gather", &[table, ids], &[along])
}

/// Replaces negative ids, which count from the end of an axis. Does not check ids.
fn from_start(c: &mut NodeCall<'_, '_>, ids: NodeId, extent: usize) -> NodeResult {
    let negative = c.with("lt", ids, 0.0)?;
    let shifted = c.with("add", ids, extent as f64)?;
    c.apply("where", [negative, shifted, ids])
}

/// Returns the element type for indices of an axis: `i32` if it can represent them, because a vector register has twice
/// as many lanes for it as for `i64`.
pub(super) fn counter(extent: usize) -> DType {
    if i32::try_from(extent).is_ok() { DType::I32 } else { DType::I64 }
}

/// Casts ids to the type of [`counter`]. Ids below the range become −1, and ids above it become the extent.
pub(super) fn counted(c: &mut NodeCall<'_, '_>, ids: NodeId, extent: usize) -> NodeResult {
    let ids = c.with("max", ids, -1.0)?;
    let ids = c.with("min", ids, extent as f64)?;
    c.cast(ids, counter(extent))
}

fn gather_elements(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (x, ids) = (c.input(0)?, c.input(1)?);
    let axis = c.axis(c.int_or("axis", 0)?, c.rank(x))?;
    let ids = c.cast(ids, DType::I64)?;
    let ids = ids::named(c, ids, c.extent(x, axis))?;
    elements_at(c, x, ids, axis)
}

/// Computes out[.. i ..] = x[.. ids[.. i ..] ..], where i is the index along `axis`. One gather reads by row-major
/// index.
pub(super) fn elements_at(c: &mut NodeCall<'_, '_>, x: NodeId, ids: NodeId, axis: usize) -> NodeResult {
    let (dims, wanted) = (c.dims(x), c.shape(ids));
    let mut at = c.full(0.0, DType::I64, &wanted)?;
    let mut stride = 1;
    for i in (0..dims.len()).rev() {
        let coordinate = if i == axis { ids } else { c.iota(&wanted, i, DType::I64)? };
        let offset = c.with("mul", coordinate, stride as f64)?;
        at = c.apply("add", [at, offset])?;
        stride *= dims[i];
    }
    let flat = c.reshape(x, &[stride])?;
    c.op("gather", &[flat, at], &[("axis", 0.into())])
}

/// Reverses the first elements of each sequence. The number of these elements is an input for each sequence.
fn reverse_sequence(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (x, lengths) = (c.input(0)?, c.input(1)?);
    let dims = c.dims(x);
    let time = c.axis(c.int_or("time_axis", 0)?, dims.len())?;
    let batch = c.axis(c.int_or("batch_axis", 1)?, dims.len())?;
    if time == batch || c.dims(lengths) != [dims[batch]] {
        return Err(format!(
            "its lengths have extents {:?}, which do not fit an input of extents {dims:?} with batch axis {batch} and time axis {time}",
            c.dims(lengths)
        )
        .into());
    }
    let mut along = vec![1; dims.len()];
    along[batch] = dims[batch];
    let lengths = c.cast(lengths, DType::I64)?;
    let lengths = c.reshape(lengths, &along)?;
    let mut steps = vec![1; dims.len()];
    steps[time] = dims[time];
    let step = c.iota(&steps, time, DType::I64)?;
    let last = c.with("sub", lengths, 1)?;
    let turned = c.apply("sub", [last, step])?;
    let within = c.apply("lt", [step, lengths])?;
    let ids = c.apply("where", [within, turned, step])?;
    let ids = c.expand(ids, &dims)?;
    let ids = ids::checked(c, ids, Ids { extent: dims[time] as i64, from_end: false })?;
    elements_at(c, x, ids, time)
}

fn gather_nd(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (x, ids) = (c.input(0)?, c.input(1)?);
    let batch = c.int_or("batch_dims", 0)?;
    let (rows, at) = rows_at(c, x, ids, batch)?;
    c.op("gather", &[rows, at], &[("axis", 0.into())])
}

/// Interprets the last axis of ids as coordinates along the axes after the batch axes. Returns the data as a table of
/// rows, and the row number of each id.
pub(super) fn rows_at(
    c: &mut NodeCall<'_, '_>,
    x: NodeId,
    ids: NodeId,
    batch: i64,
) -> Result<(NodeId, NodeId), NodeError> {
    let (dims, wanted) = (c.dims(x), c.shape(ids));
    let batch = usize::try_from(batch).ok().filter(|&b| b < wanted.len()).ok_or_else(|| {
        NodeError(format!(
            "its batch_dims is {batch}, but must be less than the numbers of axes of its ids and its data"
        ))
    })?;
    let (depth, outer) = (c.fix(&wanted[wanted.len() - 1]), &wanted[..wanted.len() - 1]);
    if batch + depth > dims.len() {
        return Err(format!(
            "its ids have {depth} coordinates after {batch} batch axes, but the data has {} axes",
            dims.len()
        )
        .into());
    }
    let ids = c.cast(ids, DType::I64)?;
    let legal: Vec<Ids> =
        dims[batch..batch + depth].iter().map(|&extent| Ids { extent: extent as i64, from_end: true }).collect();
    ids::known_in_range(c, ids, &legal)?;
    let mut at = c.full(0.0, DType::I64, outer)?;
    let mut stride = 1;
    for i in (0..batch + depth).rev() {
        let coordinate = if i < batch {
            c.iota(outer, i, DType::I64)?
        } else {
            let part = c.slice(ids, outer.len(), i - batch, 1)?;
            let part = c.reshape(part, outer)?;
            ids::named(c, part, dims[i])?
        };
        let offset = c.with("mul", coordinate, stride as f64)?;
        at = c.apply("add", [at, offset])?;
        stride *= dims[i];
    }
    let rows = c.reshape(x, &[&[stride], &dims[batch + depth..]].concat())?;
    Ok((rows, at))
}

/// Returns the index of the first or the last element of a row that is equal to the row's extremum. A NaN counts as the
/// extremum, as in NumPy. The axis stays, with extent 1.
pub(super) fn place_of(c: &mut NodeCall<'_, '_>, x: NodeId, how: &str, axis: usize, last: bool) -> NodeResult {
    let (dims, extent) = (c.shape(x), c.extent(x, axis));
    let extremum = c.reduce(how, x, &[axis])?;
    let mut found = c.apply("eq", [x, extremum])?;
    if c.dtype(x).is_float() {
        // The extremum of a row with NaN is NaN, which is equal to nothing. In such a row, `is-nan` finds the element
        // instead of `eq`.
        let is_nan = c.apply("is-nan", [x])?;
        found = c.apply("or", [found, is_nan])?;
    }
    let number = counter(extent);
    let coordinate = c.iota(&dims, axis, number)?;
    let nowhere = c.number_of(if last { -1.0 } else { extent as f64 }, number)?;
    let candidate = c.apply("where", [found, coordinate, nowhere])?;
    c.reduce(if last { "reduce-max" } else { "reduce-min" }, candidate, &[axis])
}

fn extremum(c: &mut NodeCall<'_, '_>, how: &str) -> NodeResult {
    let x = c.input(0)?;
    let mut dims = c.shape(x);
    let axis = c.axis(c.int_or("axis", 0)?, dims.len())?;
    if dims[axis] == Dim::Known(0) {
        return Err(format!("its axis {axis} has no elements, so there is no extremum").into());
    }
    let place = place_of(c, x, how, axis, c.flag("select_last_index")?)?;
    let place = c.cast(place, DType::I64)?;
    if c.int_or("keepdims", 1)? == 0 {
        dims.remove(axis);
        return c.reshape(place, &dims);
    }
    Ok(place)
}

/// Returns 1 at the first of a row's largest elements, and 0 elsewhere. Before opset 13, a row consists of `axis` and
/// all axes after it.
fn hardmax(c: &mut NodeCall<'_, '_>, rest: bool) -> NodeResult {
    super::norm::over_rows(c, rest, |c, x, axis| {
        let place = place_of(c, x, "reduce-max", axis, false)?;
        let (dims, number) = (c.shape(x), counter(c.extent(x, axis)));
        let coordinate = c.iota(&dims, axis, number)?;
        let hit = c.apply("eq", [coordinate, place])?;
        c.cast(hit, c.dtype(x))
    })
}

/// Imports `OneHot`. `values` contains the off value and the on value. For an id outside of the depth, all elements are
/// the off value.
fn one_hot(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (ids, values) = (c.input(0)?, c.input(2)?);
    let depth = c.known_int(1)?;
    if !(0..1_000_000_000).contains(&depth) {
        return Err(format!("its depth is {depth}, but must be from 0 to 999999999").into());
    }
    let mut dims = c.shape(ids);
    let axis = c.axis(c.int_or("axis", -1)?, dims.len() + 1)?;
    dims.insert(axis, Dim::Known(1));
    let ids = c.cast(ids, DType::I64)?;
    let ids = c.reshape(ids, &dims)?;
    let depth = depth as usize;
    let ids = from_start(c, ids, depth)?;
    let ids = counted(c, ids, depth)?;
    dims[axis] = depth.into();
    let coordinate = c.iota(&dims, axis, counter(depth))?;
    let hit = c.apply("eq", [coordinate, ids])?;
    let mut value = |at: usize| {
        let one = c.slice(values, 0, at, 1)?;
        c.scalar(one)
    };
    let (off, on) = (value(0)?, value(1)?);
    c.apply("where", [hit, on, off])
}
