//! Attention and rotary embedding of ONNX's own domain, since opset 23.

use eutectic_ir::{Attr, DType, Dim, NodeId, ops::Ids};

use super::{
    super::{
        call::{NodeCall, NodeResult},
        error::NodeError,
    },
    ids,
    layout::count,
    row::{OpRow, Outputs, many, one},
};

pub(super) const OPS: &[OpRow] = &[many("Attention", 23, attention), one("RotaryEmbedding", 23, rotary)];

/// Splits heads: [B S heads·D] becomes [B heads S D]. Input with four axes is already split.
pub(super) fn heads(c: &mut NodeCall<'_, '_>, x: NodeId, attr: &str) -> NodeResult {
    match &c.shape(x)[..] {
        [_, _, _, _] => Ok(x),
        [batch, rows, width] => {
            let width = c.fix(width);
            let heads =
                c.int(attr)?.and_then(|n| usize::try_from(n).ok()).filter(|&n| n > 0 && width.is_multiple_of(n));
            let heads =
                heads.ok_or_else(|| NodeError(format!("its width of {width} is not a multiple of `{attr}`")))?;
            let split = c.reshape(x, &[batch.clone(), rows.clone(), heads.into(), (width / heads).into()])?;
            c.transpose(split, &[0, 2, 1, 3])
        }
        _ => Err("an input has neither three nor four axes".into()),
    }
}

/// Imports `Attention`. Its outputs are the result, the keys and values with those of the past before them, and the
/// scores.
fn attention(c: &mut NodeCall<'_, '_>) -> Outputs {
    let query = c.input(0)?;
    let flat = c.rank(query) == 3;
    let (key, value) = (c.input(1)?, c.input(2)?);
    let q = heads(c, query, "q_num_heads")?;
    let mut kv = [heads(c, key, "kv_num_heads")?, heads(c, value, "kv_num_heads")?];
    let mut past = Dim::Known(0);
    for (at, x) in kv.iter_mut().enumerate() {
        if let Some(before) = c.optional(4 + at) {
            past = four(c, before)?[2].clone();
            *x = c.concat(&[before, *x], 2)?;
        }
    }
    let [k, v] = kv;
    let [_, _, queries, depth] = four(c, q)?;
    let depth = c.fix(&depth);
    let scale = c.float("scale")?.unwrap_or(f64::from(1.0 / (depth as f32).sqrt()));
    let [_, _, keys, _] = four(c, k)?;
    let mut mask = c.optional(3);
    if let Some(mask) = &mut mask {
        if c.dtype(*mask) != DType::Bool {
            *mask = c.cast(*mask, c.dtype(q))?;
        }
        *mask = padded(c, *mask, &keys)?;
    }
    if c.flag("is_causal")? {
        let visible = causal(c, queries, keys.clone(), past)?;
        mask = Some(both(c, mask, visible, q)?);
    }
    if let Some(lengths) = c.optional(6) {
        let [one, texts] = [Dim::Known(1), count(&c.shape(lengths))];
        let lengths = c.reshape(lengths, &[texts, one.clone(), one.clone(), one.clone()])?;
        let key = c.iota(&[one.clone(), one.clone(), one, keys], 3, c.dtype(lengths))?;
        let visible = c.apply("lt", [key, lengths])?;
        mask = Some(both(c, mask, visible, q)?);
    }
    let softcap = c.float_or("softcap", 0.0)?;
    let attrs = [("scale", scale.into()), ("softcap", softcap.into())];
    let scores = if c.wants(3) { Some(scores(c, [q, k], mask, (scale, softcap))?) } else { None };
    let mut result = attend(c, [q, k, v], mask, &attrs)?;
    if flat {
        result = side_by_side(c, result)?;
    }
    Ok([result, k, v].into_iter().chain(scores).collect())
}

/// Returns the extents of a value with four axes.
pub(super) fn four(c: &NodeCall<'_, '_>, x: NodeId) -> Result<[Dim; 4], NodeError> {
    c.shape(x).try_into().map_err(|dims| NodeError(format!("an input with extents {dims:?} does not have four axes")))
}

/// Merges heads: [B heads S D] becomes [B S heads·D].
pub(super) fn side_by_side(c: &mut NodeCall<'_, '_>, x: NodeId) -> NodeResult {
    let [batch, heads, rows, width] = four(c, x)?;
    let x = c.transpose(x, &[0, 2, 1, 3])?;
    c.reshape(x, &[batch, rows, &heads * &width])
}

