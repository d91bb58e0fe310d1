//! Samples images at computed coordinates. Along each spatial axis, the elements next to the coordinate are taps with
//! weights. One gather reads the products of the taps of all axes, and a weighted sum combines them. ONNX's reference
//! implementation defines the modes (`onnx/reference/ops/op_grid_sample.py`).

use eutectic_ir::{DType, NodeId};

use super::{
    super::{
        call::{NodeCall, NodeResult},
        error::NodeError,
    },
    row::{OpRow, one},
};

pub(super) const OPS: &[OpRow] = &[one("GridSample", 16, grid_sample), one("AffineGrid", 20, affine_grid)];

/// The interpolation between elements.
#[derive(Clone, Copy)]
enum GridInterpolation {
    Nearest,
    Linear,
    /// Keys' cubic convolution with a coefficient of −3/4.
    Cubic,
}

/// The treatment of coordinates outside of the image, `padding_mode`.
#[derive(Clone, Copy, PartialEq)]
enum Outside {
    Zeros,
    Border,
    Reflection,
}

/// The attributes of `GridSample`.
struct GridSampling {
    kernel: GridInterpolation,
    padding: Outside,
    /// Whether the coordinates −1 and 1 are the centres of the outermost elements. Otherwise they are the outer edges
    /// of these elements.
    align: bool,
    /// The element type of computed coordinates.
    number: DType,
}

/// The taps along one axis: the elements that a sample reads.
struct Taps {
    /// The index of each tap. All are in range.
    ids: NodeId,
    /// The weight of each tap, or `None` if there is only one tap.
    weights: Option<NodeId>,
    /// Whether each tap is inside of the image. `None` if `ids` has replaced taps outside of the image.
    inside: Option<NodeId>,
}

/// Computes the sampling grid [N D.. r] of affine maps [N r r+1] for a result [N C D..]. On the last axis of the grid,
/// coordinates have the reverse order of the axes D.
fn affine_grid(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let theta = c.input(0)?;
    let size: Vec<usize> = c
        .known_ints(1)?
        .into_iter()
        .map(|n| usize::try_from(n).map_err(|_| format!("its result has the extent {n}, which is negative")))
        .collect::<Result<_, _>>()?;
    let axes = size.len().saturating_sub(2);
    if axes == 0 || c.dims(theta) != [size[0], axes, axes + 1] {
        return Err(format!(
            "its maps have extents {:?}, which do not fit a result of extents {size:?}",
            c.dims(theta)
        )
        .into());
    }
    let (align, dtype, space) = (c.flag("align_corners")?, c.dtype(theta), &size[2..]);
    let mut columns = Vec::new();
    for axis in (0..axes).rev() {
        let extent = space[axis];
        let number = c.iota(&[space, &[1]].concat(), axis, dtype)?;
        // Coordinates run from −1 to 1. These are the centres of the outermost elements if `align`, and otherwise their
        // outer edges.
        let (step, first) = match align {
            true if extent > 1 => (2.0 / (extent as f64 - 1.0), -1.0),
            true => (0.0, 0.0),
            false => (2.0 / extent as f64, 1.0 / extent as f64 - 1.0),
        };
        let scaled = c.with("mul", number, step)?;
        columns.push(c.with("add", scaled, first)?);
    }
    columns.push(c.full(1.0, dtype, &[space, &[1]].concat())?);
    let places = c.concat(&columns, axes)?;
    let count = space.iter().product();
    let places = c.reshape(places, &[1, count, axes + 1])?;
    let places = c.expand(places, &[size[0], count, axes + 1])?;
    let maps = c.transpose(theta, &[0, 2, 1])?;
    let grid = c.apply("matmul", [places, maps])?;
    c.reshape(grid, &[&[size[0]], space, &[axes]].concat())
}

