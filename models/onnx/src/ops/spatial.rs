//! Convolution and pooling. A signal with one spatial axis becomes an image of one row. [`super::volume`] has the ops
//! with three or more spatial axes.

use eutectic_ir::{Dim, NodeId};

use super::{
    super::{
        call::{NodeCall, NodeResult},
        error::NodeError,
    },
    phases,
    row::{OpRow, Outputs, many, one},
    unpool, volume,
    windows::{Windows, biased, groups, kernel_shape},
};

pub(super) const OPS: &[OpRow] = &[
    one("Conv", 1, conv),
    one("ConvTranspose", 1, conv_transpose),
    many("MaxPool", 1, max_pool),
    one("AveragePool", 7, average_pool),
    one("LpPool", 2, lp_pool),
    one("GlobalAveragePool", 1, |c| global(c, |c, x, axes| c.mean(x, axes))),
    one("GlobalMaxPool", 1, |c| global(c, |c, x, axes| c.reduce("reduce-max", x, axes))),
];

/// Reduces over all spatial axes.
fn global(c: &mut NodeCall<'_, '_>, reduce: fn(&mut NodeCall<'_, '_>, NodeId, &[usize]) -> NodeResult) -> NodeResult {
    let x = c.input(0)?;
    let axes: Vec<usize> = (2..c.rank(x)).collect();
    reduce(c, x, &axes)
}

/// Returns the spatial extents. A run-time extent is allowed if the windows have stride 1 along its axis, because
/// padding then does not depend on it.
fn image(c: &NodeCall<'_, '_>, x: NodeId) -> Result<Vec<usize>, NodeError> {
    let (shape, strides) = (c.shape(x), c.ints("strides")?.unwrap_or_default());
    let extent = |(at, dim): (usize, &Dim)| match strides.get(at).is_none_or(|&stride| stride == 1) {
        true => dim.capacity().and_then(|n| usize::try_from(n).ok()).unwrap_or(0),
        false => c.fix(dim),
    };
    match shape.get(2..).unwrap_or(&[]) {
        [] => Err(format!("its input has {} axes, so it has no spatial axes", shape.len()).into()),
        image => Ok(image.iter().enumerate().map(extent).collect()),
    }
}

/// Returns whether there are more than two spatial axes. The ops for images do not support that.
fn is_volume(windows: &Windows) -> bool {
    windows.size.len() > 2
}

/// Adds an axis of extent 1 to a signal with one spatial axis, which makes it an image.
fn as_image(c: &mut NodeCall<'_, '_>, x: NodeId) -> NodeResult {
    match &c.shape(x)[..] {
        [n, channels, width] => c.reshape(x, &[n.clone(), channels.clone(), Dim::Known(1), width.clone()]),
        _ => Ok(x),
    }
}

/// Removes the axis of [`as_image`] if the node's input, with `rank` axes, was a signal.
fn as_input(c: &mut NodeCall<'_, '_>, y: NodeId, rank: usize) -> NodeResult {
    match &c.shape(y)[..] {
        [n, channels, Dim::Known(1), width] if rank == 3 => c.reshape(y, &[n.clone(), channels.clone(), width.clone()]),
        _ => Ok(y),
    }
}

fn conv(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (x, w) = (c.input(0)?, c.input(1)?);
    convolution(c, x, w, c.optional(2))
}

/// Computes the convolution of x [N G·I D..] with w [G·O I K..]. Other parameters are attributes of the node.
pub(super) fn convolution(c: &mut NodeCall<'_, '_>, x: NodeId, w: NodeId, bias: Option<NodeId>) -> NodeResult {
    let (rank, image) = (c.rank(x), image(c, x)?);
    let size = c.dims(w).get(2..).unwrap_or(&[]).to_vec();
    let windows = Windows::read(c, &size, &image)?;
    if is_volume(&windows) {
        let y = volume::conv(c, x, w, &windows, groups(c)?)?;
        return biased(c, y, bias);
    }
    let mut operands = vec![as_image(c, x)?, as_image(c, w)?];
    operands.extend(bias);
    let groups = ("groups", (groups(c)? as i64).into());
    let y = c.op("conv", &operands, &[&windows.attrs()[..], &[groups]].concat())?;
    as_input(c, y, rank)
}

