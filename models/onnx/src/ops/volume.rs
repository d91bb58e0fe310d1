//! Convolution and pooling over three or more spatial axes. A view gives each window its own axes. A matrix product or
//! a reduction over these axes follows.

use eutectic_ir::{NodeId, attr::Number};

use super::{
    super::call::{NodeCall, NodeResult},
    slicing,
    windows::Windows,
};

/// Extracts windows: x [N C D..] becomes [N C O.. K..], for O windows of K elements along each axis. Padding has the
/// value `outside`.
pub(super) fn cut(c: &mut NodeCall<'_, '_>, x: NodeId, windows: &Windows, outside: Number) -> NodeResult {
    let n = windows.size.len();
    let first = c.rank(x) - n;
    let mut view = x;
    for i in 0..n {
        // Each earlier axis has become two axes.
        let axis = first + 2 * i;
        view = slicing::around(c, view, axis, [windows.before[i], windows.after[i]], outside)?;
        let attrs = [("size", windows.size[i]), ("stride", windows.stride[i]), ("dilation", windows.dilation[i])];
        let attrs = attrs.map(|(name, n)| (name, (n as i64).into()));
        view = c.op("window", &[view], &[&[("axis", (axis as i64).into())], &attrs[..]].concat())?;
    }
    let each = |offset: usize| (0..n).map(move |i| first + 2 * i + offset);
    c.transpose(view, &(0..first).chain(each(0)).chain(each(1)).collect::<Vec<_>>())
}

/// Reduces over the elements of each window, which are the last n axes of x [N C O.. K..].
fn reduced(c: &mut NodeCall<'_, '_>, how: &str, x: NodeId, n: usize) -> NodeResult {
    let dims = c.dims(x);
    let kept = dims.len() - n;
    let y = c.reduce(how, x, &(kept..dims.len()).collect::<Vec<_>>())?;
    c.reshape(y, &dims[..kept])
}

/// Returns the largest element of each window.
pub(super) fn max_pool(c: &mut NodeCall<'_, '_>, x: NodeId, windows: &Windows) -> NodeResult {
    let view = cut(c, x, windows, f64::NEG_INFINITY.into())?;
    reduced(c, "reduce-max", view, windows.size.len())
}

/// Returns the mean of each window: over its elements in x if `inside`, and otherwise over all its elements.
pub(super) fn average_pool(c: &mut NodeCall<'_, '_>, x: NodeId, windows: &Windows, inside: bool) -> NodeResult {
    let n = windows.size.len();
    let view = cut(c, x, windows, 0.0.into())?;
    if !inside {
        return reduced(c, "reduce-mean", view, n);
    }
    let sum = reduced(c, "reduce-sum", view, n)?;
    let (image, dtype) = (c.dims(x)[c.rank(x) - n..].to_vec(), c.dtype(x));
    let ones = c.full(1.0, dtype, &image)?;
    let ones = cut(c, ones, windows, 0.0.into())?;
    let count = reduced(c, "reduce-sum", ones, n)?;
    c.apply("div", [sum, count])
}

/// Computes the convolution of x [N G·I D..] with w [G·O I K..]. Each group is one matrix product, whose left operand
/// has a row for each window.
pub(super) fn conv(c: &mut NodeCall<'_, '_>, x: NodeId, w: NodeId, windows: &Windows, groups: usize) -> NodeResult {
    let n = windows.size.len();
    let (dims, weights) = (c.dims(x), c.dims(w));
    if groups == 0 || weights.len() != n + 2 || dims[1] != groups * weights[1] || !weights[0].is_multiple_of(groups) {
        return Err(format!(
            "its weights of extents {weights:?} in {groups} groups do not fit an input of extents {dims:?}"
        )
        .into());
    }
    let (inner, outer) = (weights[1], weights[0] / groups);
    let view = cut(c, x, windows, 0.0.into())?;
    let places = c.dims(view)[2..2 + n].to_vec();
    let count = dims[0] * places.iter().product::<usize>();
    let taps = inner * windows.size.iter().product::<usize>();
    let split = [&[dims[0], groups, inner], &c.dims(view)[2..]].concat();
    let view = c.reshape(view, &split)?;
    let order: Vec<usize> = [1, 0].into_iter().chain(3..3 + n).chain([2]).chain(3 + n..3 + 2 * n).collect();
    let rows = c.transpose(view, &order)?;
    let rows = c.reshape(rows, &[groups, count, taps])?;
    let matrix = c.reshape(w, &[groups, outer, taps])?;
    let matrix = c.transpose(matrix, &[0, 2, 1])?;
    let product = c.apply("matmul", [rows, matrix])?;
    let product = c.reshape(product, &[&[groups, dims[0]], places.as_slice(), &[outer]].concat())?;
    let order: Vec<usize> = [1, 0, 2 + n].into_iter().chain(2..2 + n).collect();
    let result = c.transpose(product, &order)?;
    c.reshape(result, &[&[dims[0], groups * outer], places.as_slice()].concat())
}

/// Computes the transposed convolution of x with w [G·I O K..]: stride − 1 zeros are inserted between elements of x,
/// and the result is convolved with the reversed weights. The padding must not exceed the reach of a window.
pub(super) fn conv_transpose(
    c: &mut NodeCall<'_, '_>,
    x: NodeId,
    w: NodeId,
    windows: &Windows,
    groups: usize,
) -> NodeResult {
    let n = windows.size.len();
    let (mut spread, mut turned) = (x, w);
    for i in 0..n {
        let (axis, extent) = (2 + i, c.dims(x)[2 + i]);
        let stride = windows.stride[i];
        let mut dims = c.dims(spread);
        dims.insert(axis + 1, 1);
        spread = c.reshape(spread, &dims)?;
        spread = slicing::zeros_around(c, spread, axis + 1, [0, stride - 1])?;
        dims.remove(axis + 1);
        dims[axis] = extent * stride;
        spread = c.reshape(spread, &dims)?;
        spread = c.slice(spread, axis, 0, stride * (extent.max(1) - 1) + 1)?;
        let size = windows.size[i];
        turned = c.slice_by(turned, axis, size as i64 - 1, size, -1)?;
    }
    let weights = c.dims(w);
    if groups == 0 || !weights[0].is_multiple_of(groups) {
        return Err(format!("its weights of extents {weights:?} cannot be divided into {groups} groups").into());
    }
    let (inner, outer, size) = (weights[0] / groups, weights[1], &weights[2..]);
    turned = c.reshape(turned, &[&[groups, inner, outer], size].concat())?;
    turned = c.transpose(turned, &[0, 2, 1].into_iter().chain(3..3 + n).collect::<Vec<_>>())?;
    turned = c.reshape(turned, &[&[groups * outer, inner], size].concat())?;
    let rest = |edge: &[usize]| (0..n).map(|i| windows.dilation[i] * (windows.size[i] - 1) - edge[i]).collect();
    let (before, after) = (rest(&windows.before), rest(&windows.after));
    let straight = Windows { stride: vec![1; n], before, after, ..windows.clone() };
    conv(c, spread, turned, &straight, groups)
}
