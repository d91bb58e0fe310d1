//! Reductions and products of matrices.

use std::rc::Rc;

use eutectic_ir::ops::Reduction;

use super::{
    build::{Arithmetic, Semantics, one, rounded},
    pointwise,
};
use crate::{
    call::{Call, Case, Value, reduce},
    facts::{Res, stop},
    shape::{Item, Shape, Tensor, find},
    term::{Atom, Kind, Poly, T, Term, Ty, apply, product},
};

pub(super) const OPS: &[(&str, Semantics)] = &[
    ("reduce-sum", |call| reduction(call, Reduction::Sum)),
    ("reduce-prod", |call| reduction(call, Reduction::Product)),
    ("reduce-max", |call| reduction(call, Reduction::Max)),
    ("reduce-min", |call| reduction(call, Reduction::Min)),
    ("reduce-mean", mean),
    ("matmul", matmul),
    ("matmul-tf32", matmul),
    ("linear", linear),
    ("lora", lora),
];

/// A function that returns the index of an operand's element, from the index of the result and the index of the reduced
/// axes.
type Join = Rc<dyn Fn(&[Poly], &[Poly]) -> Vec<Poly>>;

/// The reduced extents, the shape of the result, and the function that joins their indices.
struct Reduced {
    extents: Vec<Poly>,
    shape: Shape,
    join: Join,
}

fn reduced(case: &Rc<Case>, shape: &Shape, axes: &Value, keep: bool) -> Res<Reduced> {
    match axes {
        Value::Axes(axes) => {
            let mut places = axes.iter().map(|a| find(shape, a)).collect::<Res<Vec<_>>>()?;
            places.sort_unstable();
            let extents = places.iter().map(|p| shape[*p].extent.clone()).collect();
            let mut left = Vec::new();
            for (n, item) in shape.iter().enumerate() {
                match (places.contains(&n), keep) {
                    (false, _) => left.push(item.clone()),
                    (true, true) => left.push(Item::axis(Poly::int(1))),
                    (true, false) => {}
                }
            }
            let rank = shape.len();
            let join = move |outer: &[Poly], inner: &[Poly]| {
                let (mut outer, mut inner) = (outer.iter(), inner.iter());
                (0..rank)
                    .map(|n| match (places.contains(&n), keep) {
                        (false, _) => outer.next().cloned().unwrap_or_default(),
                        (true, true) => {
                            outer.next();
                            inner.next().cloned().unwrap_or_default()
                        }
                        (true, false) => inner.next().cloned().unwrap_or_default(),
                    })
                    .collect()
            };
            Ok(Reduced { extents, shape: left, join: Rc::new(join) })
        }
        // Unknown axes divide a sequence into a reduced and a kept part.
        Value::AnyAxes(name) if matches!(shape.as_slice(), [item] if item.rank.is_some()) => {
            let rank = shape[0].rank.clone().unwrap_or_default();
            let part = |what: &str| Poly::size(&format!("#{rank} {what} {name}"));
            let kind = if keep { "kept ones" } else { "kept" };
            let left = Item { extent: part("without"), rank: Some(format!("{rank} {kind} {name}").into()) };
            let index: Rc<str> = format!("{rank} from {name}").into();
            case.facts.map(&index, &shape[0].extent);
            let join = move |outer: &[Poly], inner: &[Poly]| {
                vec![Poly::atom(Atom::Map(Rc::clone(&index), [outer, inner].concat()))]
            };
            Ok(Reduced { extents: vec![part("along")], shape: vec![left], join: Rc::new(join) })
        }
        _ => stop("a reduction over unknown axes is unsupported"),
    }
}

fn parts(call: &Call) -> Res<Reduced> {
    let Value::Bool(keep) = call.attrs[1] else { return stop("an attribute must be a truth value") };
    reduced(&call.case, &call.args[0].shape, &call.attrs[0], keep)
}

fn reduction(call: &Call, how: Reduction) -> Res<Vec<Tensor>> {
    let (of, x, case) = (parts(call)?, call.args[0].clone(), Rc::clone(&call.case));
    let (ty, op) = (x.ty.clone(), call.op);
    one(Tensor::new(ty.clone(), of.shape.clone(), move |at| {
        let sum = reduce(&case, how, &ty, &of.extents, |inner| (x.at)(&(of.join)(at, inner)))?;
        // Extrema are elements, and sums of integers wrap, so neither is rounded.
        let exact = how.def().selects || ty.kind == Kind::Int;
        Ok(if exact { sum } else { rounded(op, &ty, sum) })
    }))
}

/// Returns the mean of `body` over the extents.
pub(super) fn mean_of(case: &Case, ty: &Ty, extents: &[Poly], body: impl FnOnce(&[Poly]) -> Res<T>) -> Res<T> {
    let sum = reduce(case, Reduction::Sum, ty, extents, body)?;
    Ok(Arithmetic(ty.clone()).div(&sum, &Rc::new(Term::Index(product(extents)))))
}

fn mean(call: &Call) -> Res<Vec<Tensor>> {
    let (of, x, case) = (parts(call)?, call.args[0].clone(), Rc::clone(&call.case));
    let ty = x.ty.clone();
    one(Tensor::new(ty.clone(), of.shape.clone(), move |at| {
        let mean = mean_of(&case, &ty, &of.extents, |inner| (x.at)(&(of.join)(at, inner)))?;
        Ok(rounded("reduce-mean", &ty, mean))
    }))
}

