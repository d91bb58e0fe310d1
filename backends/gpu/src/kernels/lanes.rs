//! Computes several neighbours per thread: an axis is split into groups of points, and one thread computes a group.
//!
//! The coordinates of each point of a group are substituted into index maps. If a group is within one period of a
//! division, the division has one value for all of its points. Comparing maps shows which loads are contiguous.

use eutectic_backend::{Guard, Instr, Load, Store, axes::Nest};
use eutectic_ir::{
    DType,
    index::{Atom, Index},
};

/// An index map for each point of a group; one map if all are equal.
pub type Maps = Vec<Index>;

/// A split axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitAxis {
    /// The axis.
    pub axis: usize,
    /// The number of points in a group, which divides the axis.
    pub count: usize,
}

impl SplitAxis {
    /// Returns the domain in which the split axis counts groups.
    pub fn domain(self, domain: &[usize]) -> Vec<usize> {
        let mut domain = domain.to_vec();
        if let Some(extent) = domain.get_mut(self.axis) {
            *extent /= self.count;
        }
        domain
    }

    /// Returns a map over the domain of groups, for each point of a group.
    pub fn maps(self, map: &Index, domain: &[usize]) -> Maps {
        if self.count == 1 || !map.mentions(self.axis) {
            return vec![map.clone()];
        }
        let of_lane = |lane: usize| {
            let whole = Index::coord(self.axis).times(self.count as i64).plus(&Index::constant(lane as i64));
            let at: Vec<_> =
                (0..domain.len()).map(|n| if n == self.axis { whole.clone() } else { Index::coord(n) }).collect();
            map.substitute(&at, &|v| Index::atom(Atom::Value(v)), domain)
        };
        let maps: Maps = (0..self.count).map(of_lane).collect();
        if maps.iter().all(|map| *map == maps[0]) { maps[..1].to_vec() } else { maps }
    }

    /// Returns, for each instruction, the number of distinct values within a group; `domain` counts groups. Results of
    /// rows and anchors differ at each point.
    pub fn distinct(self, instrs: &[Instr], domain: &[usize]) -> Vec<usize> {
        // For each value and point, the first point with the same value.
        let mut first: Vec<Vec<usize>> = Vec::with_capacity(instrs.len());
        for instr in instrs {
            let maps: Vec<Maps> = instr.maps().into_iter().map(|map| self.maps(map, domain)).collect();
            let is_own = matches!(instr, Instr::Anchor { .. } | Instr::Row { .. });
            let args = instr.args();
            let is_same = |lane: usize, other: usize| {
                !is_own
                    && maps.iter().all(|maps| maps[lane % maps.len()] == maps[other % maps.len()])
                    && args.iter().all(|&arg| first[arg][lane] == first[arg][other])
            };
            let of_lane = |lane: usize| (0..lane).find(|&other| is_same(lane, other)).unwrap_or(lane);
            let found = (0..self.count).map(of_lane).collect();
            first.push(found);
        }
        let count = |first: &Vec<usize>| first.iter().enumerate().filter(|(lane, first)| lane == *first).count();
        first.iter().map(count).collect()
    }

    /// Returns whether maps give consecutive indices, and the first one is a multiple of their number.
    pub fn are_neighbours(self, maps: &Maps) -> bool {
        let by = self.count as i64;
        let aligned = maps[0].constant % by == 0 && maps[0].terms.iter().all(|(_, c)| c % by == 0);
        maps.len() == self.count
            && aligned
            && maps.iter().enumerate().all(|(lane, map)| *map == maps[0].plus(&Index::constant(lane as i64)))
    }

    /// Returns whether a guard has one value for all points of a group.
    fn is_uniform(self, (map, range): &Guard, domain: &[usize]) -> bool {
        let maps = self.maps(map, domain);
        let by = self.count as i64;
        maps.len() == 1 || self.are_neighbours(&maps) && range.start % by == 0 && range.end % by == 0
    }

    /// Returns whether one access takes all points of a group. Values that its map mentions must not differ within the
    /// group.
    pub fn is_packed(self, at: &Index, guards: &[Guard], domain: &[usize]) -> bool {
        self.count > 1
            && self.are_neighbours(&self.maps(at, domain))
            && guards.iter().all(|guard| self.is_uniform(guard, domain))
    }

    /// Returns one set of guards if all points of a group share it, and otherwise a set for each point.
    pub fn guards(self, guards: &[Guard], domain: &[usize]) -> Vec<Vec<Guard>> {
        let uniform = guards.iter().all(|guard| self.is_uniform(guard, domain));
        let of_lane = |lane: usize| {
            let of = |(map, range): &Guard| {
                let maps = self.maps(map, domain);
                (maps[lane % maps.len()].clone(), range.clone())
            };
            guards.iter().map(of).collect()
        };
        (0..if uniform { 1 } else { self.count }).map(of_lane).collect()
    }

    /// Returns the split along an axis with the most lanes for which most accesses are contiguous, up to 16 bytes each.
    /// Returns one lane if most accesses are not contiguous.
    pub fn best(nest: &Nest, slots: &[(DType, usize)], axis: usize, most: usize) -> SplitAxis {
        let size = |slot: usize| slots[slot].0.size();
        let load = |instr: &Instr| match instr {
            Instr::Load(Load { slot, at, guards, .. }) => Some((size(*slot), at.clone(), guards.clone(), false)),
            _ => None,
        };
        let store = |s: &Store| (size(s.slot), s.at.clone(), s.guards.clone(), true);
        let accesses: Vec<_> = nest.instrs.iter().filter_map(load).chain(nest.stores.iter().map(store)).collect();
        let along = || accesses.iter().filter(|(_, at, ..)| at.mentions(axis));
        let narrowest = along().map(|a| a.0).min().unwrap_or(16);
        let mut count = (16 / narrowest).min(most).max(1);
        while count > 1 {
            let lanes = SplitAxis { axis, count };
            let domain = lanes.domain(&nest.domain);
            let (mut packed, mut apart) = (0, 0);
            for (size, at, guards, stored) in along() {
                match lanes.is_packed(at, guards, &domain) && at.values().is_empty() {
                    true => packed += size,
                    false => apart += size * if *stored { 4 } else { 1 },
                }
            }
            if nest.domain[axis].is_multiple_of(count) && packed > 0 && packed >= apart {
                break;
            }
            count /= 2;
        }
        SplitAxis { axis, count }
    }
}
