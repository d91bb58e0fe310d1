//! Attention: the anchor, the composite op with masks and grouped heads, rotary embedding and gated linear units.

use super::{
    Anchor, AttrDef,
    AttrKind::*,
    Class, Default, OpDef, attr, attr_or, each,
    eval::{Data, OpCall, Value, broadcast_strides, offsets, tensors},
    extent,
    normalisation::powers,
    op,
    pointwise::{ACTIVATIONS, activate, short},
};
use crate::{DType, Scalar, Type, bounded::hides, scalar::ExactSum};

/// The attributes that several attention ops share.
pub(super) const SCALE: AttrDef = attr("scale", Float);
pub(super) const SOFTCAP: AttrDef = attr_or("softcap", Float, Default::Float(0.0));
pub(super) const MASK: AttrDef = attr("mask", Word(&["none", "causal", "window", "keep", "additive"]));
pub(super) const WINDOW: AttrDef = attr_or("window", Int, Default::Int(0));

const EMPTY: AttrDef = attr_or("empty", Word(&["nan", "zeros", "guarded"]), Default::Word("nan"));

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        attrs: &[SCALE, SOFTCAP, EMPTY],
        legal: "(F float) F[B.. S D] F[B.. T D] F[B.. T E] F[B.. S T]? -> F[B.. S E]",
        flops: attention_flops,
        leaves_out: true,
        ..op(
            "attention",
            "softmax(cap(scale · q kᵀ) + bias) v, where cap(x) = softcap · tanh(x / softcap), or x where softcap is 0. \
             A bias of −∞ hides its key: neither its score nor its value is read. A bias that stands for \
             −∞ (at most −2¹¹⁷, in `f64` −2¹⁴⁶) replaces the score, also one of ∞ or NaN. A row whose scores are all −∞ gives NaN or zeros, as \
             `empty` says. With `guarded`, a row gives zeros if one of its weights is NaN; the bias is then added to every \
             score and hides nothing.",
            Class::Anchor(Anchor::Named("attention")),
            "(F float) F[B.. S D] F[B.. T D] F[B.. T E] F[A..]? -> F[B.. S E] (broadcasts-to A [B.. S T])",
            tensors!(attention),
        )
    },
    OpDef {
        attrs: &[SCALE, SOFTCAP, EMPTY],
        prologue: &["tf32", "tf32", "tf32"],
        flops: attention_flops,
        leaves_out: true,
        ..op(
            "attention-tf32",
            "`attention` whose operands and weights are rounded by `tf32`.",
            Class::Anchor(Anchor::Named("attention")),
            "f32[B.. S D] f32[B.. T D] f32[B.. T E] f32[B.. S T]? -> f32[B.. S E]",
            tensors!(attention_tf32),
        )
    },
    OpDef {
        attrs: &[SCALE, SOFTCAP, MASK, WINDOW],
        flops: attention_flops,
        ..op(
            "sdpa",
            "Attention of grouped heads: query head h reads key head ⌊h / R⌋. `keep` hides keys whose mask is false: neither key nor \
             value is read, and a row of false gives zeros; `additive` is the bias of `attention`. A row whose scores are all −∞ gives \
             NaN with `none` and `additive`, and zeros with the others; \
             `causal`: key j is visible to query i where j ≤ i + (T − S); `window`: of these, the last `window` keys, the \
             query's own included.",
            Class::Composite,
            "(F float) (M any) F[B.. (* G R) S D] F[B.. G T D] F[B.. G T E] M[A..]? -> F[B.. (* G R) S E] \
             (broadcasts-to A [B.. (* G R) S T]) (mask mask window M F)",
            tensors!(sdpa),
        )
    },
    OpDef {
        attrs: &[attr("style", Word(&["half", "adjacent"]))],
        flops: each::<3>,
        ..op(
            "rope",
            "Rotary embedding of the first 2P coordinates, by the angle whose cosine and sine are given for each position; \
             the others pass through. Coordinate p goes with p + P (`half`), or 2p with 2p + 1 (`adjacent`): \
             (x, y) → (x cos − y sin, y cos + x sin).",
            Class::Composite,
            "(F float) F[B.. S D] F[S P] F[S P] -> F[B.. S D] (at-most (* 2 P) D)",
            tensors!(rope),
        )
    },
    OpDef {
        attrs: &[attr("gate", Word(&["first", "second"])), attr_or("act", Word(ACTIVATIONS), Default::Word("silu"))],
        flops: each::<17>,
        ..op(
            "glu",
            "The gated linear unit up · act(gate), where one half of the last axis is the gate and the other is up: SwiGLU for \
             silu, GeGLU for a gelu, the first of them for sigmoid.",
            Class::Composite,
            "(F float) F[B.. (* 2 H)] -> F[B.. H]",
            tensors!(glu),
        )
    },
];

