//! Softmax and normalization layers.

use eutectic_ir::{DType, Dim, NodeId};

use super::{
    super::{
        call::{NodeCall, NodeResult},
        error::NodeError,
    },
    layout::count,
    row::{OpRow, Outputs, many, one},
};

pub(super) const OPS: &[OpRow] = &[
    one("Softmax", 1, |c| over_rows(c, true, |c, x, axis| softmax(c, "softmax", x, axis))),
    one("Softmax", 13, |c| over_rows(c, false, |c, x, axis| softmax(c, "softmax", x, axis))),
    one("LogSoftmax", 1, |c| over_rows(c, true, |c, x, axis| softmax(c, "log-softmax", x, axis))),
    one("LogSoftmax", 13, |c| over_rows(c, false, |c, x, axis| softmax(c, "log-softmax", x, axis))),
    many("LayerNormalization", 1, layer),
    one("RMSNormalization", 23, root_mean_square),
    // ONNX Runtime writes this op into ONNX's own domain.
    one("SimplifiedLayerNormalization", 1, root_mean_square),
    one("InstanceNormalization", 6, |c| {
        let channels = c.extents(c.input(0)?, 1..2).first().copied().unwrap_or(0);
        grouped(c, channels, true)
    }),
    one("GroupNormalization", 18, |c| {
        let groups = groups(c)?;
        grouped(c, groups, false)
    }),
    one("GroupNormalization", 21, |c| {
        let groups = groups(c)?;
        grouped(c, groups, true)
    }),
    one("BatchNormalization", 7, batch),
    many("BatchNormalization", 14, batch_in_training),
    one("LpNormalization", 1, unit_length),
    one("MeanVarianceNormalization", 9, mean_variance),
    one("LRN", 1, local_response),
];

/// Applies a function to rows along `axis`. If `rest`, as before opset 13, a row consists of `axis` and all axes after
/// it.
pub(super) fn over_rows(
    c: &mut NodeCall<'_, '_>,
    rest: bool,
    f: impl FnOnce(&mut NodeCall<'_, '_>, NodeId, usize) -> NodeResult,
) -> NodeResult {
    let x = c.input(0)?;
    let dims = c.shape(x);
    let axis = c.axis(c.int_or("axis", if rest { 1 } else { -1 })?, dims.len())?;
    if !rest || axis + 1 == dims.len() {
        return f(c, x, axis);
    }
    let flat = c.reshape(x, &[&dims[..axis], &dims[axis..]].map(count))?;
    let result = f(c, flat, 1)?;
    c.reshape(result, &dims)
}

fn softmax(c: &mut NodeCall<'_, '_>, op: &str, x: NodeId, axis: usize) -> NodeResult {
    c.op(op, &[x], &[("axis", (axis as i64).into())])
}

/// Returns the mean, x − mean, and 1/√(variance + eps) over some axes.
fn centred(c: &mut NodeCall<'_, '_>, x: NodeId, axes: &[usize], eps: f64) -> Result<[NodeId; 3], NodeError> {
    let mean = c.mean(x, axes)?;
    let centred = c.apply("sub", [x, mean])?;
    let square = c.apply("mul", [centred, centred])?;
    let variance = c.mean(square, axes)?;
    let shifted = c.with("add", variance, eps)?;
    Ok([mean, centred, c.apply("rsqrt", [shifted])?])
}

/// Casts an operand to the element type `stash_type` of the computation, if that is wider.
fn stashed(c: &mut NodeCall<'_, '_>, x: NodeId) -> NodeResult {
    let stash = c.dtype_attr("stash_type")?.unwrap_or(DType::F32);
    if c.dtype(x).size() < stash.size() { c.cast(x, stash) } else { Ok(x) }
}

/// Returns the first normalized axis, and the extents of all normalized axes.
fn row(c: &NodeCall<'_, '_>, x: NodeId) -> Result<(usize, Vec<usize>), NodeError> {
    let rank = c.rank(x);
    let axis = c.axis(c.int_or("axis", -1)?, rank)?;
    Ok((axis, c.extents(x, axis..rank)))
}

/// Returns the shape in which `axis` and all axes after it are one axis.
fn joined(dims: &[Dim], axis: usize) -> Vec<Dim> {
    [&dims[..axis], &[count(&dims[axis..])]].concat()
}

