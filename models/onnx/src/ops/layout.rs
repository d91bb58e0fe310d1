//! Ops that change shapes: reshape, transpose, tile, concatenate.

use eutectic_ir::{Dim, NodeId};

use super::{
    super::{
        call::{NodeCall, NodeResult},
        error::NodeError,
    },
    row::{OpRow, one},
};

pub(super) const OPS: &[OpRow] = &[
    one("Reshape", 5, reshape),
    one("Flatten", 1, flatten),
    one("Squeeze", 1, squeeze),
    one("Unsqueeze", 1, unsqueeze),
    one("Transpose", 1, transpose),
    one("Expand", 8, expand),
    one("Tile", 6, tile),
    one("Concat", 4, concat),
    one("Shape", 1, shape),
    one("Size", 1, size),
    one("DepthToSpace", 1, depth_to_space),
    one("SpaceToDepth", 1, space_to_depth),
];

/// Imports `Reshape`. An extent of 0 copies the input's extent unless `allowzero` is set. An extent of −1 is inferred
/// from the others.
fn reshape(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (x, wanted) = (c.input(0)?, c.known_dims(1)?);
    let dims = c.shape(x);
    let copies = !c.flag("allowzero")?;
    let extent = |(axis, n): (usize, &Dim)| match n {
        Dim::Known(0) if copies => dims.get(axis).map(|n| Some(n.clone())).ok_or_else(|| {
            NodeError(format!("its shape has the extent 0 for axis {axis}, which the input does not have"))
        }),
        Dim::Known(-1) => Ok(None),
        n => extent(n).map(Some),
    };
    let extents: Vec<Option<Dim>> = wanted.iter().enumerate().map(extent).collect::<Result<_, _>>()?;
    let open = extents.iter().filter(|n| n.is_none()).count();
    if open > 1 {
        return Err(format!("its shape {wanted:?} has more than one extent of -1").into());
    }
    let rest = if open == 1 { left_over(&dims, extents.iter().flatten())? } else { Dim::Known(0) };
    let dims: Vec<Dim> = extents.into_iter().map(|n| n.unwrap_or_else(|| rest.clone())).collect();
    c.reshape(x, &dims)
}

/// Checks that an integer of the file cannot be negative, and returns it as an extent.
fn extent(n: &Dim) -> Result<Dim, NodeError> {
    match n.range() {
        Some((least, _)) if least >= 0 => Ok(n.clone()),
        _ => Err(NodeError(format!("its shape has the extent {n}, which may be negative"))),
    }
}

/// Returns the extent that −1 stands for: the number of elements of `dims` divided by the extents `others`. Symbols
/// that occur in both cancel.
fn left_over<'a>(dims: &[Dim], others: impl Iterator<Item = &'a Dim>) -> Result<Dim, NodeError> {
    let mut dims = dims.to_vec();
    let mut divisor = Dim::Known(1);
    for other in others {
        match dims.iter().position(|dim| dim == other && *dim != Dim::Known(0)) {
            Some(at) => drop(dims.remove(at)),
            None => divisor = &divisor * other,
        }
    }
    let count = count(&dims);
    match (count.known(), divisor.known()) {
        (Some(count), Some(divisor)) => Ok(Dim::Known(count.checked_div(divisor).unwrap_or(0))),
        _ => count.checked_div(&divisor).ok_or_else(|| {
            NodeError(format!(
                "cannot compute the extent for -1, because its {count} elements cannot be divided by {divisor}"
            ))
        }),
    }
}

/// Imports `Flatten`: merges the axes before `axis`, and merges `axis` and the axes after it.
fn flatten(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    let dims = c.shape(x);
    // Here, `axis` may also be equal to the rank.
    let axis = match c.int_or("axis", 1)? {
        axis if axis == dims.len() as i64 => dims.len(),
        axis => c.axis(axis, dims.len())?,
    };
    c.reshape(x, &[&dims[..axis], &dims[axis..]].map(count))
}

/// Returns the number of elements of a shape.
pub(super) fn count(dims: &[Dim]) -> Dim {
    dims.iter().fold(Dim::Known(1), |n, dim| &n * dim)
}

