//! Contractions: matrix products and the linear layer.

use super::{
    Anchor,
    AttrKind::*,
    Class, Default, OpDef, attr, attr_or,
    eval::{OpCall, Value, broadcast_strides, offsets, tensors},
    extent, op,
    pointwise::{ACTIVATIONS, activate, short},
};
use crate::{Scalar, Type, scalar::ExactSum};

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        legal: "(F float) F[B.. M K] F[B.. K N] -> F[B.. M N]",
        flops: matmul_flops,
        ..op(
            "matmul",
            "Σ_k a[.. m k] · b[.. k n]; outer axes broadcast.",
            Class::Anchor(Anchor::Named("matmul")),
            "(F float) F[A.. M K] F[B.. K N] -> F[C.. M N] (broadcast A B C)",
            tensors!(matmul),
        )
    },
    OpDef {
        prologue: &["tf32", "tf32"],
        flops: matmul_flops,
        ..op(
            "matmul-tf32",
            "Σ_k tf32(a[.. m k]) · tf32(b[.. k n]), summed in f32.",
            Class::Anchor(Anchor::Named("matmul")),
            "f32[B.. M K] f32[B.. K N] -> f32[B.. M N]",
            tensors!(matmul_tf32),
        )
    },
    OpDef {
        attrs: &[attr_or("act", Word(ACTIVATIONS), Default::Word("none"))],
        flops: |operands, result| matmul_flops(operands, result) + 2.0 * result.count() as f64,
        ..op(
            "linear",
            "act(x·w + b), where `act` names the activation.",
            Class::Composite,
            "(F float) F[B.. M K] F[K N] F[N]? -> F[B.. M N]",
            tensors!(linear),
        )
    },
    OpDef {
        attrs: &[attr("scale", Float)],
        flops: |operands, result| {
            let (rows, rank) = (operands[0].count() as f64, extent(operands[2], -1));
            matmul_flops(operands, result) + 2.0 * rank * (rows + result.count() as f64)
        },
        ..op(
            "lora",
            "x·w + scale·(x·a)·b: a linear layer with an adapter of low rank (Hu et al., 2021).",
            Class::Composite,
            "(F float) F[B.. M K] F[K N] F[K R] F[R N] -> F[B.. M N]",
            tensors!(lora),
        )
    },
];

/// Returns the operations of a product: a multiplication and an addition for each element of the result and each
/// element of the contracted axis.
pub(super) fn matmul_flops(operands: &[&Type], result: &Type) -> f64 {
    2.0 * result.count() as f64 * extent(operands[0], -1)
}

fn matmul<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    let [a, b] = call.operands else { unreachable!("the signature has two operands") };
    let (_, dims) = call.result();
    let outer = &dims[..dims.len() - 2];
    let (m, k, n) = (a.extent(1), a.extent(0), b.extent(0));
    // The offsets of an operand's matrices, one for each matrix of the result.
    let matrices = |x: &Value<S>| offsets(outer, &broadcast_strides(&x.dims[..x.dims.len() - 2], outer.len()), 0);
    let mut product = Vec::new();
    for (i, j) in matrices(a).into_iter().zip(matrices(b)) {
        let (i, j) = (i as usize * m * k, j as usize * k * n);
        product_of(&a.reals()[i..i + m * k], &b.reals()[j..j + k * n], (m, k, n), &mut product);
    }
    call.reals(product)
}

fn matmul_tf32<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    let operands = call.through(2, short);
    matmul(&OpCall { operands: &operands.iter().collect::<Vec<_>>(), ..*call })
}

/// Appends the product of two row-major matrices [m k] and [k n].
fn product_of<S: Scalar>(a: &[S], b: &[S], (m, k, n): (usize, usize, usize), product: &mut Vec<S>) {
    let mut sums = vec![S::Sum::default(); n];
    for i in 0..m {
        sums.fill(S::Sum::default());
        for (&x, row) in a[i * k..(i + 1) * k].iter().zip(b.chunks(n.max(1))) {
            sums.iter_mut().zip(row).for_each(|(sum, &y)| sum.add_product(x, y));
        }
        product.extend(sums.iter().map(|sum| sum.total()));
    }
}

pub(super) fn linear<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    let (x, w) = (call.operands[0], call.operands[1]);
    let (k, n) = (w.extent(1), w.extent(0));
    let rows = x.dims[..x.dims.len() - 1].iter().product();
    let mut product = Vec::new();
    product_of(x.reals(), w.reals(), (rows, k, n), &mut product);
    let kind = call.attrs[0].word().unwrap_or_default();
    let bias = call.operands.get(2).map(|b| b.reals());
    call.reals(product.into_iter().enumerate().map(|(i, y)| activate(bias.map_or(y, |b| y + b[i % n]), kind)))
}

fn lora<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    let [x, w, a, b] = call.operands else { unreachable!("the signature has four operands") };
    let (k, n, r) = (w.extent(1), w.extent(0), a.extent(0));
    let rows = x.dims[..x.dims.len() - 1].iter().product();
    let (mut whole, mut low, mut adapter) = (Vec::new(), Vec::new(), Vec::new());
    product_of(x.reals(), w.reals(), (rows, k, n), &mut whole);
    product_of(x.reals(), a.reals(), (rows, k, r), &mut low);
    product_of(&low, b.reals(), (rows, r, n), &mut adapter);
    call.reals(whole.into_iter().zip(adapter).map(|(y, z)| y + call.number(0) * z))
}