/// Returns the operations of two products for each pair of query and key, and about ten for its softmax.
pub(super) fn attention_flops(operands: &[&Type], result: &Type) -> f64 {
    let (keys, depth, width) = (extent(operands[1], -2), extent(operands[0], -1), extent(result, -1));
    let rows = result.count() as f64 / width.max(1.0);
    rows * keys * (2.0 * (depth + width) + 10.0)
}

/// The bias of the score of one query and one key.
enum ScoreBias<S> {
    /// This number is added.
    Term(S),
    /// No bias, and whether the key is visible. `None` if rounding decides that.
    Visible(Option<bool>),
}

/// One head: queries [S D], keys [T D] and values [T E]. Its result has the shape [S E].
struct AttentionHead<'a, S> {
    query: HeadMatrix<'a, S>,
    key: HeadMatrix<'a, S>,
    value: HeadMatrix<'a, S>,
    scale: S,
    softcap: f64,
    empty: EmptyScores,
    /// The element type.
    dtype: DType,
    /// Rounds a weight as kernels may: matrix units read rounded weights, and a stored softmax is rounded.
    weights: &'a dyn Fn(S) -> S,
}

/// The result of a row whose scores give no weights.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EmptyScores {
    /// NaN if every score is −∞.
    Nan,
    /// Zeros if every score is −∞.
    Zeros,
    /// Zeros if a weight is NaN. The bias then hides no key.
    Guarded,
}

impl EmptyScores {
    fn read(attr: &crate::Attr) -> EmptyScores {
        match attr.word() {
            Some("zeros") => EmptyScores::Zeros,
            Some("guarded") => EmptyScores::Guarded,
            _ => EmptyScores::Nan,
        }
    }
}

/// One matrix of a tensor, over the two innermost axes.
struct HeadMatrix<'a, S> {
    elements: &'a [S],
    rows: usize,
    columns: usize,
}

impl<'a, S: Scalar> HeadMatrix<'a, S> {
    /// Returns the `n`th matrix of a tensor.
    fn of(x: &'a Value<S>, n: usize) -> HeadMatrix<'a, S> {
        let (rows, columns) = (x.extent(1), x.extent(0));
        let size = rows * columns;
        HeadMatrix { elements: &x.reals()[n * size..(n + 1) * size], rows, columns }
    }

    fn rows(&self) -> impl Iterator<Item = &'a [S]> {
        let (elements, columns) = (self.elements, self.columns);
        (0..self.rows).map(move |i| &elements[i * columns..(i + 1) * columns])
    }
}

/// A score, and whether its key is hidden. The value of a hidden key is not read.
#[derive(Clone, Copy)]
struct KeyScore<S> {
    score: S,
    hidden: bool,
}

