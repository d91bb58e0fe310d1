//! The domain `ai.onnx.preview.training`: steps of optimizers.

use eutectic_ir::NodeId;

use super::{
    super::{
        call::{NodeCall, NodeResult},
        error::NodeError,
    },
    row::{OpRow, Outputs, many},
};

pub(super) const OPS: &[OpRow] = &[many("Adagrad", 1, adagrad), many("Adam", 1, adam), many("Momentum", 1, momentum)];

/// Applies an optimizer step to each tensor. The inputs are the learning rate, the number of the step, all tensors, all
/// gradients, and all states of each kind. The outputs are all tensors and all new states.
fn each<const N: usize>(
    c: &mut NodeCall<'_, '_>,
    step: impl Fn(&mut NodeCall<'_, '_>, [NodeId; N]) -> Result<Vec<NodeId>, NodeError>,
) -> Outputs {
    let count = c.inputs().len().saturating_sub(2) / N;
    let mut results = Vec::new();
    for at in 0..count {
        let mut given = [c.input(0)?; N];
        for (kind, given) in given.iter_mut().enumerate() {
            *given = c.input(2 + kind * count + at)?;
        }
        results.push(step(c, given)?);
    }
    let kinds = results.first().map_or(0, Vec::len);
    Ok((0..kinds).flat_map(|kind| results.iter().map(move |of_tensor| of_tensor[kind])).collect())
}

/// Computes norm · x + gradient: the gradient with L2 regularization.
fn regularised(c: &mut NodeCall<'_, '_>, x: NodeId, gradient: NodeId) -> NodeResult {
    let norm = c.float_or("norm_coefficient", 0.0)?;
    let more = c.with("mul", x, norm)?;
    c.apply("add", [more, gradient])
}

/// Computes a · x + b · y.
fn mixed(c: &mut NodeCall<'_, '_>, [a, b]: [f64; 2], [x, y]: [NodeId; 2]) -> NodeResult {
    let (x, y) = (c.with("mul", x, a)?, c.with("mul", y, b)?);
    c.apply("add", [x, y])
}

/// Computes x − rate · direction / size, or x − rate · direction without a size.
fn moved(c: &mut NodeCall<'_, '_>, x: NodeId, rate: NodeId, direction: NodeId, size: Option<NodeId>) -> NodeResult {
    let mut step = c.apply("mul", [rate, direction])?;
    if let Some(size) = size {
        step = c.apply("div", [step, size])?;
    }
    c.apply("sub", [x, step])
}

fn adagrad(c: &mut NodeCall<'_, '_>) -> Outputs {
    let (decay, eps) = (c.float_or("decay_factor", 0.0)?, c.float_or("epsilon", 1e-6)?);
    each(c, |c, [x, gradient, squares]| {
        let (rate, number) = (c.input(0)?, c.input(1)?);
        let number = c.cast(number, c.dtype(rate))?;
        let slower = c.with("mul", number, decay)?;
        let slower = c.with("add", slower, 1.0)?;
        let rate = c.apply("div", [rate, slower])?;
        let rate = c.cast(rate, c.dtype(x))?;
        let gradient = regularised(c, x, gradient)?;
        let square = c.apply("mul", [gradient, gradient])?;
        let squares = c.apply("add", [squares, square])?;
        let root = c.apply("sqrt", [squares])?;
        let size = c.with("add", root, eps)?;
        Ok(vec![moved(c, x, rate, gradient, Some(size))?, squares])
    })
}

fn adam(c: &mut NodeCall<'_, '_>) -> Outputs {
    let (alpha, beta, eps) = (c.float_or("alpha", 0.9)?, c.float_or("beta", 0.999)?, c.float_or("epsilon", 1e-6)?);
    let after = c.float_or("norm_coefficient_post", 0.0)?;
    each(c, |c, [x, gradient, mean, squares]| {
        let rate = corrected(c, alpha, beta)?;
        let rate = c.cast(rate, c.dtype(x))?;
        let gradient = regularised(c, x, gradient)?;
        let mean = mixed(c, [alpha, 1.0 - alpha], [mean, gradient])?;
        let square = c.apply("mul", [gradient, gradient])?;
        let squares = mixed(c, [beta, 1.0 - beta], [squares, square])?;
        let root = c.apply("sqrt", [squares])?;
        let size = c.with("add", root, eps)?;
        let x = moved(c, x, rate, mean, Some(size))?;
        Ok(vec![c.with("mul", x, 1.0 - after)?, mean, squares])
    })
}

/// Returns Adam's learning rate with bias correction: √(1 − βᵗ) / (1 − αᵗ) multiplies it for t > 0, where t is the
/// number of the step.
fn corrected(c: &mut NodeCall<'_, '_>, alpha: f64, beta: f64) -> NodeResult {
    let (rate, number) = (c.input(0)?, c.input(1)?);
    let exponent = c.cast(number, c.dtype(rate))?;
    let rest = |c: &mut NodeCall<'_, '_>, base: f64| {
        let (base, one) = (c.number(base, rate)?, c.number(1.0, rate)?);
        let power = c.apply("pow", [base, exponent])?;
        c.apply("sub", [one, power])
    };
    let (above, below) = (rest(c, beta)?, rest(c, alpha)?);
    let above = c.apply("sqrt", [above])?;
    let factor = c.apply("div", [above, below])?;
    let later = c.with("gt", number, 0)?;
    let scaled = c.apply("mul", [rate, factor])?;
    c.apply("where", [later, scaled, rate])
}

fn momentum(c: &mut NodeCall<'_, '_>) -> Outputs {
    let number = |name: &str| c.float(name)?.ok_or_else(|| NodeError(format!("its attribute `{name}` is missing")));
    let (alpha, beta) = (number("alpha")?, number("beta")?);
    let nesterov = match c.word("mode")? {
        Some("nesterov") => true,
        Some("standard") => false,
        other => return Err(format!("its mode is {other:?}; it must be `standard` or `nesterov`").into()),
    };
    each(c, |c, [x, gradient, velocity]| {
        let (rate, number) = (c.input(0)?, c.input(1)?);
        let rate = c.cast(rate, c.dtype(x))?;
        let gradient = regularised(c, x, gradient)?;
        let later = c.with("gt", number, 0)?;
        let (beta, one) = (c.number(beta, x)?, c.number(1.0, x)?);
        let beta = c.apply("where", [later, beta, one])?;
        let (kept, added) = (c.with("mul", velocity, alpha)?, c.apply("mul", [beta, gradient])?);
        let velocity = c.apply("add", [kept, added])?;
        let direction = if nesterov { mixed(c, [1.0, alpha], [gradient, velocity])? } else { velocity };
        Ok(vec![moved(c, x, rate, direction, None)?, velocity])
    })
}
