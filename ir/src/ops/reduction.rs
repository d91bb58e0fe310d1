//! Reductions over axes.

use super::{
    Anchor, AttrDef,
    AttrKind::*,
    Class, Default, OpDef, Reduction, Rounding, attr, attr_or,
    eval::{Data, Element, Eval, OpCall, Value, Whole, limits, offsets, tensors},
    op, read,
};
use crate::{DType, Scalar, index::strides};

const ATTRS: &[AttrDef] = &[attr("axes", Axes), attr_or("keep", Bool, Default::Bool(true))];

/// Name, formula, how, and the class of its element types.
const fn anchor(name: &'static str, doc: &'static str, how: Reduction, eval: Eval) -> OpDef {
    OpDef {
        legal: "(F number) F[A..] -> F[C..] (trailing axes) (holds keep) (reduce A axes keep C)",
        attrs: ATTRS,
        flops: read::<1>,
        ..op(
            name,
            doc,
            Class::Anchor(Anchor::Reduction(how)),
            "(F number) F[A..] -> F[C..] (reduce A axes keep C)",
            eval,
        )
    }
}

pub(super) const OPS: &[OpDef] = &[
    anchor("reduce-sum", "Σ x over the axes; 0 for no elements. Integers wrap.", Reduction::Sum, tensors!(sum)),
    anchor(
        "reduce-prod",
        "Π x over the axes; 1 for no elements. Integers wrap.",
        Reduction::Product,
        tensors!(product),
    ),
    OpDef {
        rounding: Rounding::OpenZero,
        ..anchor(
            "reduce-max",
            "The largest over the axes; NaN if one is NaN, the type's least for no elements.",
            Reduction::Max,
            tensors!(greatest),
        )
    },
    OpDef {
        rounding: Rounding::OpenZero,
        ..anchor(
            "reduce-min",
            "The smallest over the axes; NaN if one is NaN, the type's greatest for no elements.",
            Reduction::Min,
            tensors!(least),
        )
    },
    OpDef {
        attrs: ATTRS,
        flops: read::<1>,
        ..op(
            "reduce-mean",
            "Σ x / n over the axes, where n is the number of elements that go into one result; NaN for none.",
            Class::Composite,
            "(F float) F[A..] -> F[C..] (reduce A axes keep C)",
            tensors!(mean),
        )
    },
];

/// How many elements go into one of the result, and where: the first of each group, and the rest relative to it.
fn groups<S: Scalar>(call: &OpCall<'_, S>) -> (Vec<i64>, Vec<i64>) {
    let dims = &call.operands[0].dims;
    let strides: Vec<_> = strides(dims).into_iter().map(|s| s as i64).collect();
    let axes = call.attrs[0].ints().expect("the op table declares axes");
    let gone = |i: usize| axes.contains(&(i as i64 - dims.len() as i64));
    let over = |inside: bool| {
        let (dims, strides): (Vec<_>, Vec<_>) =
            (0..dims.len()).filter(|&i| gone(i) == inside).map(|i| (dims[i], strides[i])).unzip();
        offsets(&dims, &strides, 0)
    };
    (over(false), over(true))
}

/// Combines reals.
pub(super) fn reals<S: Scalar>(how: Reduction, x: impl Iterator<Item = S>) -> S {
    match how {
        Reduction::Sum => S::sum(x),
        Reduction::Product => S::product(x),
        Reduction::Max => x.fold(S::exact(f64::NEG_INFINITY), S::larger),
        Reduction::Min => x.fold(S::exact(f64::INFINITY), S::smaller),
    }
}

/// Combines integers of a type, unless one of them is open.
pub(super) fn integers(how: Reduction, dtype: DType, mut n: impl Iterator<Item = Whole>) -> Whole {
    let (start, combine): (i64, fn(i64, i64) -> i64) = match how {
        Reduction::Sum => (0, i64::wrapping_add),
        Reduction::Product => (1, i64::wrapping_mul),
        Reduction::Max => (limits(dtype).0, i64::max),
        Reduction::Min => (limits(dtype).1, i64::min),
    };
    n.try_fold(start, |a, b| b.map(|b| combine(a, b)))
}

fn reduce<S: Scalar>(call: &OpCall<'_, S>, how: Reduction) -> Vec<Value<S>> {
    let (first, rest) = groups(call);
    let (dtype, dims) = call.result();
    let elements = first.iter().map(|&start| {
        let at = rest.iter().map(|&i| (start + i) as usize);
        match &call.operands[0].data {
            Data::Real(x) => Element::Real(reals(how, at.map(|i| x[i]))),
            Data::Int(n) => Element::Int(integers(how, dtype, at.map(|i| n[i]))),
        }
    });
    vec![Value::from_elements(dtype, &dims, elements)]
}

fn sum<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    reduce(call, Reduction::Sum)
}

fn product<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    reduce(call, Reduction::Product)
}

fn greatest<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    reduce(call, Reduction::Max)
}

fn least<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    reduce(call, Reduction::Min)
}

fn mean<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    let (first, rest) = groups(call);
    let (x, count) = (call.operands[0].reals(), S::exact(rest.len() as f64));
    call.reals(first.iter().map(|&start| S::sum(rest.iter().map(|&i| x[(start + i) as usize])) / count))
}
