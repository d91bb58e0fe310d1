//! A call of an op on symbolic tensors, and the values of its attributes.

use std::{collections::BTreeMap, rc::Rc};

use eutectic_ir::ops::Reduction;

use crate::{
    facts::{Facts, Res, stop},
    shape::{Broadcasts, Shape, Tensor},
    smt::{Judge, Sizes},
    term::{Atom, Poly, T, Term, Ty},
};

/// A permutation of the axes of a shape.
#[derive(Clone, Debug, PartialEq)]
pub enum Perm {
    /// A list: the axis of the operand at each place of the result.
    Items(Vec<usize>),
    /// A symbolic permutation. The pairs are the known places of axes: in the result, and in the operand. Places are
    /// counted from the end.
    Named(Rc<str>, Vec<(Poly, Poly)>),
    /// The inverse of a permutation.
    Inverse(Box<Perm>),
    /// The first permutation, followed by the second.
    Compose(Box<[Perm; 2]>),
}

/// The value of an attribute.
#[derive(Clone, Debug)]
pub enum Value {
    /// An integer.
    Int(Poly),
    /// An axis, as its distance from the end of the shape: 1 for the last one.
    Axis(Poly),
    /// Axes.
    Axes(Vec<Poly>),
    /// A symbolic list of axes.
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

/// The state that all calls of a case share.
#[derive(Default)]
pub struct Case {
    /// The facts about extents and indices.
    pub facts: Facts,
    /// The known broadcasts: pairs of a shape and the shape to which it expands.
    pub broadcasts: Broadcasts,
    /// The properties of number variables, such as `positive`, `nonzero`, or `hides` for a number that masks scores.
    pub numbers: std::cell::RefCell<BTreeMap<Rc<str>, Vec<Rc<str>>>>,
    /// The tensors whose elements are greater than 0, because the domain of a `fast` rule or the case of a proof says
    /// so.
    pub positive: std::cell::RefCell<Vec<Rc<str>>>,
    /// Whether the left side is being evaluated. Type constraints are facts there, and obligations on the right side.
    pub left: std::cell::Cell<bool>,
    /// The solver, if there is one. It decides questions that the prover's own procedure leaves open.
    pub judge: std::cell::RefCell<Option<Rc<Judge>>>,
    /// The sizes that this case fixes.
    pub chosen: std::cell::RefCell<Sizes>,
    /// Whether results of ops get marks. Proofs about ranges need them.
    pub marks: std::cell::Cell<bool>,
    /// Whether extents are small only because the proof is bounded. Such an extent does not bound the number of terms
    /// of a sum.
    pub bounded: std::cell::Cell<bool>,
    /// The number of steps left, which makes each proof terminate.
    pub fuel: std::cell::Cell<usize>,
    /// The sizes that reshapes of the left side determine, each with its expression in other sizes.
    pub sizes: std::cell::RefCell<Vec<(Atom, Poly)>>,
}

impl Case {
    /// Records p ≥ 0 as a fact on the left side, and requires a proof of it on the right side.
    pub fn require(&self, p: Poly, what: &str) -> Res<()> {
        if self.left.get() {
            self.facts.note(p);
            return Ok(());
        }
        if self.holds(&p) { Ok(()) } else { stop(format!("the right side needs {what}: {p} ≥ 0")) }
    }

    /// Returns whether p ≥ 0 follows, by the prover's own procedure or by the solver.
    pub fn holds(&self, p: &Poly) -> bool {
        self.facts.nonneg(p) || self.judge.borrow().as_ref().is_some_and(|judge| judge.holds(&self.facts, p))
    }

    /// Returns whether a number variable has a property.
    pub fn number_is(&self, name: &str, property: &str) -> bool {
        self.numbers.borrow().get(name).is_some_and(|of| of.iter().any(|p| **p == *property))
    }

