//! Facts about extents and indices, and their consequences: a small decision procedure for inequalities.
//!
//! A goal p ≥ 0 is shown by putting in, for an index that p is linear in, the end of its range that makes p least, by adding multiples of
//! facts, and in the end by all coefficients being positive. Whatever it answers `true` to holds; a `false` says nothing.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};

use crate::term::{Atom, Poly, without};

/// Why there is no proof.
#[derive(Clone, Debug, PartialEq)]
pub enum Stop {
    /// Something is not understood, or does not hold.
    Because(String),
    /// The proof needs to know whether this extent is 0.
    Split(Rc<str>),
    /// The case does not exist: the left side has no such type, or no value that is a number.
    Vacuous(String),
    /// The proof needs to know the last axis of this sequence, which has one.
    Peel(Rc<str>),
}

/// A result, or why there is none.
pub type Res<V> = Result<V, Stop>;

/// Stops with a reason.
pub fn stop<V>(why: impl Into<String>) -> Res<V> {
    Err(Stop::Because(why.into()))
}

/// The facts of one case of a rule.
#[derive(Default)]
pub struct Facts {
    /// Polynomials that are at least 0.
    known: RefCell<Vec<Poly>>,
    /// The extent of each index variable, which is in 0..extent.
    ranges: RefCell<BTreeMap<u32, Poly>>,
    /// The extent of the results of an index map.
    maps: RefCell<BTreeMap<Rc<str>, Poly>>,
    /// Integers that may be negative.
    signed: RefCell<Vec<Rc<str>>>,
    next: Cell<u32>,
    /// How many goals were looked at.
    pub work: Cell<u64>,
}

/// More goals than these are not looked at in one case: nothing more is shown then.
const WORK: u64 = 150_000;

/// Ranges that are no larger are looked at value by value.
const SMALL: i128 = 8;

impl Facts {
    /// Whether all that may be looked at was.
    pub fn exhausted(&self) -> bool {
        self.work.get() > WORK
    }

    /// A new index variable below an extent.
    pub fn index(&self, extent: &Poly) -> u32 {
        let id = self.next.get();
        self.next.set(id + 1);
        self.range(id, extent);
        id
    }

    /// Says that a variable is below an extent.
    pub fn range(&self, id: u32, extent: &Poly) {
        self.ranges.borrow_mut().insert(id, extent.clone());
    }

    /// Says that an index map gives indices below an extent.
    pub fn map(&self, name: &Rc<str>, extent: &Poly) {
        self.maps.borrow_mut().insert(name.clone(), extent.clone());
    }

    /// Says that an integer may be negative.
    pub fn signed(&self, name: &str) {
        self.signed.borrow_mut().push(name.into());
    }

    /// Notes that a polynomial is at least 0.
    pub fn note(&self, p: Poly) {
        if p.known().is_none_or(|n| n < 0) && !self.known.borrow().contains(&p) {
            self.known.borrow_mut().push(p);
        }
    }

    /// Assumes facts while `then` runs.
    pub fn assume<V>(&self, facts: impl IntoIterator<Item = Poly>, then: impl FnOnce() -> V) -> V {
        let before = self.known.borrow().len();
        facts.into_iter().for_each(|p| self.note(p));
        let result = then();
        self.known.borrow_mut().truncate(before);
        result
    }

    /// Whether facts contradict each other in a way that shows.
    pub fn absurd(&self) -> bool {
        let known = self.known.borrow().clone();
        known.iter().any(|p| self.search(&(&Poly::int(-1) - p), 2))
    }

    /// Whether p ≥ 0 follows.
    pub fn nonneg(&self, p: &Poly) -> bool {
        let is_known = |fact: &Poly| (p - fact).known().is_some_and(|more| more >= 0);
        self.known.borrow().iter().any(is_known) || self.search(p, 5)
    }

    /// Whether p ≥ 1 follows.
    pub fn positive(&self, p: &Poly) -> bool {
        self.nonneg(&(p - &Poly::int(1)))
    }

