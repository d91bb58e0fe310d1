//! Parts of transformers as single ops: attention on packed heads, the attention block, the encoder layer.
//!
//! Exporters write models with these ops, and a backend may have a kernel for them. Rules of the pack `decompose`
//! define them by other ops. Reference evaluation calls the evaluations of those ops, and rounds each result as if it
//! were stored.

use super::{
    AttrKind::*,
    Class, Default, OpDef,
    attention::{MASK, SCALE, SOFTCAP, WINDOW, attention_flops, rope, sdpa},
    attr, attr_or,
    contraction::linear,
    eval::{Data, OpCall, TensorFn, Value, tensors},
    extent,
    normalisation::layernorm,
    op,
    pointwise::ACTIVATIONS,
};
use crate::{Attr, Scalar, Type};

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        attrs: &[attr("heads", Int), attr("kv-heads", Int), SCALE, SOFTCAP, MASK, WINDOW],
        flops: |operands, result| attention_flops(operands, result),
        ..op(
            "mha",
            "Attention of heads that are packed along the last axis: [.. S H·D], of rank 2 or more. Each group of \
             heads / kv-heads query heads reads one key head. Masks are those of `sdpa`, of a shape that expands to [.. H S T].",
            Class::Composite,
            "(F float) (M any) F[B.. S (* G R D)] F[B.. T (* G D)] F[B.. T (* G E)] M[A..]? -> F[B.. S (* G R E)] \
             (equal heads (* G R)) (equal kv-heads G) (at-most 1 heads) (at-most 1 kv-heads) \
             (broadcasts-to A [B.. (* G R) S T]) (mask mask window M F)",
            tensors!(mha),
        )
    },
    OpDef {
        attrs: &[
            attr("heads", Int),
            attr("kv-heads", Int),
            SCALE,
            SOFTCAP,
            MASK,
            WINDOW,
            attr_or("style", Word(&["half", "adjacent"]), Default::Word("half")),
        ],
        flops: block_flops,
        ..op(
            "attention-block",
            "Self-attention with its projections. The last axis of x·w + b has queries, keys and values. `rope` rotates queries and \
             keys by the cosines and sines [S P], which change nothing if P = 0. The result is mha(…)·wo + bo. \
             Operands: x, w, b, wo, bo, cos, sin, mask.",
            Class::Composite,
            "(F float) (M any) F[B.. S X] F[X (* G (+ R 2) D)] F[(* G (+ R 2) D)] F[(* G R D) Y] F[Y] F[S P] F[S P] M[A..]? \
             -> F[B.. S Y] (equal heads (* G R)) (equal kv-heads G) (at-most 1 heads) (at-most 1 kv-heads) (at-most (* 2 P) D) \
             (broadcasts-to A [B.. (* G R) S S]) (mask mask window M F)",
            tensors!(attention_block),
        )
    },
    OpDef {
        attrs: &[
            attr("heads", Int),
            SCALE,
            MASK,
            WINDOW,
            attr("act", Word(ACTIVATIONS)),
            attr("eps1", Float),
            attr("eps2", Float),
        ],
        flops: |operands, result| {
            let inner = extent(operands[7], -1);
            block_flops(operands, result) + 4.0 * result.count() as f64 * inner + 20.0 * result.count() as f64
        },
        ..op(
            "encoder-layer",
            "A transformer's encoder layer with norms after the sums (BERT): h = layernorm(x + attention-block(x)), then \
             layernorm(h + (act(h·w1 + b1)·w2 + b2)). Operands: x; w, b, wo, bo of the attention; gain and shift of the first \
             norm; w1, b1, w2, b2; gain and shift of the second norm; mask.",
            Class::Composite,
            "(F float) (M any) F[B.. S X] F[X (* 3 H D)] F[(* 3 H D)] F[(* H D) X] F[X] F[X] F[X] F[X I] F[I] F[I X] F[X] \
             F[X] F[X] M[A..]? -> F[B.. S X] (equal heads H) (at-most 1 heads) \
             (broadcasts-to A [B.. H S S]) (mask mask window M F)",
            tensors!(encoder_layer),
        )
    },
];

/// Returns the operations of two projections and of the attention between them.
fn block_flops(operands: &[&Type], result: &Type) -> f64 {
    let (rows, width) = (operands[0].count() as f64 / extent(operands[0], -1).max(1.0), extent(operands[3], -2));
    let projections = 2.0 * (rows * operands[1].count() as f64 + result.count() as f64 * width);
    projections + rows * extent(operands[0], -2) * (4.0 * width + 10.0)
}

/// Returns the result of another op's evaluation.
fn part<S: Scalar>(f: TensorFn<S>, operands: &[&Value<S>], attrs: &[Attr], dims: &[usize]) -> Value<S> {
    let result = Type::tensor(operands[0].dtype, dims);
    f(&OpCall { operands, attrs, result: &result }).remove(0)
}

