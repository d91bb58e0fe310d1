//! How a domain is cut into tiles.

use eutectic_ir::DType;

use super::{MAX_RANK, Mask, Step, Tile, TileProgram};

/// Elements that a register of a tile holds: at most, so that loads which are copied run through whole pages, which processors
/// fetch ahead; and at least, where many loads are read in place, so that steps are longer than what it takes to start them.
const REGISTER: std::ops::RangeInclusive<usize> = 256..=4096;
/// Lines of the innermost axis are multiples of so many elements, where they are cut.
const ALIGN: usize = 64;
/// Elements along an axis that is the fastest of some buffer, but not of the domain.
const CROSS: usize = 32;
/// The longest row that is kept in registers; longer ones are passed over several times.
const LONGEST_ROW: usize = 1 << 15;

/// A domain cut into tiles of one size.
#[derive(Clone, Debug)]
pub struct Grid {
    rank: usize,
    domain: [usize; MAX_RANK],
    len: [usize; MAX_RANK],
    counts: [usize; MAX_RANK],
}

impl Grid {
    /// Cuts the axes in `mask` into tiles of at most `len`, evenly; other axes have one tile of one point.
    pub fn new(domain: &[usize], mask: Mask, len: &[usize; MAX_RANK]) -> Grid {
        let mut grid = Grid { rank: domain.len(), domain: [1; MAX_RANK], len: [1; MAX_RANK], counts: [1; MAX_RANK] };
        for (d, &extent) in domain.iter().enumerate().filter(|(d, _)| mask >> d & 1 == 1) {
            grid.domain[d] = extent;
            let parts = extent.div_ceil(len[d].max(1)).max(1);
            let even = extent.div_ceil(parts);
            // Lines that begin where vectors do are read faster.
            let aligned = if d + 1 == domain.len() && even > ALIGN { even.next_multiple_of(ALIGN) } else { even };
            grid.len[d] = aligned.min(extent);
            grid.counts[d] = if extent == 0 { 1 } else { extent.div_ceil(grid.len[d]) };
        }
        grid
    }

    /// Cuts every axis into tiles of `len`, the last of which may be smaller.
    pub fn exactly(domain: &[usize], len: &[usize; MAX_RANK]) -> Grid {
        let mut grid = Grid { rank: domain.len(), domain: [1; MAX_RANK], len: [1; MAX_RANK], counts: [1; MAX_RANK] };
        for (d, &extent) in domain.iter().enumerate() {
            (grid.domain[d], grid.len[d]) = (extent, len[d].clamp(1, extent.max(1)));
            grid.counts[d] = extent.div_ceil(grid.len[d]).max(1);
        }
        grid
    }

    /// Number of tiles.
    pub fn count(&self) -> usize {
        self.counts.iter().product()
    }

    /// The largest tile.
    pub fn len(&self) -> &[usize; MAX_RANK] {
        &self.len
    }

    /// The extents that tiles have.
    pub fn extents(&self) -> Vec<[usize; MAX_RANK]> {
        (0..MAX_RANK).fold(vec![self.len], |all, d| {
            let last = self.domain[d] - (self.counts[d] - 1) * self.len[d];
            let cut = all.iter().filter(|_| last != self.len[d]).map(|len| {
                let mut len = *len;
                len[d] = last;
                len
            });
            all.iter().copied().chain(cut).collect()
        })
    }

    /// The extents that tiles have once they are cut along an axis after every so many points.
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

    /// The tile after one; after the last, the first.
    pub fn next(&self, tile: &mut Tile) {
        for d in (0..self.rank).rev() {
            tile.start[d] += self.len[d];
            let more = tile.start[d] < self.domain[d];
            if !more {
                tile.start[d] = 0;
            }
            tile.len[d] = self.len[d].min(self.domain[d] - tile.start[d]);
            if more {
                return;
            }
        }
    }

    /// Tile number `n`; the innermost axis varies fastest.
    pub fn tile(&self, mut n: usize) -> Tile {
        let mut tile = Tile { start: [0; MAX_RANK], len: [1; MAX_RANK] };
        for d in (0..MAX_RANK).rev() {
            tile.start[d] = n % self.counts[d] * self.len[d];
            n /= self.counts[d];
            tile.len[d] = self.len[d].min(self.domain[d] - tile.start[d]);
        }
        tile
    }
}

