//! `out[b.. s.. e..] = Σ_t.. softmax_t..(cap(scale · Σ_d.. q[b.. s.. d..] · k[b.. t.. d..]) + bias[b.. s.. t..]) ·
//! v[b.. t.. e..]` over the domain `[b.. s.. e..]`. Here `cap(x) = softcap · tanh(x / softcap)`, or `x` if softcap is
//! 0, and each letter is a group of any number of axes.
//!
//! A bias of −∞ hides its key: the key's score and value have no effect, even if they are ∞ or NaN. A finite bias that
//! [`eutectic_ir::bounded::hides`] counts as −∞ replaces the score, even a score of ∞ or NaN.

use eutectic_ir::{Attr, Scalar, bounded::hides};

use crate::{
    body::Body,
    kernel::{Along, AnchorCall, AnchorDef, AnchorKernel, Beyond, GroupDef, Kernel, OperandDef, ResultDef},
};

const BATCH: usize = 0;
const QUERIES: usize = 1;
const KEYS: usize = 2;
const DEPTH: usize = 3;
const COLUMNS: usize = 4;

const BEYOND_DEPTH: Beyond = Beyond { group: DEPTH, value: 0.0, counts: |_| true };

pub(super) static DEF: AnchorDef = AnchorDef {
    name: "attention",
    groups: &[
        GroupDef { name: "batch", along: Along::Free },
        GroupDef { name: "queries", along: Along::Free },
        GroupDef { name: "keys", along: Along::Combined },
        GroupDef { name: "depth", along: Along::Combined },
        GroupDef { name: "columns", along: Along::Free },
    ],
    operands: &[
        OperandDef { name: "query", layout: &[BATCH, QUERIES, DEPTH], absent: None, beyond: &[BEYOND_DEPTH] },
        OperandDef {
            name: "key",
            layout: &[BATCH, KEYS, DEPTH],
            absent: None,
            // Memory that was never written may make a score NaN. A bias that is added keeps that NaN, so the keys
            // themselves must be 0.
            beyond: &[
                Beyond { group: KEYS, value: 0.0, counts: |attrs| !ScoreForm::of(attrs).empty.selects() },
                BEYOND_DEPTH,
            ],
        },
        OperandDef {
            name: "value",
            layout: &[BATCH, KEYS, COLUMNS],
            absent: None,
            // A score of −∞ gives weight 0, but 0 times an element that was never written may be NaN.
            beyond: &[Beyond { group: KEYS, value: 0.0, counts: |_| true }],
        },
        OperandDef {
            name: "bias",
            layout: &[BATCH, QUERIES, KEYS],
            absent: Some(0.0),
            beyond: &[Beyond { group: KEYS, value: f64::NEG_INFINITY, counts: |_| true }],
        },
    ],
    results: &[ResultDef { layout: &[BATCH, QUERIES, COLUMNS], none: Some((KEYS, 0.0)) }],
    attrs: &["scale", "softcap", "empty"],
    accumulator: |dtypes| dtypes.first().map(|dtype| dtype.register()),
    // Each score takes two operations per element of the query, and about eight for its softmax weight. The weight
    // then takes two operations per element of the value.
    flops: |points| {
        let scores = points[BATCH] * points[QUERIES] * points[KEYS];
        scores * (2.0 * points[DEPTH] + 2.0 * points[COLUMNS] + 8.0)
    },
    normalise: |_| {},
    eval,
};

/// The number of axes of each group of an attention. A group without axes counts as one axis of extent 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionAxes {
    /// Axes of separate attentions: batches and heads.
    pub batch: usize,
    /// Axes of the queries.
    pub queries: usize,
    /// Axes of the keys and the values.
    pub keys: usize,
    /// Axes that the dot products of queries and keys are summed over.
    pub depth: usize,
    /// Axes of the vector that is the value of one key.
    pub columns: usize,
}

impl AttentionAxes {
    /// Returns the axes of an attention on three matrices (queries, keys, values) for each point of `batch` axes.
    pub fn matrices(batch: usize) -> AttentionAxes {
        AttentionAxes { batch, queries: 1, keys: 1, depth: 1, columns: 1 }
    }
}

/// The function that makes scores from dot products of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoreForm {
    /// The factor of the dot products.
    pub scale: f64,
    /// The limit of the absolute value of scores before the bias is added; 0 for no limit.
    pub softcap: f64,
    /// The result for a row in which every score is −∞.
    pub empty: EmptyRow,
}

/// The result of attention for a row in which every score is −∞. Without any keys, the result is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EmptyRow {
    /// Zeros, because the row attends to no key.
    Zeros,
    /// NaN, because the formula of softmax divides 0 by 0.
    Nan,
    /// Zeros, also for a row in which a softmax weight is NaN. The bias is added to every score and hides no key.
    Guarded,
}

