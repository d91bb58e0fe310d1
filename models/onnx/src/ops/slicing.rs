//! Parts of a value: slice, split, pad.

use eutectic_ir::{NodeId, attr::Number};

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

/// The largest number of padding elements that are listed one by one.
const LISTED: i64 = 1 << 24;

/// From `starts` to `ends` in `steps`, which were attributes once; bounds outside of the axis are moved to it.
fn slice(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    let rank = c.rank(x);
    let starts = c.list("starts", 1)?.ok_or("it does not say where it starts")?;
    let ends = c.list("ends", 2)?.ok_or("it does not say where it ends")?;
    let axes = c.list("axes", 3)?.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = c.list("steps", 4)?.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()].iter().any(|&n| n != starts.len()) {
        return Err("starts, ends, axes and steps are not as many".into());
    }
    let mut part = x;
    for (((start, end), axis), step) in starts.into_iter().zip(ends).zip(axes).zip(steps) {
        let axis = c.axis(axis, rank)?;
        let extent = c.dims(part)[axis] as i64;
        let from_start = |n: i64| if n < 0 { n.saturating_add(extent) } else { n };
        let (low, high) = if step > 0 { (0, extent) } else { (-1, extent - 1) };
        // A start before the axis is 0 in either direction.
        let (at, wanted) = (from_start(start).clamp(0, high.max(0)), from_start(end));
        let end = wanted.clamp(low, high);
        // Exporters say `to the end` by a number that is larger than any extent.
        if step > 0 && (extent + 1..i64::from(i32::MAX)).contains(&wanted) {
            c.short(wanted, extent);
        }
        let distance = match step {
            0 => return Err("a step of 0".into()),
            // An axis without elements has no first one, from either end.
            _ if extent == 0 => 0,
            1.. => end - at,
            _ => at - end,
        };
        let len = (distance.max(0) as u64).div_ceil(step.unsigned_abs()) as usize;
        part = match (step, len) {
            (_, 0) => c.slice(part, axis, 0, 0)?,
            (1, _) | (_, 1) => c.slice(part, axis, at as usize, len)?,
            _ => c.slice_by(part, axis, at, len, step)?,
        };
    }
    Ok(part)
}