fn squeeze(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    let dims = c.shape(x);
    let one = Dim::Known(1);
    let gone: Vec<usize> = match c.list("axes", 1)? {
        Some(axes) => axes.into_iter().map(|a| c.axis(a, dims.len())).collect::<Result<_, _>>()?,
        None => (0..dims.len()).filter(|&a| dims[a] == one).collect(),
    };
    if let Some(axis) = gone.iter().find(|&&a| dims[a] != one) {
        return Err(
            format!("its axis {axis} has the extent {}, but only an extent of 1 can be removed", dims[*axis]).into()
        );
    }
    let kept: Vec<Dim> = (0..dims.len()).filter(|a| !gone.contains(a)).map(|a| dims[a].clone()).collect();
    c.reshape(x, &kept)
}

fn unsqueeze(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    let axes = c.list("axes", 1)?.ok_or("its `axes` are missing")?;
    let mut extents = c.shape(x).into_iter();
    let rank = extents.len() + axes.len();
    let new: Vec<usize> = axes.into_iter().map(|a| c.axis(a, rank)).collect::<Result<_, _>>()?;
    let next = |a| if new.contains(&a) { Some(Dim::Known(1)) } else { extents.next() };
    let dims: Vec<Dim> = (0..rank).map_while(next).collect();
    if dims.len() < rank || extents.next().is_some() {
        return Err("its axes contain a number twice".into());
    }
    c.reshape(x, &dims)
}

fn transpose(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    let rank = c.rank(x);
    let perm = match c.ints("perm")? {
        Some(perm) => perm.into_iter().map(|a| c.axis(a, rank)).collect::<Result<Vec<_>, _>>()?,
        None => (0..rank).rev().collect(),
    };
    c.transpose(x, &perm)
}

/// Imports `Expand`. It broadcasts in both directions, so a requested extent of 1 keeps the input's extent.
fn expand(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    let wanted: Vec<Dim> = c.known_dims(1)?.iter().map(extent).collect::<Result<_, _>>()?;
    let dims = c.broadcast(&c.shape(x), &wanted)?;
    c.expand(x, &dims)
}

/// The largest number of copies of an axis with a run-time extent.
const MOST_COPIES: i64 = 64;

/// The largest number of axes that a kernel of any backend supports.
const WALKED: usize = 8;

/// Returns the number of axes that a kernel needs for a repetition. An axis without repetition merges with the axis
/// before it.
fn walked(dims: &[Dim], times: &[Dim]) -> usize {
    let one = Dim::Known(1);
    let (mut count, mut is_separate) = (0, true);
    for (n, t) in dims.iter().zip(times) {
        is_separate |= *t != one;
        count += usize::from(*t != one) + usize::from(*n != one && is_separate);
        is_separate &= *n == one;
    }
    count
}

/// Splits a repetition into steps, the last axes first. A kernel for one step needs at most [`WALKED`] axes.
fn steps(dims: &[Dim], times: &[Dim]) -> Vec<Vec<Dim>> {
    let (mut dims, mut step) = (dims.to_vec(), vec![Dim::Known(1); dims.len()]);
    let mut steps = Vec::new();
    for axis in (0..dims.len()).rev().filter(|&axis| times[axis] != Dim::Known(1)) {
        let before = step.clone();
        step[axis] = times[axis].clone();
        if walked(&dims, &step) > WALKED {
            dims.iter_mut().zip(&before).for_each(|(n, t)| *n = &*n * t);
            step = vec![Dim::Known(1); dims.len()];
            step[axis] = times[axis].clone();
            steps.push(before);
        }
    }
    steps.push(step);
    steps
}

/// Imports `Tile`. Before each axis, a new axis of extent 1 is broadcast to the number of copies. This takes several
/// steps if one kernel would need too many axes.
fn tile(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (mut x, repeats) = (c.input(0)?, c.known_dims(1)?);
    let mut times: Vec<Dim> = repeats.iter().map(extent).collect::<Result<_, _>>()?;
    if times.len() != c.rank(x) {
        return Err(format!("it has {} repetitions for {} axes", times.len(), c.rank(x)).into());
    }
    // Copies of an axis with a run-time extent are concatenated, because the views of `repeated` need known extents.
    for (axis, times) in times.iter_mut().enumerate() {
        if let (true, Some(count @ 2..=MOST_COPIES)) = (c.shape(x)[axis].varies(), times.known()) {
            x = c.concat(&vec![x; count as usize], axis)?;
            *times = Dim::Known(1);
        }
    }
    let dims = c.shape(x);
    steps(&dims, &times).iter().try_fold(x, |x, times| repeated(c, x, times))
}

