//! Choices between terms, by truth values or by conditions on indices, and functions of infinite operands.

use std::collections::BTreeMap;

use crate::{
    bind::{Bound, with},
    facts::{Facts, Res},
    term::{Atom, Poly, T, Term, num},
};

/// Returns the two branches of a choice.
pub fn branches(t: &T) -> Option<(&T, &T)> {
    match &**t {
        Term::If(_, a, b) => Some((a, b)),
        Term::Apply(op, _, args) if **op == *"where" => Some((&args[1], &args[2])),
        _ => None,
    }
}

/// Returns whether a term is an infinity or NaN, or a choice with such a branch.
pub fn is_special(t: &T) -> bool {
    t.number().is_some_and(|x| !x.is_finite()) || branches(t).is_some_and(|(a, b)| is_special(a) || is_special(b))
}

/// Evaluates a function with an infinite operand. Other operands are assumed to be finite unless they contain a special
/// value.
pub fn special(op: &str, args: &[T]) -> Option<T> {
    let infinite = |t: &T| t.number().filter(|x| x.is_infinite());
    let plain = |t: &T| !is_special(t);
    match (op, args) {
        ("add", [a, b]) => match (infinite(a), infinite(b)) {
            (Some(x), None) if plain(b) => Some(num(x)),
            (None, Some(x)) if plain(a) => Some(num(x)),
            _ => None,
        },
        ("sub", [a, b]) => match (infinite(a), infinite(b)) {
            (Some(x), None) if plain(b) => Some(num(x)),
            (None, Some(x)) if plain(a) => Some(num(-x)),
            _ => None,
        },
        ("exp", [a]) => infinite(a).map(|x| num(x.exp())),
        ("max" | "min", [a, b]) => {
            let neutral = if op == "max" { f64::NEG_INFINITY } else { f64::INFINITY };
            match (infinite(a), infinite(b)) {
                (Some(x), _) if x == neutral => Some(b.clone()),
                (_, Some(x)) if x == neutral => Some(a.clone()),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Splits a reduction in two at the index where a condition on one of its variables changes.
pub fn cut(facts: &Facts, of: &Bound) -> Res<Option<(Bound, Bound)>> {
    let mut found: Vec<Poly> = Vec::new();
    conditions(&of.body, &mut found);
    for p in found {
        for (v, extent) in &of.vars {
            let Some((slope, rest)) = p.linear_in(&Atom::Var(*v)) else { continue };
            if of.vars.iter().any(|(w, _)| rest.mentions(*w)) {
                continue;
            }
            // The first index of the second part: v ≥ −rest holds from −rest on, and v ≤ rest up to rest.
            let at = match slope.known() {
                Some(1) => &Poly::zero() - &rest,
                Some(-1) => &rest + &Poly::int(1),
                _ => continue,
            };
            if !facts.nonneg(&at) || !facts.nonneg(&(extent - &at)) {
                continue;
            }
            if facts.nonneg(&(&Poly::zero() - &at)) || facts.nonneg(&(&at - extent)) {
                continue;
            }
            let part = |extent: Poly, shift: &Poly| -> Res<Bound> {
                let w = facts.index(&extent);
                let map = BTreeMap::from([(*v, &Poly::var(w) + shift)]);
                let mut vars = of.vars.clone();
                vars.iter_mut().filter(|(u, _)| u == v).for_each(|own| *own = (w, extent.clone()));
                Ok(Bound { vars, body: with(facts, &of.body, &map)? })
            };
            return Ok(Some((part(at.clone(), &Poly::zero())?, part(extent - &at, &at)?)));
        }
    }
    Ok(None)
}

/// Collects the conditions of a term that are outside all binders.
fn conditions(term: &T, found: &mut Vec<Poly>) {
    match &**term {
        Term::If(all, a, b) => {
            found.extend(all.iter().cloned());
            for p in all {
                p.visit(&mut |atom| {
                    if let Atom::Value(t) = atom {
                        conditions(t, found);
                    }
                });
            }
            conditions(a, found);
            conditions(b, found);
        }
        Term::Apply(_, _, args) => args.iter().for_each(|a| conditions(a, found)),
        _ => {}
    }
}
