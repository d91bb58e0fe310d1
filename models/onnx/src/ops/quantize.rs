//! Quantization with a scale and a zero point, and its inverse.

use eutectic_ir::{DType, NodeId};

use super::{
    super::{
        call::{NodeCall, NodeResult},
        error::NodeError,
        stored::Packed,
    },
    arithmetic::narrowed,
    row::{OpRow, one},
};

pub(super) const OPS: &[OpRow] = &[one("QuantizeLinear", 10, quantize), one("DequantizeLinear", 10, dequantize)];

/// Reads a scale or a zero point, in a shape that broadcasts to x. It is one number, or a number for each place along
/// an axis, or for each block.
fn param(c: &mut NodeCall<'_, '_>, at: usize, x: NodeId) -> Result<Option<NodeId>, NodeError> {
    let Some(param) = c.optional(at) else { return Ok(None) };
    let (dims, rank) = (c.dims(param), c.rank(x));
    let block = c.int_or("block_size", 0)?;
    if block != 0 {
        let (axis, wanted) = (c.axis(c.int_or("axis", 1)?, rank)?, c.dims(x));
        return for_each_place(c, param, &wanted, axis, block).map(Some);
    }
    match dims[..] {
        [] => Ok(Some(param)),
        [1] => c.scalar(param).map(Some),
        [n] => {
            let axis = c.axis(c.int_or("axis", 1)?, rank)?;
            let column: Vec<usize> = (0..rank).map(|i| if i == axis { n } else { 1 }).collect();
            c.reshape(param, &column).map(Some)
        }
        _ => Err(format!("its scale has extents {dims:?}, which need a `block_size`").into()),
    }
}

/// Repeats the number of each block for all its elements, up to the extents `wanted`. The last block may be shorter.
pub(super) fn for_each_place(
    c: &mut NodeCall<'_, '_>,
    param: NodeId,
    wanted: &[usize],
    axis: usize,
    block: i64,
) -> NodeResult {
    let mut dims = c.dims(param);
    let size = usize::try_from(block)
        .ok()
        .filter(|size| *size > 0)
        .ok_or_else(|| format!("its block_size is {block}; it must be positive"))?;
    let others =
        |dims: &[usize]| dims.iter().enumerate().filter(|(at, _)| *at != axis).map(|(_, n)| *n).collect::<Vec<_>>();
    let fits =
        dims.len() == wanted.len() && others(&dims) == others(wanted) && wanted[axis].div_ceil(size) == dims[axis];
    if !fits {
        return Err(format!(
            "its scale of extents {dims:?} does not fit blocks of {size} along axis {axis} of extents {wanted:?}"
        )
        .into());
    }
    dims.insert(axis + 1, 1);
    let split = c.reshape(param, &dims)?;
    dims[axis + 1] = size;
    let repeated = c.expand(split, &dims)?;
    dims.remove(axis + 1);
    dims[axis] *= size;
    let together = c.reshape(repeated, &dims)?;
    c.slice(together, axis, 0, wanted[axis])
}

/// Computes (x − zero)·scale.
pub(super) fn dequantize(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    let scale = param(c, 1, x)?.ok_or("its scale is missing")?;
    let to = c.dtype(scale);
    let mut number = c.cast(x, to)?;
    if let Some(zero) = param(c, 2, x)? {
        let zero = c.cast(zero, to)?;
        number = c.apply("sub", [number, zero])?;
    }
    c.apply("mul", [number, scale])
}

/// Computes round(x / scale) + zero, clamped to the range of the integers.
pub(super) fn quantize(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    let scale = param(c, 1, x)?.ok_or("its scale is missing")?;
    let zero = param(c, 2, x)?;
    let to = zero.map_or(c.dtype_attr("output_dtype")?.unwrap_or(DType::U8), |zero| c.dtype(zero));
    let scaled = c.apply("div", [x, scale])?;
    if to.is_float() {
        let number = shifted(c, scaled, zero)?;
        return narrowed(c, number, to);
    }
    let number = c.apply("round", [scaled])?;
    let limits = zero.and_then(|zero| c.packed(zero)).map_or(to.integers(), Packed::limits);
    within(c, number, zero, to, limits)
}

/// Adds a zero point to a number. Omits the addition of a known 0, which would turn −0 into 0.
fn shifted(c: &mut NodeCall<'_, '_>, number: NodeId, zero: Option<NodeId>) -> NodeResult {
    let Some(zero) = zero else { return Ok(number) };
    if c.value(zero).is_some_and(|zero| zero.to_f64().iter().all(|&x| x == 0.0)) {
        return Ok(number);
    }
    let zero = c.cast(zero, c.dtype(number))?;
    c.apply("add", [number, zero])
}

/// Adds a zero point to an integral number, and clamps the sum to the range of the integer type `to`.
pub(super) fn saturated(c: &mut NodeCall<'_, '_>, number: NodeId, zero: Option<NodeId>, to: DType) -> NodeResult {
    within(c, number, zero, to, to.integers())
}

/// Adds a zero point to an integral number, and clamps the sum to the given limits.
fn within(
    c: &mut NodeCall<'_, '_>,
    number: NodeId,
    zero: Option<NodeId>,
    to: DType,
    (low, high): (i64, i64),
) -> NodeResult {
    if !to.is_int() || to.bits() > 16 {
        return Err(format!("quantization to elements of type {to} is not supported").into());
    }
    let shifted = shifted(c, number, zero)?;
    let kept = c.op("clamp", &[shifted], &[("min", (low as f64).into()), ("max", (high as f64).into())])?;
    c.cast(kept, to)
}
