//! The ranking of the elements of a row by their order.

use std::cmp::Ordering;

use super::{
    Anchor,
    AttrKind::*,
    Class, Default, OpDef, Rounding, RowNeeds, RowOp, RowResult, attr, attr_or,
    eval::{Data, Element, OpCall, Value, Whole, tensors},
    op, read,
};
use crate::{Attr, Op, Scalar};

const ROW: RowOp = RowOp {
    family: "ranking",
    result: RowResult::PerElement,
    needs: RowNeeds::Whole,
    monoid: None,
    // The element that sorts after all others, wherever it is in the row.
    neutral: |_, dtype, attrs| match (dtype.is_float(), descending(attrs)) {
        (true, false) => f64::NAN.into(),
        (true, true) => f64::NEG_INFINITY.into(),
        (false, false) => dtype.integers().1.into(),
        (false, true) => dtype.integers().0.into(),
    },
    // A radix sort makes keys and partitions them, and then the first `most` elements are sorted.
    steps: |count, attrs| 3.0 * count + count.min(most(attrs) as f64) * (most(attrs) as f64).max(1.0).log2(),
    details: |attrs| format!("{} most={}", if descending(attrs) { " descending" } else { "" }, most(attrs)),
};

pub(super) const OPS: &[OpDef] = &[OpDef {
    attrs: &[attr("most", Int), attr_or("descending", Bool, Default::Bool(false))],
    observes: |_, _| true,
    rounding: Rounding::Correct,
    flops: read::<16>,
    ..op(
        "ranking",
        "For each element, the number of elements of its row (the last axis) that sort before it: smaller ones, or larger ones with \
         `descending`, and equal ones at earlier positions. NaN is larger than all numbers, and NaNs are equal, as in NumPy's sort. \
         The result is at most `most`.",
        Class::Anchor(Anchor::Row(ROW)),
        "(F number) F[B.. D] -> i32[B.. D]",
        tensors!(ranking),
    )
}];

/// The attributes of a ranking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// The number of leading elements, in sorted order, whose rank is exact. All later elements have the rank `most`.
    pub most: usize,
    /// Whether larger elements come first.
    pub descending: bool,
}

impl Order {
    /// Returns the order of a ranking; `None` for other ops.
    pub fn of(op: Op, attrs: &[Attr]) -> Option<Order> {
        let is_ranking = op.row().is_some_and(|row| !row.is_per_row() && row.needs == RowNeeds::Whole);
        is_ranking.then(|| Order { most: usize::try_from(most(attrs)).unwrap_or(0), descending: descending(attrs) })
    }
}

/// Returns the attribute `most`: ranks are less than it, or equal to it for later elements.
fn most(attrs: &[Attr]) -> i64 {
    attrs[0].int().expect("the op table declares an integer").max(0)
}

/// Returns whether larger elements come first.
fn descending(attrs: &[Attr]) -> bool {
    attrs[1].bool().expect("the op table declares a truth value")
}

/// Returns whether `other` sorts before `own`. If they are equal, `earlier` decides.
fn comes_before<S: Scalar>(other: S, own: S, descending: bool, earlier: bool) -> Whole {
    let before = match (other.value().is_nan(), own.value().is_nan()) {
        (true, true) => earlier,
        (true, false) => descending,
        (false, true) => !descending,
        (false, false) => {
            let holds: fn(Option<Ordering>) -> bool = match (descending, earlier) {
                (false, false) => |order| order == Some(Ordering::Less),
                (false, true) => |order| order.is_some_and(Ordering::is_le),
                (true, false) => |order| order == Some(Ordering::Greater),
                (true, true) => |order| order.is_some_and(Ordering::is_ge),
            };
            return S::judge(other, own, holds).map(i64::from);
        }
    };
    Some(i64::from(before))
}

/// Returns whether the integer `other` sorts before `own`. If they are equal, `earlier` decides.
fn int_comes_before(other: Whole, own: Whole, descending: bool, earlier: bool) -> Whole {
    let order = if descending { own?.cmp(&other?) } else { other?.cmp(&own?) };
    Some(i64::from(order.is_lt() || earlier && order.is_eq()))
}

fn ranking<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    let x = call.operands[0];
    let (dtype, dims) = call.result();
    let (most, descending) = (most(call.attrs), descending(call.attrs));
    let row = x.extent(0);
    let rank = |n: usize| {
        let first = n / row * row;
        let before = |other: usize| match &x.data {
            Data::Real(x) => comes_before(x[other], x[n], descending, other < n),
            Data::Int(x) => int_comes_before(x[other], x[n], descending, other < n),
        };
        let rank: Whole = (first..first + row).filter(|&other| other != n).map(before).sum();
        Element::Int(rank.map(|rank| rank.min(most)))
    };
    vec![Value::from_elements(dtype, &dims, (0..x.count()).map(rank))]
}
