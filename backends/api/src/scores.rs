//! Measures the share of scores that a bias leaves visible, and the share for which it must be evaluated.

use std::ops::Range;

use crate::{
    body::Body,
    intervals::{Mask, Visibility},
};

/// The maximal number of parts into which queries or keys are divided.
const PARTS: usize = 8;
/// The minimal extent of a part of the queries, and of a part of the keys.
const LEAST: [usize; 2] = [24, 256];

/// Shares of all scores.
#[derive(Clone, Copy, Debug)]
pub struct Shares {
    /// The share of scores that are computed.
    pub visible: f64,
    /// The share of scores for which the bias is evaluated.
    pub mixed: f64,
}

impl Shares {
    /// Everything.
    pub const ALL: Shares = Shares { visible: 1.0, mixed: 1.0 };

    /// Returns the shares for a bias over groups of batch, query and key axes, by coarse blocks.
    pub fn of(bias: &Body, groups: [usize; 3]) -> Shares {
        let Some(mut mask) = Mask::new(&bias.instrs, &bias.results).filter(|_| !bias.domain.contains(&0)) else {
            return Shares::ALL;
        };
        let mut bounds: Vec<Range<usize>> = bias.domain.iter().map(|&n| 0..n).collect();
        // If there are several axes, the outermost is divided.
        let cut = |first: usize, axes: usize, least: usize| {
            let points: usize = bias.domain[first..first + axes].iter().product();
            let extent = if axes == 0 { 1 } else { bias.domain[first] };
            let parts = (points / least).clamp(1, PARTS.min(extent));
            (0..parts).map(|n| n * extent / parts..(n + 1) * extent / parts).collect::<Vec<_>>()
        };
        let [batch, queries, keys] = groups;
        let of_queries = cut(batch, queries, LEAST[0]);
        let of_keys = cut(batch + queries, keys, LEAST[1]);
        let (mut visible, mut mixed) = (0, 0);
        for q in &of_queries {
            for k in &of_keys {
                if queries > 0 {
                    bounds[batch] = q.clone();
                }
                if keys > 0 {
                    bounds[batch + queries] = k.clone();
                }
                let visibility = mask.of(&bounds);
                visible += usize::from(visibility != Visibility::Hidden);
                mixed += usize::from(visibility == Visibility::Mixed);
            }
        }
        let all = (of_queries.len() * of_keys.len()) as f64;
        Shares { visible: visible as f64 / all, mixed: mixed as f64 / all }
    }
}
