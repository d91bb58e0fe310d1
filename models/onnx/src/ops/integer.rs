//! Products and convolutions of integers of 8 bits, with zero points, and quantization of their results.
//!
//! Our products are of floats. They are exact where no sum, in any order of its terms, can reach the first integer that the element
//! type lacks. So the bounds of the operands choose between `f32` and `f64`.

use eutectic_ir::{DType, Dim, NodeId};

use super::{
    super::{
        call::{NodeCall, NodeResult},
        error::NodeError,
    },
    contraction,
    layout::count,
    quantize::saturated,
    row::{OpRow, Outputs, many, one},
    spatial,
};

pub(super) const OPS: &[OpRow] = &[
    one("MatMulInteger", 10, |c| {
        let operands = [Quantized::read(c, 0, Some(2))?, Quantized::read(c, 1, Some(3))?];
        product(c, operands)
    }),
    one("ConvInteger", 10, |c| {
        let operands = [Quantized::read(c, 0, Some(2))?, Quantized::read(c, 1, Some(3))?];
        convolution(c, operands)
    }),
    one("QLinearMatMul", 10, qlinear_matmul),
    one("QLinearConv", 10, qlinear_conv),
    many("DynamicQuantizeLinear", 11, dynamic_quantize),
];

/// The first integers that have a successor which `f32` lacks, and `f64`.
const EXACT: [(DType, u64); 2] = [(DType::F32, 1 << 24), (DType::F64, 1 << 53)];

/// A convolution of `f32` may be computed by Winograd's filtering: nine sums of quarters, each as large as the result.
const OF_WINDOWS: u64 = 4 * 9;

/// Integers with their zero point.
pub(super) struct Quantized {
    pub value: NodeId,
    pub zero: Option<NodeId>,
}

impl Quantized {
    pub fn read(c: &NodeCall<'_, '_>, at: usize, zero: Option<usize>) -> Result<Quantized, NodeError> {
        let (value, zero) = (c.input(at)?, zero.and_then(|at| c.optional(at)));
        for x in [Some(value), zero].into_iter().flatten() {
            if !matches!(c.dtype(x), DType::I8 | DType::U8) {
                return Err(format!("its operand {at} has {} elements; i8 and u8 are supported", c.dtype(x)).into());
            }
        }
        Ok(Quantized { value, zero })
    }

    /// How large the elements can be, and the zero point with them: it may be taken off before a product or behind it.
    fn bound(&self, c: &NodeCall<'_, '_>) -> u64 {
        let of = |x: NodeId| if c.dtype(x) == DType::U8 { 255 } else { 128 };
        let known = |zero: NodeId| {
            let largest = c.value(zero)?.to_i64().into_iter().map(i64::unsigned_abs).max();
            Some(largest.unwrap_or(0))
        };
        of(self.value) + self.zero.map_or(0, |zero| known(zero).unwrap_or(of(zero)))
    }

    /// The elements less the zero point, which is a number or has a shape that broadcasts.
    fn centred(&self, c: &mut NodeCall<'_, '_>, to: DType) -> NodeResult {
        let x = c.cast(self.value, to)?;
        let Some(zero) = self.zero else { return Ok(x) };
        let zero = c.cast(zero, to)?;
        c.apply("sub", [x, zero])
    }

    /// With the zero point in that shape, if it has more than one element.
    fn zero_as(mut self, c: &mut NodeCall<'_, '_>, dims: &[Dim]) -> Result<Quantized, NodeError> {
        self.zero = self.zero.map(|zero| along(c, zero, dims)).transpose()?;
        Ok(self)
    }
}

/// One number, or one for each place of an axis: `dims` is the shape of the latter.
pub(super) fn along(c: &mut NodeCall<'_, '_>, x: NodeId, dims: &[Dim]) -> NodeResult {
    match c.dims(x)[..] {
        [] | [1] => c.scalar(x),
        [n] if count(dims) == Dim::from(n) => c.reshape(x, dims),
        [n] => Err(format!("it has {n} scales or zero points where {dims:?} are wanted").into()),
        _ => Ok(x),
    }
}

