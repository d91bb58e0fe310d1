//! The inverse of max pooling (`MaxUnpool`), the inverse of window extraction (`Col2Im`), and the indices of maxima for
//! `MaxPool`.

use eutectic_ir::{DType, NodeId, Tensor};

use super::{
    super::call::{NodeCall, NodeResult},
    row::{OpRow, one},
    slicing::around,
    volume::cut,
    windows::{Windows, kernel_shape},
};

pub(super) const OPS: &[OpRow] = &[one("MaxUnpool", 9, unpool), one("Col2Im", 18, col2im)];

/// Returns the index of the largest element of each window among all elements of x [N C D..]. The first one wins among
/// equal elements. Indices are row-major; if `columns`, the spatial axes are column-major.
pub(super) fn places(
    c: &mut NodeCall<'_, '_>,
    x: NodeId,
    largest: NodeId,
    windows: &Windows,
    columns: bool,
) -> NodeResult {
    let (dims, n) = (c.dims(x), windows.size.len());
    let (count, image) = (dims[2..].iter().product::<usize>(), &dims[2..]);
    let numbers = c.iota(&[1, 1, count], 2, DType::I64)?;
    let numbers = c.reshape(numbers, &[&[1, 1], image].concat())?;
    let view = cut(c, x, windows, f64::NEG_INFINITY.into())?;
    let numbers = cut(c, numbers, windows, (count as i64).into())?;
    let outer = c.dims(largest);
    let wide = c.reshape(largest, &[&outer[..], &vec![1; n]].concat())?;
    let mut found = c.apply("eq", [view, wide])?;
    // An element of the padding is never the result. The maximum of a window with NaN is NaN, which `is-nan` finds.
    let inside = c.with("lt", numbers, count as i64)?;
    let unknown = c.apply("is-nan", [view])?;
    found = c.apply("or", [found, unknown])?;
    found = c.apply("and", [found, inside])?;
    let nowhere = c.number(count as i64, numbers)?;
    let candidate = c.apply("where", [found, numbers, nowhere])?;
    let first = c.reduce("reduce-min", candidate, &(outer.len()..outer.len() + n).collect::<Vec<_>>())?;
    let mut first = c.reshape(first, &outer)?;
    if columns {
        let (mut rest, mut stride, mut number) = (first, 1_i64, c.number_of(0, DType::I64)?);
        let mut strides = Vec::new();
        for extent in image {
            strides.push(stride);
            stride *= *extent as i64;
        }
        for (extent, stride) in image.iter().zip(strides).rev() {
            let coordinate = c.with("mod", rest, *extent as i64)?;
            let offset = c.with("mul", coordinate, stride)?;
            number = c.apply("add", [number, offset])?;
            rest = c.with("div", rest, *extent as i64)?;
        }
        first = number;
    }
    let plane = c.iota(&[dims[0] * dims[1]], 0, DType::I64)?;
    let plane = c.reshape(plane, &[&[dims[0], dims[1]], &vec![1; n][..]].concat())?;
    let plane = c.with("mul", plane, count as i64)?;
    c.apply("add", [first, plane])
}