/// Imports `LayerNormalization` over `axis` and all axes after it. The outputs are the normalized values, the mean, and
/// the inverse of the deviation.
fn layer(c: &mut NodeCall<'_, '_>) -> Outputs {
    let (x, scale) = (c.input(0)?, c.input(1)?);
    let (dims, eps, to) = (c.shape(x), c.float_or("epsilon", 1e-5)?, c.dtype(x));
    let (axis, row) = row(c, x)?;
    let x = stashed(c, x)?;
    let mut outputs = Vec::new();
    // The op `layernorm` needs one gain and one bias for each element of a row.
    let whole = |c: &NodeCall<'_, '_>, p: Option<NodeId>| p.is_none_or(|p| c.dims(p) == row);
    if whole(c, Some(scale)) && whole(c, c.optional(2)) {
        let flat = c.reshape(x, &joined(&dims, axis))?;
        let zeros = c.full(0.0, to, &row)?;
        let width: usize = row.iter().product();
        let params = [scale, c.optional(2).unwrap_or(zeros)];
        let [gain, bias] = params.map(|p| c.reshape(p, &[width]).and_then(|p| c.cast(p, c.dtype(x))));
        let normal = c.op("layernorm", &[flat, gain?, bias?], &[("eps", eps.into())])?;
        let normal = c.reshape(normal, &dims)?;
        outputs.push(c.cast(normal, to)?);
    }
    if outputs.is_empty() || c.wants(1) || c.wants(2) {
        let axes: Vec<usize> = (axis..dims.len()).collect();
        let [mean, centre, inverse] = centred(c, x, &axes, eps)?;
        if outputs.is_empty() {
            let normal = c.apply("mul", [centre, inverse])?;
            let normal = c.cast(normal, to)?;
            let scaled = c.apply("mul", [normal, scale])?;
            outputs.push(c.optional(2).map_or(Ok(scaled), |bias| c.apply("add", [scaled, bias]))?);
        }
        outputs.extend([mean, inverse]);
    }
    Ok(outputs)
}

pub(super) fn root_mean_square(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (x, scale) = (c.input(0)?, c.input(1)?);
    let (dims, eps, to) = (c.shape(x), c.float_or("epsilon", 1e-5)?, c.dtype(x));
    let (axis, row) = row(c, x)?;
    let x = stashed(c, x)?;
    if c.dims(scale) == row {
        let flat = c.reshape(x, &joined(&dims, axis))?;
        let gain = c.reshape(scale, &[row.iter().product::<usize>()])?;
        let gain = c.cast(gain, c.dtype(x))?;
        let normal = c.op("rmsnorm", &[flat, gain], &[("eps", eps.into())])?;
        let normal = c.reshape(normal, &dims)?;
        return c.cast(normal, to);
    }
    let axes: Vec<usize> = (axis..dims.len()).collect();
    let square = c.apply("mul", [x, x])?;
    let mean = c.mean(square, &axes)?;
    let shifted = c.with("add", mean, eps)?;
    let inverse = c.apply("rsqrt", [shifted])?;
    let normal = c.apply("mul", [x, inverse])?;
    let normal = c.cast(normal, to)?;
    c.apply("mul", [normal, scale])
}

fn groups(c: &NodeCall<'_, '_>) -> Result<usize, NodeError> {
    let groups = c.int("num_groups")?.and_then(|n| usize::try_from(n).ok()).filter(|&n| n > 0);
    groups.ok_or_else(|| NodeError("its attribute `num_groups` is missing or not positive".into()))
}

/// Normalizes groups of channels of x [N C ..]. Gain and bias have a number for each channel if `by_channel`, and
/// otherwise for each group.
fn grouped(c: &mut NodeCall<'_, '_>, groups: usize, by_channel: bool) -> NodeResult {
    let x = c.input(0)?;
    let channels = *c.extents(x, 1..2).first().ok_or("its input has no channels")?;
    if groups == 0 || channels % groups != 0 {
        return Err(format!("its {channels} channels cannot be divided into {groups} groups").into());
    }
    let eps = c.float_or("epsilon", 1e-5)?;
    let mut param = |at: usize| {
        let param = c.input(at)?;
        if by_channel {
            return Ok(param);
        }
        let column = c.reshape(param, &[groups, 1])?;
        let repeated = c.expand(column, &[groups, channels / groups])?;
        c.reshape(repeated, &[channels])
    };
    let operands = [x, param(1)?, param(2)?];
    c.op("group-norm", &operands, &[("groups", (groups as i64).into()), ("eps", eps.into())])
}

fn batch(c: &mut NodeCall<'_, '_>) -> NodeResult {
    if c.flag("training_mode")? || c.wants(1) {
        return Err("it has outputs of training mode, which need opset 14 and `training_mode`".into());
    }
    let (eps, mut operands) = (c.float_or("epsilon", 1e-5)?, c.inputs());
    let to = c.dtype(c.input(0)?);
    // The statistics may have a wider element type than the input.
    for operand in &mut operands {
        *operand = c.cast(*operand, to)?;
    }
    let axis = if c.rank(c.input(0)?) == 1 { 0 } else { 1 };
    c.op("batch-norm", &operands, &[("axis", axis.into()), ("eps", eps.into())])
}

