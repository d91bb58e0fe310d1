//! Divides batch-vectorised contractions into tiles whose operands fit into the first-level cache, and overlap little
//! with those of their neighbours.

use super::form::{LaneForm, Side, in_flight};
use crate::{machine::Machine, schedule::LaneCosts, tile::MAX_RANK};

/// The assumed number of elements of a vector, on every machine.
const VECTOR: usize = 16;
/// The assumed size of all caches that a core uses, as a multiple of the second-level cache.
const MEMORY: f64 = 16.0;
/// The maximal number of sums of a tile. Epilogues pass over sums several times, so that sums should stay in a cache.
const MOST: usize = 4096;

/// The division of a form's result into tiles, and its price.
pub struct Tiles {
    /// The extents of tiles, along the axes of the result.
    pub len: [usize; MAX_RANK],
    /// The predicted seconds of all sums, without those of evaluating operands.
    pub seconds: f64,
    /// The average number of times that an element of each operand is evaluated. Two tiles that read an element both
    /// evaluate it.
    pub again: [f64; 2],
}

impl Tiles {
    /// Returns the tiles that take the least time on a machine.
    pub fn of(form: &LaneForm, machine: &Machine) -> Tiles {
        let len = extents(form, machine);
        let count = |extents: &mut dyn Iterator<Item = usize>| extents.map(|n| n as f64).product::<f64>();
        let again = [0, 1].map(|n| {
            let side: &Side = &form.sides[n];
            // Tiles that differ only along axes on which the operand does not depend share its evaluated elements.
            let tiles = (0..form.domain.len()).filter(|&d| side.depends_on(d));
            let tiles = tiles.map(|d| form.domain[d] as f64 / len[d] as f64).product::<f64>();
            let all = count(&mut side.nest.domain.iter().copied());
            (count(&mut side.extents(&len, &form.terms)) * tiles / all.max(1.0)).max(1.0)
        });
        let evaluated = evaluated(form, &len, &machine.lanes);
        let of_tile = count(&mut len[..form.domain.len()].iter().copied());
        let sums = count(&mut form.domain.iter().copied());
        Tiles { len, seconds: (seconds(form, &len, machine) - evaluated / of_tile) * sums, again }
    }
}

/// Returns the extents of tiles along the axes of a form's result. It prices all even divisions, with about a power of
/// two of points per axis, and takes the cheapest one. A greedy search that lengthens one axis at a time would end with
/// tiles that are too small: if the first-level cache is small, two axes have to change together.
fn extents(form: &LaneForm, machine: &Machine) -> [usize; MAX_RANK] {
    let last = form.domain.len() - 1;
    let lens = |(d, &extent): (usize, &usize)| {
        let multiple = if d == last { VECTOR } else { 1 };
        let mut lens: Vec<usize> = Vec::new();
        let mut long = multiple;
        while lens.last().is_none_or(|&len| len < extent) {
            lens.push(even(extent, long, multiple));
            long *= 2;
        }
        lens.dedup();
        lens
    };
    let lens: Vec<_> = form.domain.iter().enumerate().map(lens).collect();
    let mut least = [1; MAX_RANK];
    least.iter_mut().zip(&lens).for_each(|(least, lens)| *least = lens[0]);
    let mut best = (f64::INFINITY, least);
    each(&lens, 0, &mut least, &mut |len| {
        let takes = seconds(form, len, machine);
        if takes < best.0 {
            best = (takes, *len);
        }
    });
    best.1
}

/// Visits all choices of extents for the axes from `axis` on that give at most [`MOST`] sums. The choice of the minimal
/// extents is visited in any case.
fn each(lens: &[Vec<usize>], axis: usize, len: &mut [usize; MAX_RANK], visit: &mut impl FnMut(&[usize; MAX_RANK])) {
    let Some(of_axis) = lens.get(axis) else { return visit(len) };
    for (n, &chosen) in of_axis.iter().enumerate() {
        len[axis] = chosen;
        if n > 0 && len.iter().product::<usize>() > MOST {
            break;
        }
        each(lens, axis + 1, len, visit);
    }
    len[axis] = of_axis[0];
}

/// Returns the extent of the parts into which an axis is divided evenly, with as few parts of at most `len` points as
/// possible. The extent is rounded up to a multiple of `multiple`.
fn even(extent: usize, len: usize, multiple: usize) -> usize {
    let parts = extent.div_ceil(len).max(1);
    extent.div_ceil(parts).next_multiple_of(multiple).min(extent)
}

/// Returns the predicted seconds per sum in tiles with the extents `len`.
fn seconds(form: &LaneForm, len: &[usize; MAX_RANK], machine: &Machine) -> f64 {
    let (rank, costs, l1) = (form.domain.len(), &machine.lanes, machine.caches.l1 as f64);
    let [moving, fixed] = &form.sides;
    let of = |side: &Side| side.extents(len, &form.terms).map(|n| n as f64).product::<f64>();
    let sums: f64 = len[..rank].iter().map(|&n| n as f64).product();
    let terms: f64 = form.terms.iter().map(|&n| n as f64).product();
    let lanes = len[rank - 1];
    let split = if moving.phases > 1 { of(moving) } else { 0.0 };
    let is_near = 4.0 * (of(moving) + split + of(fixed) + sums) <= l1;
    let matrix = |a: &Side, b: &Side| if a.in_place() { a.matrix(b) * 4.0 } else { 0.0 };
    let largest = matrix(moving, fixed).max(matrix(fixed, moving));
    let term = match () {
        () if largest > MEMORY * machine.caches.l2 as f64 => costs.memory,
        () if largest > l1 => costs.matrix,
        () if is_near => costs.term,
        () => costs.far,
    };
    let vectors = sums / lanes as f64 * lanes.div_ceil(VECTOR) as f64;
    let split = split * (costs.copy + costs.line / lanes as f64);
    let lines = (0..rank.saturating_sub(1)).filter(|&d| !fixed.depends_on(d)).map(|d| len[d]).max().unwrap_or(1);
    let runs = sums / (lanes * lines) as f64;
    let term = term.max(costs.latency / in_flight(lanes, lines));
    let of_terms = vectors * terms * term + terms * costs.term;
    let all = of_terms + evaluated(form, len, costs) + split + of(fixed) * costs.shared + runs * costs.run + costs.tile;
    all / sums
}

/// Returns the predicted seconds of evaluating the elements of the moving operand that a tile reads.
fn evaluated(form: &LaneForm, len: &[usize; MAX_RANK], costs: &LaneCosts) -> f64 {
    let ([moving, _], lanes) = (&form.sides, len[form.domain.len() - 1]);
    if moving.in_place() {
        return 0.0;
    }
    moving.extents(len, &form.terms).map(|n| n as f64).product::<f64>() * (costs.copy + costs.line / lanes as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_all_that_are_small_enough() {
        let lens = [vec![1, 2, 8], vec![1, 64], vec![16, 32]];
        let mut had = Vec::new();
        let mut least = [1; MAX_RANK];
        least[2] = 16;
        each(&lens, 0, &mut least, &mut |len| had.push([len[0], len[1], len[2]]));
        let of_first = |n: usize| lens[1].iter().flat_map(move |&y| [16, 32].map(|x| [n, y, x]));
        let all = lens[0].iter().flat_map(|&n| of_first(n));
        let want: Vec<_> = all.filter(|len| len.iter().product::<usize>() <= MOST).collect();
        assert_eq!(had, want);
    }
}
