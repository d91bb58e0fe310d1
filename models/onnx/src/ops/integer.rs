//! Matrix products and convolutions of 8-bit integers with zero points, and the quantization of their results.
//!
//! Kernels compute these products in floats. They are exact as long as each partial sum is an integer that the element
//! type represents exactly. The bounds of the operands decide between `f32` and `f64`.

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

/// Float types, each with the limit up to which it represents all integers.
const EXACT: [(DType, u64); 2] = [(DType::F32, 1 << 24), (DType::F64, 1 << 53)];

/// The factor for the bound of convolutions in `f32`. Winograd's algorithm may add nine sums for a result. The terms of
/// a sum are multiples of 1/4, and each sum may be as large as the result.
const OF_WINDOWS: u64 = 4 * 9;

/// Integers, and the zero point that is subtracted from them.
pub(super) struct Quantized {
    pub value: NodeId,
    pub zero: Option<NodeId>,
}

impl Quantized {
    pub fn read(c: &NodeCall<'_, '_>, at: usize, zero: Option<usize>) -> Result<Quantized, NodeError> {
        let (value, zero) = (c.input(at)?, zero.and_then(|at| c.optional(at)));
        for x in [Some(value), zero].into_iter().flatten() {
            if !matches!(c.dtype(x), DType::I8 | DType::U8) {
                return Err(
                    format!("its operand {at} has elements of type {}; i8 and u8 are supported", c.dtype(x)).into()
                );
            }
        }
        Ok(Quantized { value, zero })
    }

    /// Returns an upper bound of |element| + |zero point|. It also holds if kernels multiply elements and zero points
    /// separately, and subtract the products.
    fn bound(&self, c: &NodeCall<'_, '_>) -> u64 {
        let of = |x: NodeId| if c.dtype(x) == DType::U8 { 255 } else { 128 };
        let known = |zero: NodeId| {
            let largest = c.value(zero)?.to_i64().into_iter().map(i64::unsigned_abs).max();
            Some(largest.unwrap_or(0))
        };
        of(self.value) + self.zero.map_or(0, |zero| known(zero).unwrap_or(of(zero)))
    }

    /// Returns the elements minus the zero point, cast to `to`.
    fn centred(&self, c: &mut NodeCall<'_, '_>, to: DType) -> NodeResult {
        let x = c.cast(self.value, to)?;
        let Some(zero) = self.zero else { return Ok(x) };
        let zero = c.cast(zero, to)?;
        c.apply("sub", [x, zero])
    }

    /// Reshapes the zero point to `dims` if it has several elements.
    fn zero_as(mut self, c: &mut NodeCall<'_, '_>, dims: &[Dim]) -> Result<Quantized, NodeError> {
        self.zero = self.zero.map(|zero| along(c, zero, dims)).transpose()?;
        Ok(self)
    }
}

/// Reshapes a vector of scales or zero points: one number becomes a scalar, and one number for each place of an axis
/// gets the shape `dims`.
pub(super) fn along(c: &mut NodeCall<'_, '_>, x: NodeId, dims: &[Dim]) -> NodeResult {
    match c.dims(x)[..] {
        [] | [1] => c.scalar(x),
        [n] if count(dims) == Dim::from(n) => c.reshape(x, dims),
        [n] => Err(format!("it has {n} scales or zero points, which do not fit the extents {dims:?}").into()),
        _ => Ok(x),
    }
}

/// Returns the element type in which sums of `count` products of these operands are exact.
fn exact(c: &NodeCall<'_, '_>, operands: [&Quantized; 2], count: usize) -> Result<DType, NodeError> {
    let term = operands.map(|x| x.bound(c)).into_iter().product::<u64>();
    let most = term.saturating_mul(count as u64);
    let fits = EXACT.into_iter().find(|(_, first)| most < *first);
    fits.map(|(dtype, _)| dtype).ok_or_else(|| NodeError(format!("its sums of {count} products are not exact in f64")))
}

/// Rounds a sum of products to `i32`. The sum is an exact integer in any order of its terms. If rules move scales into
/// it, its error is far below ½, which rounding removes.
fn whole(c: &mut NodeCall<'_, '_>, sum: NodeId) -> NodeResult {
    let sum = c.apply("round", [sum])?;
    c.cast(sum, DType::I32)
}

