//! Divides domains into tiles, and chooses the extents of tiles.

use eutectic_backend::RowLimits;
use eutectic_ir::DType;

use super::{
    domain::{AxisMask, MAX_RANK, Tile},
    program::{TileProgram, TileStep, TileValue},
    region::Region,
    shape::{SHORTEST_LINE, TileLayout, place},
};

/// The number of elements of a tile's register. At the upper bound, copied loads read whole pages, which the hardware
/// prefetches. At the lower bound, for programs with many loads that are read in place, a step still takes longer than
/// its start-up.
const REGISTER: std::ops::RangeInclusive<usize> = 256..=MOST_ELEMENTS;
/// The maximal number of elements of a register.
pub const MOST_ELEMENTS: usize = 4096;
/// Tiles have a multiple of this number of elements along the innermost axis.
const ALIGN: usize = 64;
/// The maximal extent of a tile along an axis along which some buffer is contiguous, if it is not the innermost axis.
const CROSS: usize = 32;
/// The maximal number of positions at which an axis is divided because guards change there.
const MOST_PLACES: usize = 8;
/// The approximate nanoseconds to start a step of a tile.
const STEP: f64 = 60.0;
/// The approximate nanoseconds of an element that is copied because a box of a step does not cover the tile.
const COPIED: f64 = 0.05;
/// The maximal number of interleaved rows that a tile scans at the same time, so that memory is read in long contiguous
/// ranges.
const BESIDE: usize = 1 << 12;
/// The maximal number of elements of a tile of interleaved rows. With several elements per row, states are read and
/// written less often.
const ELEMENTS_BESIDE: usize = 1 << 14;
/// The maximal number of elements of a row that stays in registers. Longer rows are read in several passes.
pub const LONGEST_ROW: usize = 1 << 15;
/// The maximal number of elements of a row whose elements are ranked. Such a row must stay in registers, of 16 to 32
/// bytes per element for each thread.
const LONGEST_ORDERED: usize = 1 << 22;
/// The row operations for which there are steps, and the maximal rows.
pub const ROWS: RowLimits = RowLimits::and(&[("ranking", LONGEST_ORDERED), ("scan", usize::MAX)]);

/// A division of a domain into tiles. Each axis is divided independently.
#[derive(Clone, Debug)]
pub struct Grid {
    rank: usize,
    /// The maximal extents of tiles.
    len: [usize; MAX_RANK],
    /// For each axis, the starts of tiles, and the end of the last one.
    bounds: [Vec<usize>; MAX_RANK],
    /// The number of tiles.
    count: usize,
    first: Tile,
}

impl Grid {
    /// Divides the axes in `mask` into tiles of about equal extents of at most `len`. Other axes have one tile of one
    /// point.
    pub fn new(domain: &[usize], mask: AxisMask, len: &[usize; MAX_RANK]) -> Grid {
        Grid::cut(domain, mask, len, &Default::default())
    }

    /// Divides a domain like [`Grid::new`], and also at the given positions of each axis.
    pub fn cut(domain: &[usize], mask: AxisMask, len: &[usize; MAX_RANK], places: &[Vec<usize>; MAX_RANK]) -> Grid {
        Grid::of(domain.len(), |d| {
            let extent = if mask >> d & 1 == 1 { domain[d] } else { 1 };
            let mut bounds = vec![0];
            for &to in places[d].iter().filter(|&&at| at > 0 && at < extent).chain([&extent]) {
                let from = bounds[bounds.len() - 1];
                let even = (to - from).div_ceil((to - from).div_ceil(len[d].max(1)).max(1));
                // Aligned starts of lines are read faster, because a vector load then does not span two cache lines.
                let aligned = if d + 1 == domain.len() && even > ALIGN { even.next_multiple_of(ALIGN) } else { even };
                bounds.extend((from..to).step_by(aligned.max(1)).skip(1).chain([to]));
            }
            bounds
        })
    }

