//! Reductions over axes.

use super::{
    Anchor, AttrDef,
    AttrKind::*,
    Class, Default, OpDef, Reduction, Rounding, RowNeeds, RowOp, RowResult, attr, attr_or,
    eval::{Data, Element, Eval, OpCall, Value, Whole, offsets, tensors},
    op, read,
};
use crate::{DType, Op, Scalar, attr::Number, index::strides};

/// The declaration of a [`Reduction`]: a monoid, that is an associative and commutative op on two elements, and its
/// identity.
#[derive(Debug)]
pub struct Monoid {
    /// The name in printed plans.
    pub name: &'static str,
    /// The pointwise op that combines two elements.
    pub op: &'static str,
    /// The op that combines the elements of rows.
    pub rows: &'static str,
    /// The reduction of no elements, for an element type.
    pub identity: fn(DType) -> Number,
    /// Whether each result is one of the elements, so that no result is rounded.
    pub selects: bool,
    /// Whether elements other than 0 may combine to 0 because the result underflows or wraps.
    pub vanishes: bool,
    /// Combines two integers. The caller wraps the result to the element type.
    pub integers: fn(i64, i64) -> i64,
}

/// The monoid of each [`Reduction`], in the order of the enum.
static MONOIDS: [Monoid; 4] = [
    Monoid {
        name: "sum",
        op: "add",
        rows: "reduce-sum",
        identity: |_| 0.0.into(),
        selects: false,
        vanishes: false,
        integers: i64::wrapping_add,
    },
    Monoid {
        name: "product",
        op: "mul",
        rows: "reduce-prod",
        identity: |_| 1.0.into(),
        selects: false,
        vanishes: true,
        integers: i64::wrapping_mul,
    },
    Monoid {
        name: "max",
        op: "max",
        rows: "reduce-max",
        identity: |dtype| if dtype.is_float() { f64::NEG_INFINITY.into() } else { dtype.integers().0.into() },
        selects: true,
        vanishes: false,
        integers: i64::max,
    },
    Monoid {
        name: "min",
        op: "min",
        rows: "reduce-min",
        identity: |dtype| if dtype.is_float() { f64::INFINITY.into() } else { dtype.integers().1.into() },
        selects: true,
        vanishes: false,
        integers: i64::min,
    },
];

impl Reduction {
    /// All reductions.
    pub const ALL: [Reduction; 4] = [Reduction::Sum, Reduction::Product, Reduction::Max, Reduction::Min];

    /// Returns the declaration of the reduction.
    pub fn def(self) -> &'static Monoid {
        &MONOIDS[self as usize]
    }

    /// Returns the pointwise op that combines two elements.
    pub fn op(self) -> Op {
        Op::named(self.def().op).expect("a test checks that the table has the op")
    }

    /// Returns the op that combines the elements of rows.
    pub fn rows(self) -> Op {
        Op::named(self.def().rows).expect("a test checks that the table has the op")
    }

    /// Returns the reduction of no elements, for an element type.
    pub fn identity(self, dtype: DType) -> Number {
        (self.def().identity)(dtype)
    }
}

const ATTRS: &[AttrDef] = &[attr("axes", Axes), attr_or("keep", Bool, Default::Bool(true))];

/// Declares the row operation of a reduction. Kernels reduce parts of a row in any order, and then combine the parts.
const fn row(how: Reduction) -> RowOp {
    RowOp {
        family: "reduce",
        result: RowResult::PerRow,
        needs: RowNeeds::AnyOrder,
        monoid: Some(how),
        neutral: |_, _, _| 0.into(),
        steps: |count, _| count,
        details: |_| String::new(),
    }
}

