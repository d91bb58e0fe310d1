//! Choices between terms: by truth values, by conditions on indices, and of numbers that are not finite.

use std::collections::BTreeMap;

use crate::{
    bind::{Bound, with},
    facts::{Facts, Res},
    term::{Atom, Poly, T, Term, num},
};

/// The two values of a choice.
pub fn branches(t: &T) -> Option<(&T, &T)> {
    match &**t {
        Term::If(_, a, b) => Some((a, b)),
        Term::Apply(op, _, args) if **op == *"where" => Some((&args[1], &args[2])),
        _ => None,
    }
}

/// Whether a term is, or may choose, a number that is not finite.
pub fn is_special(t: &T) -> bool {
    t.number().is_some_and(|x| !x.is_finite()) || branches(t).is_some_and(|(a, b)| is_special(a) || is_special(b))
}

/// A function of numbers that are not finite, the others being so.
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

/// A range in two, where a condition on one of its variables parts it.
pub fn cut(facts: &Facts, of: &Bound) -> Res<Option<(Bound, Bound)>> {
    let mut found: Vec<Poly> = Vec::new();
    conditions(&of.body, &mut found);
    for p in found {
        for (v, extent) in &of.vars {
            let Some((slope, rest)) = p.linear_in(&Atom::Var(*v)) else { continue };
            if of.vars.iter().any(|(w, _)| rest.mentions(*w)) {
                continue;
            }
            // v ≥ −rest, or v ≤ rest: the first index of the second part.
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

/// Conditions of a term that no binder in it stands above.
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
