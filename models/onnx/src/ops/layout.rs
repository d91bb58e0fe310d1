//! Shapes: reshape and its kin, transposition, repetition, joining.

use eutectic_ir::{DType, NodeId};

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

/// An extent of 0 is that of the input, unless `allowzero`; −1 is what is left.
fn reshape(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (x, wanted) = (c.input(0)?, c.known_ints(1)?);
    let dims = c.dims(x);
    let copies = !c.flag("allowzero")?;
    let extent = |(axis, &n): (usize, &i64)| match n {
        0 if copies => {
            dims.get(axis).map(|&n| Some(n)).ok_or_else(|| NodeError(format!("there is no axis {axis} to copy")))
        }
        -1 => Ok(None),
        n => Ok(Some(usize::try_from(n).map_err(|_| NodeError(format!("an extent of {n}")))?)),
    };
    let extents: Vec<Option<usize>> = wanted.iter().enumerate().map(extent).collect::<Result<_, _>>()?;
    let open = extents.iter().filter(|n| n.is_none()).count();
    if open > 1 {
        return Err(format!("more than one extent of {wanted:?} is open").into());
    }
    let known = extents.iter().flatten().fold(1_usize, |n, &extent| n.saturating_mul(extent));
    let rest = dims.iter().product::<usize>().checked_div(known).unwrap_or(0);
    let dims: Vec<usize> = extents.into_iter().map(|n| n.unwrap_or(rest)).collect();
    c.reshape(x, &dims)
}

/// Two axes: those before `axis`, and the others.
fn flatten(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    let dims = c.dims(x);
    // The axis may also be behind the last one.
    let axis = match c.int_or("axis", 1)? {
        axis if axis == dims.len() as i64 => dims.len(),
        axis => c.axis(axis, dims.len())?,
    };
    c.reshape(x, &[dims[..axis].iter().product(), dims[axis..].iter().product()])
}

fn squeeze(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    let dims = c.dims(x);
    let gone: Vec<usize> = match c.list("axes", 1)? {
        Some(axes) => axes.into_iter().map(|a| c.axis(a, dims.len())).collect::<Result<_, _>>()?,
        None => (0..dims.len()).filter(|&a| dims[a] == 1).collect(),
    };
    if let Some(axis) = gone.iter().find(|&&a| dims[a] != 1) {
        return Err(format!("axis {axis} has the extent {}, not 1", dims[*axis]).into());
    }
    let kept: Vec<usize> = (0..dims.len()).filter(|a| !gone.contains(a)).map(|a| dims[a]).collect();
    c.reshape(x, &kept)
}

