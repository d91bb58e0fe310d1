//! Slices, splits and padding.

use std::cmp::Ordering;

use eutectic_ir::{Dim, NodeId, attr::Number};

use super::{
    super::{
        call::{NodeCall, NodeResult},
        error::NodeError,
    },
    resize::taken,
    row::{OpRow, Outputs, many, one},
};

pub(super) const OPS: &[OpRow] =
    &[one("Slice", 1, slice), many("Split", 2, split), one("Pad", 2, pad), one("CenterCropPad", 18, centred)];

/// The largest number of padding elements along an axis that a gather by index can produce.
const LISTED: i64 = 1 << 24;

/// Imports `Slice`: the elements from `starts` to `ends` with `steps`, which are attributes in op sets before 10.
/// Bounds outside of the axis are clamped to it.
fn slice(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    let rank = c.rank(x);
    let starts = bounds(c, "starts", 1)?.ok_or("its `starts` are missing")?;
    let ends = bounds(c, "ends", 2)?.ok_or("its `ends` are missing")?;
    let axes = c.list("axes", 3)?.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = c.list("steps", 4)?.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()].iter().any(|&n| n != starts.len()) {
        return Err("its starts, ends, axes and steps have different lengths".into());
    }
    let mut part = x;
    for (((start, end), axis), step) in starts.into_iter().zip(ends).zip(axes).zip(steps) {
        let axis = c.axis(axis, rank)?;
        let extent = c.shape(part)[axis].clone();
        let [at, len] = elements(c, [start, end], step, &extent)?;
        part = c.part(part, axis, [&at, &len], step)?;
    }
    Ok(part)
}

/// Reads bounds. Op sets before 10 have them as an attribute, and later ones as an input.
fn bounds(c: &NodeCall<'_, '_>, attr: &str, at: usize) -> Result<Option<Vec<Dim>>, NodeError> {
    match c.optional(at) {
        Some(_) => c.known_dims(at).map(Some),
        None => Ok(c.ints(attr)?.map(|bounds| bounds.into_iter().map(Dim::Known).collect())),
    }
}

/// Returns the index of the first element between two bounds, and the number of elements.
fn elements(c: &mut NodeCall<'_, '_>, [start, end]: [Dim; 2], step: i64, extent: &Dim) -> Result<[Dim; 2], NodeError> {
    if step == 0 {
        return Err("its step is 0".into());
    }
    let zero = Dim::Known(0);
    let from_start = |n: &Dim| match sign(n)? {
        Ordering::Less => Ok::<Dim, NodeError>(n + extent),
        _ => Ok(n.clone()),
    };
    let last = &(extent - &Dim::Known(1));
    let (low, high) = if step > 0 { (zero.clone(), extent) } else { (Dim::Known(-1), last) };
    // A start before the axis is clamped to 0 for steps of either sign.
    let (at, wanted) = (from_start(&start)?, from_start(&end)?);
    let at = smaller(larger(at, zero.clone())?, larger(high.clone(), zero.clone())?)?;
    // Exporters write a number larger than any extent to mean the end of the axis. Such an end is not reported.
    if let (true, Some(wanted), Some(extent)) = (step > 0, wanted.known(), extent.known())
        && (extent + 1..i64::from(i32::MAX)).contains(&wanted)
    {
        c.note_cut_slice(wanted, extent);
    }
    let end = smaller(larger(wanted, low)?, high.clone())?;
    let distance = match step {
        // An empty axis has no elements, whatever the bounds.
        _ if *extent == zero => zero.clone(),
        1.. => &end - &at,
        _ => &at - &end,
    };
    let distance = larger(distance, zero)?;
    let step = step.unsigned_abs() as i64;
    let len = match distance.known() {
        Some(n) => Some(Dim::Known((n as u64).div_ceil(step as u64) as i64)),
        None => distance.checked_div(&Dim::Known(step)),
    };
    let len = len.ok_or_else(|| {
        NodeError(format!("cannot compute how many of {distance} elements it takes with a step of {step} because that depends on run-time extents"))
    })?;
    Ok([at, len])
}

/// Returns whether a bound counts from the start (greater) or, because it is negative, from the end (less).
fn sign(n: &Dim) -> Result<Ordering, NodeError> {
    match n.range() {
        Some((0.., _)) => Ok(Ordering::Greater),
        Some((_, ..0)) => Ok(Ordering::Less),
        _ => Err(NodeError(format!(
            "the sign of its bound {n} depends on run-time extents, and a negative bound counts from the end"
        ))),
    }
}