/// The element type in which sums of `count` products of such operands are exact.
fn exact(c: &NodeCall<'_, '_>, operands: [&Quantized; 2], count: usize) -> Result<DType, NodeError> {
    let term = operands.map(|x| x.bound(c)).into_iter().product::<u64>();
    let most = term.saturating_mul(count as u64);
    let fits = EXACT.into_iter().find(|(_, first)| most < *first);
    fits.map(|(dtype, _)| dtype).ok_or_else(|| NodeError(format!("sums of {count} products are not exact in f64")))
}

/// A sum of products as i32. It is an integer by its bounds; where rules order the sum in another way, it is one to much less than ½.
fn whole(c: &mut NodeCall<'_, '_>, sum: NodeId) -> NodeResult {
    let sum = c.apply("round", [sum])?;
    c.cast(sum, DType::I32)
}

/// The product of matrices; zero points are for the whole operand, for each row of the first, or for each column of the second.
pub(super) fn product(c: &mut NodeCall<'_, '_>, [a, b]: [Quantized; 2]) -> NodeResult {
    let depth = c.shape(a.value).last().map_or(0, |last| c.fix(last));
    let (rows, columns) = (rows(c, a.value), columns(c, b.value));
    let (a, b) = (a.zero_as(c, &rows)?, b.zero_as(c, &columns)?);
    let to = exact(c, [&a, &b], depth)?;
    let (a, b) = (a.centred(c, to)?, b.centred(c, to)?);
    let sum = contraction::product_of_matrices(c, a, b)?;
    whole(c, sum)
}

/// One number for each row of a matrix: the shape that broadcasts to it.
fn rows(c: &NodeCall<'_, '_>, x: NodeId) -> [Dim; 2] {
    let one = Dim::Known(1);
    match &c.shape(x)[..] {
        [.., rows, _] => [rows.clone(), one],
        _ => [one.clone(), one],
    }
}

/// One number for each column of a matrix.
fn columns(c: &NodeCall<'_, '_>, x: NodeId) -> [Dim; 1] {
    [c.shape(x).pop().unwrap_or(Dim::Known(1))]
}

/// The convolution; the zero point of the weights is for all of them, or for each channel of the result. Padding is the zero point.
fn convolution(c: &mut NodeCall<'_, '_>, [x, w]: [Quantized; 2]) -> NodeResult {
    let dims = c.dims(w.value);
    let w = w.zero_as(c, &channels(&dims))?;
    let terms = dims.iter().skip(1).product::<usize>();
    let to = exact(c, [&x, &w], terms.saturating_mul(OF_WINDOWS as usize))?;
    let (x, w) = (x.centred(c, to)?, w.centred(c, to)?);
    let sum = spatial::convolution(c, x, w, None)?;
    whole(c, sum)
}

/// One number for each channel of weights of such a shape: the shape that broadcasts to it.
fn channels(weights: &[usize]) -> Vec<Dim> {
    weights.iter().enumerate().map(|(axis, &n)| Dim::from(if axis == 0 { n } else { 1 })).collect()
}

/// a, its scale and zero point; b likewise; and those of the result.
fn qlinear_matmul(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let operands = [Quantized::read(c, 0, Some(2))?, Quantized::read(c, 3, Some(5))?];
    let (rows, columns) = (rows(c, operands[0].value), columns(c, operands[1].value));
    let shapes = [rows.to_vec(), columns.to_vec(), rows.to_vec()];
    let scales = scales(c, [1, 4, 6], &shapes)?;
    let zero = c.input(7)?;
    let zero = along(c, zero, &rows)?;
    let sum = product(c, operands)?;
    requantized(c, sum, scales, zero)
}

/// x, its scale and zero point; the weights likewise; those of the result; and a bias, which is added to the sums.
fn qlinear_conv(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let operands = [Quantized::read(c, 0, Some(2))?, Quantized::read(c, 3, Some(5))?];
    let dims = c.dims(operands[1].value);
    // Behind the channels come the axes of the image.
    let column: Vec<Dim> = channels(&dims).into_iter().take(dims.len().saturating_sub(1)).collect();
    let scales = scales(c, [1, 4, 6], &[vec![], column.clone(), vec![]])?;
    let zero = c.input(7)?;
    let zero = along(c, zero, &[])?;
    let mut sum = convolution(c, operands)?;
    if let Some(bias) = c.optional(8) {
        let bias = c.cast(bias, DType::I32)?;
        let bias = c.reshape(bias, &column)?;
        sum = c.apply("add", [sum, bias])?;
    }
    requantized(c, sum, scales, zero)
}

