//! Bound variables: substitution, splitting and merging of ranges, and canonical names that depend on the term only.

use std::collections::BTreeMap;
use std::rc::Rc;

use eutectic_ir::{Op, ops::Reduction};

use crate::{
    facts::{Facts, Res, stop},
    term::{Atom, Poly, T, Term, Ty, choose, product, value},
};

/// The variables of a reduction with their extents, and its body.
#[derive(Clone)]
pub struct Bound {
    /// The variables.
    pub vars: Vec<(u32, Poly)>,
    /// The term in which the variables are bound.
    pub body: T,
}

/// The first id of canonical names for bound variables. No range is recorded for these ids, so that a fact about one
/// binder never applies to another one.
const NAMES: u32 = 1 << 24;
/// Returns whether an index contains a canonically named bound variable.
pub fn is_bound(p: &Poly) -> bool {
    let mut found = false;
    p.visit(&mut |atom| found |= matches!(atom, Atom::Var(id) if *id >= NAMES));
    found
}

/// The maximal number of variables of a binder for which all orders are tried.
const MOST: usize = 6;

/// Replaces atoms of a polynomial by `atom`, and integers that are read from tensors by `read`. Simplifies the result.
pub fn substitute(
    facts: &Facts,
    p: &Poly,
    atom: &dyn Fn(&Atom) -> Option<Poly>,
    read: &dyn Fn(&T) -> Res<Poly>,
) -> Res<Poly> {
    let mut sum = Poly::zero();
    for (m, c) in p.terms() {
        let mut part = Poly::int(c);
        for a in m {
            part = &part * &replaced(facts, a, atom, read)?;
        }
        sum = &sum + &part;
    }
    Ok(sum)
}

fn replaced(
    facts: &Facts,
    a: &Atom,
    atom: &dyn Fn(&Atom) -> Option<Poly>,
    read: &dyn Fn(&T) -> Res<Poly>,
) -> Res<Poly> {
    if let Some(p) = atom(a) {
        return Ok(p);
    }
    let of = |p: &Poly| substitute(facts, p, atom, read);
    Ok(match a {
        Atom::Size(_) | Atom::Var(_) => Poly::atom(a.clone()),
        Atom::Div(pair) => facts.divided(&of(&pair[0])?, &of(&pair[1])?).0,
        Atom::Min(pair) | Atom::Max(pair) => facts.extreme(&of(&pair[0])?, &of(&pair[1])?, matches!(a, Atom::Max(_))),
        Atom::Map(name, args) => Poly::atom(Atom::Map(Rc::clone(name), args.iter().map(of).collect::<Res<_>>()?)),
        Atom::Value(t) => read(t)?,
    })
}

/// Replaces variables in an index.
pub fn index_with(facts: &Facts, p: &Poly, vars: &BTreeMap<u32, Poly>) -> Res<Poly> {
    let atom = |a: &Atom| if let Atom::Var(id) = a { vars.get(id).cloned() } else { None };
    substitute(facts, p, &atom, &|t| with(facts, t, vars).map(value))
}

/// Replaces index variables in a term.
pub fn with(facts: &Facts, term: &T, vars: &BTreeMap<u32, Poly>) -> Res<T> {
    if vars.is_empty() {
        return Ok(term.clone());
    }
    let index = |p: &Poly| index_with(facts, p, vars);
    Ok(match &**term {
        Term::Num(_) | Term::Param(_) => term.clone(),
        Term::Index(p) => Rc::new(Term::Index(index(p)?)),
        Term::Read(name, ty, at) => {
            Rc::new(Term::Read(name.clone(), ty.clone(), at.iter().map(index).collect::<Res<_>>()?))
        }
        Term::Apply(op, ty, args) => {
            let args = args.iter().map(|a| with(facts, a, vars)).collect::<Res<_>>()?;
            Rc::new(Term::Apply(op.clone(), ty.clone(), args))
        }
        Term::Reduce(how, ty, bound, body) => {
            // Bound variables are fresh, or named by their nesting depth.
            no_capture(bound, vars, |v| body.mentions(v))?;
            let bound = bound.iter().map(|(v, e)| Ok((*v, index(e)?))).collect::<Res<_>>()?;
            Rc::new(Term::Reduce(*how, ty.clone(), bound, with(facts, body, vars)?))
        }
        Term::If(conditions, a, b) => {
            let conditions: Vec<Poly> = conditions.iter().map(index).collect::<Res<_>>()?;
            choose(conditions, with(facts, a, vars)?, with(facts, b, vars)?)
        }
    })
}