impl EmptyRow {
    const WORDS: [(EmptyRow, &'static str); 3] =
        [(EmptyRow::Nan, "nan"), (EmptyRow::Zeros, "zeros"), (EmptyRow::Guarded, "guarded")];

    /// Returns whether a bias of −∞ hides a key instead of being added to its score.
    pub fn selects(self) -> bool {
        self != EmptyRow::Guarded
    }
}

impl ScoreForm {
    /// Returns the form that the attributes describe. They are in the order of [`DEF`].
    fn of(attrs: &[Attr]) -> ScoreForm {
        let number = |n: usize| attrs.get(n).and_then(Attr::float).unwrap_or_default();
        let word = attrs.get(2).and_then(Attr::word);
        let empty = EmptyRow::WORDS.iter().find(|(_, known)| Some(*known) == word);
        ScoreForm { scale: number(0), softcap: number(1), empty: empty.map_or(EmptyRow::Nan, |(empty, _)| *empty) }
    }

    fn attrs(self) -> [Attr; 3] {
        let word = EmptyRow::WORDS.iter().find(|(empty, _)| *empty == self.empty).map_or("nan", |(_, word)| word);
        [self.scale.into(), self.softcap.into(), word.into()]
    }
}

/// The attention that a kernel computes.
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a> {
    /// The queries, over the axes of batch, queries and depth.
    pub query: &'a Body,
    /// The keys, over the axes of batch, keys and depth.
    pub key: &'a Body,
    /// The values, over the axes of batch, keys and columns.
    pub value: &'a Body,
    /// The bias, over the axes of batch, queries and keys.
    pub bias: Option<&'a Body>,
    /// The number of axes of each group.
    pub axes: AttentionAxes,
    /// The function that makes scores from dot products.
    pub form: ScoreForm,
}

impl AnchorKernel {
    /// Returns an attention of queries, keys and values.
    pub fn attention(operands: [Body; 3], bias: Option<Body>, axes: AttentionAxes, form: ScoreForm) -> AnchorKernel {
        let axes = [axes.queries, axes.keys, axes.depth, axes.columns];
        AnchorKernel::of(&DEF, &axes, operands.into_iter().chain(bias).collect(), form.attrs().into_iter().collect())
    }
}

impl Kernel {
    /// Returns the attention that the kernel is built around; `None` if it has another anchor.
    pub fn attention(&self) -> Option<Attention<'_>> {
        let ([query, key, value, bias @ ..], true) = (&self.anchor.operands[..], self.anchor.kind.is(&DEF)) else {
            return None;
        };
        let [batch, queries, keys, depth, columns] = self.groups()[..] else { return None };
        let axes = AttentionAxes { batch, queries, keys, depth, columns };
        Some(Attention { query, key, value, bias: bias.first(), axes, form: ScoreForm::of(&self.anchor.attrs) })
    }
}

fn eval(call: &AnchorCall<'_>) -> Vec<Vec<f64>> {
    let ([query, key, value, bias @ ..], &[batch, rows, keys, depth, width], [_, dtype, ..]) =
        (call.operands, call.extents, call.dtypes)
    else {
        return Vec::new();
    };
    let form = ScoreForm::of(call.attrs);
    let mut out = Vec::with_capacity(batch * rows * width);
    for b in 0..batch {
        for s in 0..rows {
            let biases = |t: usize| bias.first().map_or(0.0, |bias| bias[(b * rows + s) * keys + t]);
            let read = |t: &usize| !form.empty.selects() || biases(*t) != f64::NEG_INFINITY;
            let score = |t: usize| {
                let term = |d| query[(b * rows + s) * depth + d] * key[(b * keys + t) * depth + d];
                let x = (0..depth).map(term).sum::<f64>() * form.scale;
                let x = if form.softcap == 0.0 { x } else { form.softcap * (x / form.softcap).tanh() };
                let bias = biases(t);
                if form.empty.selects() && hides(bias, *dtype) { bias } else { x + bias }
            };
            let scores: Vec<f64> = (0..keys).map(score).collect();
            let most = scores.iter().copied().fold(f64::NEG_INFINITY, Scalar::larger);
            let weights: Vec<f64> = scores.iter().map(|x| (x - most).exp()).collect();
            let total: f64 = weights.iter().sum();
            let zeros = match form.empty {
                _ if keys == 0 => true,
                EmptyRow::Nan => false,
                EmptyRow::Zeros => most == f64::NEG_INFINITY,
                EmptyRow::Guarded => total.is_nan(),
            };
            out.extend((0..width).map(|e| {
                let sum: f64 = (0..keys).filter(read).map(|t| weights[t] * value[(b * keys + t) * width + e]).sum();
                if zeros { 0.0 } else { sum / total }
            }));
        }
    }
    vec![out]
}
