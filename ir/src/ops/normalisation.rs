//! Softmax and normalisation layers: composites over the rows of a tensor.

use super::{
    AttrDef,
    AttrKind::*,
    Class, OpDef, attr,
    eval::{OpCall, Value, offsets, tensors},
    op, read,
};
use crate::{Scalar, index::strides};

const EPS: &[AttrDef] = &[attr("eps", Float)];

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        attrs: &[attr("axis", Axis)],
        flops: read::<12>,
        ..op(
            "softmax",
            "eˣ⁻ᵐ / Σ eˣ⁻ᵐ along an axis, where m is the largest element; NaN if all are −∞.",
            Class::Composite,
            "(F float) F[A..] -> F[A..]",
            tensors!(softmax),
        )
    },
    OpDef {
        attrs: &[attr("axis", Axis)],
        flops: read::<12>,
        ..op(
            "log-softmax",
            "x − m − log Σ eˣ⁻ᵐ along an axis, where m is the largest element.",
            Class::Composite,
            "(F float) F[A..] -> F[A..]",
            tensors!(log_softmax),
        )
    },
    OpDef {
        attrs: EPS,
        flops: read::<8>,
        ..op(
            "layernorm",
            "(x − mean) / √(variance + eps) · g + b over the last axis, b = 0 if it is not given; the variance is the mean \
             of (x − mean)².",
            Class::Composite,
            "(F float) F[B.. D] F[D] F[D]? -> F[B.. D]",
            tensors!(layernorm),
        )
    },
    OpDef {
        attrs: EPS,
        flops: read::<5>,
        ..op(
            "rmsnorm",
            "x / √(mean of x² + eps) · g over the last axis.",
            Class::Composite,
            "(F float) F[B.. D] F[D] -> F[B.. D]",
            tensors!(rmsnorm),
        )
    },
    OpDef {
        attrs: EPS,
        flops: read::<9>,
        ..op(
            "add-layernorm",
            "Both x + r and its `layernorm`.",
            Class::Composite,
            "(F float) F[B.. D] F[B.. D] F[D] F[D] -> F[B.. D] F[B.. D]",
            tensors!(add_layernorm),
        )
    },
    OpDef {
        attrs: EPS,
        flops: read::<6>,
        ..op(
            "add-rmsnorm",
            "Both x + r and its `rmsnorm`.",
            Class::Composite,
            "(F float) F[B.. D] F[B.. D] F[D] -> F[B.. D] F[B.. D]",
            tensors!(add_rmsnorm),
        )
    },
];

/// Returns exp(x − m) for each x of a row, where m is the largest element of the row, and the sum of these powers.
pub(super) fn powers<S: Scalar>(row: &[S]) -> (Vec<S>, S) {
    let most = greatest(row);
    let powers: Vec<S> = row.iter().map(|&x| (x - most).exp()).collect();
    let sum = S::sum(powers.iter().copied());
    (powers, sum)
}

/// Returns the probabilities eˣ⁻ᵐ / Σ eˣ⁻ᵐ of a row, where m is its largest element.
pub(crate) fn probabilities<S: Scalar>(row: &[S]) -> Vec<S> {
    let (powers, sum) = powers(row);
    powers.into_iter().map(|p| p / sum).collect()
}

fn log_probabilities<S: Scalar>(row: &[S]) -> Vec<S> {
    let most = greatest(row);
    let log = S::sum(row.iter().map(|&x| (x - most).exp())).ln();
    row.iter().map(|&x| x - most - log).collect()
}

fn greatest<S: Scalar>(row: &[S]) -> S {
    row.iter().copied().fold(S::exact(f64::NEG_INFINITY), S::larger)
}

/// Applies a function to the rows along the axis of the first attribute.
fn along_axis<S: Scalar>(call: &OpCall<'_, S>, f: fn(&[S]) -> Vec<S>) -> Vec<Value<S>> {
    let x = call.operands[0];
    let rank = x.dims.len();
    let axis = (call.attrs[0].int().expect("the op table declares an axis") + rank as i64) as usize;
    let stride = strides(&x.dims);
    let others: Vec<_> = (0..rank).filter(|&i| i != axis).collect();
    let pick = |of: &[usize]| others.iter().map(|&i| of[i]).collect::<Vec<_>>();
    let outer: Vec<_> = pick(&stride).into_iter().map(|s| s as i64).collect();
    let mut result = x.reals().to_vec();
    for start in offsets(&pick(&x.dims), &outer, 0) {
        let at = offsets(&[x.dims[axis]], &[stride[axis] as i64], start);
        let row: Vec<S> = at.iter().map(|&i| x.reals()[i as usize]).collect();
        at.into_iter().zip(f(&row)).for_each(|(i, y)| result[i as usize] = y);
    }
    call.reals(result)
}

fn softmax<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    along_axis(call, S::probabilities)
}

fn log_softmax<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    along_axis(call, log_probabilities)
}

fn mean<S: Scalar>(row: impl ExactSizeIterator<Item = S>) -> S {
    let count = S::exact(row.len() as f64);
    S::sum(row) / count
}

/// Returns (x − mean) / √(variance + eps) · g + b.
fn layer_normalised<S: Scalar>(row: &[S], g: &[S], b: Option<&[S]>, eps: S) -> Vec<S> {
    let centre = mean(row.iter().copied());
    let centred: Vec<S> = row.iter().map(|&x| x - centre).collect();
    let scale = (mean(centred.iter().map(|&x| x * x)) + eps).rsqrt();
    let scaled = centred.into_iter().zip(g).map(|(x, &g)| x * scale * g);
    match b {
        Some(b) => scaled.zip(b).map(|(y, &b)| y + b).collect(),
        None => scaled.collect(),
    }
}

/// Returns x / √(mean of x² + eps) · g.
fn scale_normalised<S: Scalar>(row: &[S], g: &[S], eps: S) -> Vec<S> {
    let scale = (mean(row.iter().map(|&x| x * x)) + eps).rsqrt();
    row.iter().zip(g).map(|(&x, &g)| x * scale * g).collect()
}

pub(super) fn layernorm<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    let (x, g, b) = (call.operands[0], call.operands[1], call.operands.get(2).map(|b| b.reals()));
    call.reals(x.rows().flat_map(|row| layer_normalised(row, g.reals(), b, call.number(0))))
}

fn rmsnorm<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    let [x, g] = call.operands else { unreachable!("the signature has two operands") };
    call.reals(x.rows().flat_map(|row| scale_normalised(row, g.reals(), call.number(0))))
}

/// Returns the sum of the first two operands, rounded as if it were stored, and a function of its rows.
fn with_sum<S: Scalar>(call: &OpCall<'_, S>, f: impl Fn(&[S]) -> Vec<S>) -> Vec<Value<S>> {
    let (x, r) = (call.operands[0], call.operands[1]);
    let sum = Value::from_reals(x.dtype, &x.dims, x.reals().iter().zip(r.reals()).map(|(&x, &r)| x + r));
    let normalised = Value::from_reals(x.dtype, &x.dims, sum.rows().flat_map(f));
    vec![sum, normalised]
}

fn add_layernorm<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    let (g, b) = (call.operands[2].reals(), call.operands[3].reals());
    with_sum(call, |row| layer_normalised(row, g, Some(b), call.number(0)))
}

fn add_rmsnorm<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    with_sum(call, |row| scale_normalised(row, call.operands[2].reals(), call.number(0)))
}