/// Imports `BatchNormalization` in training mode. It normalizes with the statistics of the batch, and also returns the
/// updated running statistics.
fn batch_in_training(c: &mut NodeCall<'_, '_>) -> Outputs {
    if !c.flag("training_mode")? {
        return batch(c).map(|y| vec![y]);
    }
    let (x, eps, momentum) = (c.input(0)?, c.float_or("epsilon", 1e-5)?, c.float_or("momentum", 0.9)?);
    let dims = c.dims(x);
    let axis = dims.len().min(2).checked_sub(1).ok_or("its input is a scalar, which has no channels")?;
    let column: Vec<usize> = dims.iter().enumerate().map(|(at, n)| if at == axis { *n } else { 1 }).collect();
    let axes: Vec<usize> = (0..dims.len()).filter(|at| *at != axis).collect();
    let to = c.dtype(x);
    let mean = c.reduce("reduce-mean", x, &axes)?;
    let centre = c.apply("sub", [x, mean])?;
    let square = c.apply("mul", [centre, centre])?;
    let variance = c.reduce("reduce-mean", square, &axes)?;
    let shifted = c.with("add", variance, eps)?;
    let deviation = c.apply("sqrt", [shifted])?;
    let mut y = c.apply("div", [centre, deviation])?;
    for (at, op) in [(1, "mul"), (2, "add")] {
        let param = c.input(at)?;
        let param = c.cast(param, to)?;
        let param = c.reshape(param, &column)?;
        y = c.apply(op, [y, param])?;
    }
    let mut outputs = vec![y];
    for (at, now) in [(3, mean), (4, variance)] {
        let before = c.input(at)?;
        let now = c.reshape(now, &c.dims(before))?;
        let now = c.cast(now, c.dtype(before))?;
        let (before, now) = (c.with("mul", before, momentum)?, c.with("mul", now, 1.0 - momentum)?);
        outputs.push(c.apply("add", [before, now])?);
    }
    Ok(outputs)
}

/// Divides each row by its norm. A row of zeros stays as it is.
fn unit_length(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    let axis = c.axis(c.int_or("axis", -1)?, c.rank(x))?;
    let length = match c.int_or("p", 2)? {
        1 => {
            let size = c.apply("abs", [x])?;
            c.reduce("reduce-sum", size, &[axis])?
        }
        2 => {
            let square = c.apply("mul", [x, x])?;
            let sum = c.reduce("reduce-sum", square, &[axis])?;
            c.apply("sqrt", [sum])?
        }
        p => return Err(format!("its norm has the order {p}; the orders 1 and 2 are supported").into()),
    };
    let (empty, one) = (c.with("eq", length, 0.0)?, c.number(1.0, x)?);
    let divisor = c.apply("where", [empty, one, length])?;
    c.apply("div", [x, divisor])
}

/// Computes (x − mean)/(deviation + 1e-9) over some axes.
fn mean_variance(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    let rank = c.rank(x);
    let axes = c.ints("axes")?.unwrap_or_else(|| vec![0, 2, 3]);
    let axes: Vec<usize> = axes.into_iter().map(|a| c.axis(a, rank)).collect::<Result<_, _>>()?;
    let mean = c.mean(x, &axes)?;
    let centred = c.apply("sub", [x, mean])?;
    let square = c.apply("mul", [centred, centred])?;
    let variance = c.mean(square, &axes)?;
    let deviation = c.apply("sqrt", [variance])?;
    let divisor = c.with("add", deviation, 1e-9)?;
    c.apply("div", [centred, divisor])
}

/// Imports `LRN`: x / (bias + alpha/size · Σ x²)^beta, where the sum is over a window of `size` channels.
fn local_response(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    let (alpha, beta, bias) = (c.float_or("alpha", 1e-4)?, c.float_or("beta", 0.75)?, c.float_or("bias", 1.0)?);
    let size = c.int("size")?.and_then(|n| usize::try_from(n).ok()).filter(|&n| n > 0);
    let size = size.ok_or("its `size` is missing or not positive")?;
    let square = c.apply("mul", [x, x])?;
    let padded = super::slicing::zeros_around(c, square, 1, [(size - 1) / 2, size / 2])?;
    let windows = c.op("window", &[padded], &[("axis", 1.into()), ("size", (size as i64).into())])?;
    let sum = c.reduce("reduce-sum", windows, &[2])?;
    let dims = c.shape(x);
    let sum = c.reshape(sum, &dims)?;
    let scaled = c.with("mul", sum, alpha / size as f64)?;
    let shifted = c.with("add", scaled, bias)?;
    let divisor = c.with("pow", shifted, beta)?;
    c.apply("div", [x, divisor])
}
