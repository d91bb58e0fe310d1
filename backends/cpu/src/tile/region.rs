//! Boxes of a domain in which guards hold. Elements inside of a box are copied, and elements outside are filled.

use super::{
    access::TileGuard,
    domain::{AxisMask, MAX_RANK, Tile},
};

/// The points of a domain at which guards hold. Within a tile they form a box, which may be empty. The box may depend
/// on the coordinates of axes along which tiles have one point.
#[derive(Clone, Debug, PartialEq)]
pub struct Region {
    from: [usize; MAX_RANK],
    to: [usize; MAX_RANK],
    slanted: Vec<SlantedBound>,
}

/// A guard over several axes: constant + Σ strides·coordinate is in `from..to`.
#[derive(Clone, Debug, PartialEq)]
struct SlantedBound {
    /// The only axis of the guard along which a tile may have several points.
    axis: usize,
    constant: i64,
    strides: [i64; MAX_RANK],
    from: i64,
    to: i64,
}

impl Region {
    /// Returns the points at which all guards hold. Returns `None` if they may not form a box in a tile that has one
    /// point along the axes of `single`.
    pub fn new(guards: &[TileGuard], domain: &[usize], single: AxisMask) -> Option<Region> {
        let mut region = Region { from: [0; MAX_RANK], to: [1; MAX_RANK], slanted: Vec::new() };
        region.to[..domain.len()].copy_from_slice(domain);
        for guard in guards {
            let (constant, strides) = guard.access.affine()?;
            let mut axes = (0..domain.len()).filter(|&d| strides[d] != 0);
            match (axes.next(), axes.next()) {
                (None, _) if (guard.from..guard.to).contains(&constant) => {}
                (None, _) => (region.from[0], region.to[0]) = (1, 0),
                (Some(d), None) => {
                    let (low, high) = steps(guard.from - constant, guard.to - constant, strides[d]);
                    region.from[d] = region.from[d].max(low.max(0) as usize);
                    region.to[d] = region.to[d].min(high.max(0) as usize);
                }
                _ => {
                    let mut several = (0..domain.len()).rev().filter(|&d| strides[d] != 0 && single >> d & 1 == 0);
                    let axis = several.next().or_else(|| (0..domain.len()).rev().find(|&d| strides[d] != 0))?;
                    if several.next().is_some() {
                        return None;
                    }
                    let (from, to) = (guard.from, guard.to);
                    region.slanted.push(SlantedBound { axis, constant, strides, from, to });
                }
            }
        }
        Some(region)
    }

    /// Returns the start and the end of the box along each axis, for the coordinates of a tile.
    fn at(&self, tile: &Tile) -> [[usize; MAX_RANK]; 2] {
        let [mut from, mut to] = [self.from, self.to];
        for SlantedBound { axis, constant, strides, from: low, to: high } in &self.slanted {
            debug_assert!((0..MAX_RANK).all(|d| d == *axis || strides[d] == 0 || tile.len[d] <= 1), "not a box");
            let others =
                (0..MAX_RANK).filter(|d| d != axis).fold(*constant, |sum, d| sum + strides[d] * tile.start[d] as i64);
            let (low, high) = steps(low - others, high - others, strides[*axis]);
            from[*axis] = from[*axis].max(low.max(0) as usize);
            to[*axis] = to[*axis].min(high.max(0) as usize);
        }
        [from, to]
    }

    /// Returns whether the region is known to be within another.
    pub fn is_within(&self, other: &Region) -> bool {
        (0..MAX_RANK).all(|d| self.from[d] >= other.from[d] && self.to[d] <= other.to[d])
            && other.slanted.iter().all(|bound| self.slanted.contains(bound))
    }

    /// Returns whether two regions are known to be disjoint.
    pub fn is_disjoint(&self, other: &Region) -> bool {
        (0..MAX_RANK).any(|d| self.to[d] <= other.from[d] || other.to[d] <= self.from[d])
    }

