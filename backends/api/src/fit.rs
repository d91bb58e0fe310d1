//! Fits coefficients of a cost model to measurements, and says how well they predict.

use crate::kernel::Kernel;

/// A kernel and how long it took.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The kernel.
    pub kernel: Kernel,
    /// On how many threads of the host it ran, where it ran there.
    pub threads: usize,
    /// Seconds of a run.
    pub seconds: f64,
}

/// Coefficients that were fitted.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The file that they are read from.
    pub file: String,
    /// Seconds that each kernel was predicted to take before.
    pub before: Vec<f64>,
    /// Seconds that each is predicted to take by the file.
    pub after: Vec<f64>,
}

/// What a coefficient's change by a factor e must gain, as a share of the mean error: what no measurement speaks of stays as it is.
const INERTIA: f64 = 0.002;
/// The factors by which coefficients are changed, coarse to fine.
const STEPS: [f64; 4] = [2.0, 1.3, 1.1, 1.03];
/// How often all coefficients are gone over with one factor, at most.
const ROUNDS: usize = 40;

/// Looks for coefficients near `start`, none of them negative, of which `error` is as small as can be: each is made larger or smaller by a
/// factor, as long as the error falls by more than the change is worth. `error` is a mean of |ln predicted/measured|, see [`off`] and
/// [`off_by_time`]; infinite where coefficients make no model.
pub fn coefficients(start: &[f64], error: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let moved = |now: &[f64]| {
        // A coefficient that is 0 stays so.
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

/// The mean of |ln predicted/measured| over pairs of these: a factor of two counts the same for a small kernel and a large one, and one
/// kernel that was disturbed moves little.
pub fn off(pairs: impl ExactSizeIterator<Item = (f64, f64)>) -> f64 {
    let count = pairs.len().max(1) as f64;
    pairs.map(|(predicted, measured)| (predicted / measured).ln().abs()).sum::<f64>() / count
}

/// The same where a kernel counts by the square root of what it takes: a plan's time is a sum, of which the long ones are most.
pub fn off_by_time(pairs: impl Iterator<Item = (f64, f64)>) -> f64 {
    let (mut all, mut weights) = (0.0, 0.0);
    for (predicted, measured) in pairs {
        let weight = measured.sqrt();
        all += weight * (predicted / measured).ln().abs();
        weights += weight;
    }
    all / weights
}

/// How well predictions order what was measured: Spearman's rank correlation, 1 for the same order; equal numbers share their ranks.
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

/// The factor by which half of the predictions are off at most; NaN where there is none.
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
        // By hand: ranks 0 1 2 3 and 1 0 3 2, so 1 − 6·4 / (4·15).
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
        // Seconds of so many bytes and flops, on a machine of other rates than those to start from.
        let truth = [3e-10, 5e-11, 7.0];
        let work: Vec<[f64; 2]> = (0..40).map(|n| [f64::from(1 << (n % 8)), f64::from(1 << (n / 5))]).collect();
        let seconds = |c: &[f64], [bytes, flops]: [f64; 2]| bytes * c[0] + flops * c[1];
        let error = |c: &[f64]| off(work.iter().map(|&w| (seconds(c, w), seconds(&truth, w))));
        // Nothing depends on the last two, one of which is 0.
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
