//! Bilinear reads of images at computed places: pooling of regions (`RoiAlign`), and convolutions with offsets
//! (`DeformConv`).

use eutectic_ir::{DType, NodeId, ops::Ids};

use super::{
    super::{
        call::{NodeCall, NodeResult},
        error::NodeError,
    },
    ids,
    row::{OpRow, one},
    windows::{Windows, biased, groups},
};

pub(super) const OPS: &[OpRow] = &[
    one("RoiAlign", 10, |c| region_means(c, "output_half_pixel")),
    one("RoiAlign", 16, |c| region_means(c, "half_pixel")),
    one("DeformConv", 19, deformed),
];

/// Images as a table with a row for each pixel.
struct Pixels {
    /// The channels of each pixel: [planes·height·width channels].
    rows: NodeId,
    height: usize,
    width: usize,
}

/// The four pixels around a place: whether the pixel is below the place, and whether it is right of it.
const CORNERS: [[bool; 2]; 4] = [[false, false], [false, true], [true, false], [true, true]];

impl Pixels {
    /// Creates the table of images [planes channels height width].
    fn of(c: &mut NodeCall<'_, '_>, x: NodeId) -> Result<Pixels, NodeError> {
        let [planes, channels, height, width] = c.dims(x)[..] else {
            return Err(
                format!("its input has extents {:?}; it must be [images channels height width]", c.dims(x)).into()
            );
        };
        let moved = c.transpose(x, &[0, 2, 3, 1])?;
        Ok(Pixels { rows: c.reshape(moved, &[planes * height * width, channels])?, height, width })
    }

    /// Returns the four pixels around each place, multiplied by their bilinear weights: [places.. channels]. Pixels
    /// outside of the image are 0. `places` are the row and the column coordinates, which have one shape. `plane` is
    /// the index of each place's plane, and broadcasts to that shape.
    fn around(&self, c: &mut NodeCall<'_, '_>, plane: NodeId, places: [NodeId; 2]) -> Result<[NodeId; 4], NodeError> {
        let first = c.with("mul", plane, (self.height * self.width) as i64)?;
        let rows = neighbours(c, places[0], self.height)?;
        let columns = neighbours(c, places[1], self.width)?;
        let mut corners = Vec::new();
        for [below, right] in CORNERS {
            let ((row, of_row), (column, of_column)) = (rows[usize::from(below)], columns[usize::from(right)]);
            let id = c.with("mul", row, self.width as i64)?;
            let id = c.apply("add", [id, column])?;
            let id = c.apply("add", [id, first])?;
            let pixel = c.op("gather", &[self.rows, id], &[("axis", 0.into())])?;
            let weight = c.apply("mul", [of_row, of_column])?;
            let weight = c.reshape(weight, &[&c.dims(weight)[..], &[1]].concat())?;
            corners.push(c.apply("mul", [pixel, weight])?);
        }
        corners.try_into().map_err(|_| NodeError("the number of pixels around a place is not four".into()))
    }
}

/// Returns the two integers next to each place along an axis, with their weights. Integers outside of the axis have
/// weight 0.
fn neighbours(c: &mut NodeCall<'_, '_>, place: NodeId, extent: usize) -> Result<[(NodeId, NodeId); 2], NodeError> {
    let low = c.apply("floor", [place])?;
    let above = c.apply("sub", [place, low])?;
    let one = c.number(1.0, place)?;
    let below = c.apply("sub", [one, above])?;
    let high = c.apply("add", [low, one])?;
    let mut both = Vec::new();
    for (number, weight) in [(low, below), (high, above)] {
        let (from, to) = (c.with("ge", number, 0.0)?, c.with("lt", number, extent as f64)?);
        let inside = c.apply("and", [from, to])?;
        let zero = c.number(0.0, place)?;
        let weight = c.apply("where", [inside, weight, zero])?;
        let last = extent.saturating_sub(1) as f64;
        let kept = c.op("clamp", &[number], &[("min", 0.0.into()), ("max", last.into())])?;
        both.push((c.cast(kept, DType::I64)?, weight));
    }
    both.try_into().map_err(|_| NodeError("the number of neighbours of a place is not two".into()))
}

