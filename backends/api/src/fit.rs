//! Fits coefficients of a cost model to measurements, and measures the errors of the predictions.

use crate::{
    costs::{Coefficient, Quantity},
    kernel::Kernel,
};

/// A measurement of a kernel's time.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The kernel.
    pub kernel: Kernel,
    /// The number of host threads on which the kernel ran.
    pub threads: usize,
    /// The measured time of one run in seconds.
    pub seconds: f64,
}

/// The result of a fit.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The text of the file of costs that states the fitted coefficients.
    pub file: String,
    /// The predicted seconds of each kernel before the fit.
    pub before: Vec<f64>,
    /// The predicted seconds of each kernel with the fitted coefficients.
    pub after: Vec<f64>,
}

/// The coefficients that a fit may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freedom {
    /// The fit changes every coefficient separately, which needs hundreds of measurements.
    Each,
    /// Times and rates. A dozen measurements suffice, because times and op rates of one table share one factor: they
    /// scale with the same clock. Bandwidths, and times outside of tables, have a factor each. Sizes, counts and shares
    /// keep their values.
    Rates,
}

/// The effect of a fit on a coefficient: the number of the factor, and the exponent with which that factor multiplies
/// the coefficient. `None` if the coefficient keeps its value.
type Moves = Option<(usize, i32)>;

impl Freedom {
    /// Returns the factor that moves each coefficient, and the number of factors.
    fn factors(self, coefficients: &[Coefficient]) -> (Vec<Moves>, usize) {
        // For each factor, the table whose coefficients share it; `None` if only one coefficient uses the factor.
        let mut owners: Vec<Option<&str>> = Vec::new();
        let moves = coefficients.iter().map(|coefficient| {
            let (exponent, owner) = match (self, coefficient.quantity) {
                (Freedom::Each, _) => (1, None),
                (Freedom::Rates, Quantity::Seconds | Quantity::SecondsOrNone) => (1, coefficient.table),
                (Freedom::Rates, Quantity::OpsPerSecond) => (-1, coefficient.table),
                (Freedom::Rates, Quantity::BytesPerSecond) => (-1, None),
                (Freedom::Rates, _) => return None,
            };
            let known = owners.iter().position(|known| owner.is_some() && *known == owner);
            let factor = known.unwrap_or(owners.len());
            if known.is_none() {
                owners.push(owner);
            }
            Some((factor, exponent))
        });
        (moves.collect(), owners.len())
    }
}

/// Searches for values of the coefficients with a minimal `error`, near their present values. [`coefficients`] is the
/// search, over the factors that `freedom` gives.
pub fn fitted(declared: &[Coefficient], freedom: Freedom, error: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let (moves, count) = freedom.factors(declared);
    let values = |factors: &[f64]| -> Vec<f64> {
        let value = |(coefficient, moves): (&Coefficient, &Moves)| match *moves {
            Some((factor, exponent)) => coefficient.value * factors[factor].powi(exponent),
            None => coefficient.value,
        };
        declared.iter().zip(&moves).map(value).collect()
    };
    values(&coefficients(&vec![1.0; count], |factors| error(&values(factors))))
}

/// The reduction of the mean error that justifies changing a coefficient by a factor of e = 2.718. For other factors,
/// it is proportional to the logarithm. A coefficient that affects no measurement thus keeps its value.
const INERTIA: f64 = 0.002;
/// The factors by which coefficients are changed, coarse to fine.
const STEPS: [f64; 4] = [2.0, 1.3, 1.1, 1.03];
/// The maximal number of passes over all coefficients with one factor.
const ROUNDS: usize = 40;

/// Searches for coefficients near `start` with a minimal `error` by coordinate descent; none becomes negative. Each is
/// multiplied or divided by a factor as long as the error falls by more than the change costs (`INERTIA`). `error` is a
/// mean of |ln predicted/measured| ([`off`] or [`off_by_time`]). It is infinite for coefficients that are invalid
/// together.
pub fn coefficients(start: &[f64], error: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let moved = |now: &[f64]| {
        // A coefficient that is 0 stays 0.
        let pairs = now.iter().zip(start).filter(|(_, start)| **start > 0.0);
        pairs.map(|(now, start)| (now / start).ln().abs()).sum::<f64>() * INERTIA
    };
    let mut best = start.to_vec();
    let mut least = error(start);
    for step in STEPS {
        for _ in 0..ROUNDS {
            let round = least;
            for n in 0..best.len() {
                for factor in [step, 1.0 / step] {
                    let mut trial = best.clone();
                    trial[n] *= factor;
                    let now = error(&trial) + moved(&trial);
                    if now < least {
                        (best, least) = (trial, now);
                        break;
                    }
                }
            }
            if least >= round {
                break;
            }
        }
    }
    best
}

