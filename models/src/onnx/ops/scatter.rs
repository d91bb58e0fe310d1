//! Writing by index: what a program that only reads computes for each place instead.
//!
//! Of the updates that go to a place, each place looks for its own: all pairs are compared, which is cheap where updates or places
//! are few (a cache's new rows). Where the ids do not depend on inputs, nothing is compared ([`Placed`]), and one that
//! names no place is an error; of other ids, updates for places that do not exist are left out.

use eutectic_ir::{DType, NodeId};

use super::{
    super::{
        call::{NodeCall, NodeResult},
        error::NodeError,
    },
    OpRow,
    index::{counted, counter, elements_at, from_start, rows_at},
    one,
    placed::Placed,
};

pub(super) const OPS: &[OpRow] = &[
    one("Scatter", 9, scatter_elements),
    one("ScatterElements", 11, scatter_elements),
    one("ScatterND", 11, scatter_nd),
    one("TensorScatter", 24, tensor_scatter),
];

/// The op that combines an update with what is there, and the one that combines updates; none where the update replaces it.
fn reduction(c: &NodeCall<'_, '_>) -> Result<Option<(&'static str, &'static str)>, NodeError> {
    match c.word("reduction")?.unwrap_or("none") {
        "none" => Ok(None),
        "add" => Ok(Some(("add", "reduce-sum"))),
        "mul" => Ok(Some(("mul", "reduce-prod"))),
        "max" => Ok(Some(("max", "reduce-max"))),
        "min" => Ok(Some(("min", "reduce-min"))),
        other => Err(format!("a reduction `{other}`").into()),
    }
}

/// What is there after updates whose places are known, along the first `axes` axes of the data.
fn placed(
    c: &mut NodeCall<'_, '_>,
    data: NodeId,
    updates: NodeId,
    axes: usize,
    places: &[usize],
) -> Result<Option<NodeId>, NodeError> {
    let combine = reduction(c)?.map(|(combine, _)| combine);
    let dims = c.dims(data)[..axes].to_vec();
    let placed = Placed::new(places, dims.iter().product());
    if combine.is_some() && !placed.is_apart() {
        return Ok(None);
    }
    placed.written(c, data, updates, &dims, combine).map(Some)
}

/// Updates on their way to places along an axis.
struct ScatterUpdates {
    /// [.. N ..]: what is there before.
    data: NodeId,
    /// [.. M ..], the other axes as those of `data`.
    updates: NodeId,
    axis: usize,
    /// [.. N M ..], or what broadcasts to it: whether the update goes to the place.
    hits: NodeId,
}

impl ScatterUpdates {
    /// What is there after it. `pick` reads the updates of the numbers [.. N ..], which broadcasts as `hits` does.
    fn result(
        self,
        c: &mut NodeCall<'_, '_>,
        pick: fn(&mut NodeCall<'_, '_>, &ScatterUpdates, NodeId) -> NodeResult,
    ) -> NodeResult {
        let Some((combine, reduce)) = reduction(c)? else { return self.last(c, pick) };
        let (updates, data) = (apart(c, self.updates, self.axis)?, apart(c, self.data, self.axis + 1)?);
        let elsewhere = match combine {
            "add" => c.number(0.0, data)?,
            "mul" => c.number(1.0, data)?,
            _ => data,
        };
        let terms = c.apply("where", [self.hits, updates, elsewhere])?;
        let all = c.reduce(reduce, terms, &[self.axis + 1])?;
        let all = c.reshape(all, &c.dims(self.data))?;
        c.apply(combine, [self.data, all])
    }

    /// Of several updates of a place the last one counts.
    fn last(
        self,
        c: &mut NodeCall<'_, '_>,
        pick: fn(&mut NodeCall<'_, '_>, &ScatterUpdates, NodeId) -> NodeResult,
    ) -> NodeResult {
        let mut dims = c.dims(self.hits);
        let dtype = counter(dims[self.axis + 1]);
        let number = c.iota(&dims, self.axis + 1, dtype)?;
        let none = c.number_of(-1.0, dtype)?;
        let candidates = c.apply("where", [self.hits, number, none])?;
        let last = c.reduce("reduce-max", candidates, &[self.axis + 1])?;
        dims.remove(self.axis + 1);
        let last = c.reshape(last, &dims)?;
        let hit = c.with("ge", last, 0.0)?;
        let number = c.with("max", last, 0.0)?;
        let number = c.cast(number, DType::I64)?;
        let picked = pick(c, &self, number)?;
        c.apply("where", [hit, picked, self.data])
    }
}

/// With an axis of extent 1 put in.
pub(super) fn apart(c: &mut NodeCall<'_, '_>, x: NodeId, axis: usize) -> NodeResult {
    let mut dims = c.dims(x);
    dims.insert(axis, 1);
    c.reshape(x, &dims)
}