/// Returns the samples of a region's bins along an axis: their places [regions bins samples], and a weight that is 0
/// outside of the image and 1 inside.
fn samples(
    c: &mut NodeCall<'_, '_>,
    [start, end]: [NodeId; 2],
    [regions, bins, samples]: [usize; 3],
    extent: usize,
    half: bool,
) -> Result<[NodeId; 2], NodeError> {
    let scale = c.float_or("spatial_scale", 1.0)?;
    let mut ends = Vec::new();
    for side in [start, end] {
        let scaled = c.with("mul", side, scale)?;
        ends.push(if half { c.with("sub", scaled, 0.5)? } else { scaled });
    }
    let mut size = c.apply("sub", [ends[1], ends[0]])?;
    if !half {
        size = c.with("max", size, 1.0)?;
    }
    let [start, size] = [ends[0], size].map(|x| c.reshape(x, &[regions, 1, 1]));
    let bin = c.with("div", size?, bins as f64)?;
    let (number, sample) = (c.iota(&[1, bins, 1], 1, c.dtype(bin))?, c.iota(&[1, 1, samples], 2, c.dtype(bin))?);
    let middle = c.with("add", sample, 0.5)?;
    let part = c.with("div", middle, samples as f64)?;
    let offset = c.apply("add", [number, part])?;
    let offset = c.apply("mul", [offset, bin])?;
    let place = c.apply("add", [start?, offset])?;
    let (from, to) = (c.with("ge", place, -1.0)?, c.with("le", place, extent as f64)?);
    let inside = c.apply("and", [from, to])?;
    let kept = c.op("clamp", &[place], &[("min", 0.0.into()), ("max", (extent.max(1) as f64 - 1.0).into())])?;
    Ok([kept, c.cast(inside, c.dtype(place))?])
}

/// Imports `RoiAlign`: the mean or the maximum of the samples in each bin of each region.
fn region_means(c: &mut NodeCall<'_, '_>, default: &str) -> NodeResult {
    let (x, regions, images) = (c.input(0)?, c.input(1)?, c.input(2)?);
    let half = match c.word("coordinate_transformation_mode")?.unwrap_or(default) {
        "half_pixel" => true,
        "output_half_pixel" => false,
        other => {
            return Err(format!(
                "its coordinate_transformation_mode is `{other}`; it must be half_pixel or output_half_pixel"
            )
            .into());
        }
    };
    let largest = match c.word("mode")?.unwrap_or("avg") {
        "avg" => false,
        "max" => true,
        other => return Err(format!("its mode is `{other}`; it must be avg or max").into()),
    };
    let [height, width, ratio] = ["output_height", "output_width", "sampling_ratio"]
        .map(|name| c.int_or(name, i64::from(name != "sampling_ratio")).map(|n| usize::try_from(n).unwrap_or(0)));
    let (height, width, ratio) = (height?, width?, ratio?);
    if ratio == 0 {
        return Err(
            "its sampling_ratio is 0, so the number of samples depends on data; set it to the number of samples of a bin along each axis".into()
        );
    }
    let (image_dims, region_dims) = (c.dims(x), c.dims(regions));
    let (&[images_count, channels, rows, columns], &[count, 4]) = (&image_dims[..], &region_dims[..]) else {
        return Err(
            format!("its images of extents {image_dims:?} do not fit regions of extents {region_dims:?}").into()
        );
    };
    let side = |c: &mut NodeCall<'_, '_>, at: usize| c.slice(regions, 1, at, 1);
    let (left, top, right, bottom) = (side(c, 0)?, side(c, 1)?, side(c, 2)?, side(c, 3)?);
    let [y, in_rows] = samples(c, [top, bottom], [count, height, ratio], rows, half)?;
    let [x_place, in_columns] = samples(c, [left, right], [count, width, ratio], columns, half)?;
    let all = [count, height, ratio, width, ratio];
    let spread = |c: &mut NodeCall<'_, '_>, x: NodeId, of_rows: bool| {
        let dims = if of_rows { [count, height, ratio, 1, 1] } else { [count, 1, 1, width, ratio] };
        let x = c.reshape(x, &dims)?;
        c.expand(x, &all)
    };
    let places = [spread(c, y, true)?, spread(c, x_place, false)?];
    let (a, b) = (spread(c, in_rows, true)?, spread(c, in_columns, false)?);
    let inside = c.apply("mul", [a, b])?;
    let inside = c.reshape(inside, &[&all[..], &[1]].concat())?;
    let images = c.cast(images, DType::I64)?;
    let images = ids::checked(c, images, Ids { extent: images_count as i64, from_end: false })?;
    let plane = c.reshape(images, &[count, 1, 1, 1, 1])?;
    let pixels = Pixels::of(c, x)?;
    let corners = pixels.around(c, plane, places)?;
    let (join, reduction) = if largest { ("max", "reduce-max") } else { ("add", "reduce-mean") };
    let mut value = corners[0];
    for corner in &corners[1..] {
        value = c.apply(join, [value, *corner])?;
    }
    let value = c.apply("mul", [value, inside])?;
    let bins = c.reduce(reduction, value, &[2, 4])?;
    let bins = c.reshape(bins, &[count, height, width, channels])?;
    c.transpose(bins, &[0, 3, 1, 2])
}