/// Declares the op of a reduction, from its name, its formula, the monoid and its evaluation.
const fn anchor(name: &'static str, doc: &'static str, how: Reduction, eval: Eval) -> OpDef {
    OpDef {
        legal: "(F number) F[A..] -> F[C..] (trailing axes) (holds keep) (reduce A axes keep C)",
        attrs: ATTRS,
        flops: read::<1>,
        ..op(
            name,
            doc,
            Class::Anchor(Anchor::Row(row(how))),
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
            "The largest element over the axes; NaN if one is NaN. For no elements, it is the least value of the type.",
            Reduction::Max,
            tensors!(greatest),
        )
    },
    OpDef {
        rounding: Rounding::OpenZero,
        ..anchor(
            "reduce-min",
            "The smallest element over the axes; NaN if one is NaN. For no elements, it is the greatest value of the type.",
            Reduction::Min,
            tensors!(least),
        )
    },
    OpDef {
        attrs: ATTRS,
        flops: read::<1>,
        ..op(
            "reduce-mean",
            "Σ x / n over the axes, where n is the number of elements for each result; NaN if n = 0.",
            Class::Composite,
            "(F float) F[A..] -> F[C..] (reduce A axes keep C)",
            tensors!(mean),
        )
    },
];

/// Returns two lists of offsets: the first element for each result, and the elements for one result relative to its
/// first.
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

/// Combines reals by a reduction.
pub(super) fn reals<S: Scalar>(how: Reduction, x: impl Iterator<Item = S>) -> S {
    match how {
        Reduction::Sum => S::sum(x),
        Reduction::Product => S::product(x),
        Reduction::Max => x.fold(S::exact(f64::NEG_INFINITY), S::larger),
        Reduction::Min => x.fold(S::exact(f64::INFINITY), S::smaller),
    }
}

/// Combines integers of a type by a reduction. Returns `None` if rounding decides one of them.
pub(super) fn integers(how: Reduction, dtype: DType, mut n: impl Iterator<Item = Whole>) -> Whole {
    n.try_fold(how.identity(dtype).int(), |a, b| b.map(|b| (how.def().integers)(a, b)))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attr, Tensor, Type};

    /// Returns the elements of an op's result for one operand.
    fn given(op: Op, operand: &Tensor, dims: &[usize]) -> Vec<Number> {
        let Eval::Tensors(eval) = op.def().eval else { panic!("{op} is evaluated element by element") };
        let (operand, result) = (Value::<f64>::from_tensor(operand), Type::tensor(operand.dtype(), dims));
        let attrs = [Attr::from(&[-1][..]), true.into()];
        let [value] = &(eval.exact)(&OpCall { operands: &[&operand], attrs: &attrs, result: &result })[..] else {
            panic!("{op} must have one result")
        };
        match &value.data {
            Data::Real(x) => x.iter().map(|&x| x.into()).collect(),
            Data::Int(n) => n.iter().map(|n| n.expect("the integers are certain").into()).collect(),
        }
    }

    #[test]
    fn the_identity_is_the_reduction_of_no_elements_and_changes_no_element() {
        for how in Reduction::ALL {
            for dtype in DType::ALL.into_iter().filter(|dtype| dtype.computes()) {
                let identity = how.identity(dtype);
                if dtype != DType::Bool {
                    let none = Tensor::from_f64(dtype, &[1, 0], []);
                    assert_eq!(given(how.rows(), &none, &[1, 1]), [identity], "{how:?} of {dtype}");
                }
                let (least, most) = dtype.integers();
                let wholes = [least, most, 0, 1].map(Number::from);
                let floats = [-1.5, f64::INFINITY, f64::NEG_INFINITY, 1.0].map(Number::from);
                for x in if dtype.is_float() { floats } else { wholes } {
                    let Eval::Elements(eval) = how.op().def().eval else { panic!("{} is pointwise", how.op()) };
                    let element = |x: Number| match dtype.is_float() {
                        true => Element::Real(x.get()),
                        false => Element::Int(Some(x.int())),
                    };
                    // The op table has no sums of truth values, so `bool` is left out.
                    if dtype != DType::Bool {
                        let both = (eval.exact)(&[element(identity), element(x)], &[], dtype).store(dtype);
                        assert_eq!(both, element(x).store(dtype), "{how:?} of {dtype}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_table_of_monoids_names_ops() {
        for (n, how) in Reduction::ALL.into_iter().enumerate() {
            assert_eq!(how as usize, n);
            assert!(how.op().def().commutative);
            assert_eq!(how.rows().row().and_then(RowOp::reduction), Some(how));
        }
    }
}
