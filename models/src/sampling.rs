//! Chooses the next token: the most likely one, or a random one with the probabilities that follow from logits.

use crate::random::Rng;

/// The parameters of sampling. They act in the order of the transformers library, and with its meaning: repetition
/// penalty, temperature, top-k, top-p, min-p.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// The number that divides logits. With 0, the most likely token is chosen.
    pub temperature: f64,
    /// The number of most likely tokens that are kept. With 0, all are kept.
    pub top_k: usize,
    /// The total probability of the most likely tokens that are kept. With 1, all are kept.
    pub top_p: f64,
    /// The least probability of a token that is kept, as a fraction of the largest probability. With 0, all are kept.
    pub min_p: f64,
    /// The penalty on logits of tokens that have already occurred. It divides positive logits and multiplies negative
    /// ones (Keskar et al. 2019). 1 means no penalty.
    pub repeat_penalty: f64,
    /// The seed of the random number generator.
    pub seed: u64,
}

impl Default for Sampling {
    /// Returns parameters that choose the most likely token.
    fn default() -> Sampling {
        Sampling { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, repeat_penalty: 1.0, seed: 0 }
    }
}

impl Sampling {
    /// Returns a message for each parameter that is out of range.
    pub fn problems(&self) -> Vec<String> {
        let share = "from 0 to 1";
        let checks = [
            ("the temperature", self.temperature, (0.0..=f64::MAX).contains(&self.temperature), "0 or more"),
            ("top-p", self.top_p, self.top_p > 0.0 && self.top_p <= 1.0, "more than 0 and at most 1"),
            ("min-p", self.min_p, (0.0..=1.0).contains(&self.min_p), share),
            (
                "the repetition penalty",
                self.repeat_penalty,
                self.repeat_penalty > 0.0 && self.repeat_penalty.is_finite(),
                "more than 0",
            ),
        ];
        let wrong = checks.into_iter().filter(|(_, _, is_right, _)| !is_right);
        wrong.map(|(name, value, _, expected)| format!("{name} is {value}, but should be {expected}")).collect()
    }
}

/// Chooses the tokens of one text.
#[derive(Clone, Debug)]
pub struct Sampler {
    sampling: Sampling,
    random: Rng,
}

impl Sampler {
    /// Creates a sampler with the random numbers of the seed.
    pub fn new(sampling: Sampling) -> Sampler {
        Sampler { sampling, random: Rng::new(sampling.seed) }
    }

    /// Chooses the next token by its logits, given the earlier tokens. The lowest id wins among equally likely tokens.
    /// Returns `None` if there are no logits, or if one is NaN.
    pub fn choose(&mut self, logits: &[f32], before: &[u32]) -> Option<u32> {
        if logits.is_empty() || logits.iter().any(|x| x.is_nan()) {
            return None;
        }
        let mut logits: Vec<f64> = logits.iter().map(|x| f64::from(*x)).collect();
        self.penalize(&mut logits, before);
        // Sorts by decreasing logits, and equal logits by ids.
        let order = |a: &(usize, f64), b: &(usize, f64)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        if self.sampling.temperature == 0.0 {
            return logits.into_iter().enumerate().min_by(order).map(|(id, _)| id as u32);
        }
        let mut left: Vec<(usize, f64)> = logits.into_iter().enumerate().collect();
        if (1..left.len()).contains(&self.sampling.top_k) {
            left.select_nth_unstable_by(self.sampling.top_k - 1, order);
            left.truncate(self.sampling.top_k);
        }
        left.sort_unstable_by(order);
        let largest = left[0].1;
        for (_, x) in &mut left {
            // If the largest logit is −∞, the difference would be NaN. So the largest logits get weight 1 without a
            // subtraction.
            *x = if *x == largest { 1.0 } else { ((*x - largest) / self.sampling.temperature).exp() };
        }
        keep_share(&mut left, self.sampling.top_p);
        left.retain(|(_, weight)| *weight >= self.sampling.min_p);
        let total: f64 = left.iter().map(|(_, weight)| weight).sum();
        let mut at = (self.random.next_u64() >> 11) as f64 * 0.5_f64.powi(53) * total;
        for (id, weight) in &left {
            at -= weight;
            if at < 0.0 {
                return Some(*id as u32);
            }
        }
        // Rounding errors may keep `at` from becoming negative. The last token is chosen then.
        left.last().map(|(id, _)| *id as u32)
    }

    fn penalize(&self, logits: &mut [f64], before: &[u32]) {
        let penalty = self.sampling.repeat_penalty;
        if penalty == 1.0 {
            return;
        }
        let mut seen = before.to_vec();
        seen.sort_unstable();
        seen.dedup();
        for id in seen {
            if let Some(x) = logits.get_mut(id as usize) {
                *x = if *x < 0.0 { *x * penalty } else { *x / penalty };
            }
        }
    }
}

