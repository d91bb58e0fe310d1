//! Estimates the share of an attention's scores that a bias does not hide, and the share for which a kernel must
//! evaluate the bias.

use std::ops::Range;

use crate::{
    body::Body,
    intervals::{Mask, Visibility},
};

/// The maximal number of blocks into which queries are divided, and into which keys are divided.
const PARTS: usize = 8;
/// The minimal number of queries of a block, and the minimal number of keys of a block.
const LEAST: [usize; 2] = [24, 256];

/// Shares of an attention's scores, from 0 to 1.
#[derive(Clone, Copy, Debug)]
pub struct Shares {
    /// The share of scores that are computed.
    pub visible: f64,
    /// The share of scores for which the bias is evaluated.
    pub mixed: f64,
}

impl Shares {
    /// The shares if nothing is known of the bias: every score is computed, and its bias is evaluated.
    pub const ALL: Shares = Shares { visible: 1.0, mixed: 1.0 };

    /// Returns the shares for a bias, estimated by coarse blocks of scores. `groups` has the numbers of batch, query
    /// and key axes of the bias.
    pub fn of(bias: &Body, groups: [usize; 3]) -> Shares {
        let Some(mut mask) = Mask::new(&bias.instrs, &bias.results).filter(|_| !bias.domain.contains(&0)) else {
            return Shares::ALL;
        };
        let mut bounds: Vec<Range<usize>> = bias.domain.iter().map(|&n| 0..n).collect();
        // Divides queries or keys into blocks. If they have several axes, only the outermost one is divided.
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