/// Imports `ConvTranspose`. `output_padding` extends the result at its end. `output_shape` gives the result's extents
/// instead, and so determines the padding.
fn conv_transpose(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (x, w) = (c.input(0)?, c.input(1)?);
    let (rank, image) = (c.rank(x), c.extents(x, 2..c.rank(x)));
    let n = image.len();
    let size = c.dims(w).get(2..).unwrap_or(&[]).to_vec();
    let auto = c.word("auto_pad")?.unwrap_or("NOTSET");
    // In a transposed convolution, `SAME` refers to the extents of the result.
    let mut windows = Windows::read(c, &size, &image)?;
    let checked = |given: Option<Vec<i64>>| match given {
        Some(given) if given.iter().any(|&n| !(0..=1 << 40).contains(&n)) => {
            Err(NodeError(format!("its output_shape {given:?} does not fit its spatial axes")))
        }
        given => Ok(given),
    };
    let longer = match checked(c.ints("output_padding")?)? {
        Some(more) if more.len() == n => more,
        Some(more) => {
            return Err(format!(
                "its `output_padding` has {} numbers, but must have one for each spatial axis",
                more.len()
            )
            .into());
        }
        None => vec![0; n],
    };
    let full = |i: usize| {
        (windows.stride[i] * (image[i].max(1) - 1) + windows.dilation[i] * (size[i] - 1) + 1) as i64 + longer[i]
    };
    let wanted: Option<Vec<i64>> = match checked(c.ints("output_shape")?)? {
        Some(shape) => Some(shape[shape.len().saturating_sub(n)..].to_vec()),
        None if auto.starts_with("SAME") => Some((0..n).map(|i| (image[i] * windows.stride[i]) as i64).collect()),
        None => None,
    };
    let mut edges: Vec<[i64; 2]> = (0..n).map(|i| [windows.before[i] as i64, windows.after[i] as i64]).collect();
    for (i, wanted) in wanted.iter().flatten().enumerate() {
        let total = full(i) - wanted;
        let less = total.div_euclid(2);
        edges[i] = if auto == "SAME_UPPER" { [less, total - less] } else { [total - less, less] };
    }
    // Padding that the op `conv-transpose` cannot express is cropped from its result, or added as zeros, afterwards.
    let mut rest = Vec::new();
    for (i, edge) in edges.iter().enumerate() {
        let reach = (windows.dilation[i] * (size[i] - 1)) as i64;
        let after = edge[1] - longer[i];
        // The op's result must not be empty, so it keeps one element, which is cropped afterwards.
        let most = (windows.stride[i] * (image[i].max(1) - 1)) as i64 + reach;
        let b = edge[0].clamp(0, reach);
        let a = after.clamp(0, reach.min(most - b));
        (windows.before[i], windows.after[i]) = (b as usize, a as usize);
        rest.push([b - edge[0], a - after]);
    }
    let mut y = if is_volume(&windows) {
        volume::conv_transpose(c, x, w, &windows, groups(c)?)?
    } else if phases::wanted(&windows) {
        let operands = [as_image(c, x)?, as_image(c, w)?];
        let y = phases::conv_transpose(c, operands, &windows, groups(c)?)?;
        as_input(c, y, rank)?
    } else {
        let operands = [as_image(c, x)?, as_image(c, w)?];
        let groups = ("groups", (groups(c)? as i64).into());
        let y = c.op("conv-transpose", &operands, &[&windows.attrs()[..], &[groups]].concat())?;
        as_input(c, y, rank)?
    };
    for (i, [before, after]) in rest.into_iter().enumerate() {
        let axis = 2 + i;
        let left = c.extent(y, axis) as i64 + before.min(0) + after.min(0);
        let left = usize::try_from(left).map_err(|_| "its padding removes all elements of an axis")?;
        y = c.slice(y, axis, (-before).max(0) as usize, left)?;
        y = super::slicing::zeros_around(c, y, axis, [before, after].map(|n| n.max(0) as usize))?;
    }
    biased(c, y, c.optional(2))
}

