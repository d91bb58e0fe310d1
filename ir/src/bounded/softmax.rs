//! Softmax probabilities of scores, with a running error bound.

use super::{Bounded, computing, range};
use crate::{DType, ops::probabilities as by_formula};

/// The relative error of a probability above which its bound is computed from the form 1 / Σⱼ e^(xⱼ − xᵢ).
const LOOSE: f64 = 1.0 / 64.0;
/// The maximal magnitude of scores for which masks by large finite numbers work: a sum of 4,096 products of two
/// numbers up to 2⁴⁰.
const SCORES: f64 = (1_u128 << 92) as f64;
/// The bound of the roundings in an exponential and a quotient, in unit roundoffs.
const ROUNDINGS: f64 = 16.0;

/// Returns the largest negative number that absorbs any score: half the distance to the next number is `SCORES`.
fn least_hiding(unit: f64) -> f64 {
    -2.0 * SCORES / unit
}

/// Returns whether a number stands for −∞ among scores of a type. Such a number plus a score rounds to the number
/// itself, so that a fully masked row is uniform. Kernels compute in `f32` for 16-bit elements, so `f32` decides for
/// them.
///
/// As a bias of attention, such a number replaces its score, which is not read: even a score of ∞ or NaN counts as
/// the number. Models write masks this way, and hidden values must not affect a row. A plain sum of score and bias
/// would be ∞ or NaN there. So a rule that turns the sum into attention promises no more than `reassoc`, and `--fp
/// exact` keeps the sum.
pub fn hides(number: f64, dtype: DType) -> bool {
    number <= hiding(dtype)
}

/// Returns the greatest number that stands for −∞ among scores of a type; see [`hides`].
pub fn hiding(dtype: DType) -> f64 {
    least_hiding(computing(dtype).unit_roundoff())
}

/// Returns the probabilities of a row. If scores have large errors, the exponentials and their sum have large errors
/// too, and their quotient has no useful bound. The form 1 / Σⱼ e^(xⱼ − xᵢ) still has a useful bound if a score is
/// far above the others. A row with a number that stands for −∞ keeps the quotient, because scores close to that
/// number have no bounds.
pub fn probabilities(row: &[Bounded]) -> Vec<Bounded> {
    let formula = by_formula(row);
    let largest = |x: &Bounded| -least_hiding(x.unit);
    let known = |x: &Bounded| x.value == f64::NEG_INFINITY && x.err == 0.0 || x.value.abs() + x.err < largest(x);
    let most = row.iter().map(|x| x.value).fold(f64::NEG_INFINITY, f64::max);
    if !row.iter().all(known) || most == f64::NEG_INFINITY {
        return formula;
    }
    let loose = |p: &Bounded| p.err > LOOSE * p.value;
    formula.into_iter().enumerate().map(|(at, p)| if loose(&p) { refined(p, row, at, most) } else { p }).collect()
}

fn refined(p: Bounded, row: &[Bounded], at: usize, most: f64) -> Bounded {
    // The error of the score, and the rounding error of its difference from the largest score.
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
