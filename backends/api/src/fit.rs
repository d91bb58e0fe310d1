//! Fits coefficients of a cost model to measurements.

/// What a coefficient's change by a factor e must gain, as a share of the mean error: what no measurement speaks of stays as it is.
const INERTIA: f64 = 0.002;
/// The factors by which coefficients are changed, coarse to fine.
const STEPS: [f64; 4] = [2.0, 1.3, 1.1, 1.03];
/// How often all coefficients are gone over with one factor, at most.
const ROUNDS: usize = 40;

/// Looks for positive coefficients near `start` of which `error` is as small as can be: each is made larger or smaller by a factor, as
/// long as the error falls by more than the change is worth. `error` is a mean of |ln predicted/measured|, see [`off`]; infinite where
/// coefficients make no model.
pub fn coefficients(start: &[f64], error: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let moved = |now: &[f64]| now.iter().zip(start).map(|(now, start)| (now / start).ln().abs()).sum::<f64>() * INERTIA;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coefficients_are_found_again_and_others_stay() {
        // Seconds of so many bytes and flops, on a machine of other rates than those to start from.
        let truth = [3e-10, 5e-11, 7.0];
        let work: Vec<[f64; 2]> = (0..40).map(|n| [f64::from(1 << (n % 8)), f64::from(1 << (n / 5))]).collect();
        let seconds = |c: &[f64], [bytes, flops]: [f64; 2]| bytes * c[0] + flops * c[1];
        let error = |c: &[f64]| off(work.iter().map(|&w| (seconds(c, w), seconds(&truth, w))));
        let start = [1e-10, 2e-10, 7.5];
        let found = coefficients(&start, error);
        assert!(error(&start) > 0.5 && error(&found) < 0.03, "{found:?}");
        for n in 0..2 {
            assert!((found[n] / truth[n]).ln().abs() < 0.1, "{found:?}");
        }
        // Nothing depends on the last one.
        assert_eq!(found[2], start[2]);
    }

    #[test]
    fn what_makes_no_model_is_not_taken() {
        let error = |c: &[f64]| if c[0] > 1.5 { f64::INFINITY } else { (4.0 / c[0]).ln().abs() };
        let found = coefficients(&[1.0], error);
        assert!(found[0] <= 1.5 && found[0] > 1.4, "{found:?}");
    }
}