/// The tile for a program: within `limit`, whole rows if they are not too long (the flag says so), long along the axes that
/// buffers are dense along; what it reads, computes and writes is to stay in `cache` bytes.
pub fn shape(program: &TileProgram, limit: &[usize; MAX_RANK], cache: usize) -> ([usize; MAX_RANK], bool) {
    let rank = program.domain.len();
    let row: usize = (0..rank).filter(|d| program.row >> d & 1 == 1).map(|d| program.domain[d]).product();
    let whole = row <= LONGEST_ROW;
    let mut len = [1; MAX_RANK];
    let mut left = program.register(cache);
    if whole {
        for d in (0..rank).filter(|d| program.row >> d & 1 == 1) {
            len[d] = program.domain[d];
            left = (left / len[d].max(1)).max(1);
        }
    }
    let free = |d: &usize| if program.row == 0 { true } else { (program.row >> d & 1 == 1) != whole };
    // Keep lines of buffers that are dense along another axis than the innermost.
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
    /// Bytes that all tiles together read and write.
    pub fn traffic(&self, slots: &[(DType, usize)]) -> usize {
        let points = |mask: Mask| {
            let along = self.domain.iter().enumerate().filter(|(d, _)| mask >> d & 1 == 1);
            along.fold(1_usize, |n, (_, &extent)| n.saturating_mul(extent))
        };
        let loads = self.steps.iter().zip(&self.values).filter_map(|(step, value)| match step {
            Step::Affine { slot, .. } | Step::Boxed { slot, .. } | Step::Walk { slot, .. } => Some((*slot, value.mask)),
            _ => None,
        });
        let writes = self.writes.iter().map(|w| (w.slot, self.values[w.value].mask));
        let bytes = |(slot, mask): (usize, Mask)| points(mask).min(slots[slot].1).saturating_mul(slots[slot].0.size());
        loads.chain(writes).map(bytes).fold(0, usize::saturating_add)
    }

    /// Elements of a register such that what steps touch stays in so many bytes.
    fn register(&self, cache: usize) -> usize {
        let Some(inner) = self.domain.len().checked_sub(1) else { return *REGISTER.end() };
        let along = |id: usize| self.values[id].mask >> inner & 1 == 1;
        let in_place = |step: &Step| match step {
            Step::Affine { strides, .. } | Step::Boxed { strides, .. } => strides[inner] == 1,
            step => !matches!(step, Step::Walk { .. } | Step::Select { .. }),
        };
        if (0..self.steps.len()).any(|id| along(id) && !in_place(&self.steps[id])) {
            return *REGISTER.end();
        }
        let mut last_use: Vec<_> = (0..self.steps.len()).collect();
        for (id, step) in self.steps.iter().enumerate() {
            step.args().into_iter().for_each(|arg| last_use[arg] = id);
        }
        self.writes.iter().for_each(|w| last_use[w.value] = self.steps.len());
        let size = |id: &usize| self.values[*id].dtype.size();
        let is_load = |id: &usize| matches!(self.steps[*id], Step::Affine { .. } | Step::Boxed { .. });
        let wide: Vec<_> = (0..self.steps.len()).filter(|&id| along(id)).collect();
        let alive = |at: usize| -> usize {
            wide.iter().filter(|&id| !is_load(id) && (*id..=last_use[*id]).contains(&at)).map(size).sum()
        };
        let computed = (0..self.steps.len()).map(alive).max().unwrap_or(0);
        // This tile's, and what was asked for of the next.
        let loaded: usize = 2 * wide.iter().filter(|id| is_load(id)).map(size).sum::<usize>();
        // Half is left: buffers tend to lie so that the same places of caches are wanted.
        let most = cache / 2 / (computed + loaded).max(1);
        (most / ALIGN * ALIGN).clamp(*REGISTER.start(), *REGISTER.end())
    }

    /// The axes along which some buffer is dense.
    fn dense_axes(&self) -> Mask {
        let loads = self.steps.iter().filter_map(|s| match s {
            Step::Affine { strides, .. } | Step::Boxed { strides, .. } => Some(strides),
            _ => None,
        });
        let one = |strides: &[i64; MAX_RANK]| (0..MAX_RANK).filter(|&d| strides[d] == 1).fold(0, |m, d| m | 1 << d);
        loads.chain(self.writes.iter().map(|w| &w.strides)).fold(0, |m, s| m | one(s))
    }
}
