//! Facts that attention schedules share: the keys that a block of queries attends to, and the number of parts into
//! which the keys are split.

use eutectic_backend::{
    axes::Nest,
    intervals::{Mask, Visibility},
};

use crate::device::DeviceShape;

/// The maximal number of score blocks that are analysed for masks. Further blocks count as visible.
const LOOKED_AT: usize = 1 << 15;
/// The maximal number of tiles whose visibility is recorded.
const TILES: usize = 1 << 22;

/// The keys that a block of queries attends to, as ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VisibleKeys {
    /// The range of keys from the first to the last tile that is not hidden.
    pub keys: [usize; 2],
    /// The longest range of consecutive tiles whose scores the bias leaves unchanged.
    pub plain: [usize; 2],
}

/// Returns, for each block of `queries` queries, the visible tiles of `keys` keys under a bias over `[b s t]`: batch,
/// queries and keys. Returns `None` if every tile is visible and the bias changes each, or if the tiles are too many to
/// analyse.
pub fn seen(bias: &Nest, result: usize, [queries, keys]: [usize; 2]) -> Option<Vec<VisibleKeys>> {
    let [b, s, t] = [0, 1, 2].map(|n| bias.domain[n]);
    let (blocks, tiles) = (s.div_ceil(queries), t.div_ceil(keys));
    if b == 0 || blocks * tiles == 0 || blocks * tiles > TILES {
        return None;
    }
    let results = [result];
    let mut mask = Mask::new(&bias.instrs, &results)?;
    let mut budget = LOOKED_AT;
    let of_block = |block: usize| {
        let q = block * queries;
        let mut all = vec![Visibility::Mixed; tiles];
        // Bisects until each range of tiles is hidden or unchanged as a whole.
        let mut parts: Vec<_> = std::iter::once(0..tiles).collect();
        while let Some(part) = parts.pop().filter(|_| budget > 0) {
            budget -= 1;
            match mask.of(&[0..b, q..s.min(q + queries), part.start * keys..t.min(part.end * keys)]) {
                Visibility::Mixed if part.len() > 1 => {
                    let middle = part.start + part.len() / 2;
                    parts.extend([part.start..middle, middle..part.end]);
                }
                visibility => all[part].fill(visibility),
            }
        }
        let first = all.iter().position(|v| *v != Visibility::Hidden);
        let last = all.iter().rposition(|v| *v != Visibility::Hidden);
        let (mut plain, mut start) = ([0, 0], 0);
        for (tile, visibility) in all.iter().enumerate() {
            if *visibility != Visibility::Plain {
                start = tile + 1;
            } else if tile + 1 - start > plain[1] - plain[0] {
                plain = [start, tile + 1];
            }
        }
        let seen = first.zip(last).map_or([0, 0], |(first, last)| [first * keys, t.min((last + 1) * keys)]);
        VisibleKeys { keys: seen, plain }
    };
    let all: Vec<VisibleKeys> = (0..blocks).map(of_block).collect();
    all.iter().any(|sees| sees.keys != [0, t] || sees.plain != [0, 0]).then_some(all)
}

/// Returns into how many parts `tiles` tiles of keys are split if the other axes give `blocks` blocks. If these keep
/// all processors busy, there is one part. Otherwise each part has at least two tiles.
pub fn parts_of_keys(shape: &DeviceShape, blocks: usize, tiles: usize) -> usize {
    let blocks = blocks.max(1);
    let most = (tiles / 2).max(1).min(4 * shape.processors / blocks).max(1);
    if blocks < shape.processors { 1 << most.ilog2() } else { 1 }
}

#[cfg(test)]
mod tests {
    use eutectic_backend::{Body, Instr};
    use eutectic_ir::{Attrs, DType, Op, index::Index};

    use super::*;

    /// Returns the bias where(key ≤ query and key > query − 300, 0, −∞).
    fn window(queries: usize, keys: usize) -> Nest {
        let int = |axis| Instr::Coordinate { index: Index::coord(axis), dtype: DType::I32 };
        let constant = |value: f64, dtype| Instr::Constant { value: value.into(), dtype };
        let map = |op: &str, args: &[usize], dtype| Instr::Map {
            op: Op::named(op).unwrap(),
            attrs: Attrs::default(),
            args: args.to_vec(),
            dtype,
        };
        let instrs = vec![
            int(1),
            int(2),
            constant(300.0, DType::I32),
            map("sub", &[0, 2], DType::I32),
            map("le", &[1, 0], DType::Bool),
            map("gt", &[1, 3], DType::Bool),
            map("and", &[4, 5], DType::Bool),
            constant(0.0, DType::F32),
            constant(f64::NEG_INFINITY, DType::F32),
            map("where", &[6, 7, 8], DType::F32),
        ];
        Nest::of(Body { domain: vec![2, queries, keys], instrs, results: vec![9], ..Body::default() })
    }

    #[test]
    fn blocks_see_what_a_window_leaves_and_no_tile_beyond() {
        for (queries, keys) in [(1000, 1000), (1 << 15, 1 << 15), (64, 2000)] {
            let all = seen(&window(queries, keys), 9, [64, 32]).expect("much of it is hidden");
            assert_eq!(all.len(), queries.div_ceil(64));
            for (block, sees) in all.iter().enumerate() {
                let [first, last] = [block * 64, (block * 64 + 63).min(queries - 1)];
                let from = (first + 1).saturating_sub(300) / 32 * 32;
                let to = keys.min((last.min(keys - 1) / 32 + 1) * 32);
                assert_eq!(sees.keys, [from, to], "block {block} of {queries}");
                // Every query of the block sees each of these tiles as a whole.
                let [from, to] =
                    [(last + 1).saturating_sub(300).div_ceil(32), ((first + 1) / 32).min(keys.div_ceil(32))];
                assert_eq!(sees.plain[1] - sees.plain[0], to.saturating_sub(from), "block {block} of {queries}");
            }
        }
    }

    #[test]
    fn where_much_is_to_be_looked_at_the_rest_is_seen() {
        let all = seen(&window(1 << 13, 1 << 13), 9, [8, 8]).expect("the first blocks were looked at");
        assert_eq!(all[10].keys, [0, 88]);
        assert_eq!(all.last(), Some(&VisibleKeys { keys: [0, 1 << 13], plain: [0, 0] }));
        assert_eq!(seen(&window(1 << 15, 1 << 15), 9, [1, 1]), None);
    }
}
