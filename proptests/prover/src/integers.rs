//! Applies laws of integers: the ring modulo 2ⁿ, powers of two, and integer elements that are used as indices.

use std::rc::Rc;

use eutectic_ir::DType;

use crate::{
    bind::substitute,
    facts::{Facts, stop},
    term::{Atom, Kind, Poly, T, Term, Ty, apply, num, value},
};

/// Returns whether a comparison is a condition on indices: one operand is an index, and both are integers that do not
/// wrap.
pub fn by_index(facts: &Facts, a: &T, b: &T) -> bool {
    let open = |t: &T| matches!(&**t, Term::Index(_));
    (open(a) || open(b)) && exact_integer(facts, a).is_some() && exact_integer(facts, b).is_some()
}

/// Returns the value of an element that does not wrap: an index, an integer that is read from a tensor, or an extremum
/// of such values.
pub fn exact_integer(facts: &Facts, t: &T) -> Option<Poly> {
    match &**t {
        Term::Index(p) => Some(p.clone()),
        Term::Num(_) => t.number().filter(|n| n.fract() == 0.0).map(|n| Poly::int(n as i128)),
        Term::Read(_, ty, _) if ty.kind == Kind::Int => Some(value(t.clone())),
        // 64 bits represent every integer of the narrower types.
        Term::Apply(op, ty, args) if **op == *"cast" && ty.dtype == Some(DType::I64) => exact_integer(facts, &args[0]),
        Term::Apply(op, ty, args) if matches!(&**op, "max" | "min") && ty.kind == Kind::Int => {
            let all = args.iter().map(|a| exact_integer(facts, a)).collect::<Option<Vec<_>>>()?;
            all.into_iter().reduce(|a, b| facts.extreme(&a, &b, **op == *"max"))
        }
        _ => None,
    }
}

/// Returns the index that an id stands for, if the id is known to be in the range of an axis.
///
/// Such an id may be the sum of one unknown integer, indices and extents. A sum that wraps is far outside the range of
/// every axis. So this sum does not wrap, and is an exact integer.
pub fn id(facts: &Facts, t: T) -> Poly {
    if let Some(p) = exact_integer(facts, &t) {
        return p;
    }
    sum(facts, &t).unwrap_or_else(|| value(t))
}

fn sum(facts: &Facts, t: &T) -> Option<Poly> {
    let Term::Apply(op, ty, args) = &**t else { return exact_integer(facts, t) };
    if ty.dtype != Some(DType::I64) {
        return exact_integer(facts, t);
    }
    let p = match (&**op, args.as_slice()) {
        ("add", [a, b]) => &sum(facts, a)? + &sum(facts, b)?,
        ("ring", [of]) => {
            let Term::Index(p) = &**of else { return None };
            let read = |t: &T| sum(facts, t).map_or_else(|| stop("an id is unknown"), Ok);
            substitute(facts, p, &|_| None, &read).ok()?
        }
        _ => return exact_integer(facts, t),
    };
    let open = p.terms().filter(|(m, _)| !m.iter().all(|a| is_extent(facts, a)));
    let plain = p.terms().all(|(m, c)| m.len() <= 1 && c.abs() < 1 << 20);
    let open: Vec<i128> = open.map(|(_, c)| c).collect();
    (plain && matches!(open.as_slice(), [] | [1])).then_some(p)
}

/// Returns whether an atom is between 0 and an extent.
fn is_extent(facts: &Facts, atom: &Atom) -> bool {
    let of = |p: &Poly| p.terms().all(|(m, _)| m.iter().all(|a| is_extent(facts, a)));
    match atom {
        Atom::Size(_) | Atom::Var(_) => true,
        Atom::Div(pair) | Atom::Max(pair) => pair.iter().all(of),
        Atom::Min(pair) => pair.iter().any(of) && facts.nonneg(&Poly::atom(atom.clone())),
        Atom::Map(..) | Atom::Value(_) => false,
    }
}

