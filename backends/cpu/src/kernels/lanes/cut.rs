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

/// The extents of tiles, along the axes of a form's result.
fn extents(form: &LaneForm, caches: Caches) -> [usize; MAX_RANK] {
    let rank = form.domain.len();
    let mut len = [1; MAX_RANK];
    len[rank - 1] = form.domain[rank - 1].min(VECTOR);
    loop {
        let longer = (0..rank).filter(|&d| len[d] < form.domain[d]).map(|d| {
            let mut next = len;
            next[d] = even(form.domain[d], 2 * len[d], if d + 1 == rank { VECTOR } else { 1 });
            next
        });
        let best = longer
            .filter(|next| next[..rank].iter().product::<usize>() <= MOST)
            .map(|next| (cycles(form, &next, caches), next))
            .min_by(|a, b| a.0.total_cmp(&b.0));
        match best {
            Some((takes, next)) if takes < cycles(form, &len, caches) => len = next,
            _ => return len,
        }
    }
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
