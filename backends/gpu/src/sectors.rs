//! Counts the bytes that memory moves for the accesses of a kernel's threads. Memory moves whole sectors. Neighbouring
//! threads share a sector if their elements are adjacent.

use eutectic_backend::{Instr, Kernel};
use eutectic_ir::index::{Atom, Index};
use smallvec::SmallVec;

use crate::kernels::rows::order;

/// The number of threads that exchange values in registers (a warp), on most devices.
pub(crate) const TOGETHER: usize = 32;

/// Bytes of a memory transaction. An atomic moves one in each direction, and threads that access neighbouring elements
/// share one.
pub(crate) const SECTOR: f64 = 32.0;
/// The minimal number of points of a map whose accesses are analysed. A smaller map takes as long as its launch.
pub(crate) const MIN_ANALYSED_POINTS: f64 = 1e5;
/// Returns how many points a domain has.
pub(crate) fn points(domain: &[usize]) -> f64 {
    domain.iter().map(|&n| n as f64).product()
}

/// Returns the maps of the loads and stores of a kernel's own body, each with the bytes of an element.
pub(crate) fn accesses(kernel: &Kernel) -> impl Iterator<Item = (&Index, usize)> {
    let size = |slot: usize| kernel.slots[slot].0.size();
    let loads = kernel.body.instrs.iter().filter_map(|i| if let Instr::Load(load) = i { Some(load) } else { None });
    let stores = kernel.stores.iter().map(move |store| (&store.at, size(store.slot)));
    loads.map(move |load| (&load.at, size(load.slot))).chain(stores)
}

/// Returns the orders of axes among which the schedule of a kernel chooses. Neighbouring threads take neighbouring
/// points of the last axis: within a row, or across rows. Products and attention are tiled and have no order.
pub(crate) fn orders(kernel: &Kernel) -> Vec<Vec<usize>> {
    let rank = kernel.body.domain.len();
    match (order(kernel), kernel.row_axes()) {
        (Some(order), Some(axes)) => {
            let mut across = order.clone();
            across.rotate_right(axes);
            vec![order, across]
        }
        _ if kernel.bodies().len() == 1 => vec![(0..rank).collect()],
        _ => Vec::new(),
    }
}

/// Returns the ratio of the bytes that memory moves to the bytes that neighbouring threads access. Sectors also hold
/// elements that these threads do not access.
pub(crate) fn sectors(map: &Index, domain: &[usize], order: &[usize], size: usize) -> f64 {
    if points(domain) < MIN_ANALYSED_POINTS || map.affine(domain.len()).is_none() {
        return 1.0;
    }
    let place = |thread: usize| {
        let mut rest = thread;
        let mut at: SmallVec<[usize; 8]> = domain.iter().map(|_| 0).collect();
        for &axis in order.iter().rev() {
            (at[axis], rest) = (rest % domain[axis], rest / domain[axis]);
        }
        map.eval(&at, &|_| 0)
    };
    let mut places: SmallVec<[i64; TOGETHER]> = (0..TOGETHER).map(place).collect();
    places.sort_unstable();
    places.dedup();
    let fewest = (places.len() * size).div_ceil(SECTOR as usize);
    places.iter_mut().for_each(|place| *place = *place * size as i64 / SECTOR as i64);
    places.dedup();
    // The accesses may start in the middle of a sector. Other threads read its remainder, so one
    // sector more than the minimum is free.
    if places.len() <= fewest + 1 { 1.0 } else { places.len() as f64 / fewest as f64 }
}

/// Returns how many elements a map can reach over a domain.
pub fn touched(map: &Index, domain: &[usize]) -> f64 {
    let indirect = map.terms.iter().any(|(atom, _)| matches!(atom, Atom::Value(_)));
    let axes = domain.iter().enumerate().filter(|(axis, _)| indirect || map.mentions(*axis));
    axes.map(|(_, &n)| n as f64).product()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_across_memory_move_whole_sectors() {
        let (axis, at) = (Index::coord, |n: i64| Index::constant(n));
        let domain = [1024, 512];
        for (map, size, expected) in [
            (axis(0).times(512).plus(&axis(1)), 4, 1.0),
            (axis(0).times(512).plus(&axis(1)).plus(&at(3)), 4, 1.0),
            (axis(1).times(1024).plus(&axis(0)), 4, 8.0),
            (axis(1).times(1024).plus(&axis(0)), 2, 16.0),
            (axis(0).times(1024).plus(&axis(1).times(2)), 4, 2.0),
            // All threads read one element, and the next one in the next iteration.
            (axis(0), 4, 1.0),
        ] {
            assert_eq!(sectors(&map, &domain, &[0, 1], size), expected, "{map}, {size} bytes");
        }
        // Interleaved channels: three threads read from three places, and the next three threads read the elements
        // after them.
        let interleaved = axis(1).times(200_000).plus(&axis(0));
        assert!(sectors(&interleaved, &[200_000, 3], &[0, 1], 4) < 2.0);
        assert_eq!(sectors(&axis(1).times(8).plus(&axis(0)), &[8, 8], &[0, 1], 4), 1.0, "few points");
        // Neighbouring threads take neighbouring rows, whose elements are contiguous.
        assert_eq!(sectors(&axis(1).times(1024).plus(&axis(0)), &domain, &[1, 0], 4), 1.0);
    }
}