/// Renames bound variables to fresh ones with the same ranges.
pub fn fresh(facts: &Facts, vars: &[(u32, Poly)], body: &T) -> Res<Bound> {
    let new: Vec<(u32, Poly)> = vars.iter().map(|(_, e)| (facts.index(e), e.clone())).collect();
    let map = vars.iter().zip(&new).map(|((old, _), (new, _))| (*old, Poly::var(*new))).collect();
    Ok(Bound { body: with(facts, body, &map)?, vars: new })
}

/// Returns whether two nested reductions can be merged: no extent of the inner one depends on a variable of the outer
/// one.
pub fn independent(outer: &[(u32, Poly)], inner: &[(u32, Poly)]) -> bool {
    !inner.iter().any(|(_, extent)| outer.iter().any(|(v, _)| extent.mentions(*v)))
}

/// Simplifies the ranges of a reduction. Removes variables of extent 1. Splits a variable that the body divides by a
/// factor of its extent. Merges two variables a and b if the body reads only a·n + b.
pub fn split_ranges(facts: &Facts, mut of: Bound) -> Res<Bound> {
    let one = Poly::int(1);
    let gone: BTreeMap<u32, Poly> =
        of.vars.iter().filter(|(_, e)| *e == one).map(|(v, _)| (*v, Poly::zero())).collect();
    of.vars.retain(|(v, _)| !gone.contains_key(v));
    of.body = with(facts, &of.body, &gone)?;
    for _ in 0..16 {
        let Some((v, divisor, times)) = quotient_read(&of) else { break };
        let (a, b) = (facts.index(&times), facts.index(&divisor));
        let place = of.vars.iter().position(|(w, _)| *w == v).expect("the variable is bound");
        let whole = &(&Poly::var(a) * &divisor) + &Poly::var(b);
        of.vars.splice(place..=place, [(a, times), (b, divisor)]);
        of.body = with(facts, &of.body, &BTreeMap::from([(v, whole)]))?;
    }
    'merge: for _ in 0..8 {
        for (a, ea) in of.vars.clone() {
            for (b, eb) in of.vars.clone() {
                if a == b || !of.body.mentions(a) || !of.body.mentions(b) {
                    continue;
                }
                let whole = product([&ea, &eb]);
                let v = facts.index(&whole);
                let quotient = Poly::atom(Atom::Div(Box::new([Poly::var(v), eb.clone()])));
                let rest = &Poly::var(v) - &(&quotient * &eb);
                let body = with(facts, &of.body, &BTreeMap::from([(a, quotient), (b, rest)]))?;
                let merged = Bound { vars: vec![(v, whole.clone())], body };
                let mut divided = false;
                merged.body.visit_indices(&mut |p| {
                    p.visit(&mut |atom| {
                        divided |= matches!(atom, Atom::Div(of) if counts(&of[0], v));
                    });
                });
                if !divided {
                    of.vars.retain(|(w, _)| *w != a && *w != b);
                    of.vars.push((v, whole));
                    of.body = merged.body;
                    continue 'merge;
                }
            }
        }
        break;
    }
    Ok(of)
}

/// Returns whether an index depends on a variable outside the positions of tensor reads.
fn counts(p: &Poly, id: u32) -> bool {
    p.terms().flat_map(|(m, _)| m).any(|atom| match atom {
        Atom::Var(own) => *own == id,
        Atom::Div(pair) | Atom::Min(pair) | Atom::Max(pair) => pair.iter().any(|p| counts(p, id)),
        Atom::Map(_, of) => of.iter().any(|p| counts(p, id)),
        Atom::Size(_) | Atom::Value(_) => false,
    })
}

/// Returns a bound variable that the body divides by a factor of its extent, with the divisor and the quotient of the
/// extent.
fn quotient_read(of: &Bound) -> Option<(u32, Poly, Poly)> {
    let mut found = None;
    of.body.visit_indices(&mut |p| {
        p.visit(&mut |atom| {
            let Atom::Div(pair) = atom else { return };
            let Some(([Atom::Var(v)], 1)) = pair[0].single() else { return };
            let Some((_, extent)) = of.vars.iter().find(|(w, _)| w == v) else { return };
            let (times, rest) = extent.divide(&pair[1]);
            if rest == Poly::zero() && found.is_none() {
                found = Some((*v, pair[1].clone(), times));
            }
        });
    });
    found
}