    /// Replaces sizes that equal an expression over other sizes.
    pub fn canon(&self, p: &Poly) -> Poly {
        let mut p = p.clone();
        for (size, is) in self.sizes.borrow().iter() {
            while let Some((slope, rest)) = p.linear_in(size).filter(|(slope, _)| *slope != Poly::zero()) {
                p = &(&slope * is) + &rest;
            }
        }
        p
    }

    /// Takes steps from the fuel, and fails if none are left.
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

/// A call of an op on symbolic tensors.
pub struct Call {
    /// The case of the rule.
    pub case: Rc<Case>,
    /// The name of the op.
    pub op: &'static str,
    /// The values of the attributes, in the order of the op table.
    pub attrs: Vec<Value>,
    /// The operands.
    pub args: Vec<Tensor>,
}

impl Call {
    /// Returns an integer attribute.
    pub fn int(&self, n: usize) -> Res<Poly> {
        match &self.attrs[n] {
            Value::Int(p) => Ok(p.clone()),
            other => stop(format!("an attribute must be an integer, and is {other:?}")),
        }
    }

    /// Returns the place of an axis attribute in the shape of an operand.
    pub fn axis(&self, n: usize, shape: &Shape) -> Res<usize> {
        match &self.attrs[n] {
            Value::Axis(from_the_end) => crate::shape::find(shape, from_the_end),
            other => stop(format!("an attribute must be an axis, and is {other:?}")),
        }
    }

    /// Returns a number attribute.
    pub fn number(&self, n: usize) -> Res<T> {
        match &self.attrs[n] {
            Value::Number(t) => Ok(t.clone()),
            Value::Int(p) => Ok(Rc::new(Term::Index(p.clone()))),
            other => stop(format!("an attribute must be a number, and is {other:?}")),
        }
    }

    /// Returns a word attribute.
    pub fn word(&self, n: usize) -> Res<&str> {
        match &self.attrs[n] {
            Value::Word(w) => Ok(w),
            other => stop(format!("an attribute must be a word, and is {other:?}")),
        }
    }

    /// Returns a shape attribute.
    pub fn shape(&self, n: usize) -> Res<Shape> {
        match &self.attrs[n] {
            Value::Shape(s) => Ok(s.clone()),
            other => stop(format!("an attribute must be a shape, and is {other:?}")),
        }
    }

    /// Returns the two extents of a pair attribute.
    pub fn pair(&self, n: usize) -> Res<[Poly; 2]> {
        match self.shape(n)?.as_slice() {
            [a, b] if a.rank.is_none() && b.rank.is_none() => Ok([a.extent.clone(), b.extent.clone()]),
            _ => stop("an attribute must be a pair of extents"),
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
    /// Returns the index in the operand of a transpose from which its element `at` is read.
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
                stop("the inverse of an unknown permutation is unsupported")
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
                // How the permutation orders the remaining axes may depend on their shape. So the names of their index
                // maps contain that shape.
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

    /// Returns the shape of a transpose.
    pub fn transposed(&self, perm: &Perm, from: &Shape) -> Res<Shape> {
        use crate::shape::{Item, count, find};
        match perm {
            Perm::Items(items) if items.len() == from.len() => Ok(items.iter().map(|i| from[*i].clone()).collect()),
            Perm::Items(_) => stop("the number of axes of a permutation differs from the rank"),
            Perm::Compose(pair) => self.transposed(&pair[1], &self.transposed(&pair[0], from)?),
            Perm::Inverse(inner) => match &**inner {
                Perm::Items(items) if items.len() == from.len() => {
                    let mut shape = from.clone();
                    items.iter().zip(from).for_each(|(i, item)| shape[*i] = item.clone());
                    Ok(shape)
                }
                _ => stop("the inverse of an unknown permutation is unsupported"),
            },
            // The known axis divides the result. The axes on either side of it become new symbolic sequences.
            Perm::Named(name, fixed) => {
                let [(after, before)] = fixed.as_slice() else {
                    if !fixed.is_empty() {
                        return stop("a permutation with several known axes is unsupported");
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
                // The relation `moved` gave the number of axes behind the known one the same name.
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