/// Applies the laws of integers to a function. Returns `None` if no law applies.
pub fn function(facts: &Facts, op: &str, ty: &Ty, args: &[T]) -> Option<T> {
    let number = |t: &T| t.number().filter(|n| n.fract() == 0.0);
    // Every integer type can represent these powers.
    let power = |t: &T| number(t).filter(|n| [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0].contains(n));
    match (op, args) {
        ("ring", [of]) => {
            return Some(in_ring(ty, exact_integer(facts, of)?));
        }
        ("shift-left" | "shift-right", [a, _]) if number(a) == Some(0.0) => return Some(num(0.0)),
        ("bit-and" | "bit-or" | "bit-xor", [_, _]) => return Some(bitwise(op, ty, args)),
        ("abs", [a]) if ty.unsigned => return Some(a.clone()),
        ("pow", [_, e]) if number(e) == Some(0.0) => return Some(num(1.0)),
        ("pow", [x, e]) if number(e) == Some(1.0) => return Some(x.clone()),
        ("pow", [x, e]) if number(e).is_some_and(|n| (2.0..=8.0).contains(&n)) => {
            let times = |p: T| ring("mul", ty, &[p, x.clone()]);
            return (1..number(e)? as usize).try_fold(x.clone(), |p, _| times(p));
        }
        ("mod", [x, n]) => {
            if let [Term::Index(p), Term::Index(_) | Term::Num(_)] = [&**x, &**n] {
                let n = exact_integer(facts, n)?;
                if facts.nonneg(p) && facts.positive(&n) {
                    let rest = facts.divided(p, &n).1;
                    return Some(Rc::new(Term::Index(rest)));
                }
            }
            if let Some([_, inner]) = x.args("mod")
                && inner == n
            {
                return Some(x.clone());
            }
            // x mod 2ᵏ = x − 2ᵏ·⌊x / 2ᵏ⌋ is the k low bits of x, for negative x too.
            if let Some(p) = power(n) {
                return Some(bitwise("bit-and", ty, &[x.clone(), num(p - 1.0)]));
            }
        }
        ("div", [x, n]) if ty.unsigned => {
            if let Some(p) = power(n).filter(|p| *p > 1.0) {
                return Some(apply("shift-right", ty, vec![x.clone(), num(p.log2())]));
            }
        }
        _ => {}
    }
    let result = ring(op, ty, args)?;
    // Sums of extents and indices are far below 2⁶³, so they do not wrap.
    if ty.dtype == Some(DType::I64)
        && let Some([inner]) = result.args("ring")
        && let Term::Index(p) = &**inner
        && p.terms().all(|(m, c)| {
            c.abs() < 1 << 20 && m.len() <= 1 && m.iter().all(|a| matches!(a, Atom::Size(_) | Atom::Var(_)))
        })
    {
        return Some(inner.clone());
    }
    Some(result)
}

/// Normalizes a bitwise function, which is associative and commutative: it sorts the operands, and applies x and x = x,
/// x or x = x, x xor x = 0.
fn bitwise(op: &str, ty: &Ty, args: &[T]) -> T {
    fn operands(op: &str, t: &T, found: &mut Vec<T>) {
        match t.args(op) {
            Some(of) => of.iter().for_each(|t| operands(op, t, found)),
            None => found.push(t.clone()),
        }
    }
    let mut all = Vec::new();
    args.iter().for_each(|t| operands(op, t, &mut all));
    all.sort();
    let is_zero = |t: &T| t.number() == Some(0.0);
    if op == "bit-and" && all.iter().any(is_zero) {
        return num(0.0);
    }
    let mut kept: Vec<T> = Vec::new();
    for t in all.into_iter().filter(|t| !is_zero(t)) {
        match kept.last() == Some(&t) {
            true if op == "bit-xor" => drop(kept.pop()),
            true => {}
            false => kept.push(t),
        }
    }
    kept.into_iter().reduce(|a, b| apply(op, ty, vec![a, b])).unwrap_or_else(|| num(0.0))
}

/// Returns a sum or product of integers as a polynomial of the operands in the ring modulo 2ⁿ.
fn ring(op: &str, ty: &Ty, args: &[T]) -> Option<T> {
    let poly = |t: &T| match &**t {
        Term::Apply(op, _, args) if **op == *"ring" => match &*args[0] {
            Term::Index(p) => p.clone(),
            _ => value(t.clone()),
        },
        _ => value(t.clone()),
    };
    let result = match (op, args) {
        ("add", [a, b]) => &poly(a) + &poly(b),
        ("sub", [a, b]) => &poly(a) - &poly(b),
        ("neg", [a]) => &Poly::zero() - &poly(a),
        ("mul", [a, b]) if a == b && a.args("abs").is_some() => {
            let x = poly(&a.args("abs")?[0]);
            &x * &x
        }
        ("mul", [a, b]) => &poly(a) * &poly(b),
        _ => return None,
    };
    Some(in_ring(ty, result))
}

/// Returns the element that a polynomial modulo 2ⁿ denotes.
fn in_ring(ty: &Ty, p: Poly) -> T {
    if let Some(n) = p.known().filter(|n| (0..1 << 7).contains(n)) {
        return num(n as f64);
    }
    // A polynomial that is a single atom is that atom.
    if let Some(([Atom::Value(t)], 1)) = p.single() {
        return t.clone();
    }
    apply("ring", ty, vec![Rc::new(Term::Index(p))])
}