/// Evaluates a product of matrices, whose outer axes broadcast.
fn matmul(call: &Call) -> Res<Vec<Tensor>> {
    let (a, b, case) = (call.args[0].clone(), call.args[1].clone(), Rc::clone(&call.case));
    let (m, k) = matrix(&a)?;
    let (k2, n) = matrix(&b)?;
    if k != k2 {
        return stop(format!("it is undecided whether {k} and {k2} are equal"));
    }
    let (outer_a, outer_b) = (a.shape[..a.shape.len() - 2].to_vec(), b.shape[..b.shape.len() - 2].to_vec());
    let outer = pointwise::broadcast(&case, &outer_a, &outer_b)?;
    let shape: Shape = outer.iter().cloned().chain([Item::axis(m), Item::axis(n)]).collect();
    let (ty, op, left) = (a.ty.clone(), call.op, case.left.get());
    one(Tensor::new(ty.clone(), shape, move |at| {
        let [batch @ .., row, column] = at else { return stop("a matrix must have two axes") };
        let of = |from: &Shape| crate::shape::expanded(&case.facts, &case.broadcasts, from, &outer, batch, left);
        let (of_a, of_b) = (of(&outer_a)?, of(&outer_b)?);
        let through = |t: T| if op == "matmul-tf32" { apply("tf32", &ty, vec![t]) } else { t };
        let sum = reduce(&case, Reduction::Sum, &ty, std::slice::from_ref(&k), |inner| {
            let x = (a.at)(&[&of_a[..], &[row.clone(), inner[0].clone()]].concat())?;
            let y = (b.at)(&[&of_b[..], &[inner[0].clone(), column.clone()]].concat())?;
            Ok(Arithmetic(ty.clone()).mul(&through(x), &through(y)))
        })?;
        Ok(rounded(op, &ty, sum))
    }))
}

/// Returns the extents of the last two axes.
pub(super) fn matrix(x: &Tensor) -> Res<(Poly, Poly)> {
    let shape = &x.shape;
    let (rows, columns) = (find(shape, &Poly::int(2))?, find(shape, &Poly::int(1))?);
    Ok((shape[rows].extent.clone(), shape[columns].extent.clone()))
}

/// Returns Σ_k x[.. k]·w[k n] before rounding.
pub(super) fn row_product(case: &Case, x: &Tensor, w: &Tensor, row: &[Poly], column: &Poly) -> Res<T> {
    let (k, _) = matrix(w)?;
    reduce(case, Reduction::Sum, &x.ty, &[k], |inner| {
        let left = (x.at)(&[row, &[inner[0].clone()]].concat())?;
        Ok(Arithmetic(x.ty.clone()).mul(&left, &(w.at)(&[inner[0].clone(), column.clone()])?))
    })
}

/// Returns the shape of rows times a matrix.
pub(super) fn rows_times(x: &Tensor, w: &Tensor) -> Res<Shape> {
    let ((_, k), (k2, n)) = (matrix(x)?, matrix(w)?);
    if k != k2 {
        return stop(format!("it is undecided whether {k} and {k2} are equal"));
    }
    let mut shape = x.shape.clone();
    *shape.last_mut().expect("a matrix has axes") = Item::axis(n);
    Ok(shape)
}

pub(super) fn linear(call: &Call) -> Res<Vec<Tensor>> {
    let (args, case, act) = (call.args.clone(), Rc::clone(&call.case), format!("act {}", call.word(0)?));
    let (shape, ty) = (rows_times(&args[0], &args[1])?, args[0].ty.clone());
    one(Tensor::new(ty.clone(), shape, move |at| {
        let [row @ .., column] = at else { return stop("the result of `linear` must have an axis") };
        let mut sum = row_product(&case, &args[0], &args[1], row, column)?;
        if let Some(bias) = args.get(2) {
            sum = Arithmetic(ty.clone()).add(&sum, &(bias.at)(std::slice::from_ref(column))?);
        }
        Ok(rounded("linear", &ty, apply(&act, &ty, vec![sum])))
    }))
}

fn lora(call: &Call) -> Res<Vec<Tensor>> {
    let (args, case, scale) = (call.args.clone(), Rc::clone(&call.case), call.number(0)?);
    let (shape, ty) = (rows_times(&args[0], &args[1])?, args[0].ty.clone());
    let (_, rank) = matrix(&args[2])?;
    one(Tensor::new(ty.clone(), shape, move |at| {
        let [row @ .., column] = at else { return stop("the result of `lora` must have an axis") };
        let arithmetic = Arithmetic(ty.clone());
        let whole = row_product(&case, &args[0], &args[1], row, column)?;
        let adapter = reduce(&case, Reduction::Sum, &ty, std::slice::from_ref(&rank), |inner| {
            let low = row_product(&case, &args[0], &args[2], row, &inner[0])?;
            Ok(arithmetic.mul(&low, &(args[3].at)(&[inner[0].clone(), column.clone()])?))
        })?;
        Ok(rounded("lora", &ty, arithmetic.add(&whole, &arithmetic.mul(&scale, &adapter))))
    }))
}
