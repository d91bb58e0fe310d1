//! Evaluates pointwise ops on integers that are polynomials of extents at run time, such as a computed length.

use std::cmp::Ordering;

use crate::{DType, Dim};

/// A function from the operands, as polynomials, and the result's element type to the result as a polynomial. It
/// returns `None` if the result is not one. It ignores that the result may wrap.
pub type LengthFn = fn(&[Dim], DType) -> Option<Dim>;

/// Returns `None`, because the result is not known.
pub(super) fn none(_: &[Dim], _: DType) -> Option<Dim> {
    None
}

pub(super) fn neg(x: &[Dim], _: DType) -> Option<Dim> {
    Some(&Dim::Known(0) - &x[0])
}

pub(super) fn add(x: &[Dim], _: DType) -> Option<Dim> {
    Some(&x[0] + &x[1])
}

pub(super) fn sub(x: &[Dim], _: DType) -> Option<Dim> {
    Some(&x[0] - &x[1])
}

pub(super) fn mul(x: &[Dim], _: DType) -> Option<Dim> {
    Some(&x[0] * &x[1])
}

/// Returns the quotient if the division leaves no remainder, so that nothing is truncated.
pub(super) fn div(x: &[Dim], _: DType) -> Option<Dim> {
    // The op returns 0 for a division by 0, so the result is not a polynomial if the divisor may be 0.
    let (least, most) = x[1].range()?;
    if least <= 0 && most >= 0 {
        return None;
    }
    x[0].checked_div(&x[1])
}

pub(super) fn max(x: &[Dim], _: DType) -> Option<Dim> {
    larger(&x[0], &x[1]).map(|first| x[usize::from(!first)].clone())
}

pub(super) fn min(x: &[Dim], _: DType) -> Option<Dim> {
    larger(&x[0], &x[1]).map(|first| x[usize::from(first)].clone())
}

pub(super) fn select(x: &[Dim], _: DType) -> Option<Dim> {
    Some(x[if x[0].known()? == 0 { 2 } else { 1 }].clone())
}

/// Returns the truth value if it is the same for all lengths. Other integers are unchanged.
pub(super) fn cast(x: &[Dim], to: DType) -> Option<Dim> {
    match to {
        DType::Bool => compare(&[x[0].clone(), Dim::Known(0)], |order| order != Some(Ordering::Equal)),
        to => (!to.is_float()).then(|| x[0].clone()),
    }
}

/// Returns the result of a comparison if it is the same for all lengths.
pub(super) fn compare(x: &[Dim], holds: fn(Option<Ordering>) -> bool) -> Option<Dim> {
    let (least, most) = (&x[0] - &x[1]).range()?;
    let possible =
        [(least < 0, Ordering::Less), (least <= 0 && most >= 0, Ordering::Equal), (most > 0, Ordering::Greater)];
    let mut results = possible.into_iter().filter(|(may_be, _)| *may_be).map(|(_, order)| holds(Some(order)));
    let first = results.next()?;
    results.all(|result| result == first).then_some(Dim::Known(i64::from(first)))
}

/// Returns true if `a` ≥ `b` for all lengths, false if `a` ≤ `b` for all lengths, and otherwise `None`.
fn larger(a: &Dim, b: &Dim) -> Option<bool> {
    let (least, most) = (a - b).range()?;
    if least >= 0 {
        return Some(true);
    }
    (most <= 0).then_some(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Op;

    /// Checks that the mapped polynomials agree with the op's results on numbers, for each length.
    #[test]
    fn lengths_are_what_numbers_give() {
        let (s, t) = (Dim::between("S", 1, 4), Dim::between("T", 0, 3));
        let twice = &s * &Dim::Known(2);
        let numbers = [-1, 0, 1, 2, 5, 100].map(Dim::Known);
        let dims =
            [&[s.clone(), t.clone(), twice.clone(), &twice + &t, &(&s * &t) - &Dim::Known(7)][..], &numbers].concat();
        let mut known = 0;
        for op in Op::all() {
            let to = if op.def().signature.contains("-> bool") { DType::Bool } else { DType::I64 };
            for (a, b) in dims.iter().flat_map(|a| dims.iter().map(move |b| (a, b))) {
                let given = [a.clone(), b.clone(), t.clone()];
                let attrs = [DType::I64.into()];
                let Some(result) = (op.def().lengths)(&given, to) else { continue };
                known += 1;
                for (n, m) in (1..=4).flat_map(|n| (0..=3).map(move |m| (n, m))) {
                    let at = |dim: &Dim| {
                        let length = |name: &str| Some(Dim::Known(if name == "S" { n } else { m }));
                        dim.bind(&length).known().expect("both symbols are bound")
                    };
                    let operands: Vec<_> = given.iter().map(|dim| (at(dim) as f64, DType::I64)).collect();
                    let want = op.fold(&attrs, &operands, to);
                    assert_eq!(Some(at(&result) as f64), want, "{op} of {a}, {b} and T at S = {n}, T = {m}");
                }
            }
        }
        assert!(known > 500, "{known} results are known");
    }
}