fn unsqueeze(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    let axes = c.list("axes", 1)?.ok_or("it does not say which axes")?;
    let mut extents = c.dims(x).into_iter();
    let rank = extents.len() + axes.len();
    let new: Vec<usize> = axes.into_iter().map(|a| c.axis(a, rank)).collect::<Result<_, _>>()?;
    let dims: Vec<usize> = (0..rank).map_while(|a| if new.contains(&a) { Some(1) } else { extents.next() }).collect();
    if dims.len() < rank || extents.next().is_some() {
        return Err("an axis is added twice".into());
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

/// Both ways: an extent of 1 leaves that of the input.
fn expand(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    let wanted: Vec<usize> =
        c.known_ints(1)?.into_iter().map(usize::try_from).collect::<Result<_, _>>().map_err(|_| "a negative extent")?;
    let dims = c.broadcast(&c.dims(x), &wanted)?;
    c.expand(x, &dims)
}

/// The most axes that the kernels of a backend walk.
const WALKED: usize = 8;

/// Returns the number of axes of a repetition, where axes that are not repeated are one with those before them.
fn walked(dims: &[usize], times: &[usize]) -> usize {
    let (mut count, mut is_apart) = (0, true);
    for (&n, &t) in dims.iter().zip(times) {
        is_apart |= t != 1;
        count += usize::from(t != 1) + usize::from(n != 1 && is_apart);
        is_apart &= n == 1;
    }
    count
}

/// Splits repetitions into steps: each repeats as many axes, from the last one on, as kernels walk.
fn steps(dims: &[usize], times: &[usize]) -> Vec<Vec<usize>> {
    let (mut dims, mut step) = (dims.to_vec(), vec![1; dims.len()]);
    let mut steps = Vec::new();
    for axis in (0..dims.len()).rev().filter(|&axis| times[axis] != 1) {
        let before = step.clone();
        step[axis] = times[axis];
        if walked(&dims, &step) > WALKED {
            dims.iter_mut().zip(&before).for_each(|(n, t)| *n = n.saturating_mul(*t));
            step = vec![1; dims.len()];
            step[axis] = times[axis];
            steps.push(before);
        }
    }
    steps.push(step);
    steps
}

/// Repeats each axis: an axis of extent 1 before it has the repetitions. Where these are more axes than kernels walk, some axes are
/// repeated after the others.
fn tile(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (x, repeats) = (c.input(0)?, c.known_ints(1)?);
    let dims = c.dims(x);
    let times: Vec<usize> =
        repeats.into_iter().map(usize::try_from).collect::<Result<_, _>>().map_err(|_| "a negative repetition")?;
    if times.len() != dims.len() {
        return Err(format!("{} repetitions for {} axes", times.len(), dims.len()).into());
    }
    steps(&dims, &times).iter().try_fold(x, |x, times| repeated(c, x, times))
}

fn repeated(c: &mut NodeCall<'_, '_>, x: NodeId, times: &[usize]) -> NodeResult {
    let dims = c.dims(x);
    let pairs = |outer: fn(usize) -> usize| -> Vec<usize> {
        dims.iter().zip(times).flat_map(|(&n, &t)| [outer(t), n]).collect()
    };
    let apart = c.reshape(x, &pairs(|_| 1))?;
    let repeated = c.expand(apart, &pairs(|t| t))?;
    let all: Vec<usize> = dims.iter().zip(times).map(|(n, t)| n.saturating_mul(*t)).collect();
    c.reshape(repeated, &all)
}

fn concat(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let inputs = c.inputs();
    let first = c.input(0)?;
    let axis = c.axis(c.int("axis")?.ok_or("it does not say along which axis")?, c.rank(first))?;
    c.concat(&inputs, axis)
}

/// The extents, or from `start` to `end` of them.
fn shape(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let dims = c.dims(c.input(0)?);
    let rank = dims.len() as i64;
    let at = |axis: i64| (if axis < 0 { axis + rank } else { axis }).clamp(0, rank) as usize;
    let (start, end) = (at(c.int_or("start", 0)?), at(c.int_or("end", rank)?));
    let extents: Vec<i64> = dims.get(start..end).unwrap_or(&[]).iter().map(|&n| n as i64).collect();
    c.integers(&extents)
}

fn size(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let count: usize = c.dims(c.input(0)?).iter().product();
    c.number_of(count as f64, DType::I64)
}

/// [N C H W] with C = b²·D as [N D H·b W·b].
fn depth_to_space(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (x, b) = (c.input(0)?, block_size(c)?);
    let &[n, channels, h, w] = c.dims(x).as_slice() else { return Err("its input has not four axes".into()) };
    let depth = channels / (b * b);
    let (apart, perm) = match c.word("mode")?.unwrap_or("DCR") {
        "DCR" => ([n, b, b, depth, h, w], [0, 3, 4, 1, 5, 2]),
        "CRD" => ([n, depth, b, b, h, w], [0, 1, 4, 2, 5, 3]),
        other => return Err(format!("its mode `{other}` is not known").into()),
    };
    let apart = c.reshape(x, &apart)?;
    let moved = c.transpose(apart, &perm)?;
    c.reshape(moved, &[n, depth, h * b, w * b])
}

/// [N C H·b W·b] as [N b²·C H W].
fn space_to_depth(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (x, b) = (c.input(0)?, block_size(c)?);
    let &[n, depth, h, w] = c.dims(x).as_slice() else { return Err("its input has not four axes".into()) };
    let apart = c.reshape(x, &[n, depth, h / b, b, w / b, b])?;
    let moved = c.transpose(apart, &[0, 3, 5, 1, 2, 4])?;
    c.reshape(moved, &[n, depth * b * b, h / b, w / b])
}

fn block_size(c: &NodeCall<'_, '_>) -> Result<usize, NodeError> {
    let size = c.int("blocksize")?.and_then(|b| usize::try_from(b).ok()).filter(|&b| b > 0 && b < 1 << 16);
    size.ok_or_else(|| NodeError("its blocksize is no usable number".into()))
}
