//! Signs of real functions, and conditions on indices, as far as they are known.

use eutectic_ir::ops::Reduction;

use crate::{
    call::Case,
    facts::Facts,
    real::{Factor, Product, Real},
    term::{Poly, T, Term},
};

/// A source of the signs and conditions that are known in a case.
pub struct Known<'a>(pub &'a Case);

impl Known<'_> {
    /// Returns the facts about extents and indices.
    pub fn facts(&self) -> &Facts {
        &self.0.facts
    }

    /// Removes conditions that follow from the others. Returns `None` if they contradict each other.
    pub fn conditions(&self, mut all: Vec<Poly>) -> Option<Vec<Poly>> {
        let facts = self.facts();
        let contradicts = (0..all.len()).any(|n| {
            let others: Vec<Poly> = all.iter().enumerate().filter(|(m, _)| *m != n).map(|(_, p)| p.clone()).collect();
            facts.assume(others, || facts.nonneg(&(&Poly::int(-1) - &all[n])))
        });
        if contradicts {
            return None;
        }
        let mut n = 0;
        while n < all.len() {
            let others: Vec<Poly> = all.iter().enumerate().filter(|(m, _)| *m != n).map(|(_, p)| p.clone()).collect();
            if facts.assume(others, || facts.nonneg(&all[n])) {
                all.remove(n);
            } else {
                n += 1;
            }
        }
        Some(all)
    }

    /// Returns whether a factor is known not to be 0.
    pub fn nonzero_factor(&self, factor: &Factor) -> bool {
        let nonzero = |t: &T| matches!(&**t, Term::Param(name) if self.0.number_is(name, "nonzero"));
        self.positive_factor(factor) || matches!(factor, Factor::Leaf(t) if nonzero(t))
    }

    /// Returns whether a factor is known to be greater than 0.
    pub fn positive_factor(&self, factor: &Factor) -> bool {
        match factor {
            Factor::Leaf(t) => match &**t {
                Term::Param(name) => self.0.number_is(name, "positive"),
                Term::Read(name, ..) => self.0.positive.borrow().iter().any(|n| n == name),
                Term::Index(p) => self.facts().positive(p),
                _ => false,
            },
            Factor::Inverse(r) | Factor::Root(r) => self.positive(r),
            Factor::Reduce(Reduction::Sum, vars, body) => {
                vars.iter().all(|(_, e)| self.facts().positive(e)) && self.positive(body)
            }
            _ => false,
        }
    }

    fn nonneg_factor(&self, factor: &Factor, n: u32) -> bool {
        n.is_multiple_of(2)
            || self.positive_factor(factor)
            || match factor {
                Factor::Truth(_) | Factor::Holds(_) | Factor::Root(_) => true,
                Factor::Inverse(r) => self.nonneg(r),
                Factor::Reduce(Reduction::Sum, _, body) => self.nonneg(body),
                Factor::Leaf(t) => matches!(&**t, Term::Index(p) if self.facts().nonneg(p)),
                Factor::Call(name, _) => **name == *"abs",
                Factor::Reduce(..) => false,
            }
    }

    /// Returns whether a function is known not to be negative.
    pub fn nonneg(&self, real: &Real) -> bool {
        real.terms().all(|(p, c)| c > 0.0 && p.factors.iter().all(|(f, n)| self.nonneg_factor(f, *n)))
    }

    /// Returns whether a function is known to be greater than 0.
    pub fn positive(&self, real: &Real) -> bool {
        let one = |p: &Product| p.factors.keys().all(|f| self.positive_factor(f));
        self.nonneg(real) && real.terms().any(|(p, _)| one(p))
    }
}
