//! Proves that both sides read the same elements, so that NaN or an infinity in an element reaches both results or
//! neither.
//!
//! Sums, products, norms and attention may return NaN or either infinity if an element is one of these. So the proof
//! shows only that both sides return one of these. Most functions propagate NaN and infinities. A function that maps an
//! infinity to a number (a quotient, an exponential, a maximum) must be on both sides with the same operand. The
//! conditions under which an element is read must be the same on both sides. If the right side has attention, it may
//! read fewer elements.

use std::collections::BTreeSet;

use eutectic_ir::{DType, ops::Reduction};

use super::bounds::is_sum_of_weights;
use crate::{
    bind::{height, index_height, index_with, named, with},
    bits,
    call::Case,
    facts::{Res, stop},
    lower::{Lower, Truths},
    real::Real,
    signs::Known,
    term::{Kind, Poly, T, Term, Ty, apply},
};

/// A read element, or a function that may map an infinity to a number, with canonical variable names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    what: String,
    vars: Vec<Poly>,
    at: Vec<Poly>,
    of: Option<Real>,
    /// The conditions under which the element is read: extents that are not 0, and conditions on indices.
    conditions: BTreeSet<Poly>,
    /// Boxes of indices. The element is read only outside all of them. A box is a set of conditions that all hold
    /// inside it.
    outside: BTreeSet<BTreeSet<Poly>>,
    /// The truth values under which the element is read.
    truths: BTreeSet<(T, bool)>,
}

impl Entry {
    /// Returns whether the element is read only outside a box.
    fn is_outside(&self, all: &BTreeSet<Poly>) -> bool {
        self.outside.iter().any(|own| own.is_subset(all))
            || all.iter().any(|p| self.conditions.contains(&(&Poly::int(-1) - p)))
    }
}

/// An entry, and the same entry without the conditions of attention's masks. The second one is compared with a side
/// that has no masks.
type Both = (Entry, Entry);

/// The elements that a side reads.
#[derive(Default)]
struct Reads {
    reads: BTreeSet<Both>,
    ends: BTreeSet<Both>,
    /// The truth values that depend on floats.
    decided: BTreeSet<Both>,
}

#[derive(Clone, Default)]
struct Place {
    vars: Vec<(u32, Poly)>,
    conditions: Vec<Poly>,
    outside: Vec<Vec<Poly>>,
    truths: BTreeSet<(T, bool)>,
}

/// The functions whose result is never finite if an operand is not. Any other function may map an infinity to a number.
const HANDS_ON: &[&str] = &[
    "add", "sub", "mul", "neg", "abs", "sqrt", "log", "log1p", "floor", "ceil", "round", "sin", "cos", "tan", "sinh",
    "cosh", "asinh", "acosh", "asin", "acos", "atanh", "cast", "act none", "store", "wrap", "+", "-", "*",
];

/// Proves that both sides are the same function of the same elements, up to conversions between floats.
pub fn alike(case: &Case, left: &T, right: &T) -> Res<()> {
    let of = |term: &T| bits::normal(case, &unconverted(&Lower::new(case).strictly(term)?), &Truths::new());
    let (l, r) = (of(left)?, of(right)?);
    if l == r { Ok(()) } else { stop("the sides are different sums, whose zeros may differ in sign") }
}

/// Returns a term without conversions between floats.
pub fn unconverted(term: &T) -> T {
    match &**term {
        Term::Apply(op, ty, args) if **op == *"cast" && ty.kind == Kind::Float => unconverted(&args[0]),
        Term::Apply(op, _, args) => apply(op, &Ty::fixed(DType::F64), args.iter().map(unconverted).collect()),
        Term::Reduce(how, _, vars, body) => {
            T::new(Term::Reduce(*how, Ty::fixed(DType::F64), vars.clone(), unconverted(body)))
        }
        Term::If(conditions, a, b) => T::new(Term::If(conditions.clone(), unconverted(a), unconverted(b))),
        Term::Read(name, ty, at) if ty.kind == Kind::Float => {
            T::new(Term::Read(name.clone(), Ty::fixed(DType::F64), at.clone()))
        }
        _ => term.clone(),
    }
}

