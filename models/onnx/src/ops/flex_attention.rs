//! `FlexAttention` of the domain `ai.onnx.preview`: attention whose scores and probabilities are modified by subgraphs.

use eutectic_ir::{DType, NodeId};

use super::{
    super::{
        call::{NodeCall, NodeResult},
        error::NodeError,
    },
    attention::repeated,
    row::{OpRow, one},
};

pub(super) const OPS: &[OpRow] = &[one("FlexAttention", 1, attention)];

/// Computes prob_mod(softmax(score_mod(q · kᵀ · scale))) · v, for q [B H L E], k [B G S E] and v [B G S F]. The softmax
/// is computed in `f32` or wider.
fn attention(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (q, k, v) = (c.input(0)?, c.input(1)?, c.input(2)?);
    let [_, heads, _, depth] = c.dims(q)[..] else { return Err("its inputs do not have four axes".into()) };
    let own = c.dtype(q);
    let wide = if own.bits() < 32 { DType::F32 } else { own };
    let wide = c.dtype_attr("softmax_precision")?.unwrap_or(wide);
    // The square root of the scale multiplies each operand, so that 16-bit products do not overflow.
    let scale = c.float("scale")?.map_or(1.0 / (depth as f32).sqrt(), |scale| scale as f32);
    let scaled = |c: &mut NodeCall<'_, '_>, x: NodeId| c.with("mul", x, f64::from(scale.sqrt()));
    let (k, v) = (repeated(c, k, heads)?, repeated(c, v, heads)?);
    let (q, k) = (scaled(c, q)?, scaled(c, k)?);
    let k = c.transpose(k, &[0, 1, 3, 2])?;
    let scores = c.apply("matmul", [q, k])?;
    let scores = c.cast(scores, wide)?;
    let scores = modified(c, "score_mod", scores)?;
    let probabilities = c.op("softmax", &[scores], &[("axis", (-1).into())])?;
    let probabilities = modified(c, "prob_mod", probabilities)?;
    let v = c.cast(v, wide)?;
    let y = c.apply("matmul", [probabilities, v])?;
    c.cast(y, own)
}

/// Applies an optional subgraph to x and casts its result to the element type of x.
fn modified(c: &mut NodeCall<'_, '_>, name: &str, x: NodeId) -> NodeResult {
    if !c.has(name) {
        return Ok(x);
    }
    let outputs = c.subgraph(name, &[x])?;
    let [y] = outputs[..] else {
        return Err(NodeError(format!("its `{name}` has {} outputs, not one", outputs.len())));
    };
    if c.dims(y) != c.dims(x) {
        return Err(
            format!("its `{name}` returns extents {:?} for an input of extents {:?}", c.dims(y), c.dims(x)).into()
        );
    }
    c.cast(y, c.dtype(x))
}