/// Imports `MaxPool`. Returns the largest element of each window, and optionally its index.
fn max_pool(c: &mut NodeCall<'_, '_>) -> Outputs {
    let x = c.input(0)?;
    let (rank, image, dtype) = (c.rank(x), image(c, x)?, c.dtype(x));
    let mut windows = Windows::read(c, &kernel_shape(c)?, &image)?;
    if c.flag("ceil_mode")? {
        windows.round_up(&image);
    }
    // The op needs floats, and `f32` represents every 8-bit integer.
    let image = if dtype.is_float() { x } else { c.cast(x, eutectic_ir::DType::F32)? };
    let largest = if is_volume(&windows) {
        volume::max_pool(c, image, &windows)?
    } else {
        let image = as_image(c, image)?;
        let y = c.op("max-pool", &[image], &[&windows.attrs()[..], &[windows.size()]].concat())?;
        as_input(c, y, rank)?
    };
    let mut outputs = vec![c.cast(largest, dtype)?];
    if c.wants(1) {
        let columns = c.flag("storage_order")?;
        outputs.push(unpool::places(c, image, largest, &windows, columns)?);
    }
    Ok(outputs)
}

fn average_pool(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    let (rank, image) = (c.rank(x), image(c, x)?);
    let mut windows = Windows::read(c, &kernel_shape(c)?, &image)?;
    let counts_padding = c.flag("count_include_pad")?;
    let longer = if c.flag("ceil_mode")? { windows.round_up(&image) } else { vec![0; image.len()] };
    let x = as_image(c, x)?;
    let y = if !counts_padding {
        mean(c, x, &windows, "inside")?
    } else if longer.iter().all(|&n| n == 0) {
        mean(c, x, &windows, "window")?
    } else {
        // The mean counts padding, but not the extension that rounding up adds. So padding becomes part of the image
        // first.
        let first = c.rank(x) - image.len();
        let mut padded = x;
        for (i, more) in longer.iter().enumerate() {
            let edges = [windows.before[i], windows.after[i] - more];
            padded = super::slicing::zeros_around(c, padded, first + i, edges)?;
        }
        windows.before.fill(0);
        windows.after = longer;
        mean(c, padded, &windows, "inside")?
    };
    as_input(c, y, rank)
}

/// Computes the mean of each window: over all its elements if `over` is `window`, or over those in the image if it is
/// `inside`.
fn mean(c: &mut NodeCall<'_, '_>, x: NodeId, windows: &Windows, over: &str) -> NodeResult {
    if is_volume(windows) {
        return volume::average_pool(c, x, windows, over == "inside");
    }
    c.op("average-pool", &[x], &[&windows.attrs()[..], &[windows.size(), ("over", over.into())]].concat())
}

/// Computes (Σ |x|ᵖ)^(1/p) of each window. The sum is the mean of the powers times the size of the window.
fn lp_pool(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    let (rank, image, p) = (c.rank(x), image(c, x)?, c.int_or("p", 2)?);
    let mut windows = Windows::read(c, &kernel_shape(c)?, &image)?;
    if c.flag("ceil_mode")? {
        windows.round_up(&image);
    }
    let x = as_image(c, x)?;
    let size = c.apply("abs", [x])?;
    let power = c.with("pow", size, p as f64)?;
    let mean = mean(c, power, &windows, "window")?;
    let sum = c.with("mul", mean, windows.size.iter().product::<usize>() as f64)?;
    let root = c.with("pow", sum, 1.0 / p as f64)?;
    as_input(c, root, rank)
}
