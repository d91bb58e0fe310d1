//! Softmax and the norms.

use std::rc::Rc;

use eutectic_ir::ops::Reduction;

use super::{
    build::{Arithmetic, Semantics, one, rounded},
    reduce::mean_of,
};
use crate::{
    call::{Call, Case, reduce},
    facts::{Res, stop},
    shape::{Tensor, find},
    term::{Poly, T, Ty, apply},
};

pub(super) const OPS: &[(&str, Semantics)] = &[
    ("softmax", |call| probabilities(call, false)),
    ("log-softmax", |call| probabilities(call, true)),
    ("layernorm", layernorm),
    ("rmsnorm", |call| norm(call, false)),
    ("add-layernorm", |call| with_sum(call, true)),
    ("add-rmsnorm", |call| with_sum(call, false)),
    ("batch-norm", batch_norm),
    ("group-norm", group_norm),
];

/// Returns eˣ⁻ᵐ / Σ eˣ⁻ᵐ, or its logarithm, for an element of a row with maximum m. `row` returns the element at an
/// index.
pub(super) fn softmax_of(
    case: &Case,
    ty: &Ty,
    extent: &Poly,
    own: &Poly,
    row: &dyn Fn(&Poly) -> Res<T>,
    log: bool,
) -> Res<T> {
    let arithmetic = Arithmetic(ty.clone());
    let one = std::slice::from_ref(extent);
    let most = reduce(case, Reduction::Max, ty, one, |at| row(&at[0]))?;
    let shifted = |at: &Poly| Ok(arithmetic.sub(&row(at)?, &most));
    let power = |at: &Poly| -> Res<T> { Ok(arithmetic.of("exp", &[&shifted(at)?])) };
    let sum = reduce(case, Reduction::Sum, ty, one, |at| power(&at[0]))?;
    Ok(match log {
        true => arithmetic.sub(&shifted(own)?, &arithmetic.of("log", &[&sum])),
        false => arithmetic.div(&power(own)?, &sum),
    })
}

fn probabilities(call: &Call, log: bool) -> Res<Vec<Tensor>> {
    let (x, case, op) = (call.args[0].clone(), Rc::clone(&call.case), call.op);
    let axis = call.axis(0, &x.shape)?;
    let (ty, extent) = (x.ty.clone(), x.shape[axis].extent.clone());
    one(Tensor::new(ty.clone(), x.shape.clone(), move |at| {
        let row = |j: &Poly| {
            let mut at = at.to_vec();
            at[axis] = j.clone();
            (x.at)(&at)
        };
        Ok(rounded(op, &ty, softmax_of(&case, &ty, &extent, &at[axis], &row, log)?))
    }))
}

/// A norm of the last axis.
struct Norm<'a> {
    case: &'a Case,
    gain: &'a Tensor,
    shift: Option<&'a Tensor>,
    eps: &'a T,
    /// Whether the mean is subtracted.
    centred: bool,
}

/// Returns an element of a normalised tensor before it is rounded.
fn normalised(norm: &Norm<'_>, x: &Tensor, at: &[Poly]) -> Res<T> {
    let &Norm { case, gain, shift, eps, centred } = norm;
    let [outer @ .., own] = at else { return stop("a norm has rows") };
    let (ty, extent) = (&x.ty, x.shape[x.shape.len() - 1].extent.clone());
    let arithmetic = Arithmetic(ty.clone());
    let one = std::slice::from_ref(&extent);
    let element = |j: &Poly| (x.at)(&[outer, std::slice::from_ref(j)].concat());
    let centre = |j: &Poly| -> Res<T> {
        let x = element(j)?;
        Ok(match centred {
            true => arithmetic.sub(&x, &mean_of(case, ty, one, |at| element(&at[0]))?),
            false => x,
        })
    };
    let square = |j: &Poly| centre(j).map(|c| arithmetic.mul(&c, &c));
    let variance = mean_of(case, ty, one, |at| square(&at[0]))?;
    let root = arithmetic.of("rsqrt", &[&arithmetic.add(&variance, eps)]);
    let scaled = arithmetic.mul(&arithmetic.mul(&centre(own)?, &root), &(gain.at)(std::slice::from_ref(own))?);
    match shift {
        Some(shift) => Ok(arithmetic.add(&scaled, &(shift.at)(std::slice::from_ref(own))?)),
        None => Ok(scaled),
    }
}

pub(super) fn layernorm(call: &Call) -> Res<Vec<Tensor>> {
    norm(call, true)
}

