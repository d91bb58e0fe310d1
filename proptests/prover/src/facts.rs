//! Facts about extents and indices, and their consequences: a small decision procedure for inequalities.
//!
//! A search for a proof of p ≥ 0 simplifies p in two ways. If p is linear in an index, the index is replaced by the end
//! of its range at which p is least. A multiple of a fact is subtracted from p. The goal holds if all remaining
//! coefficients are positive, and no atom is negative. The procedure is sound and incomplete: `true` is a proof, and
//! `false` means only that it found none.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};

use crate::{
    smt::{Formula, call, int, nonneg, of_poly},
    term::{Atom, Poly, without},
};

/// The reason why there is no proof.
#[derive(Clone, Debug, PartialEq)]
pub enum Stop {
    /// A construct is unsupported, or an obligation was not proved.
    Because(String),
    /// The proof needs two cases: this size is 0, or it is not.
    Split(Rc<str>),
    /// The case is empty: the left side has no such type, or is finite for no input.
    Vacuous(String),
    /// The proof needs the last axis of this sequence as an axis of its own.
    Peel(Rc<str>),
}

/// A result, or the reason why there is none.
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
    /// The integers that may be negative.
    signed: RefCell<Vec<Rc<str>>>,
    next: Cell<u32>,
    /// The proved goals, for a solver to check. Each is a list of formulas that are unsatisfiable if the proof is
    /// right.
    answered: RefCell<Option<Vec<Vec<Formula>>>>,
    /// The number of goals that were searched.
    pub work: Cell<u64>,
}

/// The maximal number of goals that are searched in one case. After that, no goal is proved.
const WORK: u64 = 150_000;

/// The maximal number of proved goals of a case that are kept for a solver to check.
const ANSWERS: usize = 40;

/// The largest range whose values are enumerated.
const SMALL: i128 = 8;

impl Facts {
    /// Returns whether the search budget of the case is used up.
    pub fn exhausted(&self) -> bool {
        self.work.get() > WORK
    }

    /// Makes an index variable with the range 0..extent.
    pub fn index(&self, extent: &Poly) -> u32 {
        let id = self.next.get();
        self.next.set(id + 1);
        self.range(id, extent);
        id
    }

    /// Records that a variable is below an extent.
    pub fn range(&self, id: u32, extent: &Poly) {
        self.ranges.borrow_mut().insert(id, extent.clone());
    }

    /// Records that the results of an index map are below an extent.
    pub fn map(&self, name: &Rc<str>, extent: &Poly) {
        self.maps.borrow_mut().insert(name.clone(), extent.clone());
    }

    /// Records that an integer may be negative.
    pub fn signed(&self, name: &str) {
        self.signed.borrow_mut().push(name.into());
    }

    /// Records that a polynomial is at least 0.
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

    /// Returns whether the procedure shows that the facts contradict each other.
    pub fn absurd(&self) -> bool {
        let known = self.known.borrow().clone();
        known.iter().any(|p| self.search(&(&Poly::int(-1) - p), 2))
    }

    /// Returns whether p ≥ 0 follows.
    pub fn nonneg(&self, p: &Poly) -> bool {
        let is_known = |fact: &Poly| (p - fact).known().is_some_and(|more| more >= 0);
        if self.known.borrow().iter().any(is_known) {
            return true;
        }
        let holds = self.search(p, 5);
        if holds && p.known().is_none() {
            self.keep(p);
        }
        holds
    }

    /// Keeps a proved goal for a solver to check.
    fn keep(&self, p: &Poly) {
        let mut answered = self.answered.borrow_mut();
        if let Some(kept) = answered.as_mut().filter(|kept| kept.len() < ANSWERS) {
            let mut question = self.assumptions(std::slice::from_ref(p));
            question.push(call("<", [of_poly(p), Formula::Int(0)]));
            if !kept.contains(&question) {
                kept.push(question);
            }
        }
    }