/// Combines a mask with a Boolean mask `visible`. A key is visible if both masks show it.
pub(super) fn both(c: &mut NodeCall<'_, '_>, mask: Option<NodeId>, visible: NodeId, like: NodeId) -> NodeResult {
    match mask {
        None => Ok(visible),
        Some(mask) if c.dtype(mask) == DType::Bool => c.apply("and", [mask, visible]),
        Some(mask) => {
            let hidden = c.number(f64::NEG_INFINITY, like)?;
            c.apply("where", [visible, mask, hidden])
        }
    }
}

/// Returns the scores in the state that `qk_matmul_output_mode` selects: before the soft cap, after it, after the mask,
/// or after the softmax.
fn scores(
    c: &mut NodeCall<'_, '_>,
    [q, k]: [NodeId; 2],
    mask: Option<NodeId>,
    (scale, softcap): (f64, f64),
) -> NodeResult {
    let mode = c.int_or("qk_matmul_output_mode", 0)?;
    if !(0..=3).contains(&mode) {
        return Err(format!("its `qk_matmul_output_mode` is {mode}; it must be 0, 1, 2 or 3").into());
    }
    let k = repeated(c, k, c.extent(q, 1))?;
    let k = c.transpose(k, &[0, 1, 3, 2])?;
    let mut scores = c.apply("matmul", [q, k])?;
    scores = c.with("mul", scores, scale)?;
    if mode >= 1 && softcap != 0.0 {
        let part = c.with("div", scores, softcap)?;
        let part = c.apply("tanh", [part])?;
        scores = c.with("mul", part, softcap)?;
    }
    match mask.filter(|_| mode >= 2) {
        None => {}
        Some(mask) if c.dtype(mask) == DType::Bool => {
            let hidden = c.number(f64::NEG_INFINITY, scores)?;
            scores = c.apply("where", [mask, scores, hidden])?;
        }
        Some(mask) => scores = c.apply("add", [scores, mask])?,
    }
    if mode == 3 { c.op("softmax", &[scores], &[("axis", (-1).into())]) } else { Ok(scores) }
}

/// Computes attention. A Boolean mask selects visible keys; any other mask is added to the scores. The result is zero
/// for a query without visible keys.
pub(super) fn attend(
    c: &mut NodeCall<'_, '_>,
    [q, k, v]: [NodeId; 3],
    mask: Option<NodeId>,
    attrs: &[(&str, Attr); 2],
) -> NodeResult {
    let sdpa = |c: &mut NodeCall<'_, '_>, operands: &[NodeId], mask: &str| {
        c.op("sdpa", operands, &[&attrs[..], &[("mask", mask.into())]].concat())
    };
    match mask {
        None => sdpa(c, &[q, k, v], "none"),
        Some(mask) if c.dtype(mask) == DType::Bool => sdpa(c, &[q, k, v, mask], "keep"),
        // With a mask that is added, `sdpa` gives NaN for a query whose scores are all −∞, as in PyTorch. The op
        // `attention` can give zeros.
        Some(mask) => {
            let heads = c.extent(q, 1);
            let (k, v) = (repeated(c, k, heads)?, repeated(c, v, heads)?);
            c.op("attention", &[q, k, v, mask], &[&attrs[..], &[("empty", "zeros".into())]].concat())
        }
    }
}

/// Repeats heads of keys or values until their number is that of the query heads.
pub(super) fn repeated(c: &mut NodeCall<'_, '_>, x: NodeId, heads: usize) -> NodeResult {
    let [batch, groups, rows, width] = four(c, x)?;
    let groups = c.fix(&groups);
    if groups == heads || groups == 0 || !heads.is_multiple_of(groups) {
        return Ok(x);
    }
    let with = |heads: &[usize]| {
        let heads = heads.iter().map(|&n| n.into());
        [batch.clone()].into_iter().chain(heads).chain([rows.clone(), width.clone()]).collect::<Vec<Dim>>()
    };
    let split = c.reshape(x, &with(&[groups, 1]))?;
    let each = c.expand(split, &with(&[groups, heads / groups]))?;
    c.reshape(each, &with(&[heads]))
}

/// Extends a mask that covers only the first keys. It hides the keys after them.
fn padded(c: &mut NodeCall<'_, '_>, mask: NodeId, keys: &Dim) -> NodeResult {
    let last = c.shape(mask).pop();
    if last.as_ref() == Some(keys) {
        return Ok(mask);
    }
    let (last, keys) = (last.map(|last| c.fix(&last)), c.fix(keys));
    let hidden = if c.dtype(mask) == DType::Bool { 0.0 } else { f64::NEG_INFINITY };
    match last {
        Some(n) if n > 1 && n < keys => {
            let attrs = [
                ("axis", (-1).into()),
                ("before", 0.into()),
                ("after", ((keys - n) as i64).into()),
                ("value", hidden.into()),
            ];
            c.op("pad", &[mask], &attrs)
        }
        _ => Ok(mask),
    }
}