/// Returns the mean of |ln predicted/measured| over pairs (predicted, measured). A factor of two counts the same for
/// short and long kernels, and one disturbed measurement changes the mean little.
pub fn off(pairs: impl ExactSizeIterator<Item = (f64, f64)>) -> f64 {
    let count = pairs.len().max(1) as f64;
    pairs.map(|(predicted, measured)| (predicted / measured).ln().abs()).sum::<f64>() / count
}

/// Returns the mean of |ln predicted/measured| over pairs (predicted, measured), weighted by the square root of the
/// measured time. Long kernels thus count more, because they dominate the time of a plan.
pub fn off_by_time(pairs: impl Iterator<Item = (f64, f64)>) -> f64 {
    let (mut all, mut weights) = (0.0, 0.0);
    for (predicted, measured) in pairs {
        let weight = measured.sqrt();
        all += weight * (predicted / measured).ln().abs();
        weights += weight;
    }
    all / weights
}

/// Returns Spearman's rank correlation of predictions and measurements, which is 1 for equal order. Equal numbers share
/// the mean of their ranks.
pub fn rank_correlation(pairs: &[(f64, f64)]) -> f64 {
    let ranks = |of: fn(&(f64, f64)) -> f64| -> Vec<f64> {
        let below = |x: f64| pairs.iter().filter(|pair| of(pair) < x).count() as f64;
        let equal = |x: f64| pairs.iter().filter(|pair| of(pair) == x).count() as f64;
        pairs.iter().map(|pair| below(of(pair)) + (equal(of(pair)) - 1.0) / 2.0).collect()
    };
    let (x, y) = (ranks(|pair| pair.0), ranks(|pair| pair.1));
    let middle = (pairs.len() as f64 - 1.0) / 2.0;
    let sum = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - middle) * (b - middle)).sum::<f64>();
    sum(&x, &y) / (sum(&x, &x) * sum(&y, &y)).sqrt()
}

/// Returns the median factor (at least 1) between prediction and measurement; NaN for no pairs.
pub fn median_off(pairs: &[(f64, f64)]) -> f64 {
    let mut factors: Vec<f64> =
        pairs.iter().map(|(predicted, measured)| (predicted / measured).ln().abs().exp()).collect();
    factors.sort_by(f64::total_cmp);
    factors.get(factors.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_compared() {
        let rising = [(1.0, 10.0), (2.0, 20.0), (3.0, 21.0), (4.0, 50.0)];
        assert!((rank_correlation(&rising) - 1.0).abs() < 1e-12);
        let falling = rising.map(|(x, y)| (x, -y));
        assert!((rank_correlation(&falling) + 1.0).abs() < 1e-12);
        // The ranks are 0 1 2 3 and 1 0 3 2, so the correlation is 1 − 6·Σd² / (n·(n² − 1)) = 1 − 6·4 / (4·15).
        let swapped = [(1.0, 2.0), (2.0, 1.0), (3.0, 4.0), (4.0, 3.0)];
        assert!((rank_correlation(&swapped) - 0.6).abs() < 1e-12);
        assert!((median_off(&[(1.0, 1.0), (2.0, 1.0), (1.0, 4.0)]) - 2.0).abs() < 1e-12);
    }

    #[test]
    fn a_kernel_counts_by_the_root_of_its_time() {
        // Weights 1 and 3: (ln 2 + 3·ln 4) / 4 = 7/4·ln 2.
        let off = off_by_time([(2.0, 1.0), (36.0, 9.0)].into_iter());
        assert!((off - 1.75 * 2.0_f64.ln()).abs() < 1e-12);
    }

    #[test]
    fn coefficients_are_found_again_and_others_stay() {
        // The true coefficients are seconds per byte, seconds per flop, and one without effect. The first two differ
        // from `start`.
        let truth = [3e-10, 5e-11, 7.0];
        let work: Vec<[f64; 2]> = (0..40).map(|n| [f64::from(1 << (n % 8)), f64::from(1 << (n / 5))]).collect();
        let seconds = |c: &[f64], [bytes, flops]: [f64; 2]| bytes * c[0] + flops * c[1];
        let error = |c: &[f64]| off(work.iter().map(|&w| (seconds(c, w), seconds(&truth, w))));
        // No result depends on the last two coefficients, and one of them is 0.
        let start = [1e-10, 2e-10, 7.5, 0.0];
        let found = coefficients(&start, error);
        assert!(error(&start) > 0.5 && error(&found) < 0.03, "{found:?}");
        for n in 0..2 {
            assert!((found[n] / truth[n]).ln().abs() < 0.1, "{found:?}");
        }
        assert_eq!(found[2..], start[2..]);
    }

    #[test]
    fn what_makes_no_model_is_not_taken() {
        let error = |c: &[f64]| if c[0] > 1.5 { f64::INFINITY } else { (4.0 / c[0]).ln().abs() };
        let found = coefficients(&[1.0], error);
        assert!(found[0] <= 1.5 && found[0] > 1.4, "{found:?}");
    }
}
