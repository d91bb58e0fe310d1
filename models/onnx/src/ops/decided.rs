//! Ops whose result has a shape that depends on data. The import evaluates them, so the data must be known then.

use std::collections::BTreeMap;

use eutectic_ir::{DType, Tensor};

use super::{
    super::call::{NodeCall, NodeResult},
    resize::taken,
    row::{OpRow, Outputs, many, one},
};

pub(super) const OPS: &[OpRow] = &[
    one("Compress", 9, compress),
    one("NonZero", 9, non_zero),
    many("Unique", 11, unique),
    one("NonMaxSuppression", 10, suppressed),
];

/// Selects the slices along an axis where a condition holds. The condition may be shorter than the axis.
fn compress(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let mut x = c.input(0)?;
    let axis = match c.int("axis")? {
        Some(axis) => c.axis(axis, c.rank(x))?,
        None => {
            x = c.reshape(x, &[c.dims(x).iter().product::<usize>()])?;
            0
        }
    };
    let condition = c.known_ints(1)?;
    let ids: Vec<usize> = (0..condition.len()).filter(|at| condition[*at] != 0).collect();
    let extent = c.dims(x)[axis];
    match ids.last() {
        None => c.slice(x, axis, 0, 0),
        Some(last) if *last < extent => taken(c, x, axis, &ids),
        Some(last) => {
            Err(format!("its condition selects index {last}, which is out of range for an axis of {extent} elements")
                .into())
        }
    }
}

/// Returns the coordinates of nonzero elements. Each of them is a column of the result.
fn non_zero(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.known(0)?;
    let dims = x.dims().to_vec();
    let there: Vec<bool> = if x.dtype().is_float() {
        x.to_f64().iter().map(|x| *x != 0.0).collect()
    } else {
        x.to_i64().iter().map(|x| *x != 0).collect()
    };
    let found: Vec<usize> = (0..there.len()).filter(|at| there[*at]).collect();
    let stride = |axis: usize| dims[axis + 1..].iter().product::<usize>();
    let coordinate = |axis: usize| {
        let (stride, extent) = (stride(axis), dims[axis]);
        found.iter().map(move |at| (at / stride % extent) as i64)
    };
    let all: Vec<i64> = (0..dims.len()).flat_map(coordinate).collect();
    c.constant(Tensor::from_i64(DType::I64, &[dims.len(), found.len()], all))
}

/// Maps elements to integers that sort in the same order. All NaN have the same, largest key. Zeros of both signs have
/// the same key.
fn keys(x: &Tensor) -> Vec<i64> {
    let key = |x: f64| {
        if x.is_nan() {
            return i64::MAX;
        }
        let bits = (x + 0.0).to_bits() as i64;
        if bits < 0 { !bits ^ i64::MIN } else { bits }
    };
    if x.dtype().is_float() { x.to_f64().into_iter().map(key).collect() } else { x.to_i64() }
}

/// Imports `Unique`, for slices along an axis or for single elements. Returns the distinct slices, the index of each
/// one's first occurrence, the index of the distinct slice for each input slice, and the counts.
fn unique(c: &mut NodeCall<'_, '_>) -> Outputs {
    let mut x = c.input(0)?;
    let known = keys(&c.known(0)?);
    let axis = match c.int("axis")? {
        Some(axis) => c.axis(axis, c.rank(x))?,
        None => {
            x = c.reshape(x, &[known.len()])?;
            0
        }
    };
    let dims = c.dims(x);
    let (extent, inner) = (dims[axis], dims[axis + 1..].iter().product::<usize>());
    let part = |at: usize| -> Vec<i64> {
        let outer = dims[..axis].iter().product::<usize>();
        (0..outer).flat_map(|o| (0..inner).map(move |i| (o * extent + at) * inner + i)).map(|n| known[n]).collect()
    };
    // Maps the key of each distinct slice to the index of its first occurrence and its count.
    let mut met: BTreeMap<Vec<i64>, (usize, i64)> = BTreeMap::new();
    let parts: Vec<Vec<i64>> = (0..extent).map(part).collect();
    for (at, part) in parts.iter().enumerate() {
        met.entry(part.clone()).or_insert((at, 0)).1 += 1;
    }
    let mut order: Vec<(&Vec<i64>, &(usize, i64))> = met.iter().collect();
    if c.int_or("sorted", 1)? == 0 {
        order.sort_by_key(|(_, (first, _))| *first);
    }
    let numbers: BTreeMap<&Vec<i64>, i64> = order.iter().zip(0..).map(|((part, _), number)| (*part, number)).collect();
    let first: Vec<usize> = order.iter().map(|(_, (first, _))| *first).collect();
    let counts: Vec<i64> = order.iter().map(|(_, (_, count))| *count).collect();
    let which: Vec<i64> = parts.iter().map(|part| numbers[part]).collect();
    let y = if first.is_empty() { x } else { taken(c, x, axis, &first)? };
    let first: Vec<i64> = first.into_iter().map(|at| at as i64).collect();
    Ok(vec![y, c.known_integers(&first)?, c.known_integers(&which)?, c.known_integers(&counts)?])
}

