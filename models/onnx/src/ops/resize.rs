//! Resizes images. Along each axis, nearest interpolation is a view or a gather, and other interpolations are weighted
//! sums of a few elements. So an infinity or NaN affects only elements next to it. The import computes which elements
//! are read, and their weights. ONNX's reference implementation defines the modes (`onnx/reference/ops/op_resize.py`).

use eutectic_ir::{DType, Dim, NodeId, Tensor};

use super::{
    super::{
        call::{NodeCall, NodeResult},
        error::NodeError,
    },
    row::{OpRow, one},
};

pub(super) const OPS: &[OpRow] = &[
    one("Upsample", 7, |c| {
        let scales = c.floats("scales")?.ok_or("its attribute `scales` is missing")?;
        Sampling::asymmetric(c)?.scaled(c, &scales)
    }),
    one("Upsample", 9, |c| {
        let scales = c.known(1)?.to_f64();
        Sampling::asymmetric(c)?.scaled(c, &scales)
    }),
    one("Resize", 10, |c| {
        let scales = c.known(1)?.to_f64();
        Sampling::asymmetric(c)?.scaled(c, &scales)
    }),
    one("Resize", 11, resize),
];

/// The interpolation between elements.
#[derive(Clone, Copy)]
enum Interpolation {
    /// The nearest element. The function takes the fractional part of the place, and returns whether the right one of
    /// its two neighbours is selected.
    Nearest(fn(f64) -> bool),
    /// A triangular kernel.
    Linear,
    /// Keys' cubic convolution. The field is its coefficient a.
    Cubic(f64),
}

/// Returns the place in the input for an element of the result. The arguments are the element's index, the scale, the
/// extent of the input and that of the result.
type SourcePlace = fn(f64, f64, f64, f64) -> f64;

/// The region of `tf_crop_and_resize`, and the value outside of it.
struct Crop {
    /// The start and the end along each axis, as fractions of the input's extent.
    roi: Vec<[f64; 2]>,
    outside: f64,
}

impl Crop {
    /// The whole axis.
    const WHOLE: [f64; 2] = [0.0, 1.0];

    /// Reads the region from input 1: the starts along `axes`, then the ends.
    fn read(c: &NodeCall<'_, '_>, axes: &[usize], rank: usize) -> Result<Option<Crop>, NodeError> {
        if c.word("coordinate_transformation_mode")? != Some("tf_crop_and_resize") {
            return Ok(None);
        }
        let given = c.known(1)?.to_f64();
        if given.len() != 2 * axes.len() {
            return Err(format!(
                "its region has {} numbers for {} axes, but must have two for each",
                given.len(),
                axes.len()
            )
            .into());
        }
        let mut roi = vec![Crop::WHOLE; rank];
        axes.iter().enumerate().for_each(|(i, &axis)| roi[axis] = [given[i], given[i + axes.len()]]);
        Ok(Some(Crop { roi, outside: c.float_or("extrapolation_value", 0.0)? }))
    }

    /// Returns the place in the input for an element of the result.
    fn place(&self, axis: usize, x: f64, extent: f64, result: f64) -> f64 {
        let [start, end] = self.roi[axis];
        let last = extent - 1.0;
        if result > 1.0 { start * last + x * (end - start) * last / (result - 1.0) } else { 0.5 * (start + end) * last }
    }

    /// Replaces elements of the result whose place is outside of the image along at least one axis.
    fn extrapolated(&self, c: &mut NodeCall<'_, '_>, mut result: NodeId, dims: &[usize]) -> NodeResult {
        for (axis, &extent) in dims.iter().enumerate().filter(|(axis, _)| self.roi[*axis] != Crop::WHOLE) {
            let count = c.dims(result)[axis];
            let last = extent as f64 - 1.0;
            let is_outside = |i: usize| {
                let at = self.place(axis, i as f64, extent as f64, count as f64);
                i64::from(!(0.0..=last).contains(&at))
            };
            let outside: Vec<i64> = (0..count).map(is_outside).collect();
            if outside.contains(&1) {
                let mut shape = vec![1; dims.len()];
                shape[axis] = count;
                let mask = c.constant(Tensor::from_i64(DType::Bool, &shape, outside))?;
                let value = c.number(self.outside, result)?;
                result = c.apply("where", [mask, value, result])?;
            }
        }
        Ok(result)
    }
}

struct Sampling {
    kernel: Interpolation,
    place: SourcePlace,
    crop: Option<Crop>,
    /// Whether the interpolation kernel is widened where an axis shrinks.
    antialias: bool,
    /// Whether elements outside of the image have weight 0. Otherwise the elements at the edge stand for them.
    exclude_outside: bool,
}

