//! A call of an op on symbolic tensors, and the values of its attributes.

use std::{collections::BTreeMap, rc::Rc};

use eutectic_ir::ops::Reduction;

use crate::{
    facts::{Facts, Res, stop},
    shape::{Broadcasts, Shape, Tensor},
    term::{Atom, Poly, T, Term, Ty},
};

/// A permutation of the axes of a shape.
#[derive(Clone, Debug, PartialEq)]
pub enum Perm {
    /// Of items: which one of the operand comes at each place.
    Items(Vec<usize>),
    /// One with a name only, and perhaps the place of one axis: (in the result, in the operand), counted from the end.
    Named(Rc<str>, Vec<(Poly, Poly)>),
    /// Its inverse.
    Inverse(Box<Perm>),
    /// First the one, then the other.
    Compose(Box<[Perm; 2]>),
}

/// The value of an attribute.
#[derive(Clone, Debug)]
pub enum Value {
    /// An integer.
    Int(Poly),
    /// An axis: the number of axes from it on.
    Axis(Poly),
    /// Axes.
    Axes(Vec<Poly>),
    /// Axes with a name only.
    AnyAxes(Rc<str>),
    /// A permutation.
    Perm(Perm),
    /// A shape.
    Shape(Shape),
    /// A number.
    Number(T),
    /// A word.
    Word(Rc<str>),
    /// A truth value.
    Bool(bool),
    /// An element type.
    Type(Ty),
}

/// The data that all calls of a case share.
#[derive(Default)]
pub struct Case {
    /// The facts about extents and indices.
    pub facts: Facts,
    /// Which sequences expand to which.
    pub broadcasts: Broadcasts,
    /// Number variables that are greater than 0, are not 0, or hide scores.
    pub numbers: std::cell::RefCell<BTreeMap<Rc<str>, Vec<Rc<str>>>>,
    /// Tensors whose elements are greater than 0: the domain of a `fast` rule.
    pub positive: std::cell::RefCell<Vec<Rc<str>>>,
    /// Whether the left side is being read: conditions of types hold there, and are to be shown on the right.
    pub left: std::cell::Cell<bool>,
    /// Steps that are left, so that no rule takes for ever.
    pub fuel: std::cell::Cell<usize>,
    /// Sizes that are others, because the left side has reshapes: a size, and what it is.
    pub sizes: std::cell::RefCell<Vec<(Atom, Poly)>>,
}

impl Case {
    /// Notes the conditions of types on the left side; asks for them on the right.
    pub fn require(&self, p: Poly, what: &str) -> Res<()> {
        if self.left.get() {
            self.facts.note(p);
            return Ok(());
        }
        if self.facts.nonneg(&p) { Ok(()) } else { stop(format!("the right side needs {what}: {p} ≥ 0")) }
    }

    /// Whether a number variable has a property.
    pub fn number_is(&self, name: &str, property: &str) -> bool {
        self.numbers.borrow().get(name).is_some_and(|of| of.iter().any(|p| **p == *property))
    }

    /// A size in terms of others, where the left side says so.
    pub fn canon(&self, p: &Poly) -> Poly {
        let mut p = p.clone();
        for (size, is) in self.sizes.borrow().iter() {
            while let Some((slope, rest)) = p.linear_in(size).filter(|(slope, _)| *slope != Poly::zero()) {
                p = &(&slope * is) + &rest;
            }
        }
        p
    }

    /// Takes a step.
    pub fn step(&self, steps: usize) -> Res<()> {
        match self.fuel.get().checked_sub(steps).filter(|_| !self.facts.exhausted()) {
            Some(left) => {
                self.fuel.set(left);
                Ok(())
            }
            None => stop("the terms grow too large"),
        }
    }
}

/// A call.
pub struct Call {
    /// The case of the rule.
    pub case: Rc<Case>,
    /// The op.
    pub op: &'static str,
    /// Its attributes.
    pub attrs: Vec<Value>,
    /// Its operands.
    pub args: Vec<Tensor>,
}

impl Call {
    /// An integer attribute.
    pub fn int(&self, n: usize) -> Res<Poly> {
        match &self.attrs[n] {
            Value::Int(p) => Ok(p.clone()),
            other => stop(format!("an integer is wanted, and {other:?} is given")),
        }
    }

    /// The place of an axis of an operand.
    pub fn axis(&self, n: usize, shape: &Shape) -> Res<usize> {
        match &self.attrs[n] {
            Value::Axis(from_the_end) => crate::shape::find(shape, from_the_end),
            other => stop(format!("an axis is wanted, and {other:?} is given")),
        }
    }

    /// A number.
    pub fn number(&self, n: usize) -> Res<T> {
        match &self.attrs[n] {
            Value::Number(t) => Ok(t.clone()),
            Value::Int(p) => Ok(Rc::new(Term::Index(p.clone()))),
            other => stop(format!("a number is wanted, and {other:?} is given")),
        }
    }

    /// A word.
    pub fn word(&self, n: usize) -> Res<&str> {
        match &self.attrs[n] {
            Value::Word(w) => Ok(w),
            other => stop(format!("a word is wanted, and {other:?} is given")),
        }
    }

    /// A shape.
    pub fn shape(&self, n: usize) -> Res<Shape> {
        match &self.attrs[n] {
            Value::Shape(s) => Ok(s.clone()),
            other => stop(format!("a shape is wanted, and {other:?} is given")),
        }
    }

