//! Ops of ONNX Runtime's domain `com.microsoft`, as its graph optimizer writes them. ONNX Runtime defines them in
//! `ContribOperators.md`.

use eutectic_ir::{DType, Dim, NodeId};

use super::{
    super::call::{NodeCall, NodeResult},
    activation::{hard_sigmoid, leaky},
    attention::{attend, both, causal, four, heads, rotated, side_by_side},
    contraction::gemm,
    ids,
    norm::root_mean_square,
    row::{OpRow, Outputs, many, one},
    spatial::convolution,
};

pub(super) const OPS: &[OpRow] = &[
    one("Gelu", 1, |c| activated(c, "gelu-erf")),
    one("BiasGelu", 1, |c| activated(c, "gelu-erf")),
    one("FastGelu", 1, |c| activated(c, "gelu-tanh")),
    one("QuickGelu", 1, quick_gelu),
    one("FusedMatMul", 1, fused_product),
    one("FusedGemm", 1, |c| {
        let y = gemm(c)?;
        let (alpha, beta) = (c.float_or("activation_alpha", 0.01)?, c.float_or("activation_beta", 0.5)?);
        followed(c, y, &[alpha, beta])
    }),
    one("FusedConv", 1, fused_convolution),
    many("SkipLayerNormalization", 1, |c| skip_norm(c, true)),
    many("SkipSimplifiedLayerNormalization", 1, |c| skip_norm(c, false)),
    one("SimplifiedLayerNormalization", 1, root_mean_square),
    many("EmbedLayerNormalization", 1, embeddings),
    one("Attention", 1, attention),
    many("MultiHeadAttention", 1, of_heads),
    one("RotaryEmbedding", 1, rotary),
];

/// Applies an activation to the sum of the first two inputs; the second one is an optional bias.
fn activated(c: &mut NodeCall<'_, '_>, kind: &str) -> NodeResult {
    let mut x = c.input(0)?;
    if let Some(bias) = c.optional(1) {
        x = c.apply("add", [x, bias])?;
    }
    c.op("act", &[x], &[("kind", kind.into())])
}

/// Computes x · sigmoid(alpha · x).
fn quick_gelu(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    let scaled = c.with("mul", x, c.float_or("alpha", 1.702)?)?;
    let gate = c.apply("sigmoid", [scaled])?;
    c.apply("mul", [x, gate])
}

/// Computes alpha · a · b. The attributes `transA` and `transB` transpose the last two axes of an operand.
fn fused_product(c: &mut NodeCall<'_, '_>) -> NodeResult {
    if c.flag("transBatchA")? || c.flag("transBatchB")? {
        return Err("its `transBatchA` or `transBatchB` is set, which is not supported".into());
    }
    let operand = |c: &mut NodeCall<'_, '_>, at: usize, name: &str| {
        let x = c.input(at)?;
        let rank = c.rank(x);
        if !c.flag(name)? || rank < 2 {
            return Ok(x);
        }
        let mut order: Vec<usize> = (0..rank).collect();
        order.swap(rank - 2, rank - 1);
        c.transpose(x, &order)
    };
    let (a, b) = (operand(c, 0, "transA")?, operand(c, 1, "transB")?);
    let product = c.apply("matmul", [a, b])?;
    c.with("mul", product, c.float_or("alpha", 1.0)?)
}

/// Applies the activation of the attribute `activation`. `params` are the activation's parameters; missing ones have
/// defaults.
fn followed(c: &mut NodeCall<'_, '_>, x: NodeId, params: &[f64]) -> NodeResult {
    let param = |at: usize, default: f64| params.get(at).copied().unwrap_or(default);
    match c.word("activation")?.unwrap_or("") {
        "" => Ok(x),
        "Relu" => c.op("act", &[x], &[("kind", "relu".into())]),
        "Sigmoid" => c.apply("sigmoid", [x]),
        "Tanh" => c.apply("tanh", [x]),
        "LeakyRelu" => {
            let slope = c.number(param(0, 0.01), x)?;
            leaky(c, x, slope)
        }
        "HardSigmoid" => hard_sigmoid(c, x, param(0, 0.2), param(1, 0.5)),
        "Clip" => c.op("clamp", &[x], &[("min", param(0, f64::MIN).into()), ("max", param(1, f64::MAX).into())]),
        other => {
            Err(format!("its activation is `{other}`; it must be Relu, Sigmoid, Tanh, LeakyRelu, HardSigmoid or Clip")
                .into())
        }
    }
}

/// Imports `FusedConv`: a convolution, the addition of an optional fourth input, and an activation.
fn fused_convolution(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (x, w) = (c.input(0)?, c.input(1)?);
    let mut y = convolution(c, x, w, c.optional(2))?;
    if let Some(more) = c.optional(3) {
        y = c.apply("add", [y, more])?;
    }
    let params = c.floats("activation_params")?.unwrap_or_default();
    followed(c, y, &params)
}

