//! Writing by index, and choosing the largest: what a program that only reads computes for each place instead.
//!
//! Of the updates that go to a place, each place looks for its own: all pairs are compared, which is cheap where updates or places
//! are few (a cache's new rows, a mask's slice, a router's experts), and folded away where the ids are known. Updates for places that
//! do not exist are left out.

use eutectic_ir::{DType, NodeId, Tensor};

use super::{
    super::{
        call::{Built, NodeCall},
        error::Why,
    },
    Outputs, Row,
    index::{elements_at, from_start, rows_at},
    many, one,
};

pub(super) const OPS: &[Row] = &[
    one("Scatter", 9, scatter_elements),
    one("ScatterElements", 11, scatter_elements),
    one("ScatterND", 11, scatter_nd),
    one("TensorScatter", 24, tensor_scatter),
    many("TopK", 10, top_k),
];

/// Updates on their way to places along an axis.
struct Scatter {
    /// [.. N ..]: what is there before.
    data: NodeId,
    /// [.. M ..], the other axes as those of `data`.
    updates: NodeId,
    axis: usize,
    /// [.. N M ..], or what broadcasts to it: whether the update goes to the place.
    hits: NodeId,
}

impl Scatter {
    /// What is there after it. `pick` reads the updates of the numbers [.. N ..], which broadcasts as `hits` does.
    fn result(self, c: &mut NodeCall<'_, '_>, pick: fn(&mut NodeCall<'_, '_>, &Scatter, NodeId) -> Built) -> Built {
        let how = c.word("reduction")?.unwrap_or("none");
        if c.dims(self.updates).contains(&0) {
            return Ok(self.data);
        }
        let combine = match how {
            "none" => return self.last(c, pick),
            "add" => ("reduce-sum", "add"),
            "mul" => ("reduce-prod", "mul"),
            "max" => ("reduce-max", "max"),
            "min" => ("reduce-min", "min"),
            other => return Err(format!("a reduction `{other}`").into()),
        };
        let (updates, data) = (apart(c, self.updates, self.axis)?, apart(c, self.data, self.axis + 1)?);
        let elsewhere = match how {
            "add" => c.number(0.0, data)?,
            "mul" => c.number(1.0, data)?,
            _ => data,
        };
        let terms = c.apply("where", [self.hits, updates, elsewhere])?;
        let all = c.reduce(combine.0, terms, &[self.axis + 1])?;
        let all = c.reshape(all, &c.dims(self.data))?;
        c.apply(combine.1, [self.data, all])
    }

    /// Of several updates of a place the last one counts.
    fn last(self, c: &mut NodeCall<'_, '_>, pick: fn(&mut NodeCall<'_, '_>, &Scatter, NodeId) -> Built) -> Built {
        let mut dims = c.dims(self.hits);
        let number = c.iota(&dims, self.axis + 1, DType::I64)?;
        let none = c.number_of(-1.0, DType::I64)?;
        let candidates = c.apply("where", [self.hits, number, none])?;
        let last = c.reduce("reduce-max", candidates, &[self.axis + 1])?;
        dims.remove(self.axis + 1);
        let last = c.reshape(last, &dims)?;
        let hit = c.with("ge", last, 0.0)?;
        let number = c.with("max", last, 0.0)?;
        let picked = pick(c, &self, number)?;
        c.apply("where", [hit, picked, self.data])
    }
}

/// With an axis of extent 1 put in.
fn apart(c: &mut NodeCall<'_, '_>, x: NodeId, axis: usize) -> Built {
    let mut dims = c.dims(x);
    dims.insert(axis, 1);
    c.reshape(x, &dims)
}

/// out[.. ids[.. j ..] ..] = updates[.. j ..]; ids and updates may be shorter than the data along the other axes.
fn scatter_elements(c: &mut NodeCall<'_, '_>) -> Built {
    let (data, ids, updates) = (c.input(0)?, c.input(1)?, c.input(2)?);
    let dims = c.dims(data);
    let axis = c.axis(c.int_or("axis", 0)?, dims.len())?;
    if c.dims(ids) != c.dims(updates) || c.rank(ids) != dims.len() {
        return Err(format!("ids of {:?} for updates of {:?}", c.dims(ids), c.dims(updates)).into());
    }
    let ids = c.cast(ids, DType::I64)?;
    let ids = from_start(c, ids, dims[axis])?;
    let (ids, updates) = (widened(c, ids, &dims, axis, -1.0)?, widened(c, updates, &dims, axis, 0.0)?);
    let ids = apart(c, ids, axis)?;
    let mut pairs = c.dims(ids);
    pairs[axis] = dims[axis];
    let place = c.iota(&pairs, axis, DType::I64)?;
    let hits = c.apply("eq", [place, ids])?;
    let pick = |c: &mut NodeCall<'_, '_>, s: &Scatter, number| elements_at(c, s.updates, number, s.axis);
    Scatter { data, updates, axis, hits }.result(c, pick)
}

