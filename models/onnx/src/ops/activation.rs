//! Activation functions.

use eutectic_ir::NodeId;

use super::{
    super::call::{NodeCall, NodeResult},
    row::{OpRow, one, same},
};

pub(super) const OPS: &[OpRow] = &[
    same("Sigmoid", 6, "sigmoid"),
    same("Tanh", 6, "tanh"),
    same("Softplus", 1, "softplus"),
    one("Relu", 6, relu),
    one("LeakyRelu", 6, |c| {
        let x = c.input(0)?;
        let a = c.float_or("alpha", 0.01)?;
        let slope = c.number(a, x)?;
        leaky(c, x, slope)
    }),
    one("PRelu", 7, |c| {
        let (x, slope) = (c.input(0)?, c.input(1)?);
        leaky(c, x, slope)
    }),
    one("ThresholdedRelu", 10, thresholded_relu),
    one("Elu", 6, |c| {
        let a = c.float_or("alpha", 1.0)?;
        exponential(c, a, 1.0, 1.0)
    }),
    one("Celu", 12, |c| {
        let a = c.float_or("alpha", 1.0)?;
        exponential(c, a, a, 1.0)
    }),
    one("Selu", 6, selu),
    one("HardSigmoid", 6, |c| {
        let (x, a, b) = (c.input(0)?, c.float_or("alpha", 0.2)?, c.float_or("beta", 0.5)?);
        hard_sigmoid(c, x, a, b)
    }),
    one("HardSwish", 14, hard_swish),
    one("Softsign", 1, softsign),
    one("Gelu", 20, gelu),
    one("Mish", 18, mish),
    one("Swish", 24, swish),
    one("Shrink", 9, shrink),
    one("Clip", 6, |c| {
        let (low, high) = (c.float("min")?, c.float("max")?);
        let x = c.input(0)?;
        clamp(c, x, low.unwrap_or(f64::NEG_INFINITY), high.unwrap_or(f64::INFINITY))
    }),
    one("Clip", 11, clip),
];

fn relu(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    if c.dtype(x).is_float() { c.op("act", &[x], &[("kind", "relu".into())]) } else { c.with("max", x, 0.0) }
}

/// Computes x where x ≥ 0, and x·slope where x < 0.
pub(super) fn leaky(c: &mut NodeCall<'_, '_>, x: NodeId, slope: NodeId) -> NodeResult {
    let below = c.with("lt", x, 0.0)?;
    let scaled = c.apply("mul", [x, slope])?;
    c.apply("where", [below, scaled, x])
}

fn thresholded_relu(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (x, alpha) = (c.input(0)?, c.float_or("alpha", 1.0)?);
    let above = c.with("gt", x, alpha)?;
    let zero = c.number(0.0, x)?;
    c.apply("where", [above, x, zero])
}

/// Computes scale·x where x ≥ 0, and scale·alpha·(e^(x/width) − 1) where x < 0.
fn exponential(c: &mut NodeCall<'_, '_>, alpha: f64, width: f64, scale: f64) -> NodeResult {
    let x = c.input(0)?;
    let below = c.with("lt", x, 0.0)?;
    let inner = if width == 1.0 { x } else { c.with("div", x, width)? };
    let bend = c.apply("expm1", [inner])?;
    let bend = c.with("mul", bend, alpha)?;
    let both = c.apply("where", [below, bend, x])?;
    if scale == 1.0 { Ok(both) } else { c.with("mul", both, scale) }
}

fn selu(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (alpha, gamma) = (c.float_or("alpha", 1.673_263_2)?, c.float_or("gamma", 1.050_701)?);
    exponential(c, alpha, 1.0, gamma)
}

/// Computes min(max(alpha·x + beta, 0), 1).
pub(super) fn hard_sigmoid(c: &mut NodeCall<'_, '_>, x: NodeId, alpha: f64, beta: f64) -> NodeResult {
    let scaled = c.with("mul", x, alpha)?;
    let shifted = c.with("add", scaled, beta)?;
    clamp(c, shifted, 0.0, 1.0)
}

/// Computes x·min(max(x/6 + 1/2, 0), 1).
fn hard_swish(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    let gate = hard_sigmoid(c, x, 1.0 / 6.0, 0.5)?;
    c.apply("mul", [x, gate])
}

fn softsign(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    let size = c.apply("abs", [x])?;
    let divisor = c.with("add", size, 1.0)?;
    c.apply("div", [x, divisor])
}

fn gelu(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    let kind = match c.word("approximate")?.unwrap_or("none") {
        "none" => "gelu-erf",
        "tanh" => "gelu-tanh",
        other => return Err(format!("its approximation `{other}` is not supported").into()),
    };
    c.op("act", &[x], &[("kind", kind.into())])
}

fn mish(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    let soft = c.apply("softplus", [x])?;
    let gate = c.apply("tanh", [soft])?;
    c.apply("mul", [x, gate])
}

fn swish(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (x, alpha) = (c.input(0)?, c.float_or("alpha", 1.0)?);
    let inner = c.with("mul", x, alpha)?;
    let gate = c.apply("sigmoid", [inner])?;
    c.apply("mul", [x, gate])
}

/// Computes x + bias where x < −lambd, x − bias where x > lambd, and 0 elsewhere.
fn shrink(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (x, bias, lambd) = (c.input(0)?, c.float_or("bias", 0.0)?, c.float_or("lambd", 0.5)?);
    let (below, above) = (c.with("lt", x, -lambd)?, c.with("gt", x, lambd)?);
    let (up, down, zero) = (c.with("add", x, bias)?, c.with("sub", x, bias)?, c.number(0.0, x)?);
    let high = c.apply("where", [above, down, zero])?;
    c.apply("where", [below, up, high])
}

/// Computes min(max(x, low), high) for constant bounds.
fn clamp(c: &mut NodeCall<'_, '_>, x: NodeId, low: f64, high: f64) -> NodeResult {
    c.op("clamp", &[x], &[("min", low.into()), ("max", high.into())])
}

/// Imports `Clip`. It becomes the op `clamp` if both bounds are known.
fn clip(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    let bounds = [(1, f64::NEG_INFINITY), (2, f64::INFINITY)];
    let number = |c: &NodeCall<'_, '_>, (at, open): (usize, f64)| match c.optional(at) {
        Some(id) => c.exact_value(id).and_then(|t| t.to_f64().first().copied()),
        None => Some(open),
    };
    if let (Some(low), Some(high)) = (number(c, bounds[0]), number(c, bounds[1]))
        && c.dtype(x).is_float()
    {
        return clamp(c, x, low, high);
    }
    let raised = c.optional(1).map_or(Ok(x), |low| c.apply("max", [x, low]))?;
    c.optional(2).map_or(Ok(raised), |high| c.apply("min", [raised, high]))
}
