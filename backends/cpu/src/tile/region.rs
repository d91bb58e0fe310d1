//! Boxes of a domain in which guards hold: what lies inside is copied, what lies outside is filled.

use super::{
    access::TileGuard,
    domain::{MAX_RANK, Tile},
};

/// A box of a domain, perhaps empty.
#[derive(Clone, Debug)]
pub struct Region {
    from: [usize; MAX_RANK],
    to: [usize; MAX_RANK],
}

impl Region {
    /// Where all guards hold; `None` where that need not be a box.
    pub fn new(guards: &[TileGuard], domain: &[usize]) -> Option<Region> {
        let mut region = Region { from: [0; MAX_RANK], to: [1; MAX_RANK] };
        region.to[..domain.len()].copy_from_slice(domain);
        for guard in guards {
            let (constant, strides) = guard.access.affine()?;
            let mut axes = (0..domain.len()).filter(|&d| strides[d] != 0);
            match (axes.next(), axes.next()) {
                (None, _) if (guard.from..guard.to).contains(&constant) => {}
                (None, _) => region.to[0] = 0,
                (Some(d), None) => {
                    let (low, high) = steps(guard.from - constant, guard.to - constant, strides[d]);
                    region.from[d] = region.from[d].max(low.max(0) as usize);
                    region.to[d] = region.to[d].min(high.max(0) as usize);
                }
                _ => return None,
            }
        }
        Some(region)
    }

    /// Whether it is within another.
    pub fn is_within(&self, other: &Region) -> bool {
        (0..MAX_RANK).all(|d| self.from[d] >= other.from[d] && self.to[d] <= other.to[d])
    }

    /// The range of an affine map over it; empty if it is.
    pub fn range(&self, base: i64, strides: &[i64; MAX_RANK]) -> std::ops::Range<i64> {
        if (0..MAX_RANK).any(|d| self.from[d] >= self.to[d]) {
            return 0..0;
        }
        let end = |d: usize, low: bool| if (strides[d] > 0) == low { self.from[d] } else { self.to[d] - 1 };
        let at = |low: bool| (0..MAX_RANK).fold(base, |sum, d| sum + strides[d] * end(d, low) as i64);
        at(true)..at(false) + 1
    }

    /// Where it begins and ends along an axis.
    pub fn bounds(&self, axis: usize) -> [usize; 2] {
        [self.from[axis], self.to[axis]]
    }

    /// Whether a tile lies in it.
    pub fn covers(&self, tile: &Tile) -> bool {
        (0..MAX_RANK).all(|d| self.from[d] <= tile.start[d] && tile.start[d] + tile.len[d] <= self.to[d])
    }

    /// The part of a tile that lies in it, if there is one.
    pub fn part(&self, tile: &Tile) -> Option<Tile> {
        let mut part = *tile;
        for d in 0..MAX_RANK {
            let end = (tile.start[d] + tile.len[d]).min(self.to[d]);
            part.start[d] = tile.start[d].max(self.from[d]);
            part.len[d] = end.checked_sub(part.start[d]).filter(|&len| len > 0)?;
        }
        Some(part)
    }
}

/// The first x for which `stride`·x lies in `from..to`, and the one after the last.
fn steps(from: i64, to: i64, stride: i64) -> (i64, i64) {
    if stride > 0 {
        let up = |x: i64| -(-x).div_euclid(stride);
        (up(from), up(to))
    } else {
        let after = |x: i64| (-x).div_euclid(-stride) + 1;
        (after(to), after(from))
    }
}

#[cfg(test)]
mod tests {
    use eutectic_ir::index::Index;

    use super::*;
    use crate::tile::access::CompiledAccess;

    #[test]
    fn a_region_holds_the_points_where_guards_hold() {
        for stride in [-3_i64, -2, -1, 0, 1, 2, 5] {
            for constant in -7..8 {
                let index = Index::coord(0).times(stride).plus(&Index::constant(constant));
                let guard = TileGuard { access: CompiledAccess::new(&index).unwrap(), from: -2, to: 6 };
                let region = Region::new(&[guard], &[9]).unwrap();
                for x in 0..9 {
                    let tile = Tile { start: [x, 0, 0, 0, 0, 0, 0, 0], len: [1; MAX_RANK] };
                    let holds = (-2..6).contains(&(stride * x as i64 + constant));
                    assert_eq!(region.covers(&tile), holds, "{stride}·{x} + {constant}");
                    assert_eq!(region.part(&tile).is_some(), holds, "{stride}·{x} + {constant}");
                }
            }
        }
    }
}