fn repeated(c: &mut NodeCall<'_, '_>, x: NodeId, times: &[Dim]) -> NodeResult {
    let dims = c.shape(x);
    let pairs = |outer: fn(&Dim) -> Dim| -> Vec<Dim> {
        dims.iter().zip(times).flat_map(|(n, t)| [outer(t), n.clone()]).collect()
    };
    let split = c.reshape(x, &pairs(|_| Dim::Known(1)))?;
    let repeated = c.expand(split, &pairs(Dim::clone))?;
    let all: Vec<Dim> = dims.iter().zip(times).map(|(n, t)| n * t).collect();
    c.reshape(repeated, &all)
}

fn concat(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let inputs = c.inputs();
    let first = c.input(0)?;
    let axis = c.axis(c.int("axis")?.ok_or("its attribute `axis` is missing")?, c.rank(first))?;
    c.concat(&inputs, axis)
}

/// Imports `Shape`: returns the extents of the axes from `start` to `end`, which are all axes by default.
fn shape(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let dims = c.shape(c.input(0)?);
    let rank = dims.len() as i64;
    let at = |axis: i64| (if axis < 0 { axis + rank } else { axis }).clamp(0, rank) as usize;
    let (start, end) = (at(c.int_or("start", 0)?), at(c.int_or("end", rank)?));
    c.integers(dims.get(start..end).unwrap_or(&[]))
}

fn size(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let count = count(&c.shape(c.input(0)?));
    c.length(&count)
}

/// Rearranges [N b²·D H W] to [N D H·b W·b].
fn depth_to_space(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (x, b) = (c.input(0)?, block_size(c)?);
    let (n, [channels, h, w]) = image(c, x)?;
    let depth = channels / (b * b);
    let (split, perm) = match c.word("mode")?.unwrap_or("DCR") {
        "DCR" => ([b, b, depth, h, w], [0, 3, 4, 1, 5, 2]),
        "CRD" => ([depth, b, b, h, w], [0, 1, 4, 2, 5, 3]),
        other => return Err(format!("its mode `{other}` is not supported").into()),
    };
    let split = c.reshape(x, &of_each(&n, &split))?;
    let moved = c.transpose(split, &perm)?;
    c.reshape(moved, &of_each(&n, &[depth, h * b, w * b]))
}

/// Rearranges [N D H·b W·b] to [N b²·D H W].
fn space_to_depth(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (x, b) = (c.input(0)?, block_size(c)?);
    let (n, [depth, h, w]) = image(c, x)?;
    let split = c.reshape(x, &of_each(&n, &[depth, h / b, b, w / b, b]))?;
    let moved = c.transpose(split, &[0, 3, 5, 1, 2, 4])?;
    c.reshape(moved, &of_each(&n, &[depth * b * b, h / b, w / b]))
}

/// Returns the number of images, and the extents of one image.
fn image(c: &NodeCall<'_, '_>, x: NodeId) -> Result<(Dim, [usize; 3]), NodeError> {
    let image = <[usize; 3]>::try_from(c.extents(x, 1..c.rank(x))).map_err(|_| "its input does not have four axes")?;
    Ok((c.shape(x)[0].clone(), image))
}

/// Returns a shape with `count` as an additional outermost extent.
pub(super) fn of_each(count: &Dim, dims: &[usize]) -> Vec<Dim> {
    [count.clone()].into_iter().chain(dims.iter().map(|&n| n.into())).collect()
}

fn block_size(c: &NodeCall<'_, '_>) -> Result<usize, NodeError> {
    let size = c.int("blocksize")?.and_then(|b| usize::try_from(b).ok()).filter(|&b| b > 0 && b < 1 << 16);
    size.ok_or_else(|| NodeError("its `blocksize` is not an integer from 1 to 65535".into()))
}