/// Collects the words for rows of attention without weights, except `nan`, which is the value that arithmetic gives.
fn empties(term: &T, found: &mut BTreeSet<String>) {
    match &**term {
        Term::Apply(op, _, args) => {
            if let Some(word) = op.strip_prefix("empty ").filter(|word| *word != "nan") {
                found.insert(word.to_string());
            }
            args.iter().for_each(|a| empties(a, found));
        }
        Term::Reduce(_, _, _, body) => empties(body, found),
        Term::If(_, a, b) => [a, b].into_iter().for_each(|t| empties(t, found)),
        _ => {}
    }
}

/// Proves that both sides read the same elements. With `fewer`, the right side may skip masked elements.
pub fn same(case: &Case, left: &T, right: &T, fewer: bool) -> Res<()> {
    let of = |term: &T| -> Res<Reads> {
        let term = Lower::new(case).strictly(term)?;
        let mut reads = Reads::default();
        reads.collect(case, &term, &Place::default())?;
        Ok(reads)
    };
    let mut empty = [BTreeSet::new(), BTreeSet::new()];
    [left, right].into_iter().zip(&mut empty).for_each(|(side, found)| empties(side, found));
    if empty[0] != empty[1] {
        return stop("a row of attention without weights has another value on the right");
    }
    let (l, r) = (of(left)?, of(right)?);
    // An entry covers every equal entry that has more conditions.
    let covers = |all: &BTreeSet<Both>, one: &Entry| {
        all.iter().any(|(own, _)| {
            own.what == one.what
                && own.vars == one.vars
                && own.at == one.at
                && own.of == one.of
                && own.conditions.is_subset(&one.conditions)
                && own.outside.iter().all(|all| one.is_outside(all))
                && own.truths.is_subset(&one.truths)
        })
    };
    let missing = |from: &BTreeSet<Both>, of: &BTreeSet<Both>| {
        from.iter().find(|(entry, more)| !covers(of, entry) && !covers(of, more)).map(|(entry, _)| entry.clone())
    };
    if missing(&r.decided, &l.decided).is_some() {
        return stop("the right side has a condition on floats that the left side has not");
    }
    if let Some(entry) = missing(&r.reads, &l.reads) {
        return stop(format!("the right side reads {} where the left side does not", entry.what));
    }
    if let Some(entry) = missing(&r.ends, &l.ends) {
        return stop(format!("the right side computes `{}` of a number, and the left side does not", entry.what));
    }
    if fewer {
        return Ok(());
    }
    if missing(&l.decided, &r.decided).is_some() {
        return stop("the left side has a condition on floats that the right side has not");
    }
    match missing(&l.reads, &r.reads).or_else(|| missing(&l.ends, &r.ends)) {
        Some(entry) => {
            stop(format!("the left side has {}, and the right side may lose its NaN or infinity", entry.what))
        }
        None => Ok(()),
    }
}