impl Sampling {
    /// Reads the attributes of ops before opset 11, for which the place of an element is its index divided by the
    /// scale.
    fn asymmetric(c: &NodeCall<'_, '_>) -> Result<Sampling, NodeError> {
        let kernel = match c.word("mode")?.unwrap_or("nearest") {
            "nearest" => Interpolation::Nearest(|_| false),
            "linear" => Interpolation::Linear,
            other => return Err(format!("its mode `{other}` is not supported").into()),
        };
        Ok(Sampling { kernel, place: |x, scale, _, _| x / scale, crop: None, antialias: false, exclude_outside: false })
    }

    fn read(c: &NodeCall<'_, '_>, axes: &[usize], rank: usize) -> Result<Sampling, NodeError> {
        let kernel = match c.word("mode")?.unwrap_or("nearest") {
            "nearest" => Interpolation::Nearest(match c.word("nearest_mode")?.unwrap_or("round_prefer_floor") {
                "round_prefer_floor" => |rest| rest > 0.5,
                "round_prefer_ceil" => |rest| rest >= 0.5,
                "floor" => |_| false,
                "ceil" => |_| true,
                other => return Err(format!("its nearest_mode `{other}` is not supported").into()),
            }),
            "linear" => Interpolation::Linear,
            "cubic" => Interpolation::Cubic(c.float_or("cubic_coeff_a", -0.75)?),
            other => return Err(format!("its mode `{other}` is not supported").into()),
        };
        let place: SourcePlace = match c.word("coordinate_transformation_mode")?.unwrap_or("half_pixel") {
            "half_pixel" => |x, scale, _, _| (x + 0.5) / scale - 0.5,
            "half_pixel_symmetric" => |x, scale, extent, result| {
                let offset = extent / 2.0 * (1.0 - result / (scale * extent));
                offset + (x + 0.5) / scale - 0.5
            },
            "pytorch_half_pixel" => |x, scale, _, result| if result > 1.0 { (x + 0.5) / scale - 0.5 } else { 0.0 },
            "asymmetric" => |x, scale, _, _| x / scale,
            "tf_half_pixel_for_nn" => |x, scale, _, _| (x + 0.5) / scale,
            // The place depends on the region and not on the scale.
            "tf_crop_and_resize" => |x, _, _, _| x,
            "align_corners" => |x, scale, extent, _| match scale * extent {
                1.0 => 0.0,
                width => x * (extent - 1.0) / (width - 1.0),
            },
            other => return Err(format!("its coordinate_transformation_mode `{other}` is not supported").into()),
        };
        let (antialias, exclude_outside) = (c.flag("antialias")?, c.flag("exclude_outside")?);
        Ok(Sampling { kernel, place, crop: Crop::read(c, axes, rank)?, antialias, exclude_outside })
    }

    /// Resizes each axis by its own scale.
    fn scaled(&self, c: &mut NodeCall<'_, '_>, scales: &[f64]) -> NodeResult {
        let x = c.input(0)?;
        let shape = c.shape(x);
        if scales.len() != shape.len() || scales.iter().any(|s| !s.is_finite() || *s <= 0.0) {
            return Err(format!("its scales {scales:?} do not fit {} axes", shape.len()).into());
        }
        let mut steps = Vec::new();
        for (axis, (&scale, extent)) in scales.iter().zip(&shape).enumerate() {
            let part = self.crop.as_ref().map_or(1.0, |crop| crop.roi[axis][1] - crop.roi[axis][0]);
            let scaled = match part * scale {
                1.0 => extent.clone(),
                _ => Dim::from((c.fix(extent) as f64 * part * scale) as usize),
            };
            steps.push((axis, scale, scaled));
        }
        self.resized(c, x, steps)
    }

    /// Resizes axes, each to an extent by a scale. Axes that shrink come first, so that the later steps process fewer
    /// elements. Axes that grow follow from the innermost to the outermost one, because a step along an outer axis
    /// reads whole rows.
    fn resized(&self, c: &mut NodeCall<'_, '_>, x: NodeId, mut steps: Vec<(usize, f64, Dim)>) -> NodeResult {
        steps.sort_by_key(|&(axis, scale, _)| if scale > 1.0 { (true, -(axis as i64)) } else { (false, axis as i64) });
        let mut result = x;
        for (axis, scale, extent) in steps {
            result = self.along(c, result, axis, scale, &extent)?;
        }
        self.extrapolated(c, x, result)
    }

    /// Replaces the elements of the result that are outside of the image.
    fn extrapolated(&self, c: &mut NodeCall<'_, '_>, x: NodeId, result: NodeId) -> NodeResult {
        let Some(crop) = &self.crop else { return Ok(result) };
        let dims = c.dims(x);
        crop.extrapolated(c, result, &dims)
    }

