//! Views: each maps the index of an element of the result to the index of an element of the operand.

use std::rc::Rc;

use super::{
    build::{Semantics, one},
    pointwise,
};
use crate::{
    bits,
    call::{Call, Perm, Value},
    facts::{Res, stop},
    integers,
    lower::Truths,
    shape::{Item, Shape, Tensor, count, expanded, reshaped, show},
    term::{Atom, Kind, Poly, T, apply, choose},
};

pub(super) const OPS: &[(&str, Semantics)] = &[
    ("transpose", transpose),
    ("reshape", reshape),
    ("expand", expand),
    ("slice", slice),
    ("pad", pad),
    ("window", window),
    ("concat", concat),
    ("gather", gather),
    ("iota", pointwise::iota),
];

/// Reads an operand at mapped indices.
fn read(x: &Tensor, shape: Shape, map: impl Fn(&[Poly]) -> Res<Vec<Poly>> + 'static) -> Res<Vec<Tensor>> {
    let x = x.clone();
    one(Tensor::new(x.ty.clone(), shape, move |at| (x.at)(&map(at)?)))
}

pub(super) fn transpose(call: &Call) -> Res<Vec<Tensor>> {
    let Value::Perm(perm) = &call.attrs[0] else { return stop("an attribute must be a permutation") };
    let from = call.args[0].shape.clone();
    // The relation `identity` binds the permutation [0], which stands for the identity of all axes.
    let perm = match perm {
        Perm::Items(items) if **items == [0] => Perm::Items((0..from.len()).collect()),
        other => other.clone(),
    };
    let to = call.case.transposed(&perm, &from)?;
    let (case, shape) = (Rc::clone(&call.case), to.clone());
    read(&call.args[0], to, move |at| case.permuted(&perm, &from, &shape, at))
}

pub(super) fn reshape(call: &Call) -> Res<Vec<Tensor>> {
    let canon = |shape: Shape| -> Shape {
        shape.into_iter().map(|item| Item { extent: call.case.canon(&item.extent), ..item }).collect()
    };
    let (from, to) = (canon(call.args[0].shape.clone()), call.shape(0)?);
    call.case.resized(&from, &to)?;
    let to = canon(to);
    let (case, shape) = (Rc::clone(&call.case), to.clone());
    read(&call.args[0], to, move |at| reshaped(&case.facts, &from, &shape, at))
}

impl crate::call::Case {
    /// Checks that two shapes have the same number of elements. On the left side this is a fact. If it determines a
    /// size, an expression in the other sizes replaces that size.
    fn resized(&self, from: &Shape, to: &Shape) -> Res<()> {
        let difference = &self.canon(&count(from)) - &self.canon(&count(to));
        let none = Poly::zero();
        let equal = || self.facts.nonneg(&difference) && self.facts.nonneg(&(&none - &difference));
        if difference == none || equal() {
            return Ok(());
        }
        if !self.left.get() {
            return stop(format!("it is undecided whether {} and {} have equally many elements", show(from), show(to)));
        }
        // A common factor of both counts is not 0 if the tensors have elements, so it can be divided out.
        let common = difference.common();
        let reduced = difference.terms().map(|(m, c)| (crate::term::without(m, &common).unwrap_or_default(), c));
        let reduced = Poly::from_terms(reduced);
        let size = reduced.terms().find_map(|(m, c)| match m.as_slice() {
            [own @ Atom::Size(_)] if c.abs() == 1 => {
                let (slope, rest) = reduced.linear_in(own)?;
                Some((own.clone(), &Poly::zero() - &(&rest * &slope)))
            }
            _ => None,
        });
        if let Some(size) = size {
            self.sizes.borrow_mut().push(size);
        }
        self.facts.note(difference.clone());
        self.facts.note(&none - &difference);
        Ok(())
    }
}

fn expand(call: &Call) -> Res<Vec<Tensor>> {
    let (from, to, left) = (call.args[0].shape.clone(), call.shape(0)?, call.case.left.get());
    let case = Rc::clone(&call.case);
    expanded(&case.facts, &case.broadcasts, &from, &to, &vec![Poly::zero(); to.len()], left)?;
    let shape = to.clone();
    read(&call.args[0], to, move |at| expanded(&case.facts, &case.broadcasts, &from, &shape, at, left))
}

pub(super) fn slice(call: &Call) -> Res<Vec<Tensor>> {
    let from = call.args[0].shape.clone();
    let axis = call.axis(0, &from)?;
    let (start, len, step) = (call.int(1)?, call.int(2)?, call.int(3)?);
    let extent = from[axis].extent.clone();
    let unit = Poly::int(1);
    call.case.require(start.clone(), "a start that is not negative")?;
    call.case.require(len.clone(), "a length that is not negative")?;
    call.case.require(&extent - &start, "a start inside the axis")?;
    if step == unit {
        call.case.require(&(&extent - &start) - &len, "a slice inside the axis")?;
    } else if call.case.left.get() {
        // The slice has a last element only if it has elements.
        if call.case.facts.positive(&len) {
            let last = &start + &(&step * &(&len - &unit));
            [last.clone(), &(&extent - &last) - &unit, &(&extent - &start) - &unit]
                .into_iter()
                .for_each(|p| call.case.facts.note(p));
        }
    } else {
        // The last element, if there is one, must be inside the axis.
        let last = &start + &(&step * &(&len - &unit));
        let inside = || call.case.facts.within(&last, &extent);
        if len.known() != Some(0) && !call.case.facts.assume([&len - &unit], inside) {
            return stop(format!("the right side needs a slice inside the axis: {last} in 0..{extent}"));
        }
    }
    let mut to = from.clone();
    to[axis].extent = len;
    let (x, case) = (call.args[0].clone(), Rc::clone(&call.case));
    one(Tensor::new(x.ty.clone(), to, move |at| {
        let mut at = at.to_vec();
        at[axis] = &start + &(&step * &at[axis]);
        let there = [at[axis].clone(), &(&extent - &at[axis]) - &Poly::int(1)];
        case.facts.assume(there, || (x.at)(&at))
    }))
}