impl Reads {
    fn collect(&mut self, case: &Case, term: &T, place: &Place) -> Res<()> {
        case.step(1)?;
        match &**term {
            Term::Num(_) | Term::Param(_) | Term::Index(_) => {}
            Term::Read(name, ty, at) => {
                if ty.kind == Kind::Float {
                    let at = at.iter().map(|p| index(case, p)).collect::<Res<Vec<_>>>()?;
                    let entry = self.entry(case, name, at, None, place)?;
                    self.reads.insert(entry);
                }
            }
            Term::If(all, a, b) => {
                let all = all.iter().map(|p| index(case, p)).collect::<Res<Vec<_>>>()?;
                let (mut then, mut otherwise) = (place.clone(), place.clone());
                then.conditions.extend(all.iter().cloned());
                self.collect(case, a, &then)?;
                match all.as_slice() {
                    [p] => otherwise.conditions.push(&Poly::int(-1) - p),
                    _ => otherwise.outside.push(all),
                }
                self.collect(case, b, &otherwise)?;
            }
            Term::Reduce(_, _, vars, _) if vars.iter().any(|(_, e)| *e == Poly::zero()) => {}
            Term::Reduce(how, _, vars, body) => {
                let mut inner = place.clone();
                inner.vars.extend(vars.iter().cloned());
                if matches!(how, Reduction::Max | Reduction::Min) {
                    self.end(case, how.def().name, body, &inner)?;
                }
                let there = vars.iter().map(|(_, e)| e - &Poly::int(1)).collect::<Vec<_>>();
                case.facts.assume(there, || self.collect(case, body, &inner))?;
            }
            Term::Apply(op, _, args) if **op == *"where" => {
                let condition = bits::normal(case, &args[0], &Truths::new())?;
                self.decides(case, &args[0], place)?;
                for (branch, truth) in [(&args[1], true), (&args[2], false)] {
                    let mut inner = place.clone();
                    inner.truths.insert(match condition.args("not") {
                        Some([other]) => (other.clone(), !truth),
                        _ => (condition.clone(), truth),
                    });
                    self.collect(case, branch, &inner)?;
                }
            }
            Term::Apply(_, ty, _) if ty.kind == Kind::Bool => self.decides(case, term, place)?,
            Term::Apply(op, _, args) => {
                match (&**op, args.as_slice()) {
                    ("div", [_, of]) => self.end(case, "1/", of, place)?,
                    ("rsqrt", [of]) => self.end(case, "1/√", of, place)?,
                    ("reciprocal", [of]) => self.end(case, "1/", of, place)?,
                    (name, _) if !HANDS_ON.contains(&name.strip_prefix("calc ").unwrap_or(name)) => {
                        for of in args {
                            self.end(case, name, of, place)?;
                        }
                    }
                    _ => {}
                }
                for arg in args {
                    self.collect(case, arg, place)?;
                }
            }
        }
        Ok(())
    }

    /// Records a truth value that depends on floats. Such a value does not propagate NaN.
    fn decides(&mut self, case: &Case, truth: &T, place: &Place) -> Res<()> {
        if decided_by_floats(truth) {
            let normal = bits::normal(case, truth, &Truths::new())?;
            let here = Place { truths: BTreeSet::from([(normal.clone(), true)]), ..place.clone() };
            let entry = self.entry(case, "a condition", Vec::new(), None, &here)?;
            if normal.number().is_none() {
                self.decided.insert(entry);
            }
        }
        Ok(())
    }

    /// Records a function that may map an infinity to a number. A division by a root counts as one function.
    fn end(&mut self, case: &Case, name: &str, of: &T, place: &Place) -> Res<()> {
        // A sum of softmax weights is finite, because the largest weight is 1.
        if !reads_floats(of) || is_sum_of_weights(case, of) {
            return Ok(());
        }
        let (name, of) = match (name, of.args("sqrt")) {
            ("exp-normal", _) => ("exp", of),
            ("1/", Some([inner])) => ("1/√", inner),
            _ => (name, of),
        };
        let real = Lower::new(case).real(of)?;
        let entry = self.entry(case, name, Vec::new(), Some(real), place)?;
        self.ends.insert(entry);
        Ok(())
    }

    fn entry(&self, case: &Case, what: &str, at: Vec<Poly>, of: Option<Real>, place: &Place) -> Res<Both> {
        let mut more = place.clone();
        more.truths.retain(|(truth, _)| truth.args("hides").is_none());
        Ok((named_entry(case, what, &at, &of, place)?, named_entry(case, what, &at, &of, &more)?))
    }
}

