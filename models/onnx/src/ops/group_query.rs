//! `com.microsoft.GroupQueryAttention`, the causal attention of exported language models. It includes a cache and
//! rotary embeddings. ONNX Runtime defines it in `ContribOperators.md`.

use eutectic_ir::{DType, NodeId};

use super::{
    super::{
        call::{NodeCall, NodeResult},
        error::NodeError,
    },
    attention::{Rotation, attend, both, heads, turned},
    row::{OpRow, Outputs, many},
};

pub(super) const OPS: &[OpRow] = &[many("GroupQueryAttention", 1, attention)];

/// The index and the name of each input that is not supported.
const REFUSED: [(usize, &str); 3] = [(11, "head_sink"), (12, "k_scale"), (13, "v_scale")];

/// Imports `GroupQueryAttention`. The outputs are the result [B S H·D], and the keys and values [B G L D] with those of
/// the past first.
fn attention(c: &mut NodeCall<'_, '_>) -> Outputs {
    if let Some((_, name)) = REFUSED.iter().find(|(at, _)| c.optional(*at).is_some()) {
        return Err(format!("its input `{name}` is not supported").into());
    }
    if c.flag("smooth_softmax")? || c.flag("qk_output")? {
        return Err("its `smooth_softmax` or `qk_output` is set, which is not supported".into());
    }
    let [mut q, mut k, mut v] = projections(c)?;
    let [_, _, rows, depth] = c.dims(q)[..] else {
        return Err("its queries do not have four axes after the split into heads".into());
    };
    let past = c.optional(3).map_or(0, |past| c.dims(past).get(2).copied().unwrap_or(0));
    let total = past + rows;
    q = whole_cache(c, q, past, total)?;
    if c.flag("do_rotary")? {
        let (cos, sin) = (c.input(7)?, c.input(8)?);
        let places = match c.optional(9) {
            Some(places) => places,
            None => {
                let place = c.iota(&[1, rows], 1, DType::I64)?;
                c.with("add", place, past as i64)?
            }
        };
        let width = 2 * c.dims(cos).last().copied().unwrap_or(0);
        let rotation =
            Rotation { caches: [cos, sin], places: Some(places), width, interleaved: c.flag("rotary_interleaved")? };
        (q, k) = (turned(c, q, &rotation)?, turned(c, k, &rotation)?);
    }
    for (at, x) in [(3, &mut k), (4, &mut v)] {
        if let Some(before) = c.optional(at) {
            *x = c.concat(&[before, *x], 2)?;
        }
    }
    let scale = match c.float_or("scale", 0.0)? {
        0.0 => 1.0 / (depth as f64).sqrt(),
        scale => scale,
    };
    let mask = match (c.optional(10), visible(c, rows, past)?) {
        (bias, Some(visible)) => Some(both(c, bias, visible, q)?),
        (bias, None) => bias,
    };
    let attrs = [("scale", scale.into()), ("softcap", c.float_or("softcap", 0.0)?.into())];
    let y = attend(c, [q, k, v], mask, &attrs)?;
    let [batch, heads, rows, width] = c.dims(y)[..] else {
        return Err("the result of attention does not have four axes".into());
    };
    let y = c.transpose(y, &[0, 2, 1, 3])?;
    Ok(vec![c.reshape(y, &[batch, rows, heads * width])?, k, v])
}

/// Returns queries, keys and values, split into heads. They are three inputs of the node, or one input that joins them.
fn projections(c: &mut NodeCall<'_, '_>) -> Result<[NodeId; 3], NodeError> {
    let first = c.input(0)?;
    let parts = match (c.optional(1), c.optional(2)) {
        (Some(key), Some(value)) => [first, key, value],
        (None, None) => {
            let count = |name: &str| {
                let count = c.int(name)?.and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
                count.ok_or_else(|| NodeError(format!("its attribute `{name}` is missing")))
            };
            let (of_queries, of_keys) = (count("num_heads")?, count("kv_num_heads")?);
            let (width, all) = (c.dims(first).last().copied().unwrap_or(0), of_queries + 2 * of_keys);
            if c.rank(first) != 3 || width % all != 0 {
                return Err(
                    format!("its input of extents {:?} cannot be divided into {all} heads", c.dims(first)).into()
                );
            }
            let depth = width / all;
            let queries = c.slice(first, 2, 0, of_queries * depth)?;
            let keys = c.slice(first, 2, of_queries * depth, of_keys * depth)?;
            let values = c.slice(first, 2, (of_queries + of_keys) * depth, of_keys * depth)?;
            [queries, keys, values]
        }
        _ => return Err("it has keys without values, or values without keys".into()),
    };
    Ok([heads(c, parts[0], "num_heads")?, heads(c, parts[1], "kv_num_heads")?, heads(c, parts[2], "kv_num_heads")?])
}

/// Adds a check that each sequence uses all rows of the past, as its `seqlens_k` says. Returns x with that check. A
/// prompt has no past; its padding tokens come last, where no other token attends to them.
fn whole_cache(c: &mut NodeCall<'_, '_>, x: NodeId, past: usize, total: usize) -> NodeResult {
    let given = c.known_int(6)?;
    if usize::try_from(given) != Ok(total) {
        let problem = format!(
            "its total_sequence_length is {given}, but must be {total}, the sum of {past} past tokens and the new ones"
        );
        return Err(problem.into());
    }
    if past == 0 {
        return Ok(x);
    }
    let lengths = c.cast(c.input(5)?, DType::I64)?;
    let other = c.with("ne", lengths, total as i64 - 1)?;
    let axes: Vec<usize> = (0..c.rank(other)).collect();
    let other = c.cast(other, DType::I64)?;
    let any = c.reduce("reduce-max", other, &axes)?;
    let any = c.scalar(any)?;
    let any = c.with("ne", any, 0)?;
    c.fail_if(any, x, "its `seqlens_k` gives a sequence fewer tokens than its past and the new tokens have")
}

/// Returns the mask of visible keys: those up to the query's position, and only the last ones of them if there is a
/// window. Returns `None` if every query attends to all keys.
fn visible(c: &mut NodeCall<'_, '_>, rows: usize, past: usize) -> Result<Option<NodeId>, NodeError> {
    let window = c.int_or("local_window_size", -1)?;
    if rows == 1 && (window < 0 || window as usize > past) {
        return Ok(None);
    }
    let dims = [rows, past + rows];
    let (query, key) = (c.iota(&dims, 0, DType::I32)?, c.iota(&dims, 1, DType::I32)?);
    let last = c.with("add", query, past as i64)?;
    let mut seen = c.apply("le", [key, last])?;
    if window >= 0 {
        let before = c.with("sub", last, window)?;
        let near = c.apply("gt", [key, before])?;
        seen = c.apply("and", [seen, near])?;
    }
    Ok(Some(seen))
}
