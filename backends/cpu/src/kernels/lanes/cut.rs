//! How results of sums side by side are cut into tiles: what a tile reads stays in the first-level cache, and little of it is read by its
//! neighbours too.

use super::form::{LATENCY, LaneForm, Side, in_flight};
use crate::{machine::Caches, tile::MAX_RANK};

/// Elements of a vector, whatever the machine.
const VECTOR: usize = 16;
/// The most sums of a tile: epilogues go over them several times.
const MOST: usize = 4096;

/// Cycles, about: of a vector of sums, a term, where operands lie in the first-level cache, and beyond; of an element that is evaluated, or
/// taken apart by phase, and of a line of them; of an element of the operand that most tiles share; of a line of sums; and of a tile.
const TERM: f64 = 1.2;
const FAR: f64 = 1.6;
const COPY: f64 = 0.2;
const LINE: f64 = 6.0;
const SHARED: f64 = 0.1;
const RUN: f64 = 12.0;
const TILE: f64 = 200.0;

/// Operations a cycle of sums whose operands lie in the first-level cache.
pub const FLOPS_A_CYCLE: f64 = 2.0 * VECTOR as f64 / TERM;

/// How a form's result is cut.
pub struct Tiles {
    /// The extents of tiles, along the axes of the result.
    pub len: [usize; MAX_RANK],
    /// About how many cycles a sum takes, besides evaluating operands.
    pub cycles: f64,
    /// How often elements of each operand are evaluated: what two tiles read, both evaluate.
    pub again: [f64; 2],
}

impl Tiles {
    /// Tiles for such caches.
    pub fn of(form: &LaneForm, caches: Caches) -> Tiles {
        let len = extents(form, caches);
        let count = |extents: &mut dyn Iterator<Item = usize>| extents.map(|n| n as f64).product::<f64>();
        let again = [0, 1].map(|n| {
            let side: &Side = &form.sides[n];
            // Tiles that differ along other axes only share what was evaluated.
            let tiles = (0..form.domain.len()).filter(|&d| side.depends_on(d));
            let tiles = tiles.map(|d| form.domain[d] as f64 / len[d] as f64).product::<f64>();
            let all = count(&mut side.nest.domain.iter().copied());
            (count(&mut side.extents(&len, &form.terms)) * tiles / all.max(1.0)).max(1.0)
        });
        let copied = copied(form, &len);
        let sums = count(&mut len[..form.domain.len()].iter().copied());
        Tiles { len, cycles: cycles(form, &len, caches) - copied / sums, again }
    }
}

/// The extents of tiles, along the axes of a form's result: the best of all that are cut evenly, each axis in about a power of two. Making the
/// best axis longer again and again ends with small tiles where the first-level cache is small: two axes would have to change at once.
fn extents(form: &LaneForm, caches: Caches) -> [usize; MAX_RANK] {
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
        let takes = cycles(form, len, caches);
        if takes < best.0 {
            best = (takes, *len);
        }
    });
    best.1
}

/// Visits all choices of an extent for each axis from one on, of no more than [`MOST`] sums; the first ones, which `len` has, in any case.
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

/// At least so long, and such that an axis is cut evenly.
fn even(extent: usize, len: usize, multiple: usize) -> usize {
    let parts = extent.div_ceil(len).max(1);
    extent.div_ceil(parts).next_multiple_of(multiple).min(extent)
}

/// About how many cycles a sum takes in tiles of such extents.
fn cycles(form: &LaneForm, len: &[usize; MAX_RANK], caches: Caches) -> f64 {
    let rank = form.domain.len();
    let [moving, fixed] = &form.sides;
    let of = |side: &Side| side.extents(len, &form.terms).map(|n| n as f64).product::<f64>();
    let sums: f64 = len[..rank].iter().map(|&n| n as f64).product();
    let terms: f64 = form.terms.iter().map(|&n| n as f64).product();
    let lanes = len[rank - 1];
    let split = if moving.phases > 1 { of(moving) } else { 0.0 };
    let near = 4.0 * (of(moving) + split + of(fixed) + sums) <= caches.l1 as f64;
    let vectors = sums / lanes as f64 * lanes.div_ceil(VECTOR) as f64;
    let split = split * (COPY + LINE / lanes as f64);
    let lines = (0..rank.saturating_sub(1)).filter(|&d| !fixed.depends_on(d)).map(|d| len[d]).max().unwrap_or(1);
    let runs = sums / (lanes * lines) as f64;
    let term = if near { TERM } else { FAR }.max(LATENCY / in_flight(lanes, lines));
    let all = vectors * terms * term + copied(form, len) + split + of(fixed) * SHARED + runs * RUN + terms + TILE;
    all / sums
}

/// About how many cycles evaluating what a tile reads takes.
fn copied(form: &LaneForm, len: &[usize; MAX_RANK]) -> f64 {
    let ([moving, _], lanes) = (&form.sides, len[form.domain.len() - 1]);
    if moving.in_place() {
        return 0.0;
    }
    moving.extents(len, &form.terms).map(|n| n as f64).product::<f64>() * (COPY + LINE / lanes as f64)
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