    /// Divides every axis into tiles of exactly `len`. The last tile of an axis may be smaller.
    pub fn exactly(domain: &[usize], len: &[usize; MAX_RANK]) -> Grid {
        Grid::of(domain.len(), |d| (0..domain[d].max(1)).step_by(len[d].max(1)).chain([domain[d]]).collect())
    }

    fn of(rank: usize, bounds: impl Fn(usize) -> Vec<usize>) -> Grid {
        let bounds = std::array::from_fn(|d| if d < rank { bounds(d) } else { vec![0, 1] });
        let len = std::array::from_fn(|d| lengths(&bounds[d]).max().unwrap_or(0));
        let count = bounds.iter().map(|b| b.len() - 1).product();
        let first = Tile { start: [0; MAX_RANK], len: std::array::from_fn(|d| bounds[d][1]) };
        Grid { rank, len, bounds, count, first }
    }

    /// Returns the number of tiles.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the maximal extents of tiles.
    pub fn len(&self) -> &[usize; MAX_RANK] {
        &self.len
    }

    /// Returns the distinct extents of tiles, the largest first.
    pub fn extents(&self) -> Vec<[usize; MAX_RANK]> {
        (0..MAX_RANK).fold(vec![self.len], |all, d| {
            let mut lens: Vec<_> = lengths(&self.bounds[d]).collect();
            lens.sort_unstable_by(|a, b| b.cmp(a));
            lens.dedup();
            let along = |&len: &usize| {
                all.iter().map(move |other| std::array::from_fn(|e| if e == d { len } else { other[e] }))
            };
            lens.iter().flat_map(along).collect()
        })
    }

    /// Returns the distinct extents of tiles after a further division of each tile along an axis, every `by` points.
    pub fn strips(&self, axis: usize, by: usize) -> Vec<[usize; MAX_RANK]> {
        let cut = |mut len: [usize; MAX_RANK]| {
            let whole = len[axis];
            len[axis] = by.min(whole);
            let rest = (!whole.is_multiple_of(by)).then(|| {
                let mut rest = len;
                rest[axis] = whole % by;
                rest
            });
            [len].into_iter().chain(rest)
        };
        self.extents().into_iter().flat_map(cut).collect()
    }

    /// Replaces a tile by the next one; the last tile by the first.
    pub fn next(&self, tile: &mut Tile) {
        for d in (0..self.rank).rev().filter(|&d| self.bounds[d].len() > 2) {
            let (bounds, end) = (&self.bounds[d], tile.start[d] + tile.len[d]);
            let more = end < bounds[bounds.len() - 1];
            tile.start[d] = if more { end } else { 0 };
            // Most tiles have the maximal extent, so the index is usually the quotient.
            let n = tile.start[d] / self.len[d].max(1);
            let at = if bounds[n] == tile.start[d] { n + 1 } else { bounds.partition_point(|&b| b <= tile.start[d]) };
            tile.len[d] = bounds[at] - tile.start[d];
            if more {
                return;
            }
        }
    }

    /// Returns tile number `n`. The innermost axis varies fastest.
    pub fn tile(&self, mut n: usize) -> Tile {
        let mut tile = self.first;
        for d in (0..self.rank).rev() {
            if n == 0 {
                break;
            }
            let (bounds, count) = (&self.bounds[d], self.bounds[d].len() - 1);
            let at = n % count;
            tile.start[d] = bounds[at];
            tile.len[d] = bounds[at + 1] - tile.start[d];
            n /= count;
        }
        tile
    }
}

/// Returns the extents of tiles, given their bounds along an axis.
fn lengths(bounds: &[usize]) -> impl Iterator<Item = usize> {
    bounds.windows(2).map(|pair| pair[1] - pair[0])
}

