//! Normalizes truth functions and comparisons.

use std::cmp::Ordering;

use crate::{
    facts::Facts,
    integers::{by_index, exact_integer},
    term::{Kind, Poly, T, Ty, apply, choose, num},
};

/// Normalizes a truth function or comparison: comparisons become `lt`, `le` and `eq`. Returns `None` if no law applies.
pub fn logic(facts: &Facts, op: &str, args: &[T]) -> Option<T> {
    let bool = Ty::bool();
    let truth = |b: bool| num(f64::from(u8::from(b)));
    let of = |op: &str, args: Vec<T>| logic(facts, op, &args).unwrap_or_else(|| apply(op, &bool, args));
    let kind = args.iter().find_map(|a| a.ty()).map(|ty| ty.kind);
    Some(match (op, args) {
        ("not", [x]) => match (x.number(), x.args("not")) {
            (Some(x), _) => truth(x == 0.0),
            (_, Some([inner])) => inner.clone(),
            _ => return None,
        },
        ("and" | "or", [a, b]) => {
            let absorbing = f64::from(u8::from(op == "or"));
            match (a.number(), b.number()) {
                (Some(x), _) if x == absorbing => truth(op == "or"),
                (_, Some(x)) if x == absorbing => truth(op == "or"),
                (Some(_), _) => b.clone(),
                (_, Some(_)) => a.clone(),
                _ if a == b => a.clone(),
                _ => return None,
            }
        }
        ("xor", [a, b]) => match (a.number(), b.number()) {
            (Some(x), _) => {
                if x == 0.0 {
                    b.clone()
                } else {
                    of("not", vec![b.clone()])
                }
            }
            (_, Some(x)) => {
                if x == 0.0 {
                    a.clone()
                } else {
                    of("not", vec![a.clone()])
                }
            }
            _ => return None,
        },
        ("gt", [a, b]) => of("lt", vec![b.clone(), a.clone()]),
        ("ge", [a, b]) => of("le", vec![b.clone(), a.clone()]),
        ("ne", [a, b]) => of("not", vec![of("eq", vec![a.clone(), b.clone()])]),
        ("is-nan", [x]) => of("not", vec![of("eq", vec![x.clone(), x.clone()])]),
        // Integers are totally ordered, so a ≤ b is the negation of b < a.
        ("le", [a, b]) if kind == Some(Kind::Int) || kind == Some(Kind::Bool) => {
            of("not", vec![of("lt", vec![b.clone(), a.clone()])])
        }
        ("lt", [a, b]) if a == b => truth(false),
        // Unsigned integers and magnitudes of floats are never below 0.
        ("lt", [a, b]) if b.number() == Some(0.0) && never_negative(a) => truth(false),
        // min(b, …) < b holds if and only if another operand is below b. If b is NaN, both comparisons are false.
        ("lt", [a, b]) if a.args("min").is_some_and(|of| of.contains(b)) => of("lt", vec![without(a, b)?, b.clone()]),
        ("lt", [a, b]) if b.args("max").is_some_and(|of| of.contains(a)) => of("lt", vec![a.clone(), without(b, a)?]),
        ("lt", [a, b]) if b.args("min").is_some() => {
            let each = b.args("min")?.iter().map(|x| of("lt", vec![a.clone(), x.clone()]));
            each.reduce(|x, y| of("and", vec![x, y]))?
        }
        ("lt", [a, b]) if a.args("max").is_some() => {
            let each = a.args("max")?.iter().map(|x| of("lt", vec![x.clone(), b.clone()]));
            each.reduce(|x, y| of("and", vec![x, y]))?
        }
        ("eq", [a, b]) if kind == Some(Kind::Bool) && (a.number().is_some() || b.number().is_some()) => {
            let (open, known) = if a.number().is_some() { (b, a) } else { (a, b) };
            if known.number() == Some(0.0) { of("not", vec![open.clone()]) } else { open.clone() }
        }
        ("eq", [a, b]) if a == b && matches!(kind, Some(Kind::Int | Kind::Bool)) => truth(true),
        ("eq" | "lt" | "le", [a, b]) if by_index(facts, a, b) => {
            let (a, b) = (exact_integer(facts, a)?, exact_integer(facts, b)?);
            let conditions = match op {
                "eq" => vec![&a - &b, &b - &a],
                "lt" => vec![&(&b - &a) - &Poly::int(1)],
                _ => vec![&b - &a],
            };
            choose(conditions, num(1.0), num(0.0))
        }
        ("eq" | "lt" | "le", [a, b]) => {
            let (Some(x), Some(y)) = (a.number(), b.number()) else {
                if op == "eq" && kind != Some(Kind::Bool) {
                    // A number that was converted from a truth value is 0 or 1.
                    for (x, y) in [(a, b), (b, a)] {
                        if let (Some([inner]), Some(n)) = (x.args("cast"), y.number())
                            && inner.ty().is_some_and(|ty| ty.kind == Kind::Bool)
                        {
                            return Some(match n {
                                0.0 => of("not", vec![inner.clone()]),
                                1.0 => inner.clone(),
                                _ => truth(false),
                            });
                        }
                    }
                }
                return None;
            };
            truth(x.partial_cmp(&y).is_some_and(|order| compares(op, order)))
        }
        _ => return None,
    })
}

/// Returns whether a comparison holds for two numbers in that order.
pub fn compares(op: &str, order: Ordering) -> bool {
    match op {
        "eq" => order.is_eq(),
        "ne" => order.is_ne(),
        "lt" => order.is_lt(),
        "le" => order.is_le(),
        "gt" => order.is_gt(),
        _ => order.is_ge(),
    }
}

/// Returns whether an element is at least 0 or NaN.
fn never_negative(t: &T) -> bool {
    t.ty().is_some_and(|ty| ty.unsigned || ty.kind == Kind::Float && t.args("abs").is_some())
}

/// Removes an operand of an extremum.
fn without(extremum: &T, operand: &T) -> Option<T> {
    let crate::term::Term::Apply(op, ty, args) = &**extremum else { return None };
    let mut rest: Vec<T> = args.iter().filter(|a| *a != operand).cloned().collect();
    match rest.len() {
        0 => None,
        1 => rest.pop(),
        _ => Some(apply(op, ty, rest)),
    }
}
