//! Updates: tensors with a part replaced by another tensor, or combined with it.

use std::rc::Rc;

use eutectic_ir::{
    Class, DType, Op,
    ops::{Reduction, Writes},
};

use super::{
    build::{Semantics, one, rounded},
    view,
};
use crate::{
    bits,
    call::{Call, reduce},
    facts::{Res, stop},
    integers,
    lower::Truths,
    shape::{Tensor, show},
    term::{Kind, Poly, Term, Ty, apply, choose, num, value},
};

pub(super) const OPS: &[(&str, Semantics)] = &[
    ("update-slice", update_slice),
    ("scatter", scatter_last),
    ("scatter-sum", |call| scatter(call, Reduction::Sum)),
    ("scatter-prod", |call| scatter(call, Reduction::Product)),
    ("scatter-max", |call| scatter(call, Reduction::Max)),
    ("scatter-min", |call| scatter(call, Reduction::Min)),
];

fn update_slice(call: &Call) -> Res<Vec<Tensor>> {
    let (x, part, start) = (call.args[0].clone(), call.args[1].clone(), call.args[2].clone());
    let axis = call.axis(0, &x.shape)?;
    let fits = (0..x.shape.len()).all(|n| n == axis || part.shape.get(n) == Some(&x.shape[n]));
    if !fits {
        return stop(format!(
            "it is undecided whether {} and {} differ along one axis only",
            show(&x.shape),
            show(&part.shape)
        ));
    }
    let case = Rc::clone(&call.case);
    one(Tensor::new(x.ty.clone(), x.shape.clone(), move |at| {
        let mut from = at.to_vec();
        let start = bits::normal(&case, &(start.at)(&[])?, &Truths::new())?;
        from[axis] = &at[axis] - &integers::id(&case.facts, start);
        view::within(&case, &from[axis], &part.shape[axis].extent, || (part.at)(&from), || (x.at)(at))
    }))
}

/// A function from the index of an element in the part to the index at which it is written.
pub type Target = Box<dyn Fn(&[Poly]) -> Res<Vec<Poly>>>;

/// Returns the write positions of an update, or `None` for other ops.
pub fn target(call: &Call) -> Option<Res<Target>> {
    match Op::named(call.op)?.def().class {
        Class::Update(_, Writes::Apart) => Some(along_an_axis(call)),
        Class::Update(..) => Some(by_ids(call)),
        _ => None,
    }
}

fn along_an_axis(call: &Call) -> Res<Target> {
    let (axis, start, case) = (call.axis(0, &call.args[0].shape)?, call.args[2].clone(), Rc::clone(&call.case));
    Ok(Box::new(move |from| {
        let start = bits::normal(&case, &(start.at)(&[])?, &Truths::new())?;
        let mut to = from.to_vec();
        to[axis] = &to[axis] + &integers::id(&case.facts, start);
        Ok(to)
    }))
}

/// Returns the target of a scatter: element [p, m, q] of the part is written to [p, ids[p, m, q], q].
fn by_ids(call: &Call) -> Res<Target> {
    let (x, part, ids, case) = (&call.args[0], &call.args[1], call.args[2].clone(), Rc::clone(&call.case));
    let fits = x.shape.len() == 3
        && part.shape == ids.shape
        && [0, 2].iter().all(|n| part.shape.get(*n) == Some(&x.shape[*n]));
    if !fits || x.shape.iter().any(|item| item.rank.is_some()) {
        return stop("the shapes of a scatter do not fit");
    }
    Ok(Box::new(move |from| {
        let id = integers::id(&case.facts, bits::normal(&case, &(ids.at)(from)?, &Truths::new())?);
        let [p, _, q] = from else { return stop("the operands of a scatter must have three axes") };
        Ok(vec![p.clone(), id, q.clone()])
    }))
}

/// Returns the conditions under which an element of the part is written to a place along the middle axis.
fn meets(target: &Target, from: &[Poly], place: &Poly) -> Res<Vec<Poly>> {
    let distance = &target(from)?[1] - place;
    Ok(vec![distance.clone(), &Poly::zero() - &distance])
}

/// Evaluates a scatter. Element [p, n, q] is part[p, m, q] for the last m with ids[p, m, q] = n. If there is no such m,
/// it is x[p, n, q].
fn scatter_last(call: &Call) -> Res<Vec<Tensor>> {
    let (x, part, target) = (call.args[0].clone(), call.args[1].clone(), by_ids(call)?);
    let (case, places, count) = (Rc::clone(&call.case), Ty::fixed(DType::I64), part.shape[1].extent.clone());
    one(Tensor::new(x.ty.clone(), x.shape.clone(), move |at| {
        let [p, n, q] = at else { return stop("the operands of a scatter must have three axes") };
        let own = (x.at)(at)?;
        if count == Poly::zero() {
            return Ok(own);
        }
        let last = reduce(&case, Reduction::Max, &places, std::slice::from_ref(&count), |m| {
            let number = Rc::new(Term::Index(m[0].clone()));
            Ok(choose(meets(&target, &[p.clone(), m[0].clone(), q.clone()], n)?, number, num(-1.0)))
        })?;
        let last = value(last);
        let there = [last.clone(), &(&count - &last) - &Poly::int(1)];
        let written = case.facts.assume(there, || (part.at)(&[p.clone(), last.clone(), q.clone()]))?;
        Ok(choose(vec![last], written, own))
    }))
}

/// Evaluates a scatter that combines. Element [p, n, q] is x[p, n, q] combined with part[p, m, q] for each m with
/// ids[p, m, q] = n.
fn scatter(call: &Call, how: Reduction) -> Res<Vec<Tensor>> {
    let (x, part, target) = (call.args[0].clone(), call.args[1].clone(), by_ids(call)?);
    let (case, op, ty, count) = (Rc::clone(&call.case), call.op, x.ty.clone(), part.shape[1].extent.clone());
    one(Tensor::new(ty.clone(), x.shape.clone(), move |at| {
        let [p, n, q] = at else { return stop("the operands of a scatter must have three axes") };
        let own = (x.at)(at)?;
        if count == Poly::zero() {
            return Ok(own);
        }
        let written = reduce(&case, how, &ty, std::slice::from_ref(&count), |m| {
            let from = [p.clone(), m[0].clone(), q.clone()];
            let neutral = num(how.identity(ty.dtype.unwrap_or(DType::F64)).get());
            Ok(choose(meets(&target, &from, n)?, (part.at)(&from)?, neutral))
        })?;
        let both = apply(how.def().op, &ty, vec![own, written]);
        let exact = how.def().selects || ty.kind == Kind::Int;
        Ok(if exact { both } else { rounded(op, &ty, both) })
    }))
}