/// Returns a causal mask: each query sees the keys up to its own position.
pub(super) fn causal(c: &mut NodeCall<'_, '_>, queries: Dim, keys: Dim, past: Dim) -> NodeResult {
    let places = [queries, keys];
    let (query, key) = (c.iota(&places, 0, DType::I32)?, c.iota(&places, 1, DType::I32)?);
    let past = c.length(&past)?;
    let past = c.cast(past, DType::I32)?;
    let last = c.apply("add", [query, past])?;
    c.apply("le", [key, last])
}

/// Imports `RotaryEmbedding`. Each pair of coordinates is rotated by an angle of its position. The caches of cosines
/// and sines have a row for each position or for each token.
fn rotary(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (cos, sin) = (c.input(1)?, c.input(2)?);
    rotated(c, [cos, sin], c.optional(3))
}

/// Applies rotary embedding with given caches of cosines and sines, and the attributes of the node. `places` are the
/// positions of tokens.
pub(super) fn rotated(c: &mut NodeCall<'_, '_>, caches: [NodeId; 2], places: Option<NodeId>) -> NodeResult {
    let input = c.input(0)?;
    let x = heads(c, input, "num_heads")?;
    let depth = c.fix(&four(c, x)?[3]);
    let width = match c.int_or("rotary_embedding_dim", 0)? {
        0 => depth,
        n => usize::try_from(n).unwrap_or(usize::MAX),
    };
    let rotation = Rotation { caches, places, width, interleaved: c.flag("interleaved")? };
    let turned = turned(c, x, &rotation)?;
    if c.rank(input) != 3 {
        return Ok(turned);
    }
    side_by_side(c, turned)
}

/// The parameters of a rotation.
pub(super) struct Rotation {
    /// Cosines and sines, with a row for each position or for each token.
    pub caches: [NodeId; 2],
    /// The position of each token, if rows of the caches belong to positions. `None` if they belong to tokens.
    pub places: Option<NodeId>,
    /// The number of coordinates that are rotated.
    pub width: usize,
    /// Whether the coordinates of a pair are adjacent. Otherwise, pair i has the coordinates i and i + width/2.
    pub interleaved: bool,
}

/// Rotates the coordinates of x [B H S D].
pub(super) fn turned(c: &mut NodeCall<'_, '_>, x: NodeId, rotation: &Rotation) -> NodeResult {
    let [batch, heads, rows, depth] = four(c, x)?;
    let depth = c.fix(&depth);
    let Rotation { caches, places, width, interleaved } = *rotation;
    if width > depth {
        return Err(format!("it rotates {width} coordinates, but a head has {depth}").into());
    }
    let pairs = width / 2;
    let mut angle = |cache: NodeId| {
        let of_tokens = match places {
            Some(places) => {
                let extent = c.extent(cache, 0) as i64;
                let places = ids::checked(c, places, Ids { extent, from_end: false })?;
                c.op("gather", &[cache, places], &[("axis", 0.into())])?
            }
            None => cache,
        };
        // A cache without a batch axis is shared by all sequences.
        let batch = c.shape(of_tokens).into_iter().next().filter(|_| c.rank(of_tokens) == 3);
        c.reshape(of_tokens, &[batch.unwrap_or(Dim::Known(1)), Dim::Known(1), rows.clone(), pairs.into()])
    };
    let (cos, sin) = (angle(caches[0])?, angle(caches[1])?);
    let mut half = |second: bool| match interleaved {
        true => c.slice_by(x, 3, i64::from(second), pairs, 2),
        false => c.slice(x, 3, if second { pairs } else { 0 }, pairs),
    };
    let (a, b) = (half(false)?, half(true)?);
    let mut terms = |x: NodeId, y: NodeId, op: &str| {
        let (first, second) = (c.apply("mul", [x, cos])?, c.apply("mul", [y, sin])?);
        c.apply(op, [first, second])
    };
    let (real, imaginary) = (terms(a, b, "sub")?, terms(b, a, "add")?);
    let mut result = if interleaved {
        let column = [batch.clone(), heads.clone(), rows.clone(), pairs.into(), Dim::Known(1)];
        let (real, imaginary) = (c.reshape(real, &column)?, c.reshape(imaginary, &column)?);
        let both = c.concat(&[real, imaginary], 4)?;
        c.reshape(both, &[batch, heads, rows, width.into()])?
    } else {
        c.concat(&[real, imaginary], 3)?
    };
    if width < depth {
        let rest = c.slice(x, 3, width, depth - width)?;
        result = c.concat(&[result, rest], 3)?;
    }
    Ok(result)
}