/// Imports `MaxUnpool`: scatters x to the indices of the second input, and writes 0 elsewhere. The third input may
/// request a larger image.
fn unpool(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (x, places) = (c.input(0)?, c.input(1)?);
    let dims = c.dims(x);
    let size = kernel_shape(c)?;
    if dims.len() != size.len() + 2 || c.dims(places) != dims {
        return Err(format!(
            "its windows {size:?} and places of extents {:?} do not fit an input of extents {dims:?}",
            c.dims(places)
        )
        .into());
    }
    let windows = Windows::read(c, &size, &dims[2..])?;
    let mut whole = dims[..2].to_vec();
    for at in 0..size.len() {
        let reach = (dims[2 + at].max(1) - 1) * windows.stride[at] + size[at];
        let extent = reach.checked_sub(windows.before[at] + windows.after[at]);
        whole.push(extent.ok_or("its padding is larger than its result")?);
    }
    let (count, elements) = (whole.iter().product::<usize>(), dims.iter().product::<usize>());
    let empty = c.full(0.0, c.dtype(x), &[1, count, 1])?;
    let places = c.cast(places, DType::I64)?;
    let legal = eutectic_ir::ops::Ids { extent: count as i64, from_end: false };
    let places = super::ids::checked(c, places, legal)?;
    let (places, values) = (c.reshape(places, &[1, elements, 1])?, c.reshape(x, &[1, elements, 1])?);
    let y = c.op("scatter", &[empty, values, places], &[])?;
    let mut y = c.reshape(y, &whole)?;
    if c.optional(2).is_some() {
        let wanted = c.known_ints(2)?;
        if wanted.len() != whole.len() {
            return Err(format!("its output shape {wanted:?} does not have as many axes as {whole:?}").into());
        }
        for (axis, (wanted, extent)) in wanted.into_iter().zip(whole).enumerate() {
            let after = usize::try_from(wanted).ok().and_then(|wanted| wanted.checked_sub(extent));
            let after = after
                .ok_or_else(|| format!("its output shape has the extent {wanted}, but the image needs {extent}"))?;
            y = around(c, y, axis, [0, after], 0.0.into())?;
        }
    }
    Ok(y)
}

/// Imports `Col2Im`: adds the columns [N C·K L] to their windows in an image.
fn col2im(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    let extents = |c: &NodeCall<'_, '_>, at: usize| {
        let given = c.known_ints(at)?;
        let all = given.iter().map(|n| usize::try_from(*n).ok().filter(|n| *n < 1 << 31)).collect::<Option<Vec<_>>>();
        all.ok_or_else(|| super::super::error::NodeError(format!("its extents {given:?} must be from 0 to 2147483647")))
    };
    let (image, block) = (extents(c, 1)?, extents(c, 2)?);
    let windows = Windows::read(c, &block, &image)?;
    let steps = |at: usize| {
        let padded = image[at] + windows.before[at] + windows.after[at];
        padded.checked_sub(windows.dilation[at] * (block[at] - 1) + 1).map_or(0, |rest| rest / windows.stride[at] + 1)
    };
    let steps: Vec<usize> = (0..image.len()).map(steps).collect();
    let product = |extents: &[usize]| extents.iter().fold(1_usize, |all, n| all.saturating_mul(*n));
    let (inner, blocks) = (product(&block), product(&steps));
    let [batch, columns, given] = c.dims(x)[..] else {
        return Err(format!("its columns have extents {:?}; they must be [N C·K L]", c.dims(x)).into());
    };
    if columns % inner != 0 || given != blocks {
        return Err(
            format!("its {columns} rows and {given} columns do not fit {blocks} blocks of {inner} elements").into()
        );
    }
    let (planes, pixels) = (batch * (columns / inner), product(&image));
    // Returns the index of an element in the image, or an index that `scatter-sum` skips if the element is in the
    // padding.
    let place = |number: usize| {
        let (mut within, mut of_blocks) = (number / blocks, number % blocks);
        let (mut place, mut stride) = (0, 1);
        for at in (0..image.len()).rev() {
            let start = of_blocks % steps[at] * windows.stride[at] + within % block[at] * windows.dilation[at];
            match start.checked_sub(windows.before[at]).filter(|at_axis| *at_axis < image[at]) {
                Some(at_axis) => place += at_axis * stride,
                None => return pixels as i64,
            }
            (stride, within, of_blocks) = (stride * image[at], within / block[at], of_blocks / steps[at]);
        }
        place as i64
    };
    let ids = Tensor::from_i64(DType::I64, &[1, inner * blocks, 1], (0..inner * blocks).map(place));
    let ids = c.weights("places", ids)?;
    let ids = c.expand(ids, &[planes, inner * blocks, 1])?;
    let values = c.reshape(x, &[planes, inner * blocks, 1])?;
    let empty = c.full(0.0, c.dtype(x), &[planes, pixels, 1])?;
    let y = c.op("scatter-sum", &[empty, values, ids], &[])?;
    c.reshape(y, &[&[batch, columns / inner], &image[..]].concat())
}
