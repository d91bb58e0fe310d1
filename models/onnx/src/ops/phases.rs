//! Transposed convolution with a stride, by its phases: the results at one remainder by the stride are a convolution with the weights that
//! meet them. No zeros are put between the elements of x, which would be multiplied with weights that are not theirs.

use eutectic_ir::NodeId;

use super::{
    super::call::{NodeCall, NodeResult},
    windows::Windows,
};

/// Most phases that are computed separately; each is a convolution.
const MOST: usize = 16;

/// The results of one phase along an axis, with the numbers `first..first + count`: x[m − start − j·dilation] · w[tap + j·step] for each
/// tap j.
#[derive(Clone, Copy)]
struct Phase {
    tap: usize,
    step: usize,
    taps: usize,
    start: i64,
    dilation: usize,
}

/// The common part of the phases along an axis.
#[derive(Clone)]
struct Line {
    phases: Vec<Phase>,
    /// The first result of each phase, and how many there are.
    first: usize,
    count: usize,
    /// Where the result begins among those of all phases, and its extent.
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

/// Whether it is computed so: with stride 1 it is one convolution, and windows that do not overlap are one product.
pub(super) fn wanted(windows: &Windows) -> bool {
    let phases: usize = windows.stride.iter().product();
    let is_apart = windows.size == windows.stride
        && windows.dilation.iter().all(|&d| d == 1)
        && windows.before.iter().chain(&windows.after).all(|&n| n == 0);
    phases > 1 && phases <= MOST && !is_apart
}

/// x [N G·I H W] by w [G·I O P Q], in G groups. `windows` has at most as much padding as a window reaches.
pub(super) fn conv_transpose(
    c: &mut NodeCall<'_, '_>,
    [x, w]: [NodeId; 2],
    windows: &Windows,
    groups: usize,
) -> NodeResult {
    let (dims, weights) = (c.dims(x), c.dims(w));
    let fits = groups > 0 && weights.len() == 4 && weights[0] == dims[1] && weights[0].is_multiple_of(groups);
    if !fits || dims[2..].contains(&0) {
        return Err(format!("weights of {weights:?} in {groups} groups for an input of {dims:?}").into());
    }
    // A row was put before a single axis.
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

/// The results at one remainder along both axes.
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
        // Elements that no result meets are cut off.
        let [cut, cut_end] = [edge, end].map(|n| (-n).max(0) as usize);
        let kept = dims[axis].saturating_sub(cut + cut_end);
        is_met &= phase.taps > 0 && line.count > 0 && kept > 0;
        if is_met {
            x = c.slice(x, axis, cut, kept)?;
            // The taps are turned around, so that the first one meets the first element.
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