fn norm(call: &Call, centred: bool) -> Res<Vec<Tensor>> {
    let (args, case, eps, op) = (call.args.clone(), Rc::clone(&call.case), call.number(0)?, call.op);
    find(&args[0].shape, &Poly::int(1))?;
    one(Tensor::new(args[0].ty.clone(), args[0].shape.clone(), move |at| {
        let norm = Norm { case: &case, gain: &args[1], shift: args.get(2), eps: &eps, centred };
        let term = normalised(&norm, &args[0], at)?;
        Ok(rounded(op, &args[0].ty, term))
    }))
}

/// Returns the sum, rounded to its element type, and the norm of this sum.
fn with_sum(call: &Call, centred: bool) -> Res<Vec<Tensor>> {
    let (args, case, eps) = (call.args.clone(), Rc::clone(&call.case), call.number(0)?);
    find(&args[0].shape, &Poly::int(1))?;
    let ty = args[0].ty.clone();
    if args[0].shape != args[1].shape {
        return stop("the shapes of a sum differ");
    }
    let of = args.clone();
    let sum = Tensor::new(ty.clone(), args[0].shape.clone(), move |at| {
        Ok(apply("add", &of[0].ty, vec![(of[0].at)(at)?, (of[1].at)(at)?]))
    });
    let (stored, name) = (sum.clone(), if centred { "layernorm" } else { "rmsnorm" });
    let norm = Tensor::new(ty.clone(), args[0].shape.clone(), move |at| {
        let norm = Norm { case: &case, gain: &args[2], shift: args.get(3), eps: &eps, centred };
        let term = normalised(&norm, &stored, at)?;
        Ok(rounded(name, &ty, term))
    });
    Ok(vec![sum, norm])
}

fn batch_norm(call: &Call) -> Res<Vec<Tensor>> {
    let (args, eps) = (call.args.clone(), call.number(1)?);
    let axis = call.axis(0, &args[0].shape)?;
    let ty = args[0].ty.clone();
    one(Tensor::new(ty.clone(), args[0].shape.clone(), move |at| {
        let arithmetic = Arithmetic(ty.clone());
        let channel = |n: usize| (args[n].at)(std::slice::from_ref(&at[axis]));
        let root = arithmetic.of("rsqrt", &[&arithmetic.add(&channel(4)?, &eps)]);
        let scale = arithmetic.mul(&channel(1)?, &root);
        let shift = arithmetic.sub(&channel(2)?, &arithmetic.mul(&channel(3)?, &scale));
        let term = arithmetic.add(&arithmetic.mul(&(args[0].at)(at)?, &scale), &shift);
        Ok(rounded("batch-norm", &ty, term))
    }))
}

fn group_norm(call: &Call) -> Res<Vec<Tensor>> {
    let (args, case, groups, eps) = (call.args.clone(), Rc::clone(&call.case), call.int(0)?, call.number(1)?);
    let (x, ty) = (args[0].clone(), args[0].ty.clone());
    if x.shape.len() < 2 || x.shape[..2].iter().any(|i| i.rank.is_some()) {
        return stop("channels inside a sequence of axes are unsupported");
    }
    let (size, rest) = x.shape[1].extent.divide(&groups);
    if rest != Poly::zero() {
        return stop("it is undecided whether the groups divide the channels");
    }
    let extents: Vec<Poly> = [size.clone()].into_iter().chain(x.shape[2..].iter().map(|i| i.extent.clone())).collect();
    one(Tensor::new(ty.clone(), x.shape.clone(), move |at| {
        let arithmetic = Arithmetic(ty.clone());
        let (group, _) = case.facts.divided(&at[1], &size);
        let element = |inner: &[Poly]| {
            let channel = &(&group * &size) + &inner[0];
            (x.at)(&[&[at[0].clone(), channel], &inner[1..]].concat())
        };
        let mean = || mean_of(&case, &ty, &extents, |inner| element(inner));
        let square = |inner: &[Poly]| -> Res<T> {
            let c = arithmetic.sub(&element(inner)?, &mean()?);
            Ok(arithmetic.mul(&c, &c))
        };
        let variance = mean_of(&case, &ty, &extents, square)?;
        let root = arithmetic.of("rsqrt", &[&arithmetic.add(&variance, &eps)]);
        let scaled = arithmetic.mul(&arithmetic.sub(&(x.at)(at)?, &mean()?), &root);
        let channel = |n: usize| (args[n].at)(std::slice::from_ref(&at[1]));
        let term = arithmetic.add(&arithmetic.mul(&scaled, &channel(1)?), &channel(2)?);
        Ok(rounded("group-norm", &ty, term))
    }))
}