fn pad(call: &Call) -> Res<Vec<Tensor>> {
    let x = call.args[0].clone();
    let axis = call.axis(0, &x.shape)?;
    let (before, after, fill) = (call.int(1)?, call.int(2)?, call.number(3)?);
    call.case.require(before.clone(), "padding that is not negative")?;
    call.case.require(after.clone(), "padding that is not negative")?;
    let mut to = x.shape.clone();
    to[axis].extent = &(&to[axis].extent + &before) + &after;
    // The fill value is converted to the element type: an integer type cannot represent ½.
    let held = x.ty.kind == Kind::Float || fill.number().is_some_and(|n| n == 0.0 || n == 1.0);
    let fill = if held { fill } else { apply("store", &x.ty, vec![fill]) };
    let case = Rc::clone(&call.case);
    one(Tensor::new(x.ty.clone(), to, move |at| {
        let mut at = at.to_vec();
        at[axis] = &at[axis] - &before;
        let fill = fill.clone();
        within(&case, &at[axis], &x.shape[axis].extent, || (x.at)(&at), || Ok(fill))
    }))
}

/// Returns `then` if an index is in 0..extent, else `otherwise`.
pub(super) fn within(
    case: &crate::call::Case,
    index: &Poly,
    extent: &Poly,
    then: impl FnOnce() -> Res<T>,
    otherwise: impl FnOnce() -> Res<T>,
) -> Res<T> {
    let inside = vec![index.clone(), &(extent - index) - &Poly::int(1)];
    let open: Vec<Poly> = inside.iter().filter(|p| !case.facts.nonneg(p)).cloned().collect();
    if open.is_empty() {
        return then();
    }
    if open.iter().any(|p| case.facts.nonneg(&(&Poly::int(-1) - p))) {
        return otherwise();
    }
    let then = case.facts.assume(inside, then)?;
    Ok(choose(open, then, otherwise()?))
}

fn window(call: &Call) -> Res<Vec<Tensor>> {
    let from = call.args[0].shape.clone();
    let axis = call.axis(0, &from)?;
    let (size, stride, dilation) = (call.int(1)?, call.int(2)?, call.int(3)?);
    let unit = Poly::int(1);
    let room = &from[axis].extent - &(&(&dilation * &(&size - &unit)) + &unit);
    for p in [&size - &unit, &stride - &unit, &dilation - &unit, room.clone()] {
        call.case.require(p, "windows that fit")?;
    }
    let (steps, _) = call.case.facts.divided(&room, &stride);
    let mut to = from.clone();
    to[axis].extent = &steps + &unit;
    to.insert(axis + 1, Item::axis(size));
    let (x, case) = (call.args[0].clone(), Rc::clone(&call.case));
    one(Tensor::new(x.ty.clone(), to, move |at| {
        let mut at = at.to_vec();
        let within = at.remove(axis + 1);
        at[axis] = &(&stride * &at[axis]) + &(&dilation * &within);
        let there = [at[axis].clone(), &(&from[axis].extent - &at[axis]) - &Poly::int(1)];
        case.facts.assume(there, || (x.at)(&at))
    }))
}

fn concat(call: &Call) -> Res<Vec<Tensor>> {
    let (a, b) = (call.args[0].clone(), call.args[1].clone());
    let axis = call.axis(0, &a.shape)?;
    let mut to = a.shape.clone();
    let fits = a.shape.len() == b.shape.len() && (0..to.len()).all(|n| n == axis || a.shape[n] == b.shape[n]);
    if !fits || b.shape[axis].rank.is_some() {
        return stop(format!(
            "it is undecided whether {} and {} differ along one axis only",
            show(&a.shape),
            show(&b.shape)
        ));
    }
    to[axis].extent = &a.shape[axis].extent + &b.shape[axis].extent;
    let case = Rc::clone(&call.case);
    one(Tensor::new(a.ty.clone(), to, move |at| {
        let first = &a.shape[axis].extent;
        let mut behind = at.to_vec();
        behind[axis] = &at[axis] - first;
        let there = [behind[axis].clone()];
        within(&case, &at[axis], first, || (a.at)(at), || case.facts.assume(there, || (b.at)(&behind)))
    }))
}

/// Evaluates `gather`. Ids are assumed to be in range: any other id is an error on both sides, if both read it.
fn gather(call: &Call) -> Res<Vec<Tensor>> {
    let (x, ids) = (call.args[0].clone(), call.args[1].clone());
    let axis = call.axis(0, &x.shape)?;
    let to: Shape = [&x.shape[..axis], &ids.shape, &x.shape[axis + 1..]].concat();
    let behind = axis + ids.shape.len();
    let case = Rc::clone(&call.case);
    one(Tensor::new(x.ty.clone(), to, move |at| {
        let id = integers::id(&case.facts, bits::normal(&case, &(ids.at)(&at[axis..behind])?, &Truths::new())?);
        let index = [&at[..axis], std::slice::from_ref(&id), &at[behind..]].concat();
        let there = [id.clone(), &(&x.shape[axis].extent - &id) - &Poly::int(1)];
        case.facts.assume(there, || (x.at)(&index))
    }))
}
