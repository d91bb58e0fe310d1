//! Scans: running combinations of elements along an axis.

use super::{
    Anchor, AttrDef,
    AttrKind::*,
    Class, Default, OpDef, Reduction, Rounding, RowNeeds, RowOp, RowResult, attr_or,
    eval::{Data, Element, Eval, OpCall, Value, Whole, tensors},
    op, read,
};
use crate::{Attr, Scalar, index::strides, scalar::ExactSum};

const ATTRS: &[AttrDef] = &[
    attr_or("axis", Axis, Default::Int(-1)),
    attr_or("reverse", Bool, Default::Bool(false)),
    attr_or("exclusive", Bool, Default::Bool(false)),
];

/// Declares the row operation of a scan. Results are computed in order, and parts of a row are combined.
const fn row(monoid: Option<Reduction>) -> RowOp {
    RowOp {
        family: "scan",
        result: RowResult::PerElement,
        needs: RowNeeds::Prefix,
        monoid,
        // For a linear recurrence, the first operand is 1 and the second is 0, so that the state stays unchanged.
        neutral: |operand, _, _| i64::from(operand == 0).into(),
        steps: |count, _| count,
        details: |attrs| {
            let [reverse, exclusive] = [&attrs[1], &attrs[2]].map(flag);
            format!("{}{}", if reverse { " reverse" } else { "" }, if exclusive { " exclusive" } else { "" })
        },
    }
}

/// Declares the scan of a monoid.
const fn scan(name: &'static str, doc: &'static str, how: Reduction, eval: Eval) -> OpDef {
    OpDef {
        legal: "(F number) F[A..] -> F[A..] (last axis)",
        attrs: ATTRS,
        flops: read::<1>,
        ..op(name, doc, Class::Anchor(Anchor::Row(row(Some(how)))), "(F number) F[A..] -> F[A..]", eval)
    }
}

pub(super) const OPS: &[OpDef] = &[
    scan(
        "scan-sum",
        "The sum of the elements up to each one along an axis; `exclusive` leaves out the element itself, and `reverse` sums the elements from it \
         on. Integers wrap.",
        Reduction::Sum,
        tensors!(sum),
    ),
    scan(
        "scan-prod",
        "The product of the elements up to each one along an axis, with the attributes of `scan-sum`. Integers wrap.",
        Reduction::Product,
        tensors!(product),
    ),
    OpDef {
        rounding: Rounding::OpenZero,
        ..scan(
            "scan-max",
            "The largest of the elements up to each one along an axis, NaN from the first NaN on, with the attributes of `scan-sum`; the \
             type's least of no elements.",
            Reduction::Max,
            tensors!(greatest),
        )
    },
    OpDef {
        rounding: Rounding::OpenZero,
        ..scan(
            "scan-min",
            "The smallest of the elements up to each one along an axis, NaN from the first NaN on, with the attributes of `scan-sum`; \
             the type's greatest of no elements.",
            Reduction::Min,
            tensors!(least),
        )
    },
    OpDef {
        legal: "(F number) F[A..] F[A..] -> F[A..] (last axis)",
        attrs: ATTRS,
        flops: read::<2>,
        ..op(
            "scan-linear",
            "The linear recurrence hᵢ = aᵢ hᵢ₋₁ + bᵢ along an axis, from 0 on, of a and b, with the attributes of `scan-sum`: `exclusive` gives \
             hᵢ₋₁. Parts of a row are combined by (a, b) ∘ (c, d) = (ac, cb + d), so that a state after an infinite factor may be NaN. Integers wrap.",
            Class::Anchor(Anchor::Row(row(None))),
            "(F number) F[A..] F[A..] -> F[A..]",
            tensors!(linear),
        )
    },
];

fn flag(attr: &Attr) -> bool {
    attr.bool().expect("the op table declares a truth value")
}

/// Evaluates a scan. `take` adds the element at an offset to the state, and `value` returns the result for a state.
fn running<S: Scalar, T: Clone>(
    call: &OpCall<'_, S>,
    start: T,
    take: impl Fn(&mut T, usize),
    value: impl Fn(&T) -> Element<S>,
) -> Vec<Value<S>> {
    let (dtype, dims) = call.result();
    let axis = call.attrs[0].int().expect("the op table declares an axis");
    let axis = (dims.len() as i64 + axis) as usize;
    let [reverse, exclusive] = [1, 2].map(|at| flag(&call.attrs[at]));
    let (count, stride) = (dims[axis], strides(&dims)[axis]);
    let total: usize = dims.iter().product();
    let mut results = vec![Element::open(dtype); total];
    for line in 0..total / count.max(1) {
        let first = line / stride * stride * count + line % stride;
        let mut state = start.clone();
        for n in 0..count {
            let at = first + if reverse { count - 1 - n } else { n } * stride;
            let before = exclusive.then(|| value(&state));
            take(&mut state, at);
            results[at] = before.unwrap_or_else(|| value(&state));
        }
    }
    vec![Value::from_elements(dtype, &dims, results.into_iter())]
}