    /// The elements of a pair of extents.
    pub fn pair(&self, n: usize) -> Res<[Poly; 2]> {
        match self.shape(n)?.as_slice() {
            [a, b] if a.rank.is_none() && b.rank.is_none() => Ok([a.extent.clone(), b.extent.clone()]),
            _ => stop("a pair of extents is wanted"),
        }
    }
}

/// Returns Σ, Π, max or min of `body` over fresh variables.
pub fn reduce(case: &Case, how: Reduction, ty: &Ty, extents: &[Poly], body: impl FnOnce(&[Poly]) -> Res<T>) -> Res<T> {
    case.step(1)?;
    let vars: Vec<(u32, Poly)> = extents.iter().map(|e| (case.facts.index(e), e.clone())).collect();
    let at: Vec<Poly> = vars.iter().map(|(v, _)| Poly::var(*v)).collect();
    let there = extents.iter().map(|e| e - &Poly::int(1));
    let body = case.facts.assume(there, || body(&at))?;
    Ok(Rc::new(Term::Reduce(how, ty.clone(), vars, body)))
}

impl Case {
    /// Where an element of a transpose is read.
    pub fn permuted(&self, perm: &Perm, from: &Shape, to: &Shape, at: &[Poly]) -> Res<Vec<Poly>> {
        match perm {
            Perm::Items(items) => {
                let mut result = vec![Poly::zero(); at.len()];
                items.iter().zip(at).for_each(|(i, index)| result[*i] = index.clone());
                Ok(result)
            }
            Perm::Compose(pair) => {
                let between = self.transposed(&pair[0], from)?;
                let at = self.permuted(&pair[1], &between, to, at)?;
                self.permuted(&pair[0], from, &between, &at)
            }
            Perm::Inverse(inner) => {
                if let Perm::Items(items) = &**inner {
                    return Ok(items.iter().map(|i| at[*i].clone()).collect());
                }
                stop("the inverse of an unknown permutation")
            }
            Perm::Named(name, fixed) => {
                let place = |shape: &Shape, axis: &Poly| crate::shape::find(shape, axis);
                let mut result: Vec<Option<Poly>> = vec![None; from.len()];
                let mut rest: Vec<Poly> = at.to_vec();
                let mut gone = Vec::new();
                for (after, before) in fixed {
                    let after = place(to, after)?;
                    result[place(from, before)?] = Some(at[after].clone());
                    gone.push(after);
                }
                gone.sort_unstable();
                gone.dedup();
                gone.iter().rev().for_each(|at| {
                    rest.remove(*at);
                });
                let open: Vec<usize> = (0..from.len()).filter(|k| result[*k].is_none()).collect();
                // Where the other axes go depends on their extents.
                let others: Shape = open.iter().map(|k| from[*k].clone()).collect();
                for (n, k) in open.into_iter().enumerate() {
                    let name: Rc<str> = format!("{name}#{n} of {}", crate::shape::show(&others)).into();
                    self.facts.map(&name, &from[k].extent);
                    result[k] = Some(Poly::atom(Atom::Map(name, rest.clone())));
                }
                Ok(result.into_iter().flatten().collect())
            }
        }
    }

    /// The shape of a transpose.
    pub fn transposed(&self, perm: &Perm, from: &Shape) -> Res<Shape> {
        use crate::shape::{Item, count, find};
        match perm {
            Perm::Items(items) if items.len() == from.len() => Ok(items.iter().map(|i| from[*i].clone()).collect()),
            Perm::Items(_) => stop("a permutation of another number of axes"),
            Perm::Compose(pair) => self.transposed(&pair[1], &self.transposed(&pair[0], from)?),
            Perm::Inverse(inner) => match &**inner {
                Perm::Items(items) if items.len() == from.len() => {
                    let mut shape = from.clone();
                    items.iter().zip(from).for_each(|(i, item)| shape[*i] = item.clone());
                    Ok(shape)
                }
                _ => stop("the inverse of an unknown permutation"),
            },
            // The axes that stay make parts of the result; the axes between them are a sequence of their own.
            Perm::Named(name, fixed) => {
                let [(after, before)] = fixed.as_slice() else {
                    if !fixed.is_empty() {
                        return stop("a permutation of which several axes are known");
                    }
                    return Ok(vec![Item {
                        extent: count(from),
                        rank: Some(format!("{name} of {}", crate::shape::show(from)).into()),
                    }]);
                };
                let place = find(from, before)?;
                let axis = from[place].clone();
                let others = [&from[..place], &from[place + 1..]].concat();
                let named = crate::shape::show(&others);
                let others = count(&others);
                if *after == Poly::int(1) {
                    return Ok(vec![Item { extent: others, rank: Some(format!("{name} of {named}").into()) }, axis]);
                }
                // Behind the axis there are as many axes as its place says.
                let behind = Rc::from(format!("{name} behind"));
                let inner = Item { extent: Poly::size(&format!("#{name} behind {others}")), rank: Some(behind) };
                let outer = Item {
                    extent: Poly::size(&format!("#{name} before {others}")),
                    rank: Some(format!("{name} before").into()),
                };
                Ok(vec![outer, axis, inner])
            }
        }
    }
}