/// Truncates a list of decreasing weights after the first weights whose sum reaches a share of the total. At least one
/// weight is kept.
fn keep_share(weights: &mut Vec<(usize, f64)>, share: f64) {
    if share >= 1.0 {
        return;
    }
    let total: f64 = weights.iter().map(|(_, weight)| weight).sum();
    let mut sum = 0.0;
    let reached = weights.iter().position(|(_, weight)| {
        sum += weight;
        sum >= share * total
    });
    weights.truncate(reached.map_or(weights.len(), |at| at + 1));
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f32; 5] = [1.0, 3.0, -1.0, 3.0, 2.0];

    /// Returns how often each token is chosen, as a fraction of all rounds.
    fn shares(sampling: Sampling, before: &[u32]) -> Vec<f64> {
        const ROUNDS: usize = 20_000;
        let mut sampler = Sampler::new(sampling);
        let mut counts = [0.0; LOGITS.len()];
        for _ in 0..ROUNDS {
            counts[sampler.choose(&LOGITS, before).unwrap() as usize] += 1.0 / ROUNDS as f64;
        }
        counts.into()
    }

    fn softmax(logits: [f64; 5]) -> Vec<f64> {
        let total: f64 = logits.iter().map(|x| x.exp()).sum();
        logits.iter().map(|x| x.exp() / total).collect()
    }

    fn assert_near(got: Vec<f64>, want: Vec<f64>) {
        assert!(got.iter().zip(&want).all(|(got, want)| (got - want).abs() < 0.015), "{got:?}, expected {want:?}");
    }

    const HIDDEN: f64 = f64::NEG_INFINITY;
    const RANDOM: Sampling =
        Sampling { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, repeat_penalty: 1.0, seed: 3 };

    #[test]
    fn the_likeliest_is_chosen_without_temperature() {
        let mut sampler = Sampler::new(Sampling::default());
        assert_eq!(sampler.choose(&LOGITS, &[]), Some(1));
        assert_eq!(sampler.choose(&[], &[]), None);
        assert_eq!(sampler.choose(&[0.0, f32::NAN], &[]), None);
        assert_eq!(sampler.choose(&[f32::NEG_INFINITY; 3], &[]), Some(0));
        let mut penalized = Sampler::new(Sampling { repeat_penalty: 2.0, ..Sampling::default() });
        assert_eq!(penalized.choose(&LOGITS, &[1, 1, 9]), Some(3));
        assert_eq!(penalized.choose(&LOGITS, &[1, 3]), Some(4));
        assert_eq!(penalized.choose(&[-1.0, -1.5], &[0]), Some(1));
    }

    #[test]
    fn shares_are_the_probabilities_of_what_takes_part() {
        assert_near(shares(RANDOM, &[]), softmax([1.0, 3.0, -1.0, 3.0, 2.0]));
        let warm = Sampling { temperature: 2.0, ..RANDOM };
        assert_near(shares(warm, &[]), softmax([0.5, 1.5, -0.5, 1.5, 1.0]));
        assert_near(shares(Sampling { top_k: 3, ..RANDOM }, &[]), softmax([HIDDEN, 3.0, HIDDEN, 3.0, 2.0]));
        // Tokens 1 and 3 have equal logits, and the lower id is kept.
        assert_near(shares(Sampling { top_k: 1, ..RANDOM }, &[]), softmax([HIDDEN, 3.0, HIDDEN, HIDDEN, HIDDEN]));
        // The two most likely tokens have a total probability of 0.795.
        assert_near(shares(Sampling { top_p: 0.75, ..RANDOM }, &[]), softmax([HIDDEN, 3.0, HIDDEN, 3.0, HIDDEN]));
        assert_near(shares(Sampling { top_p: 0.9, ..RANDOM }, &[]), softmax([HIDDEN, 3.0, HIDDEN, 3.0, 2.0]));
        assert_near(shares(Sampling { min_p: 0.2, ..RANDOM }, &[]), softmax([HIDDEN, 3.0, HIDDEN, 3.0, 2.0]));
        assert_near(shares(Sampling { repeat_penalty: 1.5, ..RANDOM }, &[1, 2]), softmax([1.0, 2.0, -1.5, 3.0, 2.0]));
    }

    #[test]
    fn a_seed_gives_the_same_tokens() {
        let tokens = |seed| {
            let mut sampler = Sampler::new(Sampling { seed, ..RANDOM });
            (0..50).map(|_| sampler.choose(&LOGITS, &[])).collect::<Vec<_>>()
        };
        assert_eq!(tokens(7), tokens(7));
        assert_ne!(tokens(7), tokens(8));
    }

    #[test]
    fn numbers_without_a_meaning_are_all_named() {
        assert!(RANDOM.problems().is_empty() && Sampling::default().problems().is_empty());
        let wrong =
            Sampling { temperature: f64::NAN, top_p: 0.0, min_p: -1.0, repeat_penalty: f64::INFINITY, ..RANDOM };
        assert_eq!(wrong.problems().len(), 4, "{:?}", wrong.problems());
    }
}
