//! Several neighbours at once: an axis split into groups of so many points, of which one thread computes a group.
//!
//! Maps are substituted for each point of a group, so that the same division vanishes for all of them where a group lies within one
//! period of it, and what reads neighbours is seen by comparing maps.

use eutectic_backend::{Guard, Instr, Load, Store, axes::Nest};
use eutectic_ir::{
    DType,
    index::{Atom, Index},
};

/// A map for each point of a group; one where it is the same for all.
pub type Maps = Vec<Index>;

/// A split axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitAxis {
    /// Which.
    pub axis: usize,
    /// How many points a group has; they divide the axis.
    pub count: usize,
}

impl SplitAxis {
    /// The domain whose coordinate along the axis counts groups.
    pub fn domain(self, domain: &[usize]) -> Vec<usize> {
        let mut domain = domain.to_vec();
        if let Some(extent) = domain.get_mut(self.axis) {
            *extent /= self.count;
        }
        domain
    }

    /// A map over such a domain, for each point of a group.
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

    /// Whether maps give neighbours, the first of them a multiple of their number.
    pub fn are_neighbours(self, maps: &Maps) -> bool {
        let by = self.count as i64;
        let aligned = maps[0].constant % by == 0 && maps[0].terms.iter().all(|(_, c)| c % by == 0);
        maps.len() == self.count
            && aligned
            && maps.iter().enumerate().all(|(lane, map)| *map == maps[0].plus(&Index::constant(lane as i64)))
    }

    /// Whether a guard says the same of all points of a group.
    fn is_uniform(self, (map, range): &Guard, domain: &[usize]) -> bool {
        let maps = self.maps(map, domain);
        let by = self.count as i64;
        maps.len() == 1 || self.are_neighbours(&maps) && range.start % by == 0 && range.end % by == 0
    }

    /// Whether an access, whose map mentions no value that differs within a group, takes in neighbours at once.
    pub fn is_packed(self, at: &Index, guards: &[Guard], domain: &[usize]) -> bool {
        self.count > 1
            && self.are_neighbours(&self.maps(at, domain))
            && guards.iter().all(|guard| self.is_uniform(guard, domain))
    }

    /// The guards of the first point, where they say the same of all; else of each.
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

    /// As many lanes along an axis as accesses of at most 16 bytes take in at once; one where most accesses would stay apart.
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
