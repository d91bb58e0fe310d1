//! Tensors with a part of them replaced, or combined with what is written there.

use std::rc::Rc;

use eutectic_ir::{DType, ops::Reduction};

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
    term::{Kind, Poly, apply, choose, num, value},
};

pub(super) const OPS: &[(&str, Semantics)] = &[
    ("update-slice", update_slice),
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
        return stop(format!("whether {} and {} differ along one axis only", show(&x.shape), show(&part.shape)));
    }
    let case = Rc::clone(&call.case);
    one(Tensor::new(x.ty.clone(), x.shape.clone(), move |at| {
        let mut from = at.to_vec();
        let start = bits::normal(&case, &(start.at)(&[])?, &Truths::new())?;
        from[axis] = &at[axis] - &integers::id(&case.facts, start);
        view::within(&case, &from[axis], &part.shape[axis].extent, || (part.at)(&from), || (x.at)(at))
    }))
}

/// Element [p, n, q] is x[p, n, q] combined with part[p, m, q] for each m where ids[p, m, q] is n.
fn scatter(call: &Call, how: Reduction) -> Res<Vec<Tensor>> {
    let (x, part, ids) = (call.args[0].clone(), call.args[1].clone(), call.args[2].clone());
    let fits = x.shape.len() == 3
        && part.shape == ids.shape
        && [0, 2].iter().all(|n| part.shape.get(*n) == Some(&x.shape[*n]));
    if !fits || x.shape.iter().any(|item| item.rank.is_some()) {
        return stop("the shapes of a scatter");
    }
    let (case, op, ty, count) = (Rc::clone(&call.case), call.op, x.ty.clone(), part.shape[1].extent.clone());
    one(Tensor::new(ty.clone(), x.shape.clone(), move |at| {
        let [p, n, q] = at else { return stop("a scatter has three axes") };
        let own = (x.at)(at)?;
        if count == Poly::zero() {
            return Ok(own);
        }
        let written = reduce(&case, how, &ty, std::slice::from_ref(&count), |m| {
            let from = [p.clone(), m[0].clone(), q.clone()];
            let apart = &value((ids.at)(&from)?) - n;
            let neutral = num(how.identity(ty.dtype.unwrap_or(DType::F64)).get());
            Ok(choose(vec![apart.clone(), &Poly::zero() - &apart], (part.at)(&from)?, neutral))
        })?;
        let both = apply(how.def().op, &ty, vec![own, written]);
        let exact = how.def().selects || ty.kind == Kind::Int;
        Ok(if exact { both } else { rounded(op, &ty, both) })
    }))
}