fn larger(a: Dim, b: Dim) -> Result<Dim, NodeError> {
    match (&a - &b).range() {
        Some((0.., _)) => Ok(a),
        Some((_, ..=0)) => Ok(b),
        _ => Err(NodeError(format!("it needs the larger of {a} and {b}, but run-time extents decide between them"))),
    }
}

fn smaller(a: Dim, b: Dim) -> Result<Dim, NodeError> {
    let larger = larger(a.clone(), b.clone())?;
    Ok(if larger == a { b } else { a })
}

/// Imports `CenterCropPad`: crops to the middle, or pads with zeros on both sides. If the number of elements is odd,
/// the end gets one more than the start.
fn centred(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    let rank = c.rank(x);
    let wanted = c.known_ints(1)?;
    let axes = c.ints("axes")?.unwrap_or_else(|| (0..rank as i64).collect());
    if axes.len() != wanted.len() {
        return Err(format!("it has {} extents for {} axes", wanted.len(), axes.len()).into());
    }
    let mut result = x;
    for (axis, extent) in axes.into_iter().zip(wanted) {
        let axis = c.axis(axis, rank)?;
        let extent =
            usize::try_from(extent).map_err(|_| format!("its shape has the extent {extent}, which is negative"))?;
        let given = c.extent(result, axis);
        if extent <= given {
            result = c.slice(result, axis, (given - extent) / 2, extent)?;
            continue;
        }
        let before = (extent - given) / 2;
        let after = extent - given - before;
        let attrs = [("axis", axis as i64), ("before", before as i64), ("after", after as i64)];
        let attrs = attrs.map(|(name, n)| (name, n.into()));
        result = c.op("pad", &[result], &attrs)?;
    }
    Ok(result)
}

/// Imports `Split`: parts of given lengths, or of equal lengths. The last one of equal parts may be shorter.
fn split(c: &mut NodeCall<'_, '_>) -> Outputs {
    let x = c.input(0)?;
    let axis = c.axis(c.int_or("axis", 0)?, c.rank(x))?;
    let extent = c.extent(x, axis);
    let lengths: Vec<usize> = match c.list("split", 1)? {
        Some(lengths) => lengths
            .into_iter()
            .map(usize::try_from)
            .collect::<Result<_, _>>()
            .map_err(|_| "one of its lengths is negative")?,
        None => {
            let parts = c.outputs().max(1);
            if let Some(n) = c.int("num_outputs")?.filter(|n| usize::try_from(*n) != Ok(parts)) {
                return Err(format!("its `num_outputs` is {n}, but it has {parts} outputs").into());
            }
            let length = extent.div_ceil(parts);
            (0..parts).map(|i| length.min(extent.saturating_sub(i * length))).collect()
        }
    };
    if lengths.iter().try_fold(0_usize, |sum, &n| sum.checked_add(n)) != Some(extent) {
        return Err(format!("its parts {lengths:?} do not add up to {extent}").into());
    }
    let mut at = 0;
    let part = |length: usize| {
        at += length;
        c.slice(x, axis, at - length, length)
    };
    lengths.into_iter().map(part).collect()
}

/// Imports `Pad`. `pads` has the numbers of elements before each axis, then the numbers after each axis. Negative
/// numbers crop.
fn pad(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    let rank = c.rank(x);
    let pads = c.list("pads", 1)?.ok_or("its `pads` are missing")?;
    let axes: Vec<usize> = match c.optional(3) {
        Some(_) => c.known_ints(3)?.into_iter().map(|a| c.axis(a, rank)).collect::<Result<_, _>>()?,
        None => (0..rank).collect(),
    };
    if pads.len() != 2 * axes.len() {
        return Err(format!("its pads have {} numbers for {} axes", pads.len(), axes.len()).into());
    }
    if let Some(n) = pads.iter().find(|n| n.unsigned_abs() > 1 << 40) {
        return Err(format!("it pads by {n} elements, which is more than any memory can hold").into());
    }
    let value = match c.optional(2) {
        Some(_) => c.known_exactly(2)?,
        None => c.float_or("value", 0.0)?.into(),
    };
    let mode = c.word("mode")?.unwrap_or("constant");
    let mut padded = x;
    for (i, &axis) in axes.iter().enumerate() {
        let (before, after) = (pads[i], pads[i + axes.len()]);
        if mode == "constant" && before >= 0 && after >= 0 {
            padded = around(c, padded, axis, [before as usize, after as usize], value)?;
            continue;
        }
        let extent = c.extent(padded, axis) as i64;
        let left = extent + before.min(0) + after.min(0);
        if left < 0 {
            return Err(format!("it crops more than the {extent} elements of axis {axis}").into());
        }
        if mode == "reflect" && extent > 0 && before.max(after) >= left.max(1) {
            // Elements that the node crops can still be reflected, as in torch.
            padded = repeated(c, padded, axis, [before, after], reflected)?;
            continue;
        }
        padded = c.slice(padded, axis, (-before).max(0) as usize, left as usize)?;
        padded = edges(c, padded, axis, [before.max(0) as usize, after.max(0) as usize], mode, value)?;
    }
    Ok(padded)
}