fn named_entry(case: &Case, what: &str, at: &[Poly], of: &Option<Real>, place: &Place) -> Res<Entry> {
    let facts = &case.facts;
    let known = Known(case);
    let conditions: Vec<Poly> = place.conditions.iter().filter(|p| !facts.nonneg(p)).cloned().collect();
    let mentioned = |v: u32| {
        at.iter().any(|p| p.mentions(v))
            || of.as_ref().is_some_and(|r| r.mentions(v))
            || conditions.iter().chain(place.outside.iter().flatten()).any(|p| p.mentions(v))
            || place.truths.iter().any(|(t, _)| t.mentions(v))
    };
    let (own, others): (Vec<_>, Vec<_>) = place.vars.iter().cloned().partition(|(v, _)| mentioned(*v));
    let not_empty = others.iter().map(|(_, e)| e - &Poly::int(1)).filter(|p| !facts.nonneg(p));
    let not_empty: Vec<Poly> = not_empty.collect();
    let indices = at.iter().chain(&conditions).chain(place.outside.iter().flatten()).map(index_height);
    let tests = place.truths.iter().map(|(t, _)| height(t));
    let depth = indices.chain(tests).fold(of.as_ref().map_or(0, Real::height), u32::max);
    let (vars, (at, of, conditions, outside, truths)) = named(
        &own,
        |map| {
            let index = |p: &Poly| index_with(facts, p, map);
            let at = at.iter().map(index).collect::<Res<Vec<_>>>()?;
            let of = of.as_ref().map(|r| r.rename(&known, map)).transpose()?;
            let conditions: BTreeSet<Poly> = conditions.iter().map(index).collect::<Res<_>>()?;
            let every = |all: &Vec<Poly>| all.iter().map(index).collect::<Res<_>>();
            let outside: BTreeSet<BTreeSet<Poly>> = place.outside.iter().map(every).collect::<Res<_>>()?;
            let truth = |(t, b): &(T, bool)| Ok((by_value(case, &with(facts, t, map)?)?, *b));
            let truths: BTreeSet<(T, bool)> = place.truths.iter().map(truth).collect::<Res<_>>()?;
            Ok((at, of, conditions, outside, truths))
        },
        depth,
    )?;
    let conditions = conditions.into_iter().chain(not_empty).collect();
    let vars = vars.into_iter().map(|(_, e)| e).collect();
    Ok(Entry { what: what.into(), vars, at, of, conditions, outside, truths })
}

/// Replaces a test for NaN by a name that contains the real function of the tested number. Tests of equal functions
/// then have equal names.
fn by_value(case: &Case, truth: &T) -> Res<T> {
    if let Some([inner]) = truth.args("not") {
        return Ok(apply("not", &Ty::bool(), vec![by_value(case, inner)?]));
    }
    let Some([of]) = truth.args("is-nan").or_else(|| truth.args("eq").filter(|of| of[0] == of[1]).map(|of| &of[..1]))
    else {
        return Ok(truth.clone());
    };
    let real = Lower::new(case).real(of)?;
    Ok(T::new(Term::Param(format!("{real} is NaN").into())))
}

fn index(case: &Case, p: &Poly) -> Res<Poly> {
    let read = |t: &T| bits::normal(case, t, &Truths::new()).map(crate::term::value);
    crate::bind::substitute(&case.facts, p, &|_| None, &read)
}

/// Returns whether a truth value depends on floats outside the masks of attention.
fn decided_by_floats(term: &T) -> bool {
    match &**term {
        Term::Apply(op, ..) if **op == *"hides" => false,
        Term::Apply(_, _, args) => args.iter().any(decided_by_floats),
        _ => reads_floats(term),
    }
}

/// Returns whether a term reads floats.
fn reads_floats(term: &T) -> bool {
    match &**term {
        Term::Read(_, ty, _) => ty.kind == Kind::Float,
        Term::Apply(_, _, args) => args.iter().any(reads_floats),
        Term::Reduce(_, _, _, body) => reads_floats(body),
        Term::If(_, a, b) => reads_floats(a) || reads_floats(b),
        _ => false,
    }
}
