//! Linear attention, whose state has a fixed size, and the causal convolution that language models apply before it.

use eutectic_ir::{DType, NodeId, Type};

use super::{
    super::{
        call::{NodeCall, NodeResult},
        error::NodeError,
    },
    attention::repeated,
    row::{OpRow, Outputs, many},
};

pub(super) const OPS: &[OpRow] =
    &[many("LinearAttention", 27, linear_attention), many("CausalConvWithState", 27, causal_convolution)];

/// The rule that updates the state S [D M] of a head with a key k [D] and a value v [M]: S becomes S + k vᵀ after the
/// changes below.
#[derive(Clone, Copy)]
struct UpdateRule {
    /// Whether S is first multiplied by e^g.
    gated: bool,
    /// Whether v is first replaced by β (v − kᵀS).
    delta: bool,
}

impl UpdateRule {
    fn read(c: &NodeCall<'_, '_>) -> Result<UpdateRule, NodeError> {
        let rule = match c.word("update_rule")?.unwrap_or("gated_delta") {
            "linear" => UpdateRule { gated: false, delta: false },
            "gated" => UpdateRule { gated: true, delta: false },
            "delta" => UpdateRule { gated: false, delta: true },
            "gated_delta" => UpdateRule { gated: true, delta: true },
            other => {
                return Err(
                    format!("its update_rule is `{other}`; it must be linear, gated, delta or gated_delta").into()
                );
            }
        };
        for (at, name, wanted) in [(4, "decay", rule.gated), (5, "beta", rule.delta)] {
            if c.optional(at).is_some() != wanted {
                return Err(
                    format!("its update_rule {} input `{name}`", if wanted { "needs" } else { "has no" }).into()
                );
            }
        }
        Ok(rule)
    }
}

/// Imports `LinearAttention`. Each step adds k vᵀ to the state S, after the gate and the delta of the update rule, and
/// outputs scale · qᵀS. States are `f32`.
fn linear_attention(c: &mut NodeCall<'_, '_>) -> Outputs {
    let rule = UpdateRule::read(c)?;
    let count = |c: &NodeCall<'_, '_>, name: &str| -> Result<usize, NodeError> {
        let given = c.int(name)?.ok_or_else(|| NodeError(format!("its attribute `{name}` is missing")))?;
        usize::try_from(given)
            .ok()
            .filter(|&n| n > 0)
            .ok_or_else(|| NodeError(format!("its `{name}` is {given}, but must be positive")))
    };
    let (of_queries, of_keys) = (count(c, "q_num_heads")?, count(c, "kv_num_heads")?);
    let (query, key, value) = (c.input(0)?, c.input(1)?, c.input(2)?);
    let dtype = c.dtype(query);
    let q = in_steps(c, query, of_queries)?;
    let k = in_steps(c, key, of_keys)?;
    let v = in_steps(c, value, of_keys)?;
    let ([times, batch, _, depth], width) = (four(c, q)?, four(c, v)?[3]);
    if !of_queries.is_multiple_of(of_keys) || four(c, k)? != [times, batch, of_keys, depth] {
        return Err(
            format!("its keys of extents {:?} do not fit queries of extents {:?}", c.dims(key), c.dims(query)).into()
        );
    }
    let scale = match c.float_or("scale", 0.0)? {
        0.0 => 1.0 / (depth as f64).sqrt(),
        scale => scale,
    };
    let q = c.reshape(q, &[times, batch, of_queries, 1, depth])?;
    let k = c.reshape(k, &[times, batch, of_keys, 1, depth])?;
    let v = c.reshape(v, &[times, batch, of_keys, 1, width])?;
    let mut scanned = vec![q, k, v];
    if rule.gated {
        // The gate is one number for each head, or one for each row of the head's state.
        let decay = c.input(4)?;
        let decay = in_steps(c, decay, of_keys)?;
        let rows = four(c, decay)?[3];
        let decay = c.reshape(decay, &[times, batch, of_keys, rows, 1])?;
        scanned.push(c.apply("exp", [decay])?);
    }
    if rule.delta {
        let beta = c.input(5)?;
        let heads = c.dims(beta).last().copied().unwrap_or(0);
        let beta = in_steps(c, beta, heads)?;
        scanned.push(c.reshape(beta, &[times, batch, heads, 1, 1])?);
    }
    let start = match c.optional(3) {
        Some(past) => c.cast(past, DType::F32)?,
        None => c.full(0.0, DType::F32, &[batch, of_keys, depth, width])?,
    };
    let of_state = c.optional(3).map_or(dtype, |past| c.dtype(past));
    let types: Vec<Type> = scanned.iter().map(|&part| Type::tensor(DType::F32, &c.dims(part)[1..])).collect();
    let of_start = c.ty(start);
    let body = c.body("step", |c| {
        let mut state = c.body_input(of_start)?;
        let given = types.into_iter().map(|ty| c.body_input(ty)).collect::<Result<Vec<_>, _>>()?;
        let (q, k, mut v) = (given[0], given[1], given[2]);
        let mut rest = given[3..].iter().copied();
        if let Some(decay) = rest.next().filter(|_| rule.gated) {
            state = c.apply("mul", [state, decay])?;
        }
        if let Some(beta) = given.last().copied().filter(|_| rule.delta) {
            let known = c.apply("matmul", [k, state])?;
            let new = c.apply("sub", [v, known])?;
            v = c.apply("mul", [beta, new])?;
        }
        let column = c.transpose(k, &[0, 1, 3, 2])?;
        let update = c.apply("mul", [column, v])?;
        state = c.apply("add", [state, update])?;
        let read = repeated(c, state, of_queries)?;
        Ok(vec![state, c.apply("matmul", [q, read])?])
    })?;
    let [last, outputs] = c.looped(body, times, &[start], &scanned, None)?[..] else {
        return Err("its step does not return a state and an output".into());
    };
    let outputs = c.with("mul", outputs, scale)?;
    let outputs = c.reshape(outputs, &[times, batch, of_queries * width])?;
    let outputs = c.transpose(outputs, &[1, 0, 2])?;
    Ok(vec![c.cast(outputs, dtype)?, c.cast(last, of_state)?])
}