/// Returns the extents of a program's tiles, and whether tiles have whole rows. Extents are at most `limit`, and long
/// along axes that are contiguous in buffers. Tiles have whole rows unless these are too long. The data that a tile
/// reads, computes and writes should fit into `cache` bytes.
pub fn shape(program: &TileProgram, limit: &[usize; MAX_RANK], cache: usize) -> ([usize; MAX_RANK], bool) {
    let rank = program.domain.len();
    let row: usize = (0..rank).filter(|d| program.row >> d & 1 == 1).map(|d| program.domain[d]).product();
    // Interleaved rows stay in registers only if several passes read them, and if at least as many rows fit as a cache
    // line has elements.
    let across = program.across();
    let line: usize = (0..rank).filter(|d| across >> d & 1 == 1).map(|d| CROSS.min(limit[d])).product();
    let most = if across != 0 && program.passes.len() == 1 { *REGISTER.end() } else { LONGEST_ROW };
    // Ranking needs a whole row. Scans in both directions need one too, because the parts of a row are visited in one
    // direction.
    let ordered =
        program.steps.iter().any(|step| matches!(step, TileStep::Ranking { .. })) || program.is_reverse().is_none();
    let whole = program.beside() == 0 && (ordered || row.saturating_mul(line) <= most);
    let mut len = [1; MAX_RANK];
    // Several steps read a whole row, so rows get most of the cache.
    let mut left = program.register(if program.row != 0 && whole { cache * 8 / 9 } else { cache * 2 / 3 });
    if whole {
        for d in (0..rank).filter(|d| program.row >> d & 1 == 1) {
            len[d] = program.domain[d];
            left = (left / len[d].max(1)).max(1);
        }
        left = left.max(line);
    } else {
        let most = if program.beside() == 0 { CROSS } else { BESIDE };
        if program.beside() != 0 {
            left = ELEMENTS_BESIDE;
        }
        for d in (0..rank).filter(|d| (across | program.beside()) >> d & 1 == 1) {
            len[d] = most.min(limit[d]).min(left).max(1);
            left /= len[d];
        }
    }
    let free = |d: &usize| if program.row == 0 { true } else { (program.row >> d & 1 == 1) != whole };
    // A tile has several points along an axis along which a buffer is contiguous, so that whole cache lines are used.
    for d in (0..rank.saturating_sub(1)).filter(free) {
        if program.dense_axes() >> d & 1 == 1 {
            len[d] = CROSS.min(limit[d]).min(left).max(1);
            left /= len[d];
        }
    }
    for d in (0..rank).rev().filter(free) {
        let target = (len[d] * left).min(limit[d]).max(1);
        left = left * len[d] / target;
        len[d] = target;
        left = left.max(1);
    }
    (len, whole)
}

impl TileProgram {
    /// Returns, for each axis, the ends of the boxes in which guards hold, for tiles with extents `len`. A tile that no
    /// such end divides is read in place, or not at all. An end counts only if a tile has long contiguous lines inside
    /// of the axis.
    pub fn places(&self, len: &[usize; MAX_RANK]) -> [Vec<usize>; MAX_RANK] {
        let of_step = |(step, value): (&TileStep, &TileValue)| {
            let regions = match step {
                TileStep::Boxed { region, .. } => vec![region.clone()],
                TileStep::Pieces { pieces, .. } => pieces.iter().map(|p| p.0.clone()).collect(),
                _ => Vec::new(),
            };
            regions.into_iter().map(move |region| (region, value.mask)).collect::<Vec<_>>()
        };
        let regions: Vec<_> = self.steps.iter().zip(&self.values).flat_map(of_step).collect();
        std::array::from_fn(|d| {
            let inside =
                |mask: AxisMask| (d + 1..MAX_RANK).filter(|e| mask >> e & 1 == 1).map(|e| len[e]).product::<usize>();
            let bounds = regions.iter().filter(|r| inside(r.1) >= SHORTEST_LINE).flat_map(|r| r.0.bounds(d));
            let mut places: Vec<_> = bounds.collect();
            places.sort_unstable();
            places.dedup();
            if places.len() <= MOST_PLACES { places } else { Vec::new() }
        })
    }