/// Imports `SkipLayerNormalization`: normalizes the rows of x + skip + bias, with subtraction of their mean if
/// `centred`. The fourth output is the sum.
fn skip_norm(c: &mut NodeCall<'_, '_>, centred: bool) -> Outputs {
    if c.wants(1) || c.wants(2) {
        return Err("its outputs `mean` and `inv_std_var` are not supported".into());
    }
    let (x, skip, gain) = (c.input(0)?, c.input(1)?, c.input(2)?);
    let mut sum = c.apply("add", [x, skip])?;
    let (offset, bias) = if centred { (c.optional(3), c.optional(4)) } else { (None, c.optional(3)) };
    if let Some(bias) = bias {
        sum = c.apply("add", [sum, bias])?;
    }
    let eps = c.float_or("epsilon", 1e-12)?;
    let y = if centred {
        row_norm(c, sum, gain, offset, eps)?
    } else {
        c.op("rmsnorm", &[sum, gain], &[("eps", eps.into())])?
    };
    // The second and third outputs, `mean` and `inv_std_var`, are not used; `y` fills their places.
    Ok(vec![y, y, y, sum])
}

fn row_norm(c: &mut NodeCall<'_, '_>, x: NodeId, gain: NodeId, offset: Option<NodeId>, eps: f64) -> NodeResult {
    let operands: Vec<NodeId> = [x, gain].into_iter().chain(offset).collect();
    c.op("layernorm", &operands, &[("eps", eps.into())])
}

/// Imports `EmbedLayerNormalization`: the layer norm of the summed embeddings of words, positions and segments. The
/// second output is the number of visible words of each sequence, and the third one the sum.
fn embeddings(c: &mut NodeCall<'_, '_>) -> Outputs {
    let words = c.input(0)?;
    let shape = c.shape(words);
    let [batch, length] = &shape[..] else {
        return Err(format!("its ids of words have extents {shape:?}; they must be [batch length]").into());
    };
    let rows = |c: &mut NodeCall<'_, '_>, table: NodeId, ids: NodeId| {
        let ids = c.cast(ids, DType::I64)?;
        let ids = ids::named(c, ids, c.extent(table, 0))?;
        c.op("gather", &[table, ids], &[("axis", 0.into())])
    };
    let [of_words, of_positions, gain, offset] = [2, 3, 5, 6].map(|at| c.input(at));
    let mut sum = rows(c, of_words?, words)?;
    let places = match c.optional(8) {
        Some(given) => given,
        None => c.iota(&[Dim::Known(1), length.clone()], 1, DType::I64)?,
    };
    let of_places = rows(c, of_positions?, places)?;
    sum = c.apply("add", [sum, of_places])?;
    if let (Some(segments), Some(table)) = (c.optional(1), c.optional(4)) {
        let of_segments = rows(c, table, segments)?;
        sum = c.apply("add", [sum, of_segments])?;
    }
    let eps = c.float_or("epsilon", 1e-12)?;
    let y = row_norm(c, sum, gain?, Some(offset?), eps)?;
    let counts = match c.optional(7) {
        Some(mask) => {
            let mask = c.cast(mask, DType::I32)?;
            let counts = c.reduce("reduce-sum", mask, &[1])?;
            c.reshape(counts, std::slice::from_ref(batch))?
        }
        None => c.full(0.0, DType::I32, std::slice::from_ref(batch))?,
    };
    Ok(vec![y, counts, sum])
}

/// Returns a bias for scores: `mask_filter_value` at masked keys, and 0 at visible ones. The mask is either [B L] with
/// 0 at masked keys, or [B] with the number of visible keys.
fn key_bias(c: &mut NodeCall<'_, '_>, mask: NodeId, keys: &Dim, like: NodeId) -> NodeResult {
    let (dims, one) = (c.shape(mask), Dim::Known(1));
    let mask = c.cast(mask, DType::I64)?;
    let along = |batch: &Dim, keys: &Dim| [batch.clone(), one.clone(), one.clone(), keys.clone()];
    let kept = match &dims[..] {
        [batch, length] if length == keys => {
            let kept = c.with("ne", mask, 0)?;
            c.reshape(kept, &along(batch, keys))?
        }
        [batch] => {
            let count = c.reshape(mask, &along(batch, &one))?;
            let key = c.iota(&along(&one, keys), 3, DType::I64)?;
            c.apply("lt", [key, count])?
        }
        _ => return Err(format!("its mask has extents {dims:?}; it must be [batch {keys}] or [batch]").into()),
    };
    let (zero, low) = (c.number(0, like)?, c.number(c.float_or("mask_filter_value", -10000.0)?, like)?);
    c.apply("where", [kept, zero, low])
}