/// Multiplies matrices. A zero point is one number, or a number for each row of the first operand, or for each column
/// of the second operand.
pub(super) fn product(c: &mut NodeCall<'_, '_>, [a, b]: [Quantized; 2]) -> NodeResult {
    let depth = c.shape(a.value).last().map_or(0, |last| c.fix(last));
    let (rows, columns) = (rows(c, a.value), columns(c, b.value));
    let (a, b) = (a.zero_as(c, &rows)?, b.zero_as(c, &columns)?);
    let to = exact(c, [&a, &b], depth)?;
    let (a, b) = (a.centred(c, to)?, b.centred(c, to)?);
    let sum = contraction::product_of_matrices(c, a, b)?;
    whole(c, sum)
}

/// Returns the shape in which one number for each row of a matrix broadcasts to the matrix.
fn rows(c: &NodeCall<'_, '_>, x: NodeId) -> [Dim; 2] {
    let one = Dim::Known(1);
    match &c.shape(x)[..] {
        [.., rows, _] => [rows.clone(), one],
        _ => [one.clone(), one],
    }
}

/// Returns the shape in which one number for each column of a matrix broadcasts to the matrix.
fn columns(c: &NodeCall<'_, '_>, x: NodeId) -> [Dim; 1] {
    [c.shape(x).pop().unwrap_or(Dim::Known(1))]
}

/// Computes a convolution. The zero point of the weights is one number, or a number for each output channel. Padding
/// has the value of the input's zero point, so it counts as 0.
fn convolution(c: &mut NodeCall<'_, '_>, [x, w]: [Quantized; 2]) -> NodeResult {
    let dims = c.dims(w.value);
    let w = w.zero_as(c, &channels(&dims))?;
    let terms = dims.iter().skip(1).product::<usize>();
    let to = exact(c, [&x, &w], terms.saturating_mul(OF_WINDOWS as usize))?;
    let (x, w) = (x.centred(c, to)?, w.centred(c, to)?);
    let sum = spatial::convolution(c, x, w, None)?;
    whole(c, sum)
}

/// Returns the shape in which one number for each output channel broadcasts to the weights.
fn channels(weights: &[usize]) -> Vec<Dim> {
    weights.iter().enumerate().map(|(axis, &n)| Dim::from(if axis == 0 { n } else { 1 })).collect()
}

/// Imports `QLinearMatMul`. The inputs are a and b, each with a scale and a zero point, then the scale and the zero
/// point of the result.
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

/// Imports `QLinearConv`. The inputs are x and the weights, each with a scale and a zero point, then the scale and the
/// zero point of the result. An optional bias is added to the integer sums.
fn qlinear_conv(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let operands = [Quantized::read(c, 0, Some(2))?, Quantized::read(c, 3, Some(5))?];
    let dims = c.dims(operands[1].value);
    // The spatial axes follow the channels.
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

/// Returns the scales of both operands and of the result. `shapes` are the shapes in which they broadcast to the
/// result.
fn scales(c: &mut NodeCall<'_, '_>, at: [usize; 3], shapes: &[Vec<Dim>; 3]) -> Result<[NodeId; 3], NodeError> {
    let mut scale = |at: usize, dims: &[Dim]| {
        let scale = c.input(at)?;
        along(c, scale, dims)
    };
    Ok([scale(at[0], &shapes[0])?, scale(at[1], &shapes[1])?, scale(at[2], &shapes[2])?])
}

/// Converts integer sums to the quantised result: multiplies by the scales of both operands, divides by that of the
/// result, rounds, and adds the zero point.
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

/// The group of elements that share a scale and a zero point.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Ranges {
    /// All elements.
    Tensor,
    /// The elements of one row. So the result for a row does not depend on other rows.
    Row,
}

/// Quantizes x to `u8`. The scale and the zero point map 0 and all elements to the range from 0 to 255. The scale is 1
/// if all elements are 0, as in ONNX Runtime.
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

/// Multiplies rows of floats by a quantised matrix. The rows are quantised first, with scales from their ranges. The
/// matrix has one scale, or one for each column.
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