/// Pads an axis with zeros on both sides.
pub(super) fn zeros_around(c: &mut NodeCall<'_, '_>, x: NodeId, axis: usize, edges: [usize; 2]) -> NodeResult {
    around(c, x, axis, edges, 0.0.into())
}

/// Pads an axis with a value on both sides.
pub(super) fn around(c: &mut NodeCall<'_, '_>, x: NodeId, axis: usize, edges: [usize; 2], value: Number) -> NodeResult {
    if edges == [0, 0] {
        return Ok(x);
    }
    let [axis, before, after] = [axis, edges[0], edges[1]].map(|n| (n as i64).into());
    c.op("pad", &[x], &[("axis", axis), ("before", before), ("after", after), ("value", value.into())])
}

/// Pads one axis, with a value or with elements of the input, as `mode` says.
fn edges(
    c: &mut NodeCall<'_, '_>,
    x: NodeId,
    axis: usize,
    [before, after]: [usize; 2],
    mode: &str,
    value: Number,
) -> NodeResult {
    if before + after == 0 {
        return Ok(x);
    }
    let mut dims = c.shape(x);
    let extent = c.extent(x, axis);
    if extent == 0 && mode != "constant" {
        return Err(format!("its mode `{mode}` repeats elements, and axis {axis} has none").into());
    }
    let sides: [Option<NodeId>; 2] = match mode {
        "constant" => return around(c, x, axis, [before, after], value),
        "edge" => {
            let mut side = |at: usize, n: usize| {
                let one = c.slice(x, axis, at, 1)?;
                dims[axis] = n.into();
                c.expand(one, &dims)
            };
            [side(0, before)?, side(extent - 1, after)?].map(Some)
        }
        "reflect" => {
            let mut side = |at: usize, n: usize| match n {
                0 => Ok::<_, NodeError>(None),
                n => c.slice_by(x, axis, at as i64, n, -1).map(Some),
            };
            [side(before, before)?, side(extent.saturating_sub(2), after)?]
        }
        "wrap" if before.max(after) > extent => {
            return repeated(c, x, axis, [before as i64, after as i64], i64::rem_euclid);
        }
        "wrap" => [Some(c.slice(x, axis, extent - before, before)?), Some(c.slice(x, axis, 0, after)?)],
        other => return Err(format!("its mode `{other}` is not supported").into()),
    };
    let parts: Vec<NodeId> = [sides[0], Some(x), sides[1]].into_iter().flatten().collect();
    c.concat(&parts, axis)
}

/// Returns the element at step `at` of a path that goes back and forth between both ends of an axis.
fn reflected(at: i64, extent: i64) -> i64 {
    let last = extent - 1;
    // The path to the last element and back is a period. For an axis of one element, the period is 1.
    let way = at.rem_euclid((2 * last).max(1));
    way.min(2 * last - way)
}

/// Pads one axis with its own elements. `source` maps an index, which is negative before the first element, to an index
/// below the extent.
fn repeated(
    c: &mut NodeCall<'_, '_>,
    x: NodeId,
    axis: usize,
    [before, after]: [i64; 2],
    source: fn(i64, i64) -> i64,
) -> NodeResult {
    let extent = c.dims(x)[axis] as i64;
    if before.max(after) > LISTED {
        let sides = format!("it repeats elements of an axis of {extent} in padding of {before} and {after} elements");
        return Err(format!("{sides}; pad by at most {LISTED} on each side").into());
    }
    let ids: Vec<usize> = (-before..extent + after).map(|at| source(at, extent) as usize).collect();
    taken(c, x, axis, &ids)
}