    /// Resizes one axis by a scale to the extent `result`.
    fn along(&self, c: &mut NodeCall<'_, '_>, x: NodeId, axis: usize, scale: f64, result: &Dim) -> NodeResult {
        let whole = self.crop.as_ref().is_none_or(|crop| crop.roi[axis] == Crop::WHOLE);
        if scale == 1.0 && *result == c.shape(x)[axis] && whole {
            return Ok(x);
        }
        let (extent, result) = (c.extent(x, axis), c.fix(result));
        // The import computes a weight for each pair of elements, so their number is limited. The limit is far above
        // that of real images.
        if extent == 0 || result.saturating_mul(extent) > 1 << 28 {
            return Err(format!("it resizes an axis from {extent} to {result} elements; the axis must not be empty, and the product at most 268435456").into());
        }
        let rows: Vec<Vec<(usize, f64)>> =
            (0..result).map(|i| self.weights(axis, i, scale, [extent, result])).collect();
        if let Interpolation::Nearest(_) = self.kernel {
            let ids: Vec<usize> = rows.iter().map(|row| row.first().map_or(0, |(at, _)| *at)).collect();
            return taken(c, x, axis, &ids);
        }
        let taps = rows.iter().map(Vec::len).max().unwrap_or(0).max(1);
        weighted(c, x, axis, rows, taps)
    }

    /// Returns the indices and weights of the elements of the axis whose sum is element `i` of the result.
    fn weights(&self, axis: usize, i: usize, scale: f64, [extent, result]: [usize; 2]) -> Vec<(usize, f64)> {
        let (x, width, count) = (i as f64, extent as f64, result as f64);
        let at = match &self.crop {
            // Places outside of the image are clamped here, and `extrapolated` replaces their elements afterwards.
            Some(crop) => crop.place(axis, x, width, count).clamp(0.0, width - 1.0),
            None => (self.place)(x, scale, width, count),
        };
        // An integral place counts as 1 after its left neighbour, as in the reference implementation.
        let (base, rest) = if at.fract() == 0.0 { (at - 1.0, 1.0) } else { (at.floor(), at - at.floor()) };
        let weights = self.kernel.weights(rest, if self.antialias { scale.min(1.0) } else { 1.0 });
        let first = base as i64 - weights.len() as i64 / 2 + 1;
        let last = extent as i64 - 1;
        let inside = |(k, &w): (usize, &f64)| {
            let at = first + k as i64;
            let counts = w != 0.0 && (!self.exclude_outside || (0..=last).contains(&at));
            counts.then_some((at.clamp(0, last) as usize, w))
        };
        let mut taken: Vec<(usize, f64)> = weights.iter().enumerate().filter_map(inside).collect();
        if self.exclude_outside {
            let total: f64 = taken.iter().map(|(_, w)| w).sum();
            taken.iter_mut().for_each(|(_, w)| *w /= total);
        }
        taken
    }
}

/// Computes each element of the result as a weighted sum of `taps` elements of an axis. `rows` has the indices and the
/// weights of these elements, at most `taps` for each sum.
fn weighted(
    c: &mut NodeCall<'_, '_>,
    x: NodeId,
    axis: usize,
    mut rows: Vec<Vec<(usize, f64)>>,
    taps: usize,
) -> NodeResult {
    for row in &mut rows {
        // A shorter row repeats its last element, and splits the weight into halves. A repetition with weight 0 would
        // turn an infinite element into NaN.
        while row.len() < taps {
            let half = row.last_mut().map_or((0, 0.0), |(at, weight)| {
                *weight /= 2.0;
                (*at, *weight)
            });
            row.push(half);
        }
    }
    let mut dims = vec![1; c.rank(x)];
    dims[axis] = rows.len();
    let mut terms = Vec::new();
    for tap in 0..taps {
        let ids: Vec<usize> = rows.iter().map(|row| row[tap].0).collect();
        let weights = Tensor::from_f64(c.dtype(x), &dims, rows.iter().map(|row| row[tap].1));
        let (elements, weights) = (taken(c, x, axis, &ids)?, c.constant(weights)?);
        terms.push(c.apply("mul", [elements, weights])?);
    }
    let mut sum = terms[0];
    for &term in &terms[1..] {
        sum = c.apply("add", [sum, term])?;
    }
    Ok(sum)
}