/// Returns the nesting depth of reductions in a term, also of those inside its indices. Canonical names contain the
/// depth, so that those of nested reductions differ.
pub fn height(term: &Term) -> u32 {
    match term {
        Term::Num(_) | Term::Param(_) => 0,
        Term::Index(p) => index_height(p),
        Term::Read(_, _, at) => at.iter().map(index_height).max().unwrap_or(0),
        Term::Apply(_, _, args) => args.iter().map(|a| height(a)).max().unwrap_or(0),
        Term::Reduce(_, _, vars, body) => 1 + vars.iter().map(|(_, e)| index_height(e)).fold(height(body), u32::max),
        Term::If(conditions, a, b) => conditions.iter().map(index_height).fold(height(a).max(height(b)), u32::max),
    }
}

/// Returns the nesting depth of reductions in an index. Integers that are read from tensors may contain reductions.
pub fn index_height(p: &Poly) -> u32 {
    let mut most = 0;
    p.visit(&mut |atom| {
        if let Atom::Value(t) = atom {
            most = most.max(height(t));
        }
    });
    most
}

/// Refuses a substitution by which a binder of `bound` would capture a variable. `mentions` says whether the body of
/// the binder contains a variable.
pub fn no_capture(bound: &[(u32, Poly)], vars: &BTreeMap<u32, Poly>, mentions: impl Fn(u32) -> bool) -> Res<()> {
    for (v, _) in bound {
        if vars.iter().any(|(old, new)| old != v && new.mentions(*v) && mentions(*old)) {
            return stop(format!("the name of index {v} is bound twice in nested reductions"));
        }
    }
    Ok(())
}

/// Returns the reduction with canonical variable names, in the order of variables that gives the least term.
pub fn canonical(facts: &Facts, how: Reduction, ty: &Ty, of: Bound) -> Res<T> {
    let (vars, body) = named(&of.vars, |vars| with(facts, &of.body, vars).map(|t| sorted(&t)), height(&of.body))?;
    Ok(Rc::new(Term::Reduce(how, ty.clone(), vars, body)))
}

/// Gives variables canonical names, in the order that makes the extents and then the body least.
pub fn named<B: Ord>(
    vars: &[(u32, Poly)],
    body: impl Fn(&BTreeMap<u32, Poly>) -> Res<B>,
    height: u32,
) -> Res<(Vec<(u32, Poly)>, B)> {
    if vars.len() > MOST {
        return stop(format!("cannot normalize a reduction over {} indices because the maximum is {MOST}", vars.len()));
    }
    let mut least: Option<(Vec<Poly>, B)> = None;
    let mut names = Vec::new();
    let name = |n: usize| NAMES + height * 64 + n as u32;
    for order in orders(vars.len()) {
        let extents: Vec<Poly> = order.iter().map(|i| vars[*i].1.clone()).collect();
        if least.as_ref().is_some_and(|(of, _)| extents > *of) {
            continue;
        }
        let map: BTreeMap<u32, Poly> =
            order.iter().enumerate().map(|(n, i)| (vars[*i].0, Poly::var(name(n)))).collect();
        let candidate = (extents, body(&map)?);
        if least.as_ref().is_none_or(|of| candidate < *of) {
            least = Some(candidate);
        }
    }
    let (extents, body) = least.expect("variables have at least one order");
    names.extend(extents.into_iter().enumerate().map(|(n, e)| (name(n), e)));
    Ok((names, body))
}

fn orders(n: usize) -> Vec<Vec<usize>> {
    (0..n).fold(vec![Vec::new()], |orders, next| {
        orders
            .iter()
            .flat_map(|order: &Vec<usize>| {
                (0..=order.len()).map(move |at| [&order[..at], &[next], &order[at..]].concat())
            })
            .collect()
    })
}

/// Sorts the operands of commutative functions, whose order may change if variables are renamed.
fn sorted(term: &T) -> T {
    match &**term {
        Term::Apply(op, ty, args) => {
            let mut args: Vec<T> = args.iter().map(sorted).collect();
            if Op::named(op).is_some_and(|op| op.def().commutative) {
                args.sort();
            }
            Rc::new(Term::Apply(op.clone(), ty.clone(), args))
        }
        Term::Reduce(how, ty, vars, body) => Rc::new(Term::Reduce(*how, ty.clone(), vars.clone(), sorted(body))),
        Term::If(conditions, a, b) => {
            let mut conditions = conditions.clone();
            conditions.sort();
            choose(conditions, sorted(a), sorted(b))
        }
        _ => term.clone(),
    }
}