/// Samples X [N C D..] at a grid [N E.. r]. On the last axis of the grid, coordinates have the reverse order of the
/// axes D.
fn grid_sample(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (x, grid) = (c.input(0)?, c.input(1)?);
    let (dims, places) = (c.dims(x), c.dims(grid));
    let axes = dims.len().saturating_sub(2);
    if axes == 0 || places.len() != dims.len() || places[axes + 1] != axes || places[0] != dims[0] {
        return Err(format!("its grid has extents {places:?}, which do not fit an input of extents {dims:?}").into());
    }
    if dims[2..].contains(&0) {
        return Err(format!("its input of extents {dims:?} has no elements to sample").into());
    }
    let sampling = GridSampling::read(c, grid)?;
    let grid = c.cast(grid, sampling.number)?;
    let out = &places[..=axes];
    // For each tap of each result: `at` is its flat index in [N D..], `weights` its weight, and `inside` whether it is
    // in the image.
    let mut at = {
        let batch = c.iota(&[&[dims[0]], vec![1; 2 * axes].as_slice()].concat(), 0, DType::I64)?;
        c.with("mul", batch, dims[2..].iter().product::<usize>() as f64)?
    };
    let (mut weights, mut inside): (Option<NodeId>, Option<NodeId>) = (None, None);
    for axis in 0..axes {
        let place = c.slice(grid, axes + 1, axes - 1 - axis, 1)?;
        let place = c.reshape(place, &[out, vec![1; axes].as_slice()].concat())?;
        let mut shape = vec![1; axes];
        shape[axis] = sampling.kernel.taps().1;
        let taps = sampling.taps(c, place, (&shape, axis), dims[2 + axis])?;
        let stride: usize = dims[3 + axis..].iter().product();
        let offset = c.with("mul", taps.ids, stride as f64)?;
        at = c.apply("add", [at, offset])?;
        weights = join(c, "mul", weights, taps.weights)?;
        inside = join(c, "and", inside, taps.inside)?;
    }
    let taps = vec![sampling.kernel.taps().1; axes];
    let last: Vec<usize> = (2..dims.len()).chain([1]).collect();
    let rows = c.transpose(x, &[&[0], last.as_slice()].concat())?;
    let rows = c.reshape(rows, &[dims[0] * dims[2..].iter().product::<usize>(), dims[1]])?;
    let full = [out, &taps].concat();
    let at = c.expand(at, &full)?;
    let mut read = c.op("gather", &[rows, at], &[("axis", 0.into())])?;
    let per_channel = |c: &mut NodeCall<'_, '_>, of_taps: NodeId| {
        let whole = c.expand(of_taps, &full)?;
        c.reshape(whole, &[full.as_slice(), &[1]].concat())
    };
    if let Some(inside) = inside {
        let (inside, zero) = (per_channel(c, inside)?, c.number(0.0, x)?);
        read = c.apply("where", [inside, read, zero])?;
    }
    if let Some(weights) = weights {
        let weights = per_channel(c, weights)?;
        let weights = c.cast(weights, c.dtype(x))?;
        read = c.apply("mul", [read, weights])?;
        read = c.reduce("reduce-sum", read, &(axes + 1..2 * axes + 1).collect::<Vec<_>>())?;
    }
    let result = c.reshape(read, &[out, &[dims[1]]].concat())?;
    c.transpose(result, &[&[0, axes + 1], (1..=axes).collect::<Vec<_>>().as_slice()].concat())
}

/// Combines two optional values by an op. Returns the present one if the other is `None`.
fn join(c: &mut NodeCall<'_, '_>, op: &str, a: Option<NodeId>, b: Option<NodeId>) -> Result<Option<NodeId>, NodeError> {
    match (a, b) {
        (Some(a), Some(b)) => c.apply(op, [a, b]).map(Some),
        (one, None) | (None, one) => Ok(one),
    }
}

impl GridInterpolation {
    /// Returns the offset of the first tap from the rounded-down coordinate, and the number of taps.
    fn taps(self) -> (i64, usize) {
        match self {
            GridInterpolation::Nearest => (0, 1),
            GridInterpolation::Linear => (0, 2),
            GridInterpolation::Cubic => (-1, 4),
        }
    }
}

impl GridSampling {
    fn read(c: &NodeCall<'_, '_>, grid: NodeId) -> Result<GridSampling, NodeError> {
        let kernel = match c.word("mode")?.unwrap_or("linear") {
            "nearest" => GridInterpolation::Nearest,
            "linear" | "bilinear" => GridInterpolation::Linear,
            "cubic" | "bicubic" => GridInterpolation::Cubic,
            other => return Err(format!("its mode `{other}` is not supported").into()),
        };
        let padding = match c.word("padding_mode")?.unwrap_or("zeros") {
            "zeros" => Outside::Zeros,
            "border" => Outside::Border,
            "reflection" => Outside::Reflection,
            other => return Err(format!("its padding_mode `{other}` is not supported").into()),
        };
        let number = if c.dtype(grid) == DType::F64 { DType::F64 } else { DType::F32 };
        Ok(GridSampling { kernel, padding, align: c.flag("align_corners")?, number })
    }

    /// Returns the smallest and the largest coordinate of the image along an axis, in units of elements.
    fn borders(&self, extent: usize) -> [f64; 2] {
        if self.align { [0.0, extent as f64 - 1.0] } else { [-0.5, extent as f64 - 0.5] }
    }