    /// Returns a region that contains all the others, if there is one.
    pub fn outermost<'a>(regions: impl Iterator<Item = &'a Region> + Clone) -> Option<&'a Region> {
        regions.clone().find(|outer| regions.clone().all(|region| region.is_within(outer)))
    }

    /// Returns the region along some axes, with one point along the others. Returns `None` if it depends on the
    /// coordinates of the others.
    pub fn along(&self, axes: AxisMask) -> Option<Region> {
        let mut region = self.clone();
        for axis in (0..MAX_RANK).filter(|axis| axes >> axis & 1 == 0) {
            if self.slanted.iter().any(|bound| bound.strides[axis] != 0) {
                return None;
            }
            (region.from[axis], region.to[axis]) = (0, 1);
        }
        Some(region)
    }

    /// Returns a range that contains the values of an affine map over the region; an empty range if the region is
    /// empty.
    pub fn range(&self, base: i64, strides: &[i64; MAX_RANK]) -> std::ops::Range<i64> {
        if (0..MAX_RANK).any(|d| self.from[d] >= self.to[d]) {
            return 0..0;
        }
        // If the map is a multiple of a slanted bound's expression along the bound's axes, the bound limits its values.
        let (mut strides, [mut least, mut most]) = (*strides, [base; 2]);
        for bound in &self.slanted {
            let SlantedBound { axis, constant, strides: of_bound, from, to } = bound;
            let times = strides[*axis] / of_bound[*axis];
            let moves = |d: usize| of_bound[d] == 0 || strides[d] == times * of_bound[d];
            if from < to && (0..MAX_RANK).all(moves) {
                let ends = [times * (from - constant), times * (to - 1 - constant)];
                (least, most) = (least + ends[0].min(ends[1]), most + ends[0].max(ends[1]));
                (0..MAX_RANK).filter(|&d| of_bound[d] != 0).for_each(|d| strides[d] = 0);
            }
        }
        let end = |d: usize, low: bool| if (strides[d] > 0) == low { self.from[d] } else { self.to[d] - 1 };
        let at = |low: bool, from: i64| (0..MAX_RANK).fold(from, |sum, d| sum + strides[d] * end(d, low) as i64);
        at(true, least)..at(false, most) + 1
    }

    /// Returns the start and the end of the region along an axis, without slanted bounds.
    pub fn bounds(&self, axis: usize) -> [usize; 2] {
        [self.from[axis], self.to[axis]]
    }

    /// Returns whether the region contains all points of a tile.
    pub fn covers(&self, tile: &Tile) -> bool {
        let within = |d: usize| self.from[d] <= tile.start[d] && tile.start[d] + tile.len[d] <= self.to[d];
        if self.slanted.is_empty() || !(0..MAX_RANK).all(within) {
            return (0..MAX_RANK).all(within);
        }
        let [from, to] = self.at(tile);
        (0..MAX_RANK).all(|d| from[d] <= tile.start[d] && tile.start[d] + tile.len[d] <= to[d])
    }

    /// Returns the part of a tile within the region; `None` if it is empty.
    pub fn part(&self, tile: &Tile) -> Option<Tile> {
        let (mut part, [from, to]) = (*tile, self.at(tile));
        // An axis without points, such as the axis of empty rows, does not make the part empty, because the results of
        // such rows do not depend on it. If the region ends before it starts along an axis, the part is empty.
        for d in (0..MAX_RANK).filter(|&d| tile.len[d] > 0 || from[d] > to[d]) {
            let end = (tile.start[d] + tile.len[d]).min(to[d]);
            part.start[d] = tile.start[d].max(from[d]);
            part.len[d] = end.checked_sub(part.start[d]).filter(|&len| len > 0)?;
        }
        Some(part)
    }
}

