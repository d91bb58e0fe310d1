//! Merges equal keys, such as those of padding. One of them is multiplied with queries, and its value with the sum of
//! their weights.

use super::{operands::AttentionOperand, runs::Runs};
use crate::{
    gemm::matrix::Stretch,
    simd::softmax::AttentionElement,
    tile::{MAX_RANK, Tile, region::Region, span::Span},
};

/// Equal keys of a block are merged if they are at least 1/`SHARE` of its keys. Otherwise, moving the scores and
/// weights of the keys that differ takes longer than merging saves.
const SHARE: usize = 16;
/// The number of separate sums of weights, which vector instructions add at once.
const LANES: usize = 16;

/// The keys that may differ, as a region. All keys that are not in it are equal, and so are their values.
pub struct SharedKeys {
    region: Region,
    keys: Span,
    batch: usize,
}

impl SharedKeys {
    /// Returns the keys that may differ, for operands that tasks evaluate in blocks of `block` rows. Returns `None` if
    /// guards do not show that other keys are equal.
    pub fn new(key: &AttentionOperand, value: &AttentionOperand, block: usize) -> Option<SharedKeys> {
        let (AttentionOperand::Blocks(key), AttentionOperand::Blocks(value)) = (key, value) else { return None };
        let region = key.varying()?;
        let alike = key.rows() == value.rows() && value.varying().as_ref() == Some(&region);
        let (keys, batch) = (key.rows().clone(), key.batch());
        (alike && Runs::fit(&keys, block)).then_some(SharedKeys { region, keys, batch })
    }

    /// Returns the keys of a block that may differ from its equal keys; `None` if too few keys of the block are equal.
    pub fn others(&self, point: &[usize], keys: Stretch) -> Option<Runs> {
        let mut tile = Tile { start: [0; MAX_RANK], len: [1; MAX_RANK] };
        tile.start[..self.batch].copy_from_slice(point);
        let others = Runs::within(&self.region, keys.first..keys.first + keys.count, &self.keys, tile);
        let shared = keys.count - others.len();
        (shared > 1 && shared * SHARE >= keys.count).then_some(others)
    }
}

/// Expands scores to one per key. They begin with those of the `others`, the keys that differ, followed by the common
/// score of the equal keys.
pub fn spread<T: Copy>(scores: &mut [T], others: &Runs) {
    let mut first = others.len();
    let (shared, mut end) = (scores[first], scores.len());
    for run in others.ranges().rev() {
        scores[run.end..end].fill(shared);
        first -= run.len();
        scores.copy_within(first..first + run.len(), run.start);
        end = run.start;
    }
    scores[..end].fill(shared);
}

/// Moves the weights of the `others`, the keys that differ, to the front. The sum of the other weights follows them.
pub fn gather<T: AttentionElement>(weights: &mut [T], others: &Runs) {
    let (mut sum, mut end) = (T::of(0.0), 0);
    for (first, run) in others.iter() {
        sum = sum.plus(sum_of(&weights[end..run.start]));
        weights.copy_within(run.clone(), first);
        end = run.end;
    }
    sum = sum.plus(sum_of(&weights[end..]));
    weights[others.len()] = sum;
}

fn sum_of<T: AttentionElement>(weights: &[T]) -> T {
    let mut sums = [T::of(0.0); LANES];
    let (whole, rest) = weights.as_chunks::<LANES>();
    for weights in whole {
        sums = std::array::from_fn(|lane| sums[lane].plus(weights[lane]));
    }
    sums.iter().chain(rest).fold(T::of(0.0), |sum, &weight| sum.plus(weight))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_spread_and_weights_gathered_in_place() {
        // Keys in lines of five. The keys in columns 1 and 2 of the lines `from..to` differ.
        let domain = [7, 5];
        let keys = Span::new(&domain, 0, 2);
        for (from, to) in (0..7).flat_map(|from| (from..=7).map(move |to| (from, to))) {
            let region = Region::of_box(&[from..to, 1..3]);
            let shared = SharedKeys { region, keys: keys.clone(), batch: 0 };
            let Some(others) = shared.others(&[], Stretch::new(0, 35)) else { panic!("{from}..{to}") };
            let differs = |key: usize| (from..to).contains(&(key / 5)) && (1..3).contains(&(key % 5));
            let differing: Vec<_> = (0..35).filter(|&key| differs(key)).collect();
            let mut scores = vec![f32::NAN; 35];
            for (score, &key) in scores.iter_mut().zip(&differing) {
                *score = key as f32;
            }
            scores[differing.len()] = -1.0;
            spread(&mut scores, &others);
            let wanted = |key: usize| if differs(key) { key as f32 } else { -1.0 };
            assert_eq!(scores, (0..35).map(wanted).collect::<Vec<_>>());
            let mut weights: Vec<_> = (0..35).map(|key| key as f32).collect();
            let rest: f32 = (0..35).filter(|&key| !differs(key)).map(|key| key as f32).sum();
            gather(&mut weights, &others);
            let wanted: Vec<_> = differing.iter().map(|&key| key as f32).chain([rest]).collect();
            assert_eq!(weights[..=differing.len()], wanted);
        }
        // Few equal keys are not merged.
        let few = SharedKeys { region: Region::of_box(&[0..7, 0..5]), keys, batch: 0 };
        assert!(few.others(&[], Stretch::new(0, 35)).is_none());
    }
}