fn combine<S: Scalar>(call: &OpCall<'_, S>, how: Reduction) -> Vec<Value<S>> {
    let (dtype, _) = call.result();
    match &call.operands[0].data {
        Data::Int(x) => {
            let take = |state: &mut Whole, at: usize| {
                *state = state.zip(x[at]).map(|(a, b)| dtype.wrap((how.def().integers)(a, b)));
            };
            running(call, Some(how.identity(dtype).int()), take, |state| Element::Int(*state))
        }
        Data::Real(x) if how == Reduction::Sum => {
            running(call, S::Sum::default(), |sum, at| sum.add(x[at]), |sum| Element::Real(sum.total()))
        }
        Data::Real(x) => {
            let step: fn(S, S) -> S = match how {
                Reduction::Sum => S::add,
                Reduction::Product => S::mul,
                Reduction::Max => S::larger,
                Reduction::Min => S::smaller,
            };
            let take = |state: &mut S, at: usize| *state = step(*state, x[at]);
            running(call, S::exact(how.identity(dtype).get()), take, |state| Element::Real(*state))
        }
    }
}

fn sum<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    combine(call, Reduction::Sum)
}

fn product<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    combine(call, Reduction::Product)
}

fn greatest<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    combine(call, Reduction::Max)
}

fn least<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    combine(call, Reduction::Min)
}

fn linear<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    match [0, 1].map(|n| &call.operands[n].data) {
        [Data::Real(a), Data::Real(b)] => {
            let take = |state: &mut S::Sum, at: usize| {
                state.scale(a[at]);
                state.add(b[at]);
            };
            running(call, S::Sum::default(), take, |state| Element::Real(state.total()))
        }
        [Data::Int(a), Data::Int(b)] => {
            let (dtype, _) = call.result();
            let take = |state: &mut Whole, at: usize| {
                let step = |state: i64| Some(dtype.wrap(a[at]?.wrapping_mul(state).wrapping_add(b[at]?)));
                *state = state.and_then(step);
            };
            running(call, Some(0), take, |state| Element::Int(*state))
        }
        _ => unreachable!("the signature requires one element type"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Op, Tensor, Type};

    fn scanned(op: &str, operands: &[Tensor], attrs: [Attr; 3]) -> Vec<f64> {
        let Eval::Tensors(eval) = Op::named(op).unwrap().def().eval else {
            panic!("{op} is evaluated element by element")
        };
        let result = Type::tensor(operands[0].dtype(), operands[0].dims());
        let operands: Vec<_> = operands.iter().map(Value::<f64>::from_tensor).collect();
        let operands: Vec<_> = operands.iter().collect();
        (eval.exact)(&OpCall { operands: &operands, attrs: &attrs, result: &result })[0].to_tensor().to_f64()
    }

    fn attrs(axis: i64, reverse: bool, exclusive: bool) -> [Attr; 3] {
        [axis.into(), reverse.into(), exclusive.into()]
    }

    #[test]
    fn scans_go_along_any_axis_in_both_directions() {
        let x = Tensor::from_f64(DType::F32, &[2, 3], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let of = |op, attrs| scanned(op, std::slice::from_ref(&x), attrs);
        assert_eq!(of("scan-sum", attrs(-1, false, false)), [1.0, 3.0, 6.0, 4.0, 9.0, 15.0]);
        assert_eq!(of("scan-sum", attrs(-2, false, false)), [1.0, 2.0, 3.0, 5.0, 7.0, 9.0]);
        assert_eq!(of("scan-prod", attrs(-1, true, false)), [6.0, 6.0, 3.0, 120.0, 30.0, 6.0]);
        assert_eq!(of("scan-prod", attrs(-1, true, true)), [6.0, 3.0, 1.0, 30.0, 6.0, 1.0]);
        let least = f64::INFINITY;
        assert_eq!(of("scan-min", attrs(-1, false, true)), [least, 1.0, 1.0, least, 4.0, 4.0]);
        assert_eq!(of("scan-max", attrs(-2, true, false)), [4.0, 5.0, 6.0, 4.0, 5.0, 6.0]);
    }

    #[test]
    fn a_recurrence_scales_its_state() {
        let a = Tensor::from_f64(DType::F64, &[4], [9.0, 0.5, -2.0, 0.0]);
        let b = Tensor::from_f64(DType::F64, &[4], [1.0, 1.0, 1.0, 7.0]);
        let of = |attrs| scanned("scan-linear", &[a.clone(), b.clone()], attrs);
        assert_eq!(of(attrs(-1, false, false)), [1.0, 1.5, -2.0, 7.0]);
        assert_eq!(of(attrs(-1, false, true)), [0.0, 1.0, 1.5, -2.0]);
        assert_eq!(of(attrs(-1, true, false)), [-48.5, -5.5, -13.0, 7.0]);
    }

    #[test]
    fn integers_wrap_and_no_elements_have_no_results() {
        let x = Tensor::from_i64(DType::I8, &[3], [100, 100, 100]);
        assert_eq!(scanned("scan-sum", std::slice::from_ref(&x), attrs(-1, false, false)), [100.0, -56.0, 44.0]);
        assert_eq!(scanned("scan-linear", &[x.clone(), x], attrs(-1, false, false)), [100.0, 116.0, -76.0]);
        for dims in [[0, 3], [3, 0]] {
            let none = Tensor::from_f64(DType::F32, &dims, []);
            assert_eq!(scanned("scan-sum", &[none], attrs(-2, false, false)), [0.0; 0]);
        }
    }
}