/// Imports `DeformConv`, a convolution whose windows read at places that the offsets move. A mask multiplies each
/// element that a window reads.
fn deformed(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (x, w, offset) = (c.input(0)?, c.input(1)?, c.input(2)?);
    let (image_dims, weight_dims) = (c.dims(x), c.dims(w));
    let (&[n, channels, rows, columns], [results, of_group, size @ ..]) = (&image_dims[..], &weight_dims[..]) else {
        return Err(
            format!("its images have extents {image_dims:?} and its weights {weight_dims:?}; only two spatial axes are supported").into()
        );
    };
    let (results, of_group) = (*results, *of_group);
    let windows = Windows::read(c, size, &[rows, columns])?;
    let (groups, parts) = (groups(c)?, usize::try_from(c.int_or("offset_group", 1)?).unwrap_or(0));
    let taps = size.iter().product::<usize>();
    let [_, given, high, wide] = c.dims(offset)[..] else {
        return Err(format!("its offsets have extents {:?}, but must have four axes", c.dims(offset)).into());
    };
    let fits =
        groups > 0 && parts > 0 && channels % parts == 0 && of_group * groups == channels && results % groups == 0;
    if !fits || given != parts.saturating_mul(2 * taps) {
        return Err(format!(
            "its {given} offsets in {parts} groups do not fit {taps} taps and {channels} channels in {groups} groups"
        )
        .into());
    }
    let image = [n * parts, taps, high, wide];
    let offset = c.reshape(offset, &[n * parts, taps, 2, high, wide])?;
    let place = |c: &mut NodeCall<'_, '_>, axis: usize, extent: usize| {
        let moved = c.slice(offset, 2, axis, 1)?;
        let moved = c.reshape(moved, &image)?;
        let dtype = c.dtype(moved);
        // The place of a tap is the place of its window plus the place of the tap in it.
        let tap = c.iota(&[1, size[0], size[1], 1, 1], 1 + axis, dtype)?;
        let tap = c.with("mul", tap, windows.dilation[axis] as f64)?;
        let start = c.iota(&[1, 1, 1, high, wide], 3 + axis, dtype)?;
        let start = c.with("mul", start, windows.stride[axis] as f64)?;
        let fixed = c.apply("add", [tap, start])?;
        let fixed = c.with("sub", fixed, windows.before[axis] as f64)?;
        let fixed = c.reshape(fixed, &[1, taps, high, wide])?;
        let place = c.apply("add", [fixed, moved])?;
        // The weight is already 0 at one element outside of the axis, so clamping to that place changes no result.
        c.op("clamp", &[place], &[("min", (-1.0).into()), ("max", (extent as f64).into())])
    };
    let places = [place(c, 0, rows)?, place(c, 1, columns)?];
    let planes = c.reshape(x, &[n * parts, channels / parts, rows, columns])?;
    let pixels = Pixels::of(c, planes)?;
    let plane = c.iota(&[n * parts, 1, 1, 1], 0, DType::I64)?;
    let corners = pixels.around(c, plane, places)?;
    let mut value = corners[0];
    for corner in &corners[1..] {
        value = c.apply("add", [value, *corner])?;
    }
    if let Some(mask) = c.optional(4) {
        let mask = c.reshape(mask, &[&image[..], &[1]].concat())?;
        value = c.apply("mul", [value, mask])?;
    }
    // Each column of the product's right operand has the elements of one window: all channels and taps of a group.
    let value = c.transpose(value, &[0, 4, 1, 2, 3])?;
    let value = c.reshape(value, &[n, groups, of_group * taps, high * wide])?;
    let w = c.reshape(w, &[1, groups, results / groups, of_group * taps])?;
    let y = c.apply("matmul", [w, value])?;
    let y = c.reshape(y, &[n, results, high, wide])?;
    biased(c, y, c.optional(3))
}
