//! Normalizes extrema of elements. They form a lattice, whose normal form is a minimum of maxima.

use crate::{
    facts::Facts,
    integers::exact_integer,
    term::{Kind, T, Term, Ty, apply, num},
};

/// The operands of a maximum.
type Clause = Vec<T>;
/// The maximal number of clauses to which an extremum is expanded.
const CLAUSES: usize = 24;

/// Returns the normal form of an extremum: a minimum of maxima without duplicates, none of which contains another.
///
/// An extremum is NaN if an operand is NaN, so the laws of a distributive lattice hold only if no operand is lost. A
/// maximum that contains another one is therefore dropped only if each of its operands appears in another clause or is
/// never NaN.
pub fn lattice(facts: &Facts, op: &str, ty: &Ty, args: &[T]) -> T {
    let mut all: Vec<Clause> = Vec::new();
    for arg in args {
        let of = clauses(arg);
        all = match (op, all.is_empty()) {
            (_, true) => of,
            ("min", _) => [all, of].concat(),
            _ => all.iter().flat_map(|a| of.iter().map(move |b| [a.as_slice(), b].concat())).collect(),
        };
        if all.len() > CLAUSES {
            let mut args = args.to_vec();
            args.sort();
            args.dedup();
            return if let [one] = args.as_slice() { one.clone() } else { apply(op, ty, args) };
        }
    }
    built(facts, ty, all)
}

/// Returns a term as a minimum of maxima: the list of the maxima.
fn clauses(term: &T) -> Vec<Clause> {
    let of_max = |t: &T| t.args("max").map_or_else(|| vec![t.clone()], <[T]>::to_vec);
    match term.args("min") {
        Some(all) => all.iter().map(of_max).collect(),
        None => vec![of_max(term)],
    }
}

fn built(facts: &Facts, ty: &Ty, mut all: Vec<Clause>) -> T {
    let infinite = |t: &T, x: f64| ty.kind == Kind::Float && t.number() == Some(x);
    for clause in &mut all {
        // −∞ is below all floats.
        if clause.len() > 1 && clause.iter().any(|t| !infinite(t, f64::NEG_INFINITY)) {
            clause.retain(|t| !infinite(t, f64::NEG_INFINITY));
        }
        *clause = bounded(facts, std::mem::take(clause), true);
    }
    all.sort();
    all.dedup();
    let mut n = 0;
    while n < all.len() {
        let contains = |a: &Clause, b: &Clause| b.iter().all(|t| a.contains(t));
        let smaller = (0..all.len()).any(|m| m != n && contains(&all[n], &all[m]));
        let others = |t: &T| (0..all.len()).any(|m| m != n && all[m].contains(t));
        let kept =
            |t: &T| others(t) || matches!(ty.kind, Kind::Int | Kind::Bool) || t.number().is_some_and(|x| !x.is_nan());
        if smaller && all[n].iter().all(kept) {
            all.remove(n);
        } else {
            n += 1;
        }
    }
    let maxima =
        all.into_iter().map(|mut clause| if clause.len() == 1 { clause.remove(0) } else { apply("max", ty, clause) });
    let mut minima: Vec<T> = bounded(facts, maxima.collect(), false);
    if minima.len() > 1 && minima.iter().any(|t| !infinite(t, f64::INFINITY)) {
        minima.retain(|t| !infinite(t, f64::INFINITY));
    }
    if minima.len() == 1 { minima.remove(0) } else { apply("min", ty, minima) }
}

/// Removes duplicates, and all numbers and comparable indices except the largest or smallest.
fn bounded(facts: &Facts, mut all: Vec<T>, largest: bool) -> Vec<T> {
    all.sort();
    all.dedup();
    let numbers: Vec<f64> = all.iter().filter_map(|t| t.number()).filter(|x| !x.is_nan()).collect();
    if numbers.len() > 1 {
        let most = numbers.into_iter().fold(None, |most: Option<f64>, x| {
            Some(most.map_or(x, |most| if (x > most) == largest { x } else { most }))
        });
        all.retain(|t| t.number().is_none_or(|x| x.is_nan()));
        all.extend(most.map(num));
        all.sort();
    }
    let index = |t: &T| if matches!(&**t, Term::Index(_) | Term::Num(_)) { exact_integer(facts, t) } else { None };
    let is_beaten = |n: usize, all: &[T]| {
        let own = index(&all[n]);
        own.is_some_and(|own| {
            (0..all.len()).filter(|m| *m != n).filter_map(|m| index(&all[m])).any(|other| {
                let most = if largest { &other - &own } else { &own - &other };
                facts.nonneg(&most)
            })
        })
    };
    let mut n = 0;
    while n < all.len() {
        if all.len() > 1 && is_beaten(n, &all) {
            all.remove(n);
        } else {
            n += 1;
        }
    }
    all
}