/// out[.. ids[.. j ..] ..] = updates[.. j ..]; ids and updates may be shorter than the data along the other axes.
fn scatter_elements(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (data, ids, updates) = (c.input(0)?, c.input(1)?, c.input(2)?);
    let dims = c.dims(data);
    let axis = c.axis(c.int_or("axis", 0)?, dims.len())?;
    let given = c.dims(ids);
    if given != c.dims(updates) || given.len() != dims.len() {
        return Err(format!("ids of {given:?} for updates of {:?}", c.dims(updates)).into());
    }
    if let Some(at) = (0..dims.len()).find(|&at| at != axis && given[at] > dims[at]) {
        return Err(format!("{} ids for {} places of axis {at}", given[at], dims[at]).into());
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
    let ids = from_start(c, ids, dims[axis])?;
    let ids = counted(c, ids, dims[axis])?;
    let (ids, updates) = (widened(c, ids, &dims, axis, -1.0)?, widened(c, updates, &dims, axis, 0.0)?);
    let ids = apart(c, ids, axis)?;
    let mut pairs = c.dims(ids);
    pairs[axis] = dims[axis];
    let place = c.iota(&pairs, axis, counter(dims[axis]))?;
    let hits = c.apply("eq", [place, ids])?;
    let pick = |c: &mut NodeCall<'_, '_>, s: &ScatterUpdates, number| elements_at(c, s.updates, number, s.axis);
    ScatterUpdates { data, updates, axis, hits }.result(c, pick)
}

/// The coordinate that the id of an update names along an axis of so many places; negative ones count from the end.
fn coordinate(id: i64, update: usize, axis: usize, extent: usize) -> Result<usize, NodeError> {
    let at = if id < 0 { id.saturating_add_unsigned(extent as u64) } else { id };
    let there = usize::try_from(at).ok().filter(|&at| at < extent);
    there.ok_or_else(|| NodeError(format!("update {update} goes to {id} along axis {axis}, which has {extent} places")))
}

/// Where elements go in data of these extents, by the ids, of extents `given`, along an axis. Along the others, there
/// are no more ids than places.
fn places_of_elements(ids: &[i64], given: &[usize], dims: &[usize], axis: usize) -> Result<Vec<usize>, NodeError> {
    let place = |(number, &id): (usize, &i64)| {
        let (mut rest, mut place, mut stride) = (number, 0, 1);
        for at in (0..dims.len()).rev() {
            let here = if at == axis { coordinate(id, number, axis, dims[at])? } else { rest % given[at] };
            place += here * stride;
            (rest, stride) = (rest / given[at], stride * dims[at]);
        }
        Ok(place)
    };
    ids.iter().enumerate().map(place).collect()
}

/// The rows that ids of `dims.len()` coordinates name.
fn places_of_rows(ids: &[i64], dims: &[usize]) -> Result<Vec<usize>, NodeError> {
    let place = |(number, id): (usize, &[i64])| {
        id.iter()
            .zip(dims)
            .enumerate()
            .try_fold(0, |place, (axis, (&id, &extent))| Ok(place * extent + coordinate(id, number, axis, extent)?))
    };
    ids.chunks(dims.len().max(1)).enumerate().map(place).collect()
}

/// As long as the data along all axes but one, where it is no longer.
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

/// The last axis of the ids names a place along the first axes of the data.
fn scatter_nd(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (data, ids, updates) = (c.input(0)?, c.input(1)?, c.input(2)?);
    let dims = c.dims(data);
    let (rows, at) = rows_at(c, data, ids, 0)?;
    let (count, row): (usize, usize) = (c.dims(rows)[0], c.dims(rows)[1..].iter().product());
    let wanted = [&c.dims(at), &c.dims(rows)[1..]].concat();
    if c.dims(updates) != wanted {
        return Err(format!("updates of {:?}, not {wanted:?}", c.dims(updates)).into());
    }
    let many: usize = c.dims(at).iter().product();
    if many * row == 0 {
        return Ok(data);
    }
    let axes = dims.len() + 1 - c.rank(rows);
    if let Some(known) = c.evaluated(ids)?.filter(|_| axes > 0) {
        let places = places_of_rows(&known.to_i64(), &dims[..axes])?;
        if let Some(result) = placed(c, data, updates, axes, &places)? {
            return Ok(result);
        }
    }
    let data = c.reshape(data, &[count, row])?;
    let updates = c.reshape(updates, &[many, row])?;
    let at = counted(c, at, count)?;
    let at = c.reshape(at, &[1, many, 1])?;
    let place = c.iota(&[count, many, 1], 0, counter(count))?;
    let hits = c.apply("eq", [place, at])?;
    let pick = |c: &mut NodeCall<'_, '_>, s: &ScatterUpdates, number: NodeId| {
        let number = c.reshape(number, &[c.dims(number)[0]])?;
        c.op("gather", &[s.updates, number], &[("axis", 0.into())])
    };
    let result = ScatterUpdates { data, updates, axis: 0, hits }.result(c, pick)?;
    c.reshape(result, &dims)
}

/// A cache's new rows: updates [B .. S ..] from place `write_indices[b]` on, one after the other.
fn tensor_scatter(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (data, updates) = (c.input(0)?, c.input(1)?);
    let (dims, new) = (c.dims(data), c.dims(updates));
    let axis = c.axis(c.int_or("axis", -2)?, dims.len())?;
    if axis == 0 {
        return Err("along the batch".into());
    }
    if new.len() != dims.len() {
        return Err(format!("updates of {new:?} for a cache of {dims:?}").into());
    }
    if new[axis] == 0 {
        return Ok(data);
    }
    let place = c.iota(&dims, axis, DType::I64)?;
    let number = match c.optional(2) {
        None => place,
        Some(first) => {
            let first = c.cast(first, DType::I64)?;
            let mut batch = vec![1; dims.len()];
            batch[0] = dims[0];
            let first = c.reshape(first, &batch)?;
            c.apply("sub", [place, first])?
        }
    };
    let number = match c.word("mode")?.unwrap_or("linear") {
        "linear" => number,
        "circular" => c.with("mod", number, dims[axis] as f64)?,
        other => return Err(format!("a mode `{other}`").into()),
    };
    let (from, to) = (c.with("ge", number, 0.0)?, c.with("lt", number, new[axis] as f64)?);
    let hit = c.apply("and", [from, to])?;
    let anywhere = c.number_of(0.0, DType::I64)?;
    let number = c.apply("where", [hit, number, anywhere])?;
    let picked = elements_at(c, updates, number, axis)?;
    c.apply("where", [hit, picked, data])
}