    /// Starts to keep proved goals.
    pub fn record(&self) {
        *self.answered.borrow_mut() = Some(Vec::new());
    }

    /// Returns the proved goals, and stops keeping them.
    pub fn recorded(&self) -> Vec<Vec<Formula>> {
        self.answered.borrow_mut().take().unwrap_or_default()
    }

    /// Returns, as formulas, all facts about the atoms of the goals.
    pub fn assumptions(&self, goals: &[Poly]) -> Vec<Formula> {
        let known = self.known.borrow();
        let mut formulas: Vec<Formula> = known.iter().map(nonneg).collect();
        let (mut sizes, mut maps, mut vars) = (Vec::new(), Vec::new(), Vec::new());
        let mut open: Vec<Poly> = goals.iter().chain(known.iter()).cloned().collect();
        while let Some(p) = open.pop() {
            p.visit(&mut |atom| match atom {
                Atom::Size(name) if !sizes.contains(name) => sizes.push(name.clone()),
                Atom::Map(name, _) if !maps.contains(atom) => {
                    maps.push(atom.clone());
                    open.extend(self.maps.borrow().get(name).cloned());
                }
                Atom::Var(id) if !vars.contains(id) => {
                    vars.push(*id);
                    open.extend(self.ranges.borrow().get(id).cloned());
                }
                _ => {}
            });
        }
        let signed = self.signed.borrow();
        formulas.extend(
            sizes.iter().filter(|name| !signed.contains(name)).map(|name| call(">=", [int(name), Formula::Int(0)])),
        );
        let below = |atom: &Atom, extent: &Poly| {
            let own = Poly::atom(atom.clone());
            [nonneg(&own), call("<", [of_poly(&own), of_poly(extent)])]
        };
        for id in vars {
            let atom = Atom::Var(id);
            match self.ranges.borrow().get(&id) {
                Some(extent) => formulas.extend(below(&atom, extent)),
                None => formulas.push(nonneg(&Poly::atom(atom))),
            }
        }
        for atom in &maps {
            if let Atom::Map(name, _) = atom
                && let Some(extent) = self.maps.borrow().get(name)
            {
                formulas.extend(below(atom, extent));
            }
        }
        formulas
    }

    /// Returns whether p ≥ 1 follows.
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

    /// Returns the largest value of an atom with a known range.
    fn most(&self, atom: &Atom) -> Option<Poly> {
        let below = |extent: &Poly| extent - &Poly::int(1);
        match atom {
            Atom::Var(id) => self.ranges.borrow().get(id).map(below),
            Atom::Map(name, _) => self.maps.borrow().get(name).map(below),
            // ⌊i / b⌋ for an index i whose extent is a multiple of b.
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

    /// Returns the facts that the definition of an atom implies: 0 ≤ a − b·⌊a/b⌋ < b; min(a, b) ≤ a, b; and max(a, b) ≥
    /// a, b.
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
        // The extent of a variable mentions earlier variables only, so the latest one is substituted first.
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

    /// Subtracts a multiple of a fact that cancels a negative term of p, and searches for a proof of the rest.
    fn with_a_fact(&self, p: &Poly, facts: &[Poly], depth: usize) -> bool {
        for (m, c) in p.terms().filter(|(_, c)| *c < 0) {
            for fact in facts {
                for (n, d) in fact.terms().filter(|(_, d)| *d < 0) {
                    let Some(factor) = without(m, n) else { continue };
                    if !factor.iter().all(|a| self.atom_nonneg(a)) {
                        continue;
                    }
                    // The least multiple of d that reaches c.
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

    /// Returns ⌊a / b⌋ and a mod b, for b ≥ 1.
    pub fn divided(&self, a: &Poly, b: &Poly) -> (Poly, Poly) {
        let (quotient, rest) = a.divide(b);
        if self.nonneg(&rest) && self.positive(&(b - &rest)) {
            return (quotient, rest);
        }
        // The polynomial remainder may be negative.
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

    /// Returns the minimum or maximum of two polynomials.
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