/// Splits heads and puts time first: [B T H·D] becomes [T B H D] in `f32`.
fn in_steps(c: &mut NodeCall<'_, '_>, x: NodeId, heads: usize) -> NodeResult {
    let [batch, times, width] = c.dims(x)[..] else {
        return Err(format!("its input has extents {:?}, but must have three axes", c.dims(x)).into());
    };
    if heads == 0 || !width.is_multiple_of(heads) {
        return Err(format!("its width of {width} is not a multiple of its {heads} heads").into());
    }
    let x = c.cast(x, DType::F32)?;
    let x = c.reshape(x, &[batch, times, heads, width / heads])?;
    c.transpose(x, &[1, 0, 2, 3])
}

fn four(c: &NodeCall<'_, '_>, x: NodeId) -> Result<[usize; 4], NodeError> {
    c.dims(x).try_into().map_err(|dims| NodeError(format!("an input of extents {dims:?} does not have four axes")))
}

/// Computes a depthwise convolution of x [B C L] with weights [C 1 K] over each element and its K − 1 predecessors. The
/// second output is the last K − 1 elements, which the next call takes as its past.
fn causal_convolution(c: &mut NodeCall<'_, '_>) -> Outputs {
    let (x, weight) = (c.input(0)?, c.input(1)?);
    let ([batch, channels, length], [rows, 1, taps]) = (&c.dims(x)[..], &c.dims(weight)[..]) else {
        return Err(format!(
            "its weights of extents {:?} do not fit an input of extents {:?}",
            c.dims(weight),
            c.dims(x)
        )
        .into());
    };
    let (batch, channels, length, taps) = (*batch, *channels, *length, *taps);
    if *rows != channels || taps == 0 {
        return Err(format!(
            "its weights of extents {:?} do not fit an input of extents {:?}",
            c.dims(weight),
            c.dims(x)
        )
        .into());
    }
    let past = match c.optional(3) {
        Some(past) => past,
        None => c.full(0.0, c.dtype(x), &[batch, channels, taps - 1])?,
    };
    let all = c.concat(&[past, x], 2)?;
    let dims = c.dims(all);
    if dims[2] != length + taps - 1 {
        return Err(format!("its past state has extents {:?}, which do not fit {taps} taps", c.dims(past)).into());
    }
    let mut sum = None;
    for tap in 0..taps {
        let part = c.slice(all, 2, tap, length)?;
        let factor = c.slice(weight, 2, tap, 1)?;
        let factor = c.reshape(factor, &[1, channels, 1])?;
        let product = c.apply("mul", [part, factor])?;
        sum = Some(match sum {
            Some(sum) => c.apply("add", [sum, product])?,
            None => product,
        });
    }
    let mut y = sum.ok_or("its weights have no taps")?;
    if let Some(bias) = c.optional(2) {
        let bias = c.reshape(bias, &[1, channels, 1])?;
        y = c.apply("add", [y, bias])?;
    }
    match c.word("activation")?.unwrap_or("none") {
        "none" => {}
        "silu" | "swish" => y = c.op("act", &[y], &[("kind", "silu".into())])?,
        other => return Err(format!("its activation is `{other}`, but must be none, silu or swish").into()),
    }
    Ok(vec![y, c.slice(all, 2, length, taps - 1)?])
}
