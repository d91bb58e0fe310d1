//! Ops that write by index. If ids are known, each place reads its update ([`Placed`]). An id that is out of range is
//! an error.

use eutectic_ir::{
    DType, NodeId,
    ops::{Ids, OutOfRange},
};

use super::{
    super::{
        call::{NodeCall, NodeResult},
        error::NodeError,
    },
    ids,
    index::{elements_at, rows_at},
    placed::Placed,
    row::{OpRow, one},
};

pub(super) const OPS: &[OpRow] = &[
    one("Scatter", 9, scatter_elements),
    one("ScatterElements", 11, scatter_elements),
    one("ScatterND", 11, scatter_nd),
    one("TensorScatter", 24, tensor_scatter),
];

/// Returns the scatter op for the attribute `reduction`, and the op that combines an update with the present element.
/// That is `None` if the update replaces the element.
fn reduction(c: &NodeCall<'_, '_>) -> Result<(&'static str, Option<&'static str>), NodeError> {
    match c.word("reduction")?.unwrap_or("none") {
        "none" => Ok(("scatter", None)),
        "add" => Ok(("scatter-sum", Some("add"))),
        "mul" => Ok(("scatter-prod", Some("mul"))),
        "max" => Ok(("scatter-max", Some("max"))),
        "min" => Ok(("scatter-min", Some("min"))),
        other => Err(format!("its reduction is `{other}`; it must be none, add, mul, max or min").into()),
    }
}

/// Applies updates whose places along the first `axes` axes of the data are known.
fn placed(
    c: &mut NodeCall<'_, '_>,
    data: NodeId,
    updates: NodeId,
    axes: usize,
    places: &[usize],
) -> Result<Option<NodeId>, NodeError> {
    let (_, combine) = reduction(c)?;
    let dims = c.dims(data)[..axes].to_vec();
    let placed = Placed::new(places, dims.iter().product());
    if combine.is_some() && !placed.are_distinct() {
        return Ok(None);
    }
    placed.written(c, data, updates, &dims, combine).map(Some)
}

/// Imports `ScatterElements`: out[.. ids[.. j ..] ..] = updates[.. j ..], where j is the index along `axis`. Along
/// other axes, ids and updates may be shorter than the data.
fn scatter_elements(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (data, ids, updates) = (c.input(0)?, c.input(1)?, c.input(2)?);
    let dims = c.dims(data);
    let axis = c.axis(c.int_or("axis", 0)?, dims.len())?;
    let given = c.dims(ids);
    if given != c.dims(updates) || given.len() != dims.len() {
        return Err(format!("its ids have extents {given:?}, but its updates have {:?}", c.dims(updates)).into());
    }
    if let Some(at) = (0..dims.len()).find(|&at| at != axis && given[at] > dims[at]) {
        return Err(
            format!("its ids have an extent of {} along axis {at}, but its data only {}", given[at], dims[at]).into()
        );
    }
    if given.contains(&0) {
        return Ok(data);
    }
    if let Some(known) = c.evaluated(ids)? {
        let places = places_of_elements(&known.to_i64(), &given, &dims, axis)?;
        if let Some(result) = placed(c, data, updates, dims.len(), &places)? {
            return Ok(result);
        }
    }
    let ids = c.cast(ids, DType::I64)?;
    let ids = ids::named(c, ids, dims[axis])?;
    let (ids, updates) = (widened(c, ids, &dims, axis, -1.0)?, widened(c, updates, &dims, axis, 0.0)?);
    let [outer, inner] = [&dims[..axis], &dims[axis + 1..]].map(|dims| dims.iter().product::<usize>());
    let [places, count] = [[outer, dims[axis], inner], [outer, given[axis], inner]];
    written(c, data, updates, ids, [places, count])
}

/// Writes updates along the second of three axes. Data and updates have equal extents along the other two.
fn written(
    c: &mut NodeCall<'_, '_>,
    data: NodeId,
    updates: NodeId,
    ids: NodeId,
    [places, count]: [[usize; 3]; 2],
) -> NodeResult {
    let (op, _) = reduction(c)?;
    let dims = c.dims(data);
    let data = c.reshape(data, &places)?;
    let (updates, ids) = (c.reshape(updates, &count)?, c.reshape(ids, &count)?);
    let result = c.op(op, &[data, updates, ids], &[])?;
    c.reshape(result, &dims)
}

/// Returns the coordinate that an id names along an axis with `extent` places. For an error, `number` is the flat index
/// of the id in a tensor with extents `given`.
fn coordinate(id: i64, extent: usize, number: usize, given: &[usize]) -> Result<usize, NodeError> {
    let ids = Ids { extent: extent as i64, from_end: true };
    let place = ids.place(id).and_then(|at| usize::try_from(at).ok());
    place.ok_or_else(|| ids::out_of_range(OutOfRange { id, ids }, number, given))
}