/// Computes attention of q, k and v [B H L D], with an optional mask of keys and an optional bias `added`. Returns [B L
/// H·D].
fn attended(
    c: &mut NodeCall<'_, '_>,
    [q, k, v]: [NodeId; 3],
    (mask, added): (Option<NodeId>, Option<NodeId>),
    past: Dim,
) -> NodeResult {
    let ([_, _, queries, depth], [_, _, keys, _]) = (four(c, q)?, four(c, k)?);
    let depth = c.fix(&depth);
    let scale = match c.float_or("scale", 0.0)? {
        0.0 => 1.0 / (depth as f64).sqrt(),
        scale => scale,
    };
    let mut bias = added;
    if let Some(mask) = mask {
        let own = key_bias(c, mask, &keys, q)?;
        bias = Some(match bias {
            Some(bias) => c.apply("add", [bias, own])?,
            None => own,
        });
    }
    if c.flag("unidirectional")? {
        let visible = causal(c, queries, keys, past)?;
        bias = Some(both(c, bias, visible, q)?);
    }
    let y = attend(c, [q, k, v], bias, &[("scale", scale.into()), ("softcap", 0.0.into())])?;
    side_by_side(c, y)
}

/// Imports `RotaryEmbedding` of `com.microsoft`. The positions are given for each token, or for the first token of a
/// sequence only.
fn rotary(c: &mut NodeCall<'_, '_>) -> NodeResult {
    if c.float_or("scale", 1.0)? != 1.0 || c.flag("is_packed_batching")? {
        return Err("its `scale` is not 1 or its `is_packed_batching` is set, which is not supported".into());
    }
    let (x, given, cos, sin) = (c.input(0)?, c.input(1)?, c.input(2)?, c.input(3)?);
    let dims = c.shape(x);
    let rows = dims.get(if dims.len() == 4 { 2 } else { 1 }).cloned().unwrap_or(Dim::Known(0));
    let places = match c.shape(given)[..] {
        [Dim::Known(1)] => {
            let place = c.iota(&[Dim::Known(1), rows], 1, DType::I64)?;
            let first = c.cast(given, DType::I64)?;
            c.apply("add", [place, first])?
        }
        _ => given,
    };
    rotated(c, [cos, sin], Some(places))
}

/// Imports `Attention`: self-attention of x. The columns of x W + b are queries, then keys, then values.
fn attention(c: &mut NodeCall<'_, '_>) -> NodeResult {
    if c.optional(4).is_some() || c.flag("do_rotary")? {
        return Err("it has a past or rotary positions (`do_rotary`), which are not supported".into());
    }
    let (x, w) = (c.input(0)?, c.input(1)?);
    let mut all = c.apply("matmul", [x, w])?;
    if let Some(bias) = c.optional(2) {
        all = c.apply("add", [all, bias])?;
    }
    let total = c.shape(all).last().map_or(0, |last| c.fix(last));
    let widths = match c.ints("qkv_hidden_sizes")? {
        Some(sizes) => sizes.into_iter().map(|n| usize::try_from(n).unwrap_or(0)).collect(),
        None => vec![total / 3; 3],
    };
    if widths.len() != 3 || widths.iter().sum::<usize>() != total || c.rank(all) != 3 {
        return Err(format!(
            "its queries, keys and values have widths {widths:?}, which do not fit weights of extents {:?}",
            c.shape(all)
        )
        .into());
    }
    let mut parts = Vec::new();
    let mut at = 0;
    for width in widths {
        let part = c.slice(all, 2, at, width)?;
        parts.push(heads(c, part, "num_heads")?);
        at += width;
    }
    attended(c, [parts[0], parts[1], parts[2]], (c.optional(3), c.optional(5)), Dim::Known(0))
}

/// Imports `MultiHeadAttention`. The second and third outputs are the keys and values, with those of the past first.
fn of_heads(c: &mut NodeCall<'_, '_>) -> Outputs {
    let (query, key, value) = match (c.optional(1), c.optional(2)) {
        (Some(key), Some(value)) if [c.input(0)?, key, value].iter().all(|x| c.rank(*x) == 3) => {
            (c.input(0)?, key, value)
        }
        _ => {
            return Err("its queries, keys and values must be three inputs [B L H·D]".into());
        }
    };
    let mut parts = [query, key, value];
    if let Some(bias) = c.optional(3) {
        let mut at = 0;
        for part in &mut parts {
            let width = c.extent(*part, 2);
            let own = c.slice(bias, 0, at, width)?;
            *part = c.apply("add", [*part, own])?;
            at += width;
        }
    }
    let q = heads(c, parts[0], "num_heads")?;
    let mut kv = [heads(c, parts[1], "num_heads")?, heads(c, parts[2], "num_heads")?];
    let mut past = Dim::Known(0);
    for (at, x) in kv.iter_mut().enumerate() {
        if let Some(before) = c.optional(6 + at) {
            past = four(c, before)?[2].clone();
            *x = c.concat(&[before, *x], 2)?;
        }
    }
    let [k, v] = kv;
    let y = attended(c, [q, k, v], (c.optional(4), c.optional(5)), past)?;
    Ok(vec![y, k, v])
}
