//! The ratio of two settings' times: the median over turns, with a confidence interval that assumes no distribution of
//! times.

use std::fmt;

/// The least confidence of an interval, as a probability.
const CONFIDENCE: f64 = 0.95;

/// The ratio of the times of one setting to those of another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The median of the ratios of all turns. In a turn, both settings run.
    pub median: f64,
    /// The lower end of the interval.
    pub least: f64,
    /// The upper end of the interval.
    pub most: f64,
    /// The probability that the interval contains the true median is at least this number.
    pub confidence: f64,
}

impl Ratio {
    /// Returns the ratio of times to others, turn by turn. Returns `None` if there are too few turns for an interval.
    ///
    /// The ends of the interval are order statistics: equally many ratios are below the lower end and above the upper
    /// end. The confidence follows from the fact that each ratio is below the true median with probability ½.
    pub fn of(times: &[f64], others: &[f64]) -> Option<Ratio> {
        let mut ratios: Vec<f64> = times.iter().zip(others).map(|(a, b)| a / b).collect();
        ratios.sort_by(f64::total_cmp);
        let n = ratios.len();
        let (outside, confidence) = outside(n)?;
        let median = (ratios[(n - 1) / 2] + ratios[n / 2]) / 2.0;
        Some(Ratio { median, least: ratios[outside], most: ratios[n - 1 - outside], confidence })
    }

    /// Returns whether the interval excludes 1.
    pub fn is_shown(&self) -> bool {
        self.least > 1.0 || self.most < 1.0
    }
}

/// Returns the largest number of ratios that can be outside of the interval at each end, and the resulting confidence.
/// Returns `None` if even the interval from the smallest to the largest ratio has too little confidence.
fn outside(n: usize) -> Option<(usize, f64)> {
    if n > 500 {
        // For many turns, the normal distribution with the same variance is used. One more ratio stays inside at each
        // end, which makes up for the approximation.
        let ends = n as f64 / 2.0 - 0.98 * (n as f64).sqrt() - 1.0;
        return Some((ends as usize, CONFIDENCE));
    }
    // The number of ratios below the median has the binomial distribution with probability ½. `weight` is the
    // probability that it is k.
    let mut weight = 0.5_f64.powi(i32::try_from(n).ok()?);
    let (mut below, mut best) = (0.0, None);
    for k in 0..n.div_ceil(2) {
        below += weight;
        let confidence = 1.0 - 2.0 * below;
        if confidence < CONFIDENCE {
            break;
        }
        best = Some((k, confidence));
        weight *= (n - k) as f64 / (k + 1) as f64;
    }
    best
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ratio { median, least, most, confidence } = self;
        let percent = 100.0 * (median - 1.0);
        match self.is_shown() {
            true if percent < 0.0 => write!(f, "{:.1} % less time", -percent)?,
            true => write!(f, "{percent:.1} % more time")?,
            false => f.write_str("no difference is shown")?,
        }
        // With few turns, the confidence can be much larger than required, so it is printed.
        write!(
            f,
            "; {median:.3} times the time of the command as given, {least:.3} to {most:.3} with {:.0} % confidence",
            100.0 * confidence.min(0.999)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_tables() {
        // The sign test has these numbers in published tables of confidence intervals of the median.
        assert_eq!(outside(5), None);
        assert_eq!(outside(6).map(|found| found.0), Some(0));
        assert_eq!(outside(10).map(|found| found.0), Some(1));
        assert_eq!(outside(20).map(|found| found.0), Some(5));
        assert_eq!(outside(30).map(|found| found.0), Some(9));
        let (_, confidence) = outside(6).expect("an interval");
        assert!((confidence - 0.96875).abs() < 1e-12);
        // For 500 turns, the binomial distribution gives 227. For 1,000 turns, it gives 468, like the approximation.
        assert_eq!(outside(500).map(|found| found.0), Some(477 - 250));
        assert_eq!(outside(1000).map(|found| found.0), Some(468));
    }

    #[test]
    fn ratios_are_those_of_turns() {
        let base: Vec<f64> = (0..10).map(|n| 1.0 + 10.0 * f64::from(n)).collect();
        let twice: Vec<f64> = base.iter().map(|time| time * 2.0).collect();
        let ratio = Ratio::of(&twice, &base).expect("an interval");
        assert_eq!((ratio.median, ratio.least, ratio.most), (2.0, 2.0, 2.0));
        assert!(ratio.is_shown() && ratio.to_string().starts_with("100.0 % more time"), "{ratio}");
        let same = Ratio::of(&base, &base).expect("an interval");
        assert!(!same.is_shown() && same.to_string().starts_with("no difference is shown"), "{same}");
        assert!(Ratio::of(&base, &twice).expect("an interval").to_string().starts_with("50.0 % less time"));
        assert_eq!(Ratio::of(&base[..5], &base[..5]), None);
    }

    #[test]
    fn the_interval_holds_the_median_as_often_as_it_says() {
        let mut state = 1_u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        // The median of this distribution is 1, and its mean is much larger.
        let mut held = 0;
        for _ in 0..2000 {
            let times: Vec<f64> = (0..15).map(|_| (4.0 * (uniform() - 0.5)).exp()).collect();
            let ratio = Ratio::of(&times, &[1.0; 15]).expect("an interval");
            held += usize::from((ratio.least..=ratio.most).contains(&1.0));
        }
        assert!(held >= 1900, "{held} of 2000");
    }
}
