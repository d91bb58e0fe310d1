//! Reductions. Each one is a pointwise function, a reduction op, and another pointwise function.

use eutectic_ir::{DType, Dim, NodeId};

use super::{
    super::{
        call::{NodeCall, NodeResult},
        error::NodeError,
    },
    row::{OpRow, one},
};

pub(super) const OPS: &[OpRow] = &[
    one("ReduceSum", 1, |c| reduce(c, same, "reduce-sum", same)),
    one("ReduceMean", 1, mean),
    one("ReduceMax", 1, |c| reduce(c, same, "reduce-max", same)),
    one("ReduceMin", 1, |c| reduce(c, same, "reduce-min", same)),
    one("ReduceProd", 1, |c| reduce(c, same, "reduce-prod", same)),
    one("ReduceL1", 1, |c| reduce(c, |c, x| c.apply("abs", [x]), "reduce-sum", same)),
    one("ReduceL2", 1, |c| reduce(c, square, "reduce-sum", |c, x| c.apply("sqrt", [x]))),
    one("ReduceLogSum", 1, |c| reduce(c, same, "reduce-sum", |c, x| c.apply("log", [x]))),
    one("ReduceSumSquare", 1, |c| reduce(c, square, "reduce-sum", same)),
    one("ReduceLogSumExp", 1, log_sum_exp),
];

fn same(_: &mut NodeCall<'_, '_>, x: NodeId) -> NodeResult {
    Ok(x)
}

fn square(c: &mut NodeCall<'_, '_>, x: NodeId) -> NodeResult {
    c.apply("mul", [x, x])
}

/// Returns the reduced axes, and the shape of the result. Without axes, all axes are reduced, or none if
/// `noop_with_empty_axes` is set.
fn axes(c: &NodeCall<'_, '_>, dims: &[Dim]) -> Result<(Vec<usize>, Vec<Dim>), NodeError> {
    let given = c.list("axes", 1)?.unwrap_or_default();
    let mut axes: Vec<usize> = given.into_iter().map(|a| c.axis(a, dims.len())).collect::<Result<_, _>>()?;
    if axes.is_empty() && !c.flag("noop_with_empty_axes")? {
        axes = (0..dims.len()).collect();
    }
    let keep = c.int_or("keepdims", 1)? != 0;
    let result = |(axis, n): (usize, &Dim)| match axes.contains(&axis) {
        true => keep.then_some(Dim::Known(1)),
        false => Some(n.clone()),
    };
    let result = dims.iter().enumerate().filter_map(result).collect();
    Ok((axes, result))
}

/// Computes the mean. That of integers is truncated.
fn mean(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    let (axes, dims) = axes(c, &c.shape(x))?;
    let mean = c.mean(x, &axes)?;
    c.reshape(mean, &dims)
}

fn reduce(
    c: &mut NodeCall<'_, '_>,
    before: fn(&mut NodeCall<'_, '_>, NodeId) -> NodeResult,
    how: &str,
    after: fn(&mut NodeCall<'_, '_>, NodeId) -> NodeResult,
) -> NodeResult {
    let x = c.input(0)?;
    let (axes, dims) = axes(c, &c.shape(x))?;
    // The maximum and minimum of Booleans are computed as integers 0 and 1.
    let dtype = c.dtype(x);
    let x = if dtype == DType::Bool { c.cast(x, DType::U8)? } else { x };
    let terms = before(c, x)?;
    let reduced = c.reduce(how, terms, &axes)?;
    let result = after(c, reduced)?;
    let result = c.cast(result, dtype)?;
    c.reshape(result, &dims)
}

/// Computes log Σ eˣ⁻ᵐ + m, where m is the maximum of the row. If the maximum is infinite, m is 0, because ∞ − ∞ is
/// NaN.
fn log_sum_exp(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    let (axes, dims) = axes(c, &c.shape(x))?;
    let largest = c.reduce("reduce-max", x, &axes)?;
    let size = c.apply("abs", [largest])?;
    let infinite = c.with("eq", size, f64::INFINITY)?;
    let zero = c.number(0.0, x)?;
    let most = c.apply("where", [infinite, zero, largest])?;
    let shifted = c.apply("sub", [x, most])?;
    let powers = c.apply("exp", [shifted])?;
    let sum = c.reduce("reduce-sum", powers, &axes)?;
    let log = c.apply("log", [sum])?;
    let result = c.apply("add", [log, most])?;
    c.reshape(result, &dims)
}