    /// Returns the ends of boxes at which to divide axes: the choice for which the start-up of further tiles, and the
    /// copies of tiles that a box covers in part, take the least time.
    pub fn worthy_places(&self, len: &[usize; MAX_RANK]) -> [Vec<usize>; MAX_RANK] {
        let all = self.places(len);
        let cut: Vec<usize> = (0..MAX_RANK).filter(|&d| !all[d].is_empty()).collect();
        let regions = self.steps.iter().zip(&self.values).filter_map(|(step, value)| match step {
            TileStep::Boxed { region, .. } => Some((region, value.mask)),
            _ => None,
        });
        let regions: Vec<_> = regions.collect();
        let takes = |kept: usize| {
            let along = |d: usize| cut.iter().position(|&axis| axis == d).is_none_or(|n| kept >> n & 1 == 1);
            let places = std::array::from_fn(|d| if along(d) { all[d].clone() } else { Vec::new() });
            let grid = Grid::cut(&self.domain, AxisMask::MAX, len, &places);
            // The number of elements of tiles that a box covers in part.
            let copied = |(region, mask): &(&Region, AxisMask)| {
                let whole = |d: usize| {
                    let [from, to] = region.bounds(d);
                    let inside = |pair: &[usize]| {
                        let here = pair[0].max(from)..pair[1].min(to);
                        here.is_empty() || here == (pair[0]..pair[1])
                    };
                    let in_whole = grid.bounds[d].windows(2).filter(|pair| inside(pair));
                    in_whole.map(|pair| pair[1] - pair[0]).sum::<usize>() as f64 / self.domain[d].max(1) as f64
                };
                let axes = || (0..self.domain.len()).filter(|d| mask >> d & 1 == 1);
                let points: f64 = axes().map(|d| self.domain[d] as f64).product();
                points * (1.0 - axes().map(whole).product::<f64>())
            };
            let copied: f64 = regions.iter().map(copied).sum();
            let tiles: usize = (0..self.domain.len()).map(|d| grid.bounds[d].len() - 1).product();
            (tiles * self.steps.len()) as f64 * STEP + copied * COPIED
        };
        // Of equally fast choices, the one with the most divisions is taken.
        let best = (0..1_usize << cut.len()).rev().min_by(|&a, &b| takes(a).total_cmp(&takes(b))).unwrap_or(0);
        let mut places = all.clone();
        for (n, &d) in cut.iter().enumerate() {
            if best >> n & 1 == 0 {
                places[d].clear();
            }
        }
        places
    }

    /// Returns the bytes that all tiles together read and write, where each buffer counts at most once per load or
    /// store.
    pub fn traffic(&self, slots: &[(DType, usize)]) -> usize {
        let points = |mask: AxisMask| {
            let along = self.domain.iter().enumerate().filter(|(d, _)| mask >> d & 1 == 1);
            along.fold(1_usize, |n, (_, &extent)| n.saturating_mul(extent))
        };
        let loads = self.steps.iter().zip(&self.values).filter_map(|(step, value)| match step {
            TileStep::Affine { slot, .. } | TileStep::Boxed { slot, .. } | TileStep::Walk { slot, .. } => {
                Some((*slot, value.mask))
            }
            _ => None,
        });
        let writes = self.writes.iter().map(|w| (w.slot, self.values[w.value].mask));
        let writes = writes.chain(self.scatters.iter().map(|s| (s.slot, s.mask)));
        let bytes =
            |(slot, mask): (usize, AxisMask)| points(mask).min(slots[slot].1).saturating_mul(slots[slot].0.size());
        loads.chain(writes).map(bytes).fold(0, usize::saturating_add)
    }