/// Returns elements of an axis by index. The result is a view if each element is repeated equally often, or if the
/// indices are equidistant. Otherwise it is a gather.
pub(super) fn taken(c: &mut NodeCall<'_, '_>, x: NodeId, axis: usize, ids: &[usize]) -> NodeResult {
    let (mut dims, extent) = (c.shape(x), c.extent(x, axis));
    let times = ids.len() / extent;
    if times > 0 && times * extent == ids.len() && ids.iter().enumerate().all(|(i, &id)| id == i / times) {
        dims.insert(axis + 1, Dim::Known(1));
        let split = c.reshape(x, &dims)?;
        dims[axis + 1] = times.into();
        let repeated = c.expand(split, &dims)?;
        dims[axis] = ids.len().into();
        dims.remove(axis + 1);
        return c.reshape(repeated, &dims);
    }
    if let [first, second, ..] = *ids
        && second > first
        && ids.iter().enumerate().all(|(i, &id)| id == first + i * (second - first))
    {
        return c.slice_by(x, axis, first as i64, ids.len(), (second - first) as i64);
    }
    let ids = c.constant(Tensor::from_i64(DType::I64, &[ids.len()], ids.iter().map(|&id| id as i64)))?;
    c.op("gather", &[x, ids], &[("axis", (axis as i64).into())])
}

impl Interpolation {
    /// Returns the weights of the elements around a place that is `rest` after an element. The kernel is wider by the
    /// factor 1/scale.
    fn weights(self, rest: f64, scale: f64) -> Vec<f64> {
        let (reach, f): (f64, &dyn Fn(f64) -> f64) = match self {
            Interpolation::Nearest(right) => {
                let right = rest == 1.0 || right(rest);
                return if right { vec![0.0, 1.0] } else { vec![1.0, 0.0] };
            }
            Interpolation::Linear => (1.0, &|x| (1.0 - x).max(0.0)),
            Interpolation::Cubic(a) => (2.0, &move |x| match x {
                ..=1.0 => ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0,
                ..2.0 => ((x - 5.0) * x + 8.0) * x * a - 4.0 * a,
                _ => 0.0,
            }),
        };
        let start = (-reach / scale).floor() as i64 + 1;
        let weights: Vec<f64> = (start..2 - start).map(|k| f(((k as f64 - rest) * scale).abs())).collect();
        let total: f64 = weights.iter().sum();
        // Only the weights of a widened kernel do not add up to 1.
        if scale < 1.0 { weights.into_iter().map(|w| w / total).collect() } else { weights }
    }
}

/// Imports `Resize`. The scales or sizes are given for all axes or for the axes in `axes`.
fn resize(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    let shape = c.shape(x);
    let axes: Vec<usize> = match c.ints("axes")? {
        Some(axes) => axes.into_iter().map(|a| c.axis(a, shape.len())).collect::<Result<_, _>>()?,
        None => (0..shape.len()).collect(),
    };
    let plan = Sampling::read(c, &axes, shape.len())?;
    let sizes = match c.optional(3) {
        Some(_) => c.known_dims(3)?,
        None => Vec::new(),
    };
    if sizes.is_empty() {
        let given = c.known(2)?.to_f64();
        if given.len() != axes.len() {
            return Err(format!("it has {} scales for {} axes", given.len(), axes.len()).into());
        }
        let mut scales = vec![1.0; shape.len()];
        axes.iter().zip(given).for_each(|(&axis, scale)| scales[axis] = scale);
        return plan.scaled(c, &scales);
    }
    if sizes.iter().any(|size| size.range().is_none_or(|(least, _)| least < 0)) {
        return Err("one of its sizes is negative".into());
    }
    if sizes.len() != axes.len() {
        return Err(format!("it has {} sizes for {} axes", sizes.len(), axes.len()).into());
    }
    let ratio = |(&axis, size): (&usize, &Dim)| match *size == shape[axis] {
        true => 1.0,
        false => c.fix(size) as f64 / c.fix(&shape[axis]).max(1) as f64,
    };
    let ratios: Vec<f64> = axes.iter().zip(&sizes).map(ratio).collect();
    let of_all = |pick: fn(f64, f64) -> f64| ratios.iter().copied().reduce(pick).unwrap_or(1.0);
    let common = match c.word("keep_aspect_ratio_policy")?.unwrap_or("stretch") {
        "stretch" => None,
        "not_larger" => Some(of_all(f64::min)),
        "not_smaller" => Some(of_all(f64::max)),
        other => return Err(format!("its keep_aspect_ratio_policy `{other}` is not supported").into()),
    };
    let mut steps = Vec::new();
    for ((&axis, size), &ratio) in axes.iter().zip(&sizes).zip(&ratios) {
        let scale = common.unwrap_or(ratio);
        let size = match common {
            None => size.clone(),
            Some(1.0) => shape[axis].clone(),
            Some(scale) => Dim::from((scale * c.fix(&shape[axis]) as f64 + 0.5).floor() as usize),
        };
        steps.push((axis, scale, size));
    }
    plan.resized(c, x, steps)
}