    /// Returns the taps for coordinates `place` between −1 and 1 on an image axis with `extent` elements. `shape` are
    /// the extents of the result's innermost axes, and the taps are along axis `axis` of these.
    fn taps(
        &self,
        c: &mut NodeCall<'_, '_>,
        place: NodeId,
        (shape, axis): (&[usize], usize),
        extent: usize,
    ) -> Result<Taps, NodeError> {
        let last = extent as f64 - 1.0;
        let place = c.with("add", place, 1.0)?;
        let mut place = if self.align {
            let half = c.with("div", place, 2.0)?;
            c.with("mul", half, last)?
        } else {
            let whole = c.with("mul", place, extent as f64)?;
            let from_centre = c.with("sub", whole, 1.0)?;
            c.with("div", from_centre, 2.0)?
        };
        if let GridInterpolation::Nearest = self.kernel {
            place = c.apply("round", [place])?;
        }
        if self.padding != Outside::Zeros {
            let [low, high] = self.borders(extent);
            let (above, below) = (c.with("ge", place, low)?, c.with("le", place, high)?);
            let kept = c.apply("and", [above, below])?;
            let moved = self.moved(c, place, extent)?;
            place = c.apply("where", [kept, place, moved])?;
        }
        let base = c.apply("floor", [place])?;
        let number = c.iota(shape, axis, self.number)?;
        let number = c.with("add", number, self.kernel.taps().0 as f64)?;
        let at = c.apply("add", [base, number])?;
        let weights = match self.kernel {
            GridInterpolation::Nearest => None,
            kernel => {
                let rest = c.apply("sub", [place, base])?;
                let offset = c.apply("sub", [rest, number])?;
                let distance = c.apply("abs", [offset])?;
                Some(weight(c, kernel, distance)?)
            }
        };
        let (not_before, not_behind) = (c.with("ge", at, 0.0)?, c.with("le", at, last)?);
        let inside = c.apply("and", [not_before, not_behind])?;
        // Border and reflection give an element of the image, except for rounding errors. A NaN coordinate reads
        // element 0.
        let elsewhere = match self.padding {
            Outside::Zeros => c.number(0.0, at)?,
            _ => {
                let moved = self.moved(c, at, extent)?;
                let element = c.apply("round", [moved])?;
                let known = c.apply("eq", [element, element])?;
                let zero = c.number(0.0, at)?;
                let element = c.apply("where", [known, element, zero])?;
                c.op("clamp", &[element], &[("min", 0.0.into()), ("max", last.into())])?
            }
        };
        let at = c.apply("where", [inside, at, elsewhere])?;
        let ids = c.cast(at, DType::I64)?;
        Ok(Taps { ids, weights, inside: (self.padding == Outside::Zeros).then_some(inside) })
    }

    /// Maps a coordinate outside of the image to the edge, or reflects it into the image.
    fn moved(&self, c: &mut NodeCall<'_, '_>, at: NodeId, extent: usize) -> NodeResult {
        let [low, high] = self.borders(extent);
        let width = high - low;
        if self.padding != Outside::Reflection || width == 0.0 {
            return c.op("clamp", &[at], &[("min", 0.0.into()), ("max", (extent as f64 - 1.0).into())]);
        }
        // Reflection at both edges is a triangular wave. Its period is twice the width.
        let from = c.with("sub", at, low)?;
        let periods = c.with("div", from, 2.0 * width)?;
        let whole = c.apply("floor", [periods])?;
        let whole = c.with("mul", whole, 2.0 * width)?;
        let rest = c.apply("sub", [from, whole])?;
        let from_middle = c.with("sub", rest, width)?;
        let distance = c.apply("abs", [from_middle])?;
        let mirrored = c.apply("neg", [distance])?;
        c.with("add", mirrored, high)
    }
}

/// Returns the weight of a tap at a distance from the coordinate, in units of elements.
fn weight(c: &mut NodeCall<'_, '_>, kernel: GridInterpolation, distance: NodeId) -> NodeResult {
    if let GridInterpolation::Linear = kernel {
        let one = c.number(1.0, distance)?;
        return c.apply("sub", [one, distance]);
    }
    let a = -0.75;
    // Evaluates a polynomial by Horner's scheme. Coefficients start at the highest power.
    let mut polynomial = |coefficients: [f64; 4]| {
        let mut value = c.number(coefficients[0], distance)?;
        for k in &coefficients[1..] {
            value = c.apply("mul", [value, distance])?;
            value = c.with("add", value, *k)?;
        }
        Ok::<_, NodeError>(value)
    };
    let near = polynomial([a + 2.0, -(a + 3.0), 0.0, 1.0])?;
    let far = polynomial([a, -5.0 * a, 8.0 * a, -4.0 * a])?;
    let close = c.with("le", distance, 1.0)?;
    c.apply("where", [close, near, far])
}