/// Returns the flat places in data of extents `dims` that ids of extents `given` name along `axis`. Along other axes,
/// the place of an id is its own index.
fn places_of_elements(ids: &[i64], given: &[usize], dims: &[usize], axis: usize) -> Result<Vec<usize>, NodeError> {
    let place = |(number, &id): (usize, &i64)| {
        let (mut rest, mut place, mut stride) = (number, 0, 1);
        for at in (0..dims.len()).rev() {
            let here = if at == axis { coordinate(id, dims[at], number, given)? } else { rest % given[at] };
            place += here * stride;
            (rest, stride) = (rest / given[at], stride * dims[at]);
        }
        Ok(place)
    };
    ids.iter().enumerate().map(place).collect()
}

/// Returns the rows that ids name. Each id consists of `dims.len()` coordinates. `given` are the extents of the tensor
/// of ids.
fn places_of_rows(ids: &[i64], given: &[usize], dims: &[usize]) -> Result<Vec<usize>, NodeError> {
    let place = |(number, id): (usize, &[i64])| {
        id.iter().zip(dims).enumerate().try_fold(0, |place, (axis, (&id, &extent))| {
            Ok(place * extent + coordinate(id, extent, number * dims.len() + axis, given)?)
        })
    };
    ids.chunks(dims.len().max(1)).enumerate().map(place).collect()
}

/// Pads x with a value up to the extents of the data, along all axes except `but`.
fn widened(c: &mut NodeCall<'_, '_>, x: NodeId, dims: &[usize], but: usize, value: f64) -> NodeResult {
    let mut wide = x;
    for (axis, (extent, wanted)) in c.dims(x).into_iter().zip(dims).enumerate().filter(|(axis, _)| *axis != but) {
        let after = wanted - extent;
        if after > 0 {
            let after = ("after", (after as i64).into());
            wide = c.op(
                "pad",
                &[wide],
                &[("axis", (axis as i64).into()), ("before", 0.into()), after, ("value", value.into())],
            )?;
        }
    }
    Ok(wide)
}

/// Imports `ScatterND`. The last axis of the ids has the coordinates along the first axes of the data.
fn scatter_nd(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (data, ids, updates) = (c.input(0)?, c.input(1)?, c.input(2)?);
    let dims = c.dims(data);
    let (rows, at) = rows_at(c, data, ids, 0)?;
    let (count, row): (usize, usize) = (c.dims(rows)[0], c.dims(rows)[1..].iter().product());
    let wanted = [&c.dims(at), &c.dims(rows)[1..]].concat();
    if c.dims(updates) != wanted {
        return Err(format!("its updates have extents {:?}, but must have {wanted:?}", c.dims(updates)).into());
    }
    let many: usize = c.dims(at).iter().product();
    if many * row == 0 {
        return Ok(data);
    }
    let axes = dims.len() + 1 - c.rank(rows);
    if let Some(known) = c.evaluated(ids)?.filter(|_| axes > 0) {
        let places = places_of_rows(&known.to_i64(), &c.dims(ids), &dims[..axes])?;
        if let Some(result) = placed(c, data, updates, axes, &places)? {
            return Ok(result);
        }
    }
    let at = c.reshape(at, &[1, many, 1])?;
    let at = c.expand(at, &[1, many, row])?;
    written(c, data, updates, at, [[1, count, row], [1, many, row]])
}

/// Imports `TensorScatter`: writes new rows to a cache [B .. S ..], starting at row `write_indices[b]` of sequence b.
fn tensor_scatter(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (data, updates) = (c.input(0)?, c.input(1)?);
    let (dims, new) = (c.dims(data), c.dims(updates));
    let axis = c.axis(c.int_or("axis", -2)?, dims.len())?;
    if axis == 0 {
        return Err("its `axis` is 0, which is the axis of the batch".into());
    }
    if new.len() != dims.len() {
        return Err(format!("its updates of extents {new:?} do not fit a cache of extents {dims:?}").into());
    }
    if new[axis] == 0 {
        return Ok(data);
    }
    let linear = match c.word("mode")?.unwrap_or("linear") {
        "linear" => true,
        "circular" => false,
        other => return Err(format!("its mode is `{other}`; it must be linear or circular").into()),
    };
    let place = c.iota(&dims, axis, DType::I64)?;
    let number = match c.optional(2) {
        None => place,
        Some(first) => {
            let mut first = c.cast(first, DType::I64)?;
            if linear {
                // The start is checked so that all new rows fit in the cache.
                let extent = (dims[axis] + 1).saturating_sub(new[axis]) as i64;
                first = ids::checked(c, first, Ids { extent, from_end: false })?;
            }
            let mut batch = vec![1; dims.len()];
            batch[0] = dims[0];
            let first = c.reshape(first, &batch)?;
            c.apply("sub", [place, first])?
        }
    };
    let number = if linear { number } else { c.with("mod", number, dims[axis] as f64)? };
    let (from, to) = (c.with("ge", number, 0.0)?, c.with("lt", number, new[axis] as f64)?);
    let hit = c.apply("and", [from, to])?;
    let anywhere = c.number_of(0.0, DType::I64)?;
    let number = c.apply("where", [hit, number, anywhere])?;
    let picked = elements_at(c, updates, number, axis)?;
    c.apply("where", [hit, picked, data])
}