/// Swaps the axes `rows` and `heads` of a tensor with the trailing axes [rows heads width].
fn swapped<S: Scalar>(x: &Value<S>, (rows, heads, width): (usize, usize, usize), dims: Vec<usize>) -> Value<S> {
    let matrix = (rows * heads * width).max(1);
    let from = |n: usize| {
        let (outer, at) = (n / matrix * matrix, n % matrix);
        let (column, row, head) = (at % width, at / width % rows, at / width / rows);
        x.reals()[outer + (row * heads + head) * width + column]
    };
    Value { dtype: x.dtype, dims, data: Data::Real((0..x.count()).map(from).collect()) }
}

/// Returns [.. S H·D] as [.. H S D].
fn split<S: Scalar>(x: &Value<S>, heads: usize) -> Value<S> {
    let (rows, width) = (x.extent(1), x.extent(0) / heads.max(1));
    let outer = &x.dims[..x.dims.len() - 2];
    swapped(x, (rows, heads, width), [outer, &[heads, rows, width]].concat())
}

/// Returns [.. H S D] as [.. S H·D].
fn merged<S: Scalar>(x: &Value<S>) -> Value<S> {
    let (heads, rows, width) = (x.extent(2), x.extent(1), x.extent(0));
    let outer = &x.dims[..x.dims.len() - 3];
    swapped(x, (heads, rows, width), [outer, &[rows, heads * width]].concat())
}

/// Returns `len` columns of each row, from column `at` on.
fn columns<S: Scalar>(x: &Value<S>, at: usize, len: usize) -> Value<S> {
    let mut dims = x.dims.clone();
    *dims.last_mut().expect("the signature requires rows") = len;
    let elements = x.rows().flat_map(|row| row[at..at + len].iter().copied()).collect();
    Value { dtype: x.dtype, dims, data: Data::Real(elements) }
}

fn sum<S: Scalar>(x: &Value<S>, y: &Value<S>) -> Value<S> {
    Value::from_reals(x.dtype, &x.dims, x.reals().iter().zip(y.reals()).map(|(&x, &y)| x + y))
}

fn number<S>(call: &OpCall<'_, S>, attr: usize) -> usize {
    call.attrs[attr].int().and_then(|n| usize::try_from(n).ok()).expect("the signature requires at least 1")
}

/// Returns the attention of split heads, with the heads of the result merged.
fn attend<S: Scalar>(qkv: [&Value<S>; 3], mask: Option<&Value<S>>, attrs: &[Attr]) -> Value<S> {
    let [q, _, v] = qkv;
    let dims = [&q.dims[..q.dims.len() - 1], &v.dims[v.dims.len() - 1..]].concat();
    let operands: Vec<&Value<S>> = qkv.into_iter().chain(mask).collect();
    merged(&part(sdpa, &operands, attrs, &dims))
}

fn mha<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    let (heads, groups) = (number(call, 0), number(call, 1));
    let [q, k, v] = [(0, heads), (1, groups), (2, groups)].map(|(at, heads)| split(call.operands[at], heads));
    vec![attend([&q, &k, &v], call.operands.get(3).copied(), &call.attrs[2..])]
}

fn attention_block<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    let [x, w, b, wo, bo, cos, sin] = call.operands[..7] else { unreachable!("the signature has seven operands") };
    let (heads, groups) = (number(call, 0), number(call, 1));
    let p = product(x, w, b, "none");
    let width = p.extent(0) / (heads + 2 * groups).max(1);
    let (queries, keys) = (heads * width, groups * width);
    let turned = |x: Value<S>| part(rope, &[&x, cos, sin], &call.attrs[6..], &x.dims);
    let q = turned(split(&columns(&p, 0, queries), heads));
    let k = turned(split(&columns(&p, queries, keys), groups));
    let v = split(&columns(&p, queries + keys, keys), groups);
    let y = attend([&q, &k, &v], call.operands.get(7).copied(), &call.attrs[2..6]);
    vec![product(&y, wo, bo, "none")]
}

fn product<S: Scalar>(x: &Value<S>, w: &Value<S>, b: &Value<S>, act: &str) -> Value<S> {
    let dims = [&x.dims[..x.dims.len() - 1], &w.dims[1..]].concat();
    part(linear, &[x, w, b], &[act.into()], &dims)
}

fn encoder_layer<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    let [x, w, b, wo, bo, g1, s1, w1, b1, w2, b2, g2, s2] = call.operands[..13] else {
        unreachable!("the signature has thirteen operands")
    };
    let heads = number(call, 0);
    let p = product(x, w, b, "none");
    let width = p.extent(0) / 3;
    let [q, k, v] = [0, 1, 2].map(|n| split(&columns(&p, n * width, width), heads));
    let attrs = [call.attrs[1].clone(), 0.0.into(), call.attrs[2].clone(), call.attrs[3].clone()];
    let y = product(&attend([&q, &k, &v], call.operands.get(13).copied(), &attrs), wo, bo, "none");
    let norm = |x: &Value<S>, g, s, eps: usize| part(layernorm, &[x, g, s], &call.attrs[eps..=eps], &x.dims);
    let h = norm(&sum(x, &y), g1, s1, 5);
    let inner = product(&h, w1, b1, call.attrs[4].word().unwrap_or_default());
    vec![norm(&sum(&h, &product(&inner, w2, b2, "none")), g2, s2, 6)]
}