/// The scales of both operands and of the result, each in a shape that broadcasts to the result.
fn scales(c: &mut NodeCall<'_, '_>, at: [usize; 3], shapes: &[Vec<Dim>; 3]) -> Result<[NodeId; 3], NodeError> {
    let mut scale = |at: usize, dims: &[Dim]| {
        let scale = c.input(at)?;
        along(c, scale, dims)
    };
    Ok([scale(at[0], &shapes[0])?, scale(at[1], &shapes[1])?, scale(at[2], &shapes[2])?])
}

/// Sums times both scales over the scale of the result, rounded, with its zero point.
pub(super) fn requantized(
    c: &mut NodeCall<'_, '_>,
    sum: NodeId,
    [a, b, result]: [NodeId; 3],
    zero: NodeId,
) -> NodeResult {
    let [a, b, result] = [c.cast(a, DType::F32)?, c.cast(b, DType::F32)?, c.cast(result, DType::F32)?];
    let both = c.apply("mul", [a, b])?;
    let scale = c.apply("div", [both, result])?;
    let sum = c.cast(sum, DType::F32)?;
    let scaled = c.apply("mul", [sum, scale])?;
    let number = c.apply("round", [scaled])?;
    let to = c.dtype(zero);
    saturated(c, number, Some(zero), to)
}

fn dynamic_quantize(c: &mut NodeCall<'_, '_>) -> Outputs {
    let x = c.input(0)?;
    Ok(by_range(c, x, Ranges::Tensor)?.into())
}

/// The elements that share a scale and a zero point.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Ranges {
    /// All elements.
    Tensor,
    /// Those of a row. Then no row's result depends on the others.
    Row,
}

/// Returns x as u8, with the scales and the zero points by which 0 and all elements are within 0 to 255. Where all are 0 the scale is 1, as
/// ONNX Runtime says.
fn by_range(c: &mut NodeCall<'_, '_>, x: NodeId, ranges: Ranges) -> Result<[NodeId; 3], NodeError> {
    let rank = c.rank(x);
    let axes: Vec<usize> = (if ranges == Ranges::Row { rank.saturating_sub(1)..rank } else { 0..rank }).collect();
    let mut end = |how: &str, beyond: &str| {
        let mut end = c.reduce(how, x, &axes)?;
        if ranges == Ranges::Tensor {
            end = c.scalar(end)?;
        }
        c.with(beyond, end, 0.0)
    };
    let (high, low) = (end("reduce-max", "max")?, end("reduce-min", "min")?);
    let range = c.apply("sub", [high, low])?;
    let step = c.with("div", range, 255.0)?;
    let (none, one) = (c.apply("eq", [high, low])?, c.number(1.0, x)?);
    let scale = c.apply("where", [none, one, step])?;
    let steps = c.apply("div", [low, scale])?;
    let start = c.apply("neg", [steps])?;
    let kept = c.op("clamp", &[start], &[("min", 0.0.into()), ("max", 255.0.into())])?;
    let rounded = c.apply("round", [kept])?;
    let zero = c.cast(rounded, DType::U8)?;
    let scaled = c.apply("div", [x, scale])?;
    let number = c.apply("round", [scaled])?;
    Ok([saturated(c, number, Some(zero), DType::U8)?, scale, zero])
}

/// Returns the product of real rows, which are quantised by their ranges, and a quantised matrix with its scale: one for all, or one for each
/// column.
pub(super) fn dynamic_product(
    c: &mut NodeCall<'_, '_>,
    (x, ranges): (NodeId, Ranges),
    matrix: Quantized,
    scale: NodeId,
) -> NodeResult {
    let [value, step, zero] = by_range(c, x, ranges)?;
    let scale = along(c, scale, &columns(c, matrix.value))?;
    let both = c.apply("mul", [step, scale])?;
    let sum = product(c, [Quantized { value, zero: Some(zero) }, matrix])?;
    let sum = c.cast(sum, DType::F32)?;
    c.apply("mul", [sum, both])
}