/// Crops to the middle, or pads with zeros around it. Of an odd number of elements, the end gets one more.
fn centred(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    let rank = c.rank(x);
    let wanted = c.known_ints(1)?;
    let axes = c.ints("axes")?.unwrap_or_else(|| (0..rank as i64).collect());
    if axes.len() != wanted.len() {
        return Err(format!("{} extents for {} axes", wanted.len(), axes.len()).into());
    }
    let mut result = x;
    for (axis, extent) in axes.into_iter().zip(wanted) {
        let axis = c.axis(axis, rank)?;
        let extent = usize::try_from(extent).map_err(|_| format!("an extent of {extent}"))?;
        let given = c.dims(result)[axis];
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

/// Into given lengths, or into equal parts, of which the last may be shorter.
fn split(c: &mut NodeCall<'_, '_>) -> Outputs {
    let x = c.input(0)?;
    let axis = c.axis(c.int_or("axis", 0)?, c.rank(x))?;
    let extent = c.dims(x)[axis];
    let lengths: Vec<usize> = match c.list("split", 1)? {
        Some(lengths) => {
            lengths.into_iter().map(usize::try_from).collect::<Result<_, _>>().map_err(|_| "a negative length")?
        }
        None => {
            let parts = c.outputs().max(1);
            if let Some(n) = c.int("num_outputs")?.filter(|n| usize::try_from(*n) != Ok(parts)) {
                return Err(format!("num_outputs is {n}, and the node has {parts} outputs").into());
            }
            let length = extent.div_ceil(parts);
            (0..parts).map(|i| length.min(extent.saturating_sub(i * length))).collect()
        }
    };
    if lengths.iter().try_fold(0_usize, |sum, &n| sum.checked_add(n)) != Some(extent) {
        return Err(format!("parts of {lengths:?} do not make {extent}").into());
    }
    let mut at = 0;
    let part = |length: usize| {
        at += length;
        c.slice(x, axis, at - length, length)
    };
    lengths.into_iter().map(part).collect()
}

/// `pads` has the numbers before each axis, then those after; negative ones take away.
fn pad(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    let rank = c.rank(x);
    let pads = c.list("pads", 1)?.ok_or("it does not say how much")?;
    let axes: Vec<usize> = match c.optional(3) {
        Some(_) => c.known_ints(3)?.into_iter().map(|a| c.axis(a, rank)).collect::<Result<_, _>>()?,
        None => (0..rank).collect(),
    };
    if pads.len() != 2 * axes.len() {
        return Err(format!("{} numbers for {} axes", pads.len(), axes.len()).into());
    }
    if let Some(n) = pads.iter().find(|n| n.unsigned_abs() > 1 << 40) {
        return Err(format!("{n} elements of padding").into());
    }
    let value = match c.optional(2) {
        Some(_) => c.known_exactly(2)?,
        None => c.float_or("value", 0.0)?.into(),
    };
    let mode = c.word("mode")?.unwrap_or("constant");
    let mut padded = x;
    for (i, &axis) in axes.iter().enumerate() {
        let (before, after) = (pads[i], pads[i + axes.len()]);
        let extent = c.dims(padded)[axis] as i64;
        let left = extent + before.min(0) + after.min(0);
        if left < 0 {
            return Err(format!("more is taken away than the {extent} elements of axis {axis}").into());
        }
        if mode == "reflect" && extent > 0 && before.max(after) >= left.max(1) {
            // Cropped elements can still be reflected, as in torch.
            padded = repeated(c, padded, axis, [before, after], reflected)?;
            continue;
        }
        padded = c.slice(padded, axis, (-before).max(0) as usize, left as usize)?;
        padded = edges(c, padded, axis, [before.max(0) as usize, after.max(0) as usize], mode, value)?;
    }
    Ok(padded)
}

/// Zeros before and behind an axis.
pub(super) fn zeros_around(c: &mut NodeCall<'_, '_>, x: NodeId, axis: usize, edges: [usize; 2]) -> NodeResult {
    around(c, x, axis, edges, 0.0.into())
}

/// A value before and behind an axis.
pub(super) fn around(c: &mut NodeCall<'_, '_>, x: NodeId, axis: usize, edges: [usize; 2], value: Number) -> NodeResult {
    if edges == [0, 0] {
        return Ok(x);
    }
    let [axis, before, after] = [axis, edges[0], edges[1]].map(|n| (n as i64).into());
    c.op("pad", &[x], &[("axis", axis), ("before", before), ("after", after), ("value", value.into())])
}

/// One axis, made longer at both ends.
fn edges(
    c: &mut NodeCall<'_, '_>,
    x: NodeId,
    axis: usize,
    [before, after]: [usize; 2],
    mode: &str,
    value: Number,
) -> NodeResult {
    let mut dims = c.dims(x);
    let extent = dims[axis];
    if before + after == 0 {
        return Ok(x);
    }
    if extent == 0 && mode != "constant" {
        return Err(format!("padding `{mode}` repeats elements, and axis {axis} has none").into());
    }
    let sides: [Option<NodeId>; 2] = match mode {
        "constant" => return around(c, x, axis, [before, after], value),
        "edge" => {
            let mut side = |at: usize, n: usize| {
                let one = c.slice(x, axis, at, 1)?;
                dims[axis] = n;
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
        other => return Err(format!("its mode `{other}` is not known").into()),
    };
    let parts: Vec<NodeId> = [sides[0], Some(x), sides[1]].into_iter().flatten().collect();
    c.concat(&parts, axis)
}

/// The element of an axis of `extent` elements that a path back and forth between its ends is at after `at` steps.
fn reflected(at: i64, extent: i64) -> i64 {
    let last = extent - 1;
    // There and back again; an axis of one element has nowhere to go.
    let way = at.rem_euclid((2 * last).max(1));
    way.min(2 * last - way)
}

/// One axis with other ends, made of its elements: `source` maps each place, counted from the first element, to one of `extent`.
fn repeated(
    c: &mut NodeCall<'_, '_>,
    x: NodeId,
    axis: usize,
    [before, after]: [i64; 2],
    source: fn(i64, i64) -> i64,
) -> NodeResult {
    let extent = c.dims(x)[axis] as i64;
    if before.max(after) > LISTED {
        let sides = format!("{before} and {after} elements of padding on an axis of {extent}");
        return Err(format!("{sides}: at most {LISTED} that repeat are supported; pad by less").into());
    }
    let ids: Vec<usize> = (-before..extent + after).map(|at| source(at, extent) as usize).collect();
    taken(c, x, axis, &ids)
}