/// As long as the data along all axes but one.
fn widened(c: &mut NodeCall<'_, '_>, x: NodeId, dims: &[usize], but: usize, value: f64) -> Built {
    let mut wide = x;
    for (axis, (extent, wanted)) in c.dims(x).into_iter().zip(dims).enumerate().filter(|(axis, _)| *axis != but) {
        let after =
            wanted.checked_sub(extent).ok_or_else(|| Why(format!("{extent} ids for {wanted} of axis {axis}")))?;
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
fn scatter_nd(c: &mut NodeCall<'_, '_>) -> Built {
    let (data, ids, updates) = (c.input(0)?, c.input(1)?, c.input(2)?);
    let dims = c.dims(data);
    let (rows, at) = rows_at(c, data, ids, 0)?;
    let (count, row) = (c.dims(rows)[0], c.dims(rows)[1..].iter().product());
    let wanted = [&c.dims(at), &c.dims(rows)[1..]].concat();
    if c.dims(updates) != wanted {
        return Err(format!("updates of {:?}, not {wanted:?}", c.dims(updates)).into());
    }
    let many: usize = c.dims(at).iter().product();
    let data = c.reshape(data, &[count, row])?;
    let updates = c.reshape(updates, &[many, row])?;
    let replaces = c.word("reduction")?.is_none_or(|how| how == "none");
    if let Some(ids) = c.worked_out(at).filter(|_| replaces && many > 0) {
        let result = placed(c, data, updates, &ids.to_i64(), count)?;
        return c.reshape(result, &dims);
    }
    let at = c.reshape(at, &[1, many, 1])?;
    let place = c.iota(&[count, many, 1], 0, DType::I64)?;
    let hits = c.apply("eq", [place, at])?;
    let pick = |c: &mut NodeCall<'_, '_>, s: &Scatter, number: NodeId| {
        let number = c.reshape(number, &[c.dims(number)[0]])?;
        c.op("gather", &[s.updates, number], &[("axis", 0.into())])
    };
    let result = Scatter { data, updates, axis: 0, hits }.result(c, pick)?;
    c.reshape(result, &dims)
}

/// Rows with others in their stead, where it is known which: each place reads the last update that goes to it, and no pairs are compared.
fn placed(c: &mut NodeCall<'_, '_>, data: NodeId, updates: NodeId, ids: &[i64], count: usize) -> Built {
    let mut last = vec![-1_i64; count];
    for (number, &id) in (0..).zip(ids) {
        if let Some(place) = usize::try_from(id).ok().and_then(|id| last.get_mut(id)) {
            *place = number;
        }
    }
    let hit = Tensor::from_f64(DType::Bool, &[count, 1], last.iter().map(|&n| f64::from(u8::from(n >= 0))));
    let number = Tensor::from_i64(DType::I64, &[count], last.into_iter().map(|n| n.max(0)));
    let (hit, number) = (c.constant(hit)?, c.constant(number)?);
    let picked = c.op("gather", &[updates, number], &[("axis", 0.into())])?;
    c.apply("where", [hit, picked, data])
}

/// A cache's new rows: updates [B .. S ..] from place `write_indices[b]` on, one after the other.
fn tensor_scatter(c: &mut NodeCall<'_, '_>) -> Built {
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

/// The k largest or smallest of each row, in order, the first of equal ones first: an element's rank is how many come before it.
fn top_k(c: &mut NodeCall<'_, '_>) -> Outputs {
    let x = c.input(0)?;
    let dims = c.dims(x);
    let axis = c.axis(c.int_or("axis", -1)?, dims.len())?;
    let k = c.known_number(1)?;
    if !(0.0..=dims[axis] as f64).contains(&k) {
        return Err(format!("the {k} first of {} elements", dims[axis]).into());
    }
    let mut pairs = dims.clone();
    pairs.insert(axis + 1, dims[axis]);
    let (i, j) = (c.iota(&pairs, axis, DType::I64)?, c.iota(&pairs, axis + 1, DType::I64)?);
    let (own, other) = (apart(c, x, axis + 1)?, apart(c, x, axis)?);
    let better = c.apply(if c.int_or("largest", 1)? != 0 { "gt" } else { "lt" }, [other, own])?;
    let (equal, earlier) = (c.apply("eq", [other, own])?, c.apply("lt", [j, i])?);
    let sooner = c.apply("and", [equal, earlier])?;
    let before = c.apply("or", [better, sooner])?;
    let before = c.cast(before, DType::I64)?;
    let rank = c.reduce("reduce-sum", before, &[axis + 1])?;
    let rank = c.reshape(rank, &dims)?;
    // Of the elements [.. k N ..] that have the rank.
    let rank = apart(c, rank, axis)?;
    let mut ranked = dims.clone();
    ranked.insert(axis, k as usize);
    let (wanted, element) = (c.iota(&ranked, axis, DType::I64)?, c.iota(&ranked, axis + 1, DType::I64)?);
    let found = c.apply("eq", [wanted, rank])?;
    let other = c.number_of(0.0, DType::I64)?;
    let place = c.apply("where", [found, element, other])?;
    let place = c.reduce("reduce-max", place, &[axis + 1])?;
    ranked.remove(axis + 1);
    let place = c.reshape(place, &ranked)?;
    Ok(vec![elements_at(c, x, place, axis)?, place])
}
