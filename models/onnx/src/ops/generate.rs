//! Ops whose result depends only on shapes and attributes: constants, ranges, triangles, unit matrices.

use eutectic_ir::{DType, Dim, NodeId, Tensor};

use super::{
    super::{
        call::{NodeCall, NodeResult},
        error::NodeError,
    },
    row::{OpRow, one},
};

pub(super) const OPS: &[OpRow] = &[
    one("Constant", 1, constant),
    one("ConstantOfShape", 9, constant_of_shape),
    one("Range", 11, range),
    one("EyeLike", 9, eye_like),
    one("Trilu", 14, triangle),
];

fn constant(c: &mut NodeCall<'_, '_>) -> NodeResult {
    if let Some(tensor) = c.tensor_attr("value")? {
        return Ok(tensor);
    }
    let single = |dtype, x| Some(Tensor::from_f64(dtype, &[], [x]));
    let value = if let Some(x) = c.float("value_float")? {
        single(DType::F32, x)
    } else if let Some(n) = c.int("value_int")? {
        Some(Tensor::from_i64(DType::I64, &[], [n]))
    } else if let Some(x) = c.floats("value_floats")? {
        Some(Tensor::from_f64(DType::F32, &[x.len()], x))
    } else {
        c.ints("value_ints")?.map(|n| Tensor::from_i64(DType::I64, &[n.len()], n))
    };
    c.constant(value.ok_or("its value is neither a list of numbers nor a dense tensor")?)
}

fn constant_of_shape(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let dims = c.known_dims(0)?;
    if let Some(dim) = dims.iter().find(|dim| dim.range().is_none_or(|(least, _)| least < 0)) {
        return Err(format!("its shape has the extent {dim}, which may be negative").into());
    }
    let value = match c.tensor_attr("value")? {
        Some(value) => c.scalar(value)?,
        None => c.number_of(0.0, DType::F32)?,
    };
    c.expand(value, &dims)
}

/// Returns the numbers start, start + delta, … before limit.
fn range(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let dtype = c.dtype(c.input(0)?);
    if let Some(range) = varying_range(c)? {
        return Ok(range);
    }
    let [start, limit, delta] = [c.known_exactly(0)?, c.known_exactly(1)?, c.known_exactly(2)?];
    let count = if dtype.is_float() {
        let count = ((limit.get() - start.get()) / delta.get()).ceil().max(0.0);
        (count < LONGEST as f64).then_some(count as usize)
    } else {
        steps(start.int(), limit.int(), delta.int())
    };
    let count = count.ok_or_else(|| {
        format!("its range from {start} to {limit} with a step of {delta} has more than {LONGEST} elements")
    })?;
    let steps = c.iota(&[count], 0, dtype)?;
    let scaled = if delta == 1.0.into() { steps } else { c.with("mul", steps, delta)? };
    if start == 0.0.into() { Ok(scaled) } else { c.with("add", scaled, start) }
}

/// Returns a range of integers with a step of 1 whose bounds depend on run-time extents. Returns `None` for other
/// ranges.
fn varying_range(c: &mut NodeCall<'_, '_>) -> Result<Option<NodeId>, NodeError> {
    let numbers: Option<Vec<Dim>> = (0..3).map(|at| c.lengths(c.input(at).ok()?)?.pop()).collect();
    let [start, limit, Dim::Known(1)] = &numbers.unwrap_or_default()[..] else { return Ok(None) };
    let count = limit - start;
    if !start.varies() && !limit.varies() {
        return Ok(None);
    }
    if count.range().is_none_or(|(least, _)| least < 0) {
        return Err(format!("its range has {count} elements, which may be negative").into());
    }
    let (first, dtype) = (c.length(start)?, c.dtype(c.input(0)?));
    let (steps, first) = (c.iota(&[count], 0, dtype)?, c.cast(first, dtype)?);
    c.apply("add", [steps, first]).map(Some)
}

/// The largest number of elements of a range. It is far above any extent of a model.
const LONGEST: u64 = 1_000_000_000_000;

/// Returns the number of integers start, start + delta, … before `limit`. Returns `None` if the step is 0, or if there
/// are more than `LONGEST` integers.
fn steps(start: i64, limit: i64, delta: i64) -> Option<usize> {
    let (far, step) = (i128::from(limit) - i128::from(start), i128::from(delta));
    if far == 0 || step != 0 && (far < 0) != (step < 0) {
        return Some(0);
    }
    let count = far
        .unsigned_abs()
        .checked_add(step.unsigned_abs() - u128::from(step != 0))?
        .checked_div(step.unsigned_abs())?;
    usize::try_from(count).ok().filter(|_| count < LONGEST.into())
}

/// Returns a matrix that is 1 where column − row is `k`, and 0 elsewhere.
fn eye_like(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    let (dims, dtype) = (c.dims(x), c.dtype_attr("dtype")?.unwrap_or(c.dtype(x)));
    if dims.len() != 2 {
        return Err(format!("its input has {} axes, but must have two", dims.len()).into());
    }
    let k = c.int_or("k", 0)?;
    let (row, column) = (c.iota(&dims, 0, DType::I64)?, c.iota(&dims, 1, DType::I64)?);
    let diagonal = c.with("add", row, k)?;
    let hit = c.apply("eq", [column, diagonal])?;
    c.cast(hit, dtype)
}

/// Imports `Trilu`: keeps the elements of each matrix on one side of its k-th diagonal and on it, and replaces the rest
/// by 0.
fn triangle(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    let dims = c.shape(x);
    let [.., rows, columns] = &dims[..] else { return Err("its input has fewer than two axes".into()) };
    let square = [rows.clone(), columns.clone()];
    let k = if c.optional(1).is_some() { c.known_int(1)? } else { 0 };
    let upper = c.int_or("upper", 1)? != 0;
    let (row, column) = (c.iota(&square, 0, DType::I64)?, c.iota(&square, 1, DType::I64)?);
    let diagonal = c.with("add", row, k)?;
    let kept = c.apply(if upper { "ge" } else { "le" }, [column, diagonal])?;
    let zero = c.number(0.0, x)?;
    c.apply("where", [kept, x, zero])
}