    /// Returns whether an index is in 0..extent.
    pub fn within(&self, index: &Poly, extent: &Poly) -> bool {
        self.nonneg(index) && self.positive(&(extent - index))
    }

    /// Returns the only value that a variable can have, if its range is small and facts leave only one.
    pub fn only(&self, id: u32) -> Option<Poly> {
        let extent = self.ranges.borrow().get(&id).and_then(Poly::known).filter(|extent| *extent <= SMALL)?;
        let known = self.known.borrow().clone();
        let slopes: Vec<_> =
            known.iter().filter(|p| p.mentions(id)).filter_map(|p| p.linear_in(&Atom::Var(id))).collect();
        let with = |value: i128| slopes.iter().map(move |(slope, rest)| rest.plus_times(slope, value));
        let mut left = (0..extent).filter(|value| !with(*value).any(|p| self.nonneg(&(&Poly::int(-1) - &p))));
        match (left.next(), left.next()) {
            (Some(value), None) => Some(Poly::int(value)),
            _ => None,
        }
    }

    fn atom_nonneg(&self, atom: &Atom) -> bool {
        match atom {
            Atom::Size(name) => {
                let own = Poly::atom(atom.clone());
                let at_least = |p: &Poly| (&own - p).known().is_some_and(|least| least >= 0);
                !self.signed.borrow().contains(name) || self.known.borrow().iter().any(at_least)
            }
            Atom::Var(_) => true,
            Atom::Map(name, _) => self.maps.borrow().contains_key(name),
            Atom::Div(of) => self.search(&of[0], 2),
            Atom::Min(of) => of.iter().all(|p| self.search(p, 2)),
            Atom::Max(of) => of.iter().any(|p| self.search(p, 2)),
            Atom::Value(_) => false,
        }
    }

    /// The most that a bounded atom can be.
    fn most(&self, atom: &Atom) -> Option<Poly> {
        let below = |extent: &Poly| extent - &Poly::int(1);
        match atom {
            Atom::Var(id) => self.ranges.borrow().get(id).map(below),
            Atom::Map(name, _) => self.maps.borrow().get(name).map(below),
            // ⌊i / b⌋ for i below a multiple of b.
            Atom::Div(of) => {
                let extent = match of[0].single()? {
                    ([Atom::Var(id)], 1) => self.ranges.borrow().get(id).cloned()?,
                    _ => return None,
                };
                let (times, rest) = extent.divide(&of[1]);
                (rest == Poly::zero()).then(|| below(&times))
            }
            _ => None,
        }
    }

    /// Facts that come with an atom: b·⌊a/b⌋ ≤ a < b·⌊a/b⌋ + b; min(a, b) ≤ a, b; and a size of a range that is not empty.
    fn of_atom(&self, atom: &Atom) -> Vec<Poly> {
        let own = Poly::atom(atom.clone());
        match atom {
            Atom::Div(of) => {
                let rest = &of[0] - &(&of[1] * &own);
                vec![rest.clone(), &(&of[1] - &Poly::int(1)) - &rest]
            }
            Atom::Min(of) => of.iter().map(|p| p - &own).collect(),
            Atom::Max(of) => of.iter().map(|p| &own - p).collect(),
            _ => Vec::new(),
        }
    }