/// Returns the first x for which `stride`·x is in `from..to`, and the number after the last such x.
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
impl Region {
    /// Returns the region that is a box with this range along each axis.
    pub fn of_box(extents: &[std::ops::Range<usize>]) -> Region {
        let mut region = Region { from: [0; MAX_RANK], to: [1; MAX_RANK], slanted: Vec::new() };
        for (axis, extent) in extents.iter().enumerate() {
            (region.from[axis], region.to[axis]) = (extent.start, extent.end);
        }
        region
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
                let region = Region::new(&[guard], &[9], 0).unwrap();
                for x in 0..9 {
                    let tile = Tile { start: [x, 0, 0, 0, 0, 0, 0, 0], len: [1; MAX_RANK] };
                    let holds = (-2..6).contains(&(stride * x as i64 + constant));
                    assert_eq!(region.covers(&tile), holds, "{stride}·{x} + {constant}");
                    assert_eq!(region.part(&tile).is_some(), holds, "{stride}·{x} + {constant}");
                }
            }
        }
    }

    #[test]
    fn an_axis_without_points_limits_no_part() {
        let guard = |from| TileGuard { access: CompiledAccess::new(&Index::coord(0)).unwrap(), from, to: 3 };
        let tile = Tile { start: [0; MAX_RANK], len: [4, 0, 1, 1, 1, 1, 1, 1] };
        let part = Region::new(&[guard(1)], &[4, 0], 0).unwrap().part(&tile).unwrap();
        assert_eq!((part.start[0], part.len[0], part.len[1]), (1, 2, 0));
        assert_eq!(Region::new(&[guard(3)], &[4, 0], 0).unwrap().part(&tile), None);
        // This guard never holds.
        let never = TileGuard { access: CompiledAccess::new(&Index::constant(7)).unwrap(), from: 0, to: 3 };
        let empty = Tile { start: [0; MAX_RANK], len: [0, 4, 1, 1, 1, 1, 1, 1] };
        for (tile, domain) in [(&tile, [4, 0]), (&empty, [0, 4])] {
            let region = Region::new(std::slice::from_ref(&never), &domain, 0).unwrap();
            assert_eq!((region.part(tile), region.covers(tile)), (None, false));
        }
    }

    #[test]
    fn a_slanted_region_is_a_box_for_each_point_and_knows_how_far_a_map_goes() {
        for [outer, inner] in [[4, 1], [-4, 1], [3, -2], [1, 5]] {
            let index = Index::coord(0).times(outer).plus(&Index::coord(1).times(inner)).plus(&Index::constant(1));
            let guard = || TileGuard { access: CompiledAccess::new(&index).unwrap(), from: -3, to: 9 };
            assert!(Region::new(&[guard()], &[4, 6], 0).is_none());
            let region = Region::new(&[guard()], &[4, 6], 1).unwrap();
            let holds = |x: usize, y: usize| (-3..9).contains(&(outer * x as i64 + inner * y as i64 + 1));
            for (x, y, len) in (0..4).flat_map(|x| (0..6).flat_map(move |y| (1..=6 - y).map(move |len| (x, y, len)))) {
                let (mut tile, all) = (Tile { start: [0; MAX_RANK], len: [1; MAX_RANK] }, y..y + len);
                ([tile.start[0], tile.start[1]], tile.len[1]) = ([x, y], len);
                let inside: Vec<_> = all.clone().filter(|&y| holds(x, y)).collect();
                assert_eq!(region.covers(&tile), inside.len() == len);
                let part = region.part(&tile).map(|part| part.start[1]..part.start[1] + part.len[1]);
                assert_eq!(part.map_or(Vec::new(), Iterator::collect), inside);
            }
            // The first map is a multiple of the guard's expression, and the second one is not.
            for [a, b] in [[3 * outer, 3 * inner], [7, 1]] {
                let mut strides = [0; MAX_RANK];
                (strides[0], strides[1]) = (a, b);
                let range = region.range(5, &strides);
                let points = (0..4).flat_map(|x| (0..6).map(move |y| (x, y))).filter(|&(x, y)| holds(x, y));
                for (x, y) in points {
                    assert!(range.contains(&(5 + a * x as i64 + b * y as i64)), "{a} {b}: {range:?}");
                }
                assert!([a, b] == [7, 1] || range.end - range.start <= 3 * 11 + 1, "{range:?}");
            }
        }
    }
}
