//! Ops of `com.microsoft` on quantised elements, as ONNX Runtime's quantizer writes them.

use eutectic_ir::{DType, NodeId};

use super::{
    super::call::{NodeCall, NodeResult},
    activation::leaky,
    integer::{Quantized, Ranges, along, dynamic_product, product, requantized},
    quantize::{dequantize, quantize, saturated},
    row::{OpRow, one},
};

pub(super) const OPS: &[OpRow] = &[
    one("QuantizeLinear", 1, quantize),
    one("DequantizeLinear", 1, dequantize),
    one("QLinearAdd", 1, |c| of_two(c, "add")),
    one("QLinearMul", 1, |c| of_two(c, "mul")),
    one("QLinearSigmoid", 1, |c| of_one(c, |c, x| c.apply("sigmoid", [x]))),
    one("QLinearLeakyRelu", 1, |c| {
        of_one(c, |c, x| {
            let slope = c.float_or("alpha", 0.01)?;
            let slope = c.number(slope, x)?;
            leaky(c, x, slope)
        })
    }),
    one("QLinearSoftmax", 1, |c| {
        of_one(c, |c, x| {
            let (axis, rank) = (c.int_or("axis", -1)?, c.rank(x));
            let axis = c.axis(axis, rank)?;
            if c.int_or("opset", 13)? < 13 && axis + 1 != rank {
                return Err(
                    "its `opset` is below 13, so it normalizes several axes at once, which is not supported".into()
                );
            }
            c.op("softmax", &[x], &[("axis", (axis as i64).into())])
        })
    }),
    one("QLinearGlobalAveragePool", 1, |c| {
        of_one(c, |c, x| {
            let rank = c.rank(x);
            let axes: Vec<usize> = if c.flag("channels_last")? { (1..rank - 1).collect() } else { (2..rank).collect() };
            c.reduce("reduce-mean", x, &axes)
        })
    }),
    one("QLinearConcat", 1, concatenated),
    one("QGemm", 1, gemm),
    one("DynamicQuantizeMatMul", 1, |c| {
        let (x, matrix, scale) = (c.input(0)?, Quantized::read(c, 1, Some(3))?, c.input(2)?);
        let y = dynamic_product(c, (x, Ranges::Tensor), matrix, scale)?;
        biased(c, y, 4)
    }),
    one("MatMulIntegerToFloat", 1, |c| {
        let operands = [Quantized::read(c, 0, Some(4))?, Quantized::read(c, 1, Some(5))?];
        let columns = c.dims(operands[1].value).last().copied().unwrap_or(1);
        let (a, b) = (c.input(2)?, c.input(3)?);
        let (a, b) = (along(c, a, &[])?, along(c, b, &[columns.into()])?);
        let scale = c.apply("mul", [a, b])?;
        let sum = product(c, operands)?;
        let sum = c.cast(sum, DType::F32)?;
        let y = c.apply("mul", [sum, scale])?;
        biased(c, y, 6)
    }),
];

/// Adds input `at` as a bias, if it is present.
fn biased(c: &mut NodeCall<'_, '_>, y: NodeId, at: usize) -> NodeResult {
    match c.optional(at) {
        Some(bias) => c.apply("add", [y, bias]),
        None => Ok(y),
    }
}

/// Dequantizes input `at`. Its scale and zero point are the next two inputs.
fn real(c: &mut NodeCall<'_, '_>, at: usize) -> NodeResult {
    let (value, scale) = (c.input(at)?, c.input(at + 1)?);
    let (scale, x) = (along(c, scale, &[])?, c.cast(value, DType::F32)?);
    let x = match c.optional(at + 2) {
        Some(zero) => {
            let zero = along(c, zero, &[])?;
            let zero = c.cast(zero, DType::F32)?;
            c.apply("sub", [x, zero])?
        }
        None => x,
    };
    c.apply("mul", [x, scale])
}

/// Quantizes x with the scale at input `at` and the zero point at input `at + 1`. Without a zero point, the result has
/// the element type of input `like`.
fn quantised(c: &mut NodeCall<'_, '_>, x: NodeId, at: usize, like: usize) -> NodeResult {
    let scale = c.input(at)?;
    let scale = along(c, scale, &[])?;
    let zero = match c.optional(at + 1) {
        Some(zero) => Some(along(c, zero, &[])?),
        None => None,
    };
    let to = c.dtype(match zero {
        Some(zero) => zero,
        None => c.input(like)?,
    });
    let scaled = c.apply("div", [x, scale])?;
    let number = c.apply("round", [scaled])?;
    saturated(c, number, zero, to)
}

fn of_one(c: &mut NodeCall<'_, '_>, function: impl FnOnce(&mut NodeCall<'_, '_>, NodeId) -> NodeResult) -> NodeResult {
    let x = real(c, 0)?;
    let y = function(c, x)?;
    quantised(c, y, 3, 0)
}

fn of_two(c: &mut NodeCall<'_, '_>, op: &str) -> NodeResult {
    let operands = [real(c, 0)?, real(c, 3)?];
    let y = c.apply(op, operands)?;
    quantised(c, y, 6, 0)
}

/// Imports `QLinearConcat`. The first two inputs are the scale and the zero point of the result.
fn concatenated(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let count = c.inputs().len().saturating_sub(2) / 3;
    let parts = (0..count).map(|n| real(c, 2 + 3 * n)).collect::<Result<Vec<_>, _>>()?;
    let first = *parts.first().ok_or("it has no inputs")?;
    let axis = c.int("axis")?.ok_or("its attribute `axis` is missing")?;
    let axis = c.axis(axis, c.rank(first))?;
    let all = c.concat(&parts, axis)?;
    quantised(c, all, 0, 2)
}

/// Imports `QGemm`: alpha · a · b + c. The result is quantised if the node has a scale for it.
fn gemm(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let mut operands = [Quantized::read(c, 0, Some(2))?, Quantized::read(c, 3, Some(5))?];
    for (operand, name) in operands.iter_mut().zip(["transA", "transB"]) {
        if c.flag(name)? {
            operand.value = c.transpose(operand.value, &[1, 0])?;
        }
    }
    let columns = c.dims(operands[1].value).last().copied().unwrap_or(1);
    let (a, b) = (c.input(1)?, c.input(4)?);
    let (a, b) = (along(c, a, &[])?, along(c, b, &[columns.into()])?);
    let alpha = c.float_or("alpha", 1.0)?;
    let a = c.with("mul", a, alpha)?;
    let mut sum = product(c, operands)?;
    if let Some(more) = c.optional(6) {
        sum = c.apply("add", [sum, more])?;
    }
    match (c.optional(7), c.optional(8)) {
        (Some(scale), Some(zero)) => {
            let (scale, zero) = (along(c, scale, &[])?, along(c, zero, &[])?);
            requantized(c, sum, [a, b, scale], zero)
        }
        (None, None) => {
            let scale = c.apply("mul", [a, b])?;
            let sum = c.cast(sum, DType::F32)?;
            c.apply("mul", [sum, scale])
        }
        _ => Err("its result has a scale without a zero point, or a zero point without a scale".into()),
    }
}