    fn search(&self, p: &Poly, depth: usize) -> bool {
        if let Some(n) = p.known() {
            return n >= 0;
        }
        if p.terms().all(|(m, c)| c >= 0 && m.iter().all(|a| self.atom_nonneg(a))) {
            return true;
        }
        self.work.set(self.work.get() + 1);
        if depth == 0 || self.exhausted() {
            return false;
        }
        let mut atoms: Vec<Atom> = p.terms().flat_map(|(m, _)| m.iter().cloned()).collect();
        atoms.sort();
        atoms.dedup();
        // Extents of ranges mention no later variable: the latest one is put in first.
        for atom in atoms.iter().rev() {
            let Some(most) = self.most(atom) else { continue };
            let Some((slope, rest)) = p.linear_in(atom) else { continue };
            if self.search(&slope, depth - 1) {
                if self.search(&rest, depth - 1) {
                    return true;
                }
            } else if self.search(&(&Poly::zero() - &slope), depth - 1)
                && self.search(&(&(&slope * &most) + &rest), depth - 1)
            {
                return true;
            }
        }
        let facts: Vec<Poly> = {
            let known = self.known.borrow();
            known.iter().cloned().chain(atoms.iter().flat_map(|a| self.of_atom(a))).collect()
        };
        self.with_a_fact(p, &facts, depth.min(3))
    }

    /// Subtracts a fact times a monomial such that the least term of p goes.
    fn with_a_fact(&self, p: &Poly, facts: &[Poly], depth: usize) -> bool {
        for (m, c) in p.terms().filter(|(_, c)| *c < 0) {
            for fact in facts {
                for (n, d) in fact.terms().filter(|(_, d)| *d < 0) {
                    let Some(factor) = without(m, n) else { continue };
                    if !factor.iter().all(|a| self.atom_nonneg(a)) {
                        continue;
                    }
                    // As often as it takes for the term to go: c is a multiple of d, or goes past it.
                    let times = (-c + -d - 1) / -d;
                    let multiple = Poly::from_terms([(factor, times)]);
                    let rest = p - &(&multiple * fact);
                    if rest.terms().count() <= p.terms().count() && self.search(&rest, depth - 1) {
                        return true;
                    }
                }
            }
        }
        false
    }

    /// ⌊a / b⌋ and a mod b, for b ≥ 1.
    pub fn divided(&self, a: &Poly, b: &Poly) -> (Poly, Poly) {
        let (quotient, rest) = a.divide(b);
        if self.nonneg(&rest) && self.positive(&(b - &rest)) {
            return (quotient, rest);
        }
        // A remainder may have come out negative.
        let up = &rest + b;
        if self.nonneg(&up) && self.positive(&(&Poly::zero() - &rest)) {
            return (&quotient - &Poly::int(1), up);
        }
        // ⌊⌊x/c⌋/b⌋ = ⌊x/(c·b)⌋
        if let Some(([Atom::Div(of)], 1)) = rest.single() {
            let (inner, _) = self.divided(&of[0], &(&of[1] * b));
            return (&quotient + &inner, &rest - &(&inner * b));
        }
        // ⌊(x + g·y)/(g·c)⌋ = ⌊y/c⌋ for 0 ≤ x < g
        for (m, c) in rest.terms().filter(|(_, c)| *c > 0) {
            let sizes = m.iter().filter(|a| matches!(a, Atom::Size(_))).cloned().collect();
            let g = Poly::from_terms([(sizes, c)]);
            let (times, over) = b.divide(&g);
            if over != Poly::zero() || g == Poly::int(1) || times == *b || !self.positive(&g) {
                continue;
            }
            let (y, x) = rest.divide(&g);
            if self.nonneg(&x) && self.positive(&(&g - &x)) {
                let (inner, _) = self.divided(&y, &times);
                return (&quotient + &inner, &rest - &(&inner * b));
            }
        }
        let part = Poly::atom(Atom::Div(Box::new([rest.clone(), b.clone()])));
        (&quotient + &part, &rest - &(&part * b))
    }

    /// The smaller, or the larger.
    pub fn extreme(&self, a: &Poly, b: &Poly, larger: bool) -> Poly {
        let a_is_most = self.nonneg(&(a - b));
        if a_is_most || self.nonneg(&(b - a)) {
            return if a_is_most == larger { a.clone() } else { b.clone() };
        }
        let mut pair = [a.clone(), b.clone()];
        pair.sort();
        Poly::atom(if larger { Atom::Max(Box::new(pair)) } else { Atom::Min(Box::new(pair)) })
    }
}