    /// Returns the number of elements of a register with which the data of all steps fits into `cache` bytes.
    fn register(&self, cache: usize) -> usize {
        let Some(inner) = self.domain.len().checked_sub(1) else { return *REGISTER.end() };
        let along = |id: usize| self.values[id].mask >> inner & 1 == 1;
        let in_place = |step: &TileStep| match step {
            TileStep::Affine { strides, .. } | TileStep::Boxed { strides, .. } => strides[inner] == 1,
            step => !matches!(step, TileStep::Walk { .. } | TileStep::Select { .. }),
        };
        if (0..self.steps.len()).any(|id| along(id) && !in_place(&self.steps[id])) {
            return *REGISTER.end();
        }
        let mut last_use: Vec<_> = (0..self.steps.len()).collect();
        for (id, step) in self.steps.iter().enumerate() {
            step.args().into_iter().for_each(|arg| last_use[arg] = id);
        }
        self.stored().into_iter().for_each(|v| last_use[v] = self.steps.len());
        let size = |id: &usize| self.values[*id].dtype.size();
        let whole =
            Tile { start: [0; MAX_RANK], len: std::array::from_fn(|d| self.domain.get(d).copied().unwrap_or(1)) };
        let place = |id: &usize| {
            let strides = self.load(*id);
            strides.map_or(TileLayout::Copied, |strides| place(&whole, strides, self.values[*id].mask, true))
        };
        let wide: Vec<_> = (0..self.steps.len()).filter(|&id| along(id)).collect();
        let alive = |at: usize| -> usize {
            let copied = |id: &&usize| place(id) == TileLayout::Copied && (**id..=last_use[**id]).contains(&at);
            wide.iter().filter(copied).map(size).sum()
        };
        let computed = (0..self.steps.len()).map(alive).max().unwrap_or(0);
        // Loads of rows count twice: several steps read a row, so it is still in the cache when the next tile loads
        // other rows. Data that is equal for all tiles counts once. Loads in lines are streamed, and do not count.
        let all = (0..self.domain.len()).fold(0, |mask: AxisMask, d| mask | 1 << d);
        let times = |id: &&usize| if self.row != 0 && self.values[**id].mask == all { 2 } else { 1 };
        let dense = wide.iter().filter(|id| place(id) == TileLayout::Dense);
        let loaded: usize = dense.map(|id| times(&id) * size(id)).sum();
        let most = cache / (computed + loaded).max(1);
        (most / ALIGN * ALIGN).clamp(*REGISTER.start(), *REGISTER.end())
    }

    /// Returns the axes outside of rows along which a load of rows is contiguous, so that rows are interleaved in
    /// memory.
    fn across(&self) -> AxisMask {
        let loads = self.steps.iter().zip(&self.values).filter_map(|(step, value)| match step {
            TileStep::Affine { strides, .. } | TileStep::Boxed { strides, .. } if value.mask & self.row != 0 => {
                Some(strides)
            }
            _ => None,
        });
        let along =
            |strides: &[i64; MAX_RANK], d: usize| self.row >> d & 1 == 0 && strides[d] == 1 && self.domain[d] > 1;
        loads
            .flat_map(|strides| (0..self.domain.len()).filter(move |&d| along(strides, d)))
            .fold(0, |mask, d| mask | 1 << d)
    }

    /// Returns the axes along which some buffer is contiguous that also varies along an inner axis. A buffer with one
    /// element for all inner points, such as a row's id or weight, does not count: it is read only once per tile.
    fn dense_axes(&self) -> AxisMask {
        let loads = self.steps.iter().filter_map(|s| match s {
            TileStep::Affine { strides, .. } | TileStep::Boxed { strides, .. } => Some(strides),
            _ => None,
        });
        let is_crossed =
            |strides: &[i64; MAX_RANK], d: usize| strides[d] == 1 && strides[d + 1..].iter().any(|&s| s != 0);
        let one =
            |strides: &[i64; MAX_RANK]| (0..MAX_RANK).filter(|&d| is_crossed(strides, d)).fold(0, |m, d| m | 1 << d);
        loads.chain(self.writes.iter().map(|w| &w.strides)).fold(0, |m, s| m | one(s))
    }
}