impl<S: Scalar> AttentionHead<'_, S> {
    fn attend(&self, bias: impl Fn(usize, usize) -> ScoreBias<S>, result: &mut Vec<S>) {
        for (i, q) in self.query.rows().enumerate() {
            let keys: Vec<_> = self.key.rows().enumerate().map(|(j, k)| self.score(q, k, bias(i, j))).collect();
            let scores: Vec<S> = keys.iter().map(|key| key.score).collect();
            // Kernels divide either the weights by their sum or the weighted sums by it. Weighted sums may overflow
            // although the result does not.
            let (weights, total) = powers(&scores);
            let empty = scores.iter().all(|s| s.value() == f64::NEG_INFINITY);
            let gives_zeros = match self.empty {
                _ if scores.is_empty() => true,
                EmptyScores::Nan => false,
                EmptyScores::Zeros => empty,
                EmptyScores::Guarded => total.value().is_nan(),
            };
            if gives_zeros {
                let zero = S::exact(0.0);
                let sure = scores.iter().all(|s| s.certain().is_some());
                let nothing = if sure { zero } else { zero.either(S::exact(f64::NAN)) };
                result.extend(std::iter::repeat_n(nothing, self.value.columns));
                continue;
            }
            let mut sums = vec![(S::Sum::default(), S::Sum::default()); self.value.columns];
            let read = keys.into_iter().zip(weights).zip(self.value.rows()).filter(|((key, _), _)| !key.hidden);
            for ((_, weight), row) in read {
                let (share, weight) = ((self.weights)(weight / total), (self.weights)(weight));
                for ((before, after), &v) in sums.iter_mut().zip(row) {
                    before.add_product(share, v);
                    after.add_product(weight, v);
                }
            }
            // If every key is hidden, the weights are NaN, but the sums are 0, because the loop skips hidden keys.
            let none = |sum: S| if empty { S::exact(f64::NAN) } else { sum };
            result.extend(sums.iter().map(|(before, after)| none(before.total().either(after.total() / total))));
        }
    }

    fn score(&self, q: &[S], k: &[S], bias: ScoreBias<S>) -> KeyScore<S> {
        let lowest = S::exact(f64::NEG_INFINITY);
        let selects = self.empty != EmptyScores::Guarded;
        let score = || {
            let mut sum = S::Sum::default();
            q.iter().zip(k).for_each(|(&x, &y)| sum.add_product(x, y));
            let score = sum.total() * self.scale;
            let cap = S::exact(self.softcap);
            if self.softcap == 0.0 { score } else { (score / cap).tanh() * cap }
        };
        let seen = |score| KeyScore { score, hidden: false };
        match bias {
            ScoreBias::Visible(Some(false)) => KeyScore { score: lowest, hidden: true },
            ScoreBias::Visible(Some(true)) => seen(score()),
            ScoreBias::Visible(None) => seen(score().either(lowest)),
            ScoreBias::Term(x) if selects && hides(x.value(), self.dtype) => match x.certain() {
                Some(bias) => KeyScore { score: x, hidden: bias == f64::NEG_INFINITY },
                None => seen(x.either(score() + x)),
            },
            ScoreBias::Term(x) => seen(score() + x),
        }
    }
}

/// The position of a score.
#[derive(Clone, Copy)]
struct ScorePlace {
    /// The index of the matrix of queries.
    matrix: usize,
    query: usize,
    key: usize,
}

/// Returns every head of a call. `share` is the number of consecutive query heads that read one key head, and `bias`
/// returns the bias of each score.
fn heads<S: Scalar>(
    call: &OpCall<'_, S>,
    share: usize,
    empty: EmptyScores,
    weights: fn(S, DType) -> S,
    bias: impl Fn(ScorePlace) -> ScoreBias<S>,
) -> Vec<Value<S>> {
    let [q, k, v] = call.operands[..3] else { unreachable!("the signature has three operands or more") };
    let dtype = call.result().0;
    let weights = |x| weights(x, dtype);
    let mut result = Vec::new();
    for n in 0..q.dims[..q.dims.len() - 2].iter().product() {
        let head = AttentionHead {
            query: HeadMatrix::of(q, n),
            key: HeadMatrix::of(k, n / share),
            value: HeadMatrix::of(v, n / share),
            scale: call.number(0),
            softcap: call.attrs[1].float().unwrap_or(0.0),
            empty,
            dtype,
            weights: &weights,
        };
        head.attend(|query, key| bias(ScorePlace { matrix: n, query, key }), &mut result);
    }
    call.reals(result)
}

