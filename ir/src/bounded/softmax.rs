//! Probabilities of scores with a running error bound.

use super::{Bounded, computing, range};
use crate::{DType, ops::probabilities as by_formula};

/// A bound that is a larger part of the value tells little.
const LOOSE: f64 = 1.0 / 64.0;
/// What scores lie within, of either sign, where something is promised of them beside a number that stands for −∞: products of 4,096
/// terms, of numbers up to 2⁴⁰.
const SCORES: f64 = (1_u128 << 92) as f64;
/// Roundings of an exponential and of a quotient.
const ROUNDINGS: f64 = 16.0;

/// The number from which on, downwards, what is added to it is lost if it is a score: half the distance to the next number is
/// `SCORES` there.
fn least_hiding(unit: f64) -> f64 {
    -2.0 * SCORES / unit
}

/// Whether a number stands for −∞ among scores of a type: each of them added to it rounds to the number itself, so that a row that is
/// masked throughout is uniform. The type is that in which kernels compute, which for 16-bit elements is `f32`.
///
/// As a bias of attention, such a number replaces its score, which is not read: a score of ∞ or NaN under it counts as the number. Models
/// write masks so, and what a mask hides must not reach a row. A sum of score and bias would be ∞ or NaN there. So a rule that makes
/// attention of a sum promises no more than `reassoc`, and `--fp exact` keeps the sum.
pub fn hides(number: f64, dtype: DType) -> bool {
    number <= hiding(dtype)
}

/// Returns the greatest number that [`hides`] scores of a type.
pub fn hiding(dtype: DType) -> f64 {
    least_hiding(computing(dtype).unit_roundoff())
}

/// The probabilities of a row. Where scores are off by much, so are the exponentials and their sum, and nothing could be said of their
/// quotient; but it is 1 / Σ eˣʲ⁻ˣⁱ, which a score that is far above the others settles. A row with a number that stands for −∞ is left
/// to the formula: of scores that come near to it nothing is promised.
pub fn probabilities(row: &[Bounded]) -> Vec<Bounded> {
    let formula = by_formula(row);
    let largest = |x: &Bounded| -least_hiding(x.unit);
    let known = |x: &Bounded| x.value == f64::NEG_INFINITY && x.err == 0.0 || x.value.abs() + x.err < largest(x);
    let most = row.iter().map(|x| x.value).fold(f64::NEG_INFINITY, f64::max);
    if !row.iter().all(known) || most == f64::NEG_INFINITY {
        return formula;
    }
    let loose = |p: &Bounded| p.err > LOOSE * p.value;
    formula.into_iter().enumerate().map(|(at, p)| if loose(&p) { settled(p, row, at, most) } else { p }).collect()
}

fn settled(p: Bounded, row: &[Bounded], at: usize, most: f64) -> Bounded {
    // What the score is off by, and what the difference to the largest one is rounded by.
    let off = |x: &Bounded| match x.value.is_finite() {
        true => x.err + 2.0 * p.unit * (x.value.abs() + most.abs()),
        false => 0.0,
    };
    let own = row[at];
    if own.value == f64::NEG_INFINITY {
        return Bounded { value: 0.0, err: 0.0, ..p };
    }
    let others = || row.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, x)| x);
    let sum = |sign: f64| others().map(|x| (x.value - own.value + sign * (off(x) + off(&own))).exp()).sum::<f64>();
    let (least, largest) = (1.0 / (1.0 + sum(1.0)), 1.0 / (1.0 + sum(-1.0)));
    let (smallest, _) = range(p.unit);
    let rounded = (row.len() as f64 + ROUNDINGS) * p.unit * largest + smallest;
    let value = if p.value.is_nan() { (least + largest) / 2.0 } else { p.value };
    let err = (largest - value).max(value - least).max(0.0) + rounded;
    if err < p.err { Bounded { value, err, ..p } } else { p }
}
