//! Scans, and ranks of elements within a row.

use std::rc::Rc;

use eutectic_ir::{DType, ops::Reduction};

use super::build::{Arithmetic, Semantics, one, rounded};
use crate::{
    call::{Call, Value, reduce},
    facts::{Res, stop},
    shape::{Tensor, find},
    term::{Kind, Poly, T, Term, Ty, apply, num},
};

pub(super) const OPS: &[(&str, Semantics)] = &[
    ("scan-sum", |call| scan(call, Reduction::Sum)),
    ("scan-prod", |call| scan(call, Reduction::Product)),
    ("scan-max", |call| scan(call, Reduction::Max)),
    ("scan-min", |call| scan(call, Reduction::Min)),
    ("scan-linear", linear),
    ("ranking", ranking),
];

/// The axis and direction of a scan. They determine the elements that each partial result combines.
struct Steps {
    axis: usize,
    extent: Poly,
    reverse: bool,
    exclusive: bool,
}

/// The range of elements along the axis that a partial result combines.
struct Taken {
    first: Poly,
    count: Poly,
}

impl Steps {
    fn new(call: &Call) -> Res<Steps> {
        let shape = &call.args[0].shape;
        let axis = call.axis(0, shape)?;
        let (Value::Bool(reverse), Value::Bool(exclusive)) = (&call.attrs[1], &call.attrs[2]) else {
            return stop("an attribute must be a truth value");
        };
        Ok(Steps { axis, extent: shape[axis].extent.clone(), reverse: *reverse, exclusive: *exclusive })
    }

    /// Returns the range of elements that the result at a place combines.
    fn taken(&self, own: &Poly) -> Taken {
        let one = Poly::int(1);
        match (self.reverse, self.exclusive) {
            (false, false) => Taken { first: Poly::zero(), count: own + &one },
            (false, true) => Taken { first: Poly::zero(), count: own.clone() },
            (true, false) => Taken { first: own.clone(), count: &self.extent - own },
            (true, true) => Taken { first: own + &one, count: &(&self.extent - own) - &one },
        }
    }

    /// Returns the index of another element of the same row.
    fn moved(&self, at: &[Poly], to: Poly) -> Vec<Poly> {
        let mut at = at.to_vec();
        at[self.axis] = to;
        at
    }
}

fn scan(call: &Call, how: Reduction) -> Res<Vec<Tensor>> {
    let (x, case, steps, op) = (call.args[0].clone(), Rc::clone(&call.case), Steps::new(call)?, call.op);
    let ty = x.ty.clone();
    one(Tensor::new(ty.clone(), x.shape.clone(), move |at| {
        let Taken { first, count } = steps.taken(&at[steps.axis]);
        let all = reduce(&case, how, &ty, &[count], |j| (x.at)(&steps.moved(at, &first + &j[0])))?;
        let exact = how.def().selects || ty.kind == Kind::Int;
        Ok(if exact { all } else { rounded(op, &ty, all) })
    }))
}

/// Evaluates hᵢ = aᵢ·hᵢ₋₁ + bᵢ as Σ bⱼ·Π aₖ, over each j up to i and each k after j up to i.
fn linear(call: &Call) -> Res<Vec<Tensor>> {
    let (a, b, case, steps) = (call.args[0].clone(), call.args[1].clone(), Rc::clone(&call.case), Steps::new(call)?);
    let ty = a.ty.clone();
    one(Tensor::new(ty.clone(), a.shape.clone(), move |at| {
        let Taken { first, count } = steps.taken(&at[steps.axis]);
        let sum = reduce(&case, Reduction::Sum, &ty, std::slice::from_ref(&count), |j| {
            let place = &first + &j[0];
            let next = &place + &Poly::int(1);
            let later = match steps.reverse {
                true => Taken { first: first.clone(), count: j[0].clone() },
                false => Taken { count: &(&first + &count) - &next, first: next },
            };
            let factor = |k: &[Poly]| -> Res<T> { (a.at)(&steps.moved(at, &later.first + &k[0])) };
            let factors = reduce(&case, Reduction::Product, &ty, std::slice::from_ref(&later.count), factor)?;
            Ok(Arithmetic(ty.clone()).mul(&(b.at)(&steps.moved(at, place))?, &factors))
        })?;
        Ok(if ty.kind == Kind::Int { sum } else { rounded("scan-linear", &ty, sum) })
    }))
}

/// Returns whether one element comes before another in sorted order: it is smaller (larger if `descending`), or equal
/// and at an earlier place. NaN is the largest.
fn before(other: &T, own: &T, kind: Kind, descending: bool, earlier: T) -> T {
    let of = |op: &str, args: &[&T]| apply(op, &Ty::bool(), args.iter().map(|t| T::clone(t)).collect());
    let nan = |t: &T| of("is-nan", &[t]);
    let (mut smaller, mut equal) = (of(if descending { "gt" } else { "lt" }, &[other, own]), of("eq", &[other, own]));
    if kind == Kind::Float {
        let (last, first) = if descending { (nan(other), nan(own)) } else { (nan(own), nan(other)) };
        smaller = of("or", &[&smaller, &of("and", &[&last, &of("not", &[&first])])]);
        equal = of("or", &[&equal, &of("and", &[&nan(own), &nan(other)])]);
    }
    of("or", &[&smaller, &of("and", &[&equal, &earlier])])
}

fn ranking(call: &Call) -> Res<Vec<Tensor>> {
    let (x, case, most) = (call.args[0].clone(), Rc::clone(&call.case), call.int(0)?);
    let Value::Bool(descending) = call.attrs[1] else { return stop("an attribute must be a truth value") };
    let axis = find(&x.shape, &Poly::int(1))?;
    let (ty, extent) = (Ty::fixed(DType::I32), x.shape[axis].extent.clone());
    one(Tensor::new(ty.clone(), x.shape.clone(), move |at| {
        let own = (x.at)(at)?;
        let rank = reduce(&case, Reduction::Sum, &ty, std::slice::from_ref(&extent), |j| {
            let mut other = at.to_vec();
            other[axis] = j[0].clone();
            let places = [&j[0], &at[axis]].map(|p| Rc::new(Term::Index(p.clone())));
            let earlier = apply("lt", &Ty::bool(), places.to_vec());
            Ok(apply("cast", &ty, vec![before(&(x.at)(&other)?, &own, x.ty.kind, descending, earlier)]))
        })?;
        let rank = apply("min", &ty, vec![rank, Rc::new(Term::Index(most.clone()))]);
        Ok(if most.known().is_some_and(|n| n >= 0) { rank } else { apply("max", &ty, vec![rank, num(0.0)]) })
    }))
}
