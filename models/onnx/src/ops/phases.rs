//! Computes strided transposed convolutions by phases. A phase consists of the results whose indices have the same
//! remainder modulo the stride. It is a convolution with a subset of the weights. This avoids the products with the
//! zeros that a transposed convolution inserts between elements of x.

use eutectic_ir::NodeId;

use super::{
    super::call::{NodeCall, NodeResult},
    windows::Windows,
};

/// The largest number of phases. Each phase is a separate convolution.
const MOST: usize = 16;

/// The results of one phase along an axis. Result m, in `first..first + count`, is the sum over the taps j of
/// x[m − start − j·dilation] · w[tap + j·step].
#[derive(Clone, Copy)]
struct Phase {
    tap: usize,
    step: usize,
    taps: usize,
    start: i64,
    dilation: usize,
}

/// All phases along an axis.
#[derive(Clone)]
struct Line {
    phases: Vec<Phase>,
    /// The index of the first result that a phase computes, and the number of its results.
    first: usize,
    count: usize,
    /// The number of interleaved results before the first wanted one, and the extent of the wanted results.
    skip: usize,
    extent: usize,
}

impl Line {
    fn new(windows: &Windows, axis: usize, extent: usize) -> Line {
        let [stride, size, dilation] = [windows.stride[axis], windows.size[axis], windows.dilation[axis]];
        let whole = stride * (extent.max(1) - 1) + dilation * (size - 1) + 1;
        let before = windows.before[axis];
        let result = whole.saturating_sub(before + windows.after[axis]);
        let common = greatest_divisor(stride, dilation);
        let step = stride / common;
        let of = |remainder: usize| {
            let tap = (0..step.min(size)).find(|tap| tap * dilation % stride == remainder);
            let tap_or_none = tap.unwrap_or(size);
            Phase {
                tap: tap_or_none,
                step,
                taps: (size - tap_or_none).div_ceil(step),
                start: tap.map_or(0, |tap| ((tap * dilation - remainder) / stride) as i64),
                dilation: dilation / common,
            }
        };
        let first = before / stride;
        let count = (before + result).div_ceil(stride) - first;
        let skip = before - first * stride;
        Line { phases: (0..stride).map(of).collect(), first, count, skip, extent: result }
    }
}

fn greatest_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_divisor(b, a % b) }
}

/// Returns whether a transposed convolution is computed by phases. One with stride 1 has only one phase, and one whose
/// windows do not overlap is a matrix product.
pub(super) fn wanted(windows: &Windows) -> bool {
    let phases: usize = windows.stride.iter().product();
    let are_disjoint = windows.size == windows.stride
        && windows.dilation.iter().all(|&d| d == 1)
        && windows.before.iter().chain(&windows.after).all(|&n| n == 0);
    phases > 1 && phases <= MOST && !are_disjoint
}

/// Computes the transposed convolution of x [N G·I H W] with w [G·I O P Q] for G groups. The padding must not exceed
/// the reach of a window.
pub(super) fn conv_transpose(
    c: &mut NodeCall<'_, '_>,
    [x, w]: [NodeId; 2],
    windows: &Windows,
    groups: usize,
) -> NodeResult {
    let (dims, weights) = (c.dims(x), c.dims(w));
    let fits = groups > 0 && weights.len() == 4 && weights[0] == dims[1] && weights[0].is_multiple_of(groups);
    if !fits || dims[2..].contains(&0) {
        return Err(format!(
            "its weights of extents {weights:?} in {groups} groups do not fit an input of extents {dims:?}"
        )
        .into());
    }
    // A single spatial axis becomes an image of one row.
    let pad = |of: &[usize], one: usize| [&vec![one; 2 - of.len()], of].concat();
    let windows = Windows {
        size: pad(&windows.size, 1),
        stride: pad(&windows.stride, 1),
        dilation: pad(&windows.dilation, 1),
        before: pad(&windows.before, 0),
        after: pad(&windows.after, 0),
    };
    let [down, across] = [0, 1].map(|axis| Line::new(&windows, axis, dims[2 + axis]));
    let mut rows = Vec::new();
    for &of_row in &down.phases {
        let mut columns = Vec::new();
        for &of_column in &across.phases {
            let y = phase(c, [x, w], [(&down, of_row), (&across, of_column)], groups)?;
            let [n, channels, height, width] = c.dims(y)[..] else { unreachable!("a convolution keeps its axes") };
            columns.push(c.reshape(y, &[n, channels, height, 1, width, 1])?);
        }
        rows.push(c.concat(&columns, 5)?);
    }
    let y = c.concat(&rows, 3)?;
    let [n, channels, height, down_count, width, across_count] = c.dims(y)[..] else {
        unreachable!("the parts have six axes")
    };
    let y = c.reshape(y, &[n, channels, height * down_count, width * across_count])?;
    let y = c.slice(y, 2, down.skip, down.extent)?;
    c.slice(y, 3, across.skip, across.extent)
}

/// Computes the results of one phase along each axis.
fn phase(
    c: &mut NodeCall<'_, '_>,
    [mut x, mut w]: [NodeId; 2],
    lines: [(&Line, Phase); 2],
    groups: usize,
) -> NodeResult {
    let (dims, weights) = (c.dims(x), c.dims(w));
    let [inner, outer] = [weights[0] / groups, weights[1]];
    let (mut before, mut after) = (Vec::new(), Vec::new());
    let mut is_met = true;
    for (axis, (line, phase)) in (2..).zip(lines) {
        let reach = (phase.dilation * (phase.taps.max(1) - 1)) as i64;
        let edge = phase.start + reach - line.first as i64;
        let end = line.count as i64 + reach - dims[axis] as i64 - edge;
        // Elements of x that contribute to no result are cropped.
        let [cut, cut_end] = [edge, end].map(|n| (-n).max(0) as usize);
        let kept = dims[axis].saturating_sub(cut + cut_end);
        is_met &= phase.taps > 0 && line.count > 0 && kept > 0;
        if is_met {
            x = c.slice(x, axis, cut, kept)?;
            // Taps are reversed, because the op `conv` applies the first tap to the first element.
            let last = phase.tap + (phase.taps - 1) * phase.step;
            w = c.slice_by(w, axis, last as i64, phase.taps, -(phase.step as i64))?;
        }
        before.push(edge.max(0));
        after.push(end.max(0));
    }
    if !is_met {
        let [(down, _), (across, _)] = lines;
        return c.full(0.0, c.dtype(x), &[dims[0], groups * outer, down.count, across.count]);
    }
    w = c.reshape(w, &[groups, inner, outer, lines[0].1.taps, lines[1].1.taps])?;
    w = c.transpose(w, &[0, 2, 1, 3, 4])?;
    w = c.reshape(w, &[groups * outer, inner, lines[0].1.taps, lines[1].1.taps])?;
    let dilation: Vec<i64> = lines.iter().map(|(_, phase)| phase.dilation as i64).collect();
    let attrs = [
        ("stride", [1, 1].as_slice().into()),
        ("dilation", dilation.as_slice().into()),
        ("before", before.as_slice().into()),
        ("after", after.as_slice().into()),
        ("groups", (groups as i64).into()),
    ];
    c.op("conv", &[x, w], &attrs)
}