/// Returns a function from a score to the offset of its element in the optional fourth operand, which is broadcast to
/// [.. S T].
fn bias_offsets<S: Scalar>(call: &OpCall<'_, S>) -> impl Fn(ScorePlace) -> usize {
    let (q, keys) = (call.operands[0], call.operands[1].extent(1));
    let mut dims = q.dims.clone();
    *dims.last_mut().expect("the signature asks for matrices") = keys;
    let rows = q.extent(1);
    let at = call.operands.get(3).map(|b| offsets(&dims, &broadcast_strides(&b.dims, dims.len()), 0));
    move |ScorePlace { matrix, query, key }| {
        at.as_ref().map_or(0, |at| at[(matrix * rows + query) * keys + key] as usize)
    }
}

fn attention<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    attend(call, S::store)
}

fn attention_tf32<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    let operands = call.through(3, short);
    let operands: Vec<_> = operands.iter().chain(call.operands.get(3).copied()).collect();
    attend(&OpCall { operands: &operands, ..*call }, |weight, _| short(weight))
}

fn attend<S: Scalar>(call: &OpCall<'_, S>, weights: fn(S, DType) -> S) -> Vec<Value<S>> {
    let at = bias_offsets(call);
    let bias = call.operands.get(3).map(|b| b.reals());
    heads(call, 1, EmptyScores::read(&call.attrs[2]), weights, |score| {
        bias.map_or(ScoreBias::Visible(Some(true)), |b| ScoreBias::Term(b[at(score)]))
    })
}

pub(super) fn sdpa<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    let (q, k) = (call.operands[0], call.operands[1]);
    let share = q.extent(2) / k.extent(2).max(1);
    let (kind, window) = (call.attrs[2].word().unwrap_or_default(), call.attrs[3].int().unwrap_or(0));
    // The distance is 0 if the key is at the query's position, and positive if the key is before it.
    let ahead = k.extent(1) as i64 - q.extent(1) as i64;
    let distance = move |score: ScorePlace| score.query as i64 + ahead - score.key as i64;
    let at = bias_offsets(call);
    let mask = call.operands.get(3).map(|m| &m.data);
    // With these masks, a row has only −∞ if the operands have infinities.
    let empty = if matches!(kind, "additive" | "none") { EmptyScores::Nan } else { EmptyScores::Zeros };
    heads(call, share.max(1), empty, S::store, |score| match mask {
        Some(Data::Real(m)) => ScoreBias::Term(m[at(score)]),
        Some(Data::Int(m)) => ScoreBias::Visible(m[at(score)].map(|keep| keep != 0)),
        None if window > 0 => ScoreBias::Visible(Some((0..window).contains(&distance(score)))),
        None => ScoreBias::Visible(Some(kind == "none" || distance(score) >= 0)),
    })
}

pub(super) fn rope<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    let [x, cos, sin] = call.operands else { unreachable!("the signature has three operands") };
    let (positions, pairs) = (cos.extent(1), cos.extent(0));
    let half = call.attrs[0].word() == Some("half");
    let row = |(n, row): (usize, &[S])| {
        let angle = |p: usize| (n % positions) * pairs + p;
        let mut turned = row.to_vec();
        for p in 0..pairs {
            let (i, j) = if half { (p, p + pairs) } else { (2 * p, 2 * p + 1) };
            let (c, s) = (cos.reals()[angle(p)], sin.reals()[angle(p)]);
            turned[i] = row[i] * c - row[j] * s;
            turned[j] = row[j] * c + row[i] * s;
        }
        turned
    };
    call.reals(x.rows().enumerate().flat_map(row))
}

fn glu<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    let (first, kind) = (call.attrs[0].word() == Some("first"), call.attrs[1].word().unwrap_or_default());
    call.reals(call.operands[0].rows().flat_map(|row| {
        let (a, b) = row.split_at(row.len() / 2);
        let (gate, up) = if first { (a, b) } else { (b, a) };
        gate.iter().zip(up).map(|(&g, &u)| u * activate(g, kind)).collect::<Vec<_>>()
    }))
}
