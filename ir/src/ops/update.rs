//! Ops that replace a part of a tensor. Positions outside of the tensor are skipped, because rules turn selections
//! with this property into these ops. If such positions must be an error, the op `checked-id` comes before.

use super::{
    AttrKind::*,
    Class, OpDef, Piece, Reduction, ViewCall, Writes, attr,
    eval::{Data, Element, Eval, OpCall, Value, tensors},
    op, reduction,
};
use crate::{
    Dim, Scalar,
    index::{ANYTHING, Index},
};

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        attrs: &[attr("axis", Axis)],
        ..op(
            "update-slice",
            "x with the elements from `at` on along an axis replaced by those of `part`, whose other axes are as in x. Positions \
             outside of x are skipped. If x is a state and the result its new value, only these elements are written.",
            Class::Update(update_slice, Writes::Apart),
            "(F any) (I int) F[A..] F[B..] I[] -> F[A..] (concat A B axis [C..])",
            tensors!(updated_slice),
        )
    },
    op(
        "scatter",
        "x with element [p, ids[p, m, q], q] replaced by part[p, m, q], for each m in order, so that the last of several remains. Positions \
         outside of x are skipped.",
        Class::Update(scatter, Writes::InOrder),
        "(F any) (I int) F[P N Q] F[P M Q] I[P M Q] -> F[P N Q]",
        tensors!(last),
    ),
    combined(
        "scatter-sum",
        "x with part[p, m, q] added to element [p, ids[p, m, q], q], for each m. Positions outside of x are skipped. An element \
         to which nothing or only −0 is added keeps the sign of its zero.",
        Reduction::Sum,
        tensors!(sum),
    ),
    combined(
        "scatter-prod",
        "x with element [p, ids[p, m, q], q] multiplied by part[p, m, q], for each m. Positions outside of x are skipped.",
        Reduction::Product,
        tensors!(product),
    ),
    combined(
        "scatter-max",
        "x with element [p, ids[p, m, q], q] raised to part[p, m, q], for each m; NaN if one is NaN. Positions outside of x are skipped.",
        Reduction::Max,
        tensors!(greatest),
    ),
    combined(
        "scatter-min",
        "x with element [p, ids[p, m, q], q] lowered to part[p, m, q], for each m; NaN if one is NaN. Positions outside of x are skipped.",
        Reduction::Min,
        tensors!(least),
    ),
];

/// Declares an op that combines written elements with the tensor's contents.
const fn combined(name: &'static str, doc: &'static str, how: Reduction, eval: Eval) -> OpDef {
    OpDef {
        flops: |operands, _| operands[1].count() as f64,
        ..op(
            name,
            doc,
            Class::Update(scatter, Writes::Combined(how)),
            "(F number) (I int) F[P N Q] F[P M Q] I[P M Q] -> F[P N Q]",
            eval,
        )
    }
}

/// Returns guards that restrict a coordinate to an axis of this extent.
fn within(at: &Index, extent: &Dim) -> Vec<(Index, std::ops::Range<i64>)> {
    match extent {
        Dim::Known(extent) => vec![(at.clone(), 0..*extent)],
        extent => vec![(at.clone(), 0..ANYTHING.end), (at.plus(&Index::extent(extent).times(-1)), ANYTHING.start..0)],
    }
}

fn update_slice(call: &ViewCall<'_>) -> Piece {
    let axis = call.attrs[0].int().expect("the op table declares an axis") + call.operands[0].rank() as i64;
    let mut at = call.at.to_vec();
    let axis = axis as usize;
    at[axis] = at[axis].plus(&Index::gathered());
    Piece { guards: within(&at[axis], &call.result[axis]), operand: 0, at, via: Some((2, Vec::new())) }
}

fn scatter(call: &ViewCall<'_>) -> Piece {
    let [p, _, q] = call.at else { unreachable!("the signature has three axes") };
    let at = vec![p.clone(), Index::gathered(), q.clone()];
    Piece { guards: within(&at[1], &call.result[1]), operand: 0, at, via: Some((2, call.at.to_vec())) }
}

fn updated_slice<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    let [x, part, at] = call.operands else { unreachable!("the signature has three operands") };
    let axis = (call.attrs[0].int().expect("the op table declares an axis") + x.dims.len() as i64) as usize;
    let (extent, rows, inner) = (x.dims[axis], part.dims[axis], x.dims[axis + 1..].iter().product::<usize>());
    let element = |n: usize| {
        let Element::Int(Some(at)) = at.get(0) else { return Element::open(x.dtype) };
        let (outer, place) = (n / inner / extent, n / inner % extent);
        match usize::try_from((place as i64).wrapping_sub(at)) {
            Ok(row) if row < rows => part.get((outer * rows + row) * inner + n % inner),
            _ => x.get(n),
        }
    };
    vec![Value::from_elements(x.dtype, &x.dims, (0..x.count()).map(element))]
}

/// Returns for each element of x the list of its updates, in order. The list is `None` if rounding decides which
/// updates apply.
fn updates<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Option<Vec<usize>>> {
    let [x, part, ids] = call.operands else { unreachable!("the signature has three operands") };
    let [places, columns] = [x.extent(1), x.extent(0)];
    let mut updates = vec![Some(Vec::new()); x.count()];
    for n in 0..part.count() {
        let first = n / columns / part.extent(1) * places * columns + n % columns;
        match ids.get(n) {
            Element::Int(Some(id)) if (0..places as i64).contains(&id) => {
                updates[first + id as usize * columns].iter_mut().for_each(|to| to.push(n));
            }
            Element::Int(Some(_)) => {}
            _ => (0..places).for_each(|place| updates[first + place * columns] = None),
        }
    }
    updates
}

fn last<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    let [x, part] = [call.operands[0], call.operands[1]];
    let element = |(n, updates): (usize, Option<Vec<usize>>)| match updates {
        Some(updates) => updates.last().map_or_else(|| x.get(n), |&last| part.get(last)),
        None => Element::open(x.dtype),
    };
    vec![Value::from_elements(x.dtype, &x.dims, updates(call).into_iter().enumerate().map(element))]
}

fn combine<S: Scalar>(call: &OpCall<'_, S>, how: Reduction) -> Vec<Value<S>> {
    let [x, part] = [call.operands[0], call.operands[1]];
    let element = |(n, updates): (usize, Option<Vec<usize>>)| {
        let Some(updates) = updates else { return Element::open(x.dtype) };
        match (&x.data, &part.data) {
            (Data::Real(x), Data::Real(part)) => {
                let counts = |m: &&usize| how != Reduction::Sum || !is_minus_zero(part[**m]);
                let mut told = updates.iter().filter(counts).map(|&m| part[m]).peekable();
                match told.peek() {
                    Some(_) => Element::Real(reduction::reals(how, [x[n]].into_iter().chain(told))),
                    None => Element::Real(x[n]),
                }
            }
            (Data::Int(old), Data::Int(part)) => {
                let all = [old[n]].into_iter().chain(updates.iter().map(|&m| part[m]));
                Element::Int(reduction::integers(how, x.dtype, all))
            }
            _ => unreachable!("the signature has one type for both"),
        }
    };
    vec![Value::from_elements(x.dtype, &x.dims, updates(call).into_iter().enumerate().map(element))]
}

/// Returns whether a number is certainly −0. Adding −0 changes no number, but in a sum that starts from 0 the element
/// would lose the sign of its zero.
fn is_minus_zero<S: Scalar>(x: S) -> bool {
    x.certain().is_some_and(|x| x == 0.0 && x.is_sign_negative())
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