/// A box, given by two opposite corners.
#[derive(Clone, Copy)]
struct Corners {
    low: [f32; 2],
    high: [f32; 2],
}

impl Corners {
    /// Reads two opposite corners in either order, or a centre and extents.
    fn new(numbers: &[f64], centre: bool) -> Corners {
        let n = |at: usize| numbers[at] as f32;
        let (low, high) = if centre {
            let half = |at: usize| n(at + 2) / 2.0;
            ([n(0) - half(0), n(1) - half(1)], [n(0) + half(0), n(1) + half(1)])
        } else {
            ([n(0).min(n(2)), n(1).min(n(3))], [n(0).max(n(2)), n(1).max(n(3))])
        };
        Corners { low, high }
    }

    fn area(self) -> f32 {
        (self.high[0] - self.low[0]) * (self.high[1] - self.low[1])
    }

    /// Returns whether the area of the intersection, divided by that of the union, exceeds `limit`.
    fn overlaps(self, other: Corners, limit: f32) -> bool {
        let side = |at: usize| self.high[at].min(other.high[at]) - self.low[at].max(other.low[at]);
        let (a, b) = (side(0), side(1));
        if a <= 0.0 || b <= 0.0 {
            return false;
        }
        let (shared, areas) = (a * b, [self.area(), other.area()]);
        let covered = areas[0] + areas[1] - shared;
        areas.iter().all(|area| *area > 0.0) && covered > 0.0 && shared / covered > limit
    }
}

/// Imports `NonMaxSuppression`. Returns the selected boxes as rows [batch, class, box]. Boxes are tried in descending
/// order of scores. A box is selected if it overlaps no selected box of its class.
fn suppressed(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (boxes, scores) = (c.known(0)?, c.known(1)?);
    let (&[batches, count, 4], &[of_batches, classes, of_boxes]) = (boxes.dims(), scores.dims()) else {
        return Err(format!("its boxes of type {} do not fit its scores of type {}", boxes.ty(), scores.ty()).into());
    };
    if (batches, count) != (of_batches, of_boxes) {
        return Err(format!("its boxes of type {} do not fit its scores of type {}", boxes.ty(), scores.ty()).into());
    }
    let number = |c: &NodeCall<'_, '_>, at: usize| c.optional(at).map(|_| c.known_number(at)).transpose();
    let most = number(c, 2)?.unwrap_or(0.0).max(0.0) as usize;
    let (limit, least) = (number(c, 3)?.unwrap_or(0.0) as f32, number(c, 4)?);
    let centre = c.flag("center_point_box")?;
    let boxes: Vec<Corners> = boxes.to_f64().chunks(4).map(|numbers| Corners::new(numbers, centre)).collect();
    let scores = scores.to_f64();
    let mut kept: Vec<i64> = Vec::new();
    for (row, scores) in scores.chunks(count.max(1)).enumerate().take(batches * classes) {
        let (batch, class) = (row / classes, row % classes);
        let of_batch = &boxes[batch * count..][..count];
        let mut order: Vec<usize> = (0..count).filter(|at| least.is_none_or(|least| scores[*at] > least)).collect();
        order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
        let mut chosen: Vec<usize> = Vec::new();
        for at in order {
            if chosen.len() == most {
                break;
            }
            if !chosen.iter().any(|other| of_batch[at].overlaps(of_batch[*other], limit)) {
                chosen.push(at);
            }
        }
        kept.extend(chosen.into_iter().flat_map(|at| [batch as i64, class as i64, at as i64]));
    }
    c.constant(Tensor::from_i64(DType::I64, &[kept.len() / 3, 3], kept))
}
