//! How a domain is cut into tiles.

use super::{MAX_RANK, Mask, Tile, TileProgram};

/// Elements that a register of a tile holds: a few such registers and the data behind them stay in the nearest caches, and loads
/// run through whole pages, which processors fetch ahead.
const REGISTER: usize = 4096;
/// Elements along an axis that is the fastest of some buffer, but not of the domain.
const CROSS: usize = 32;
/// The longest row that is kept in registers; longer ones are passed over several times.
const LONGEST_ROW: usize = 1 << 15;

/// A domain cut into tiles of one size.
#[derive(Clone, Debug)]
pub struct Grid {
    domain: [usize; MAX_RANK],
    len: [usize; MAX_RANK],
    counts: [usize; MAX_RANK],
}

impl Grid {
    /// Cuts the axes in `mask` into tiles of at most `len`, evenly; other axes have one tile of one point.
    pub fn new(domain: &[usize], mask: Mask, len: &[usize; MAX_RANK]) -> Grid {
        let mut grid = Grid { domain: [1; MAX_RANK], len: [1; MAX_RANK], counts: [1; MAX_RANK] };
        for (d, &extent) in domain.iter().enumerate().filter(|(d, _)| mask >> d & 1 == 1) {
            grid.domain[d] = extent;
            let parts = extent.div_ceil(len[d].max(1)).max(1);
            grid.len[d] = extent.div_ceil(parts);
            grid.counts[d] = if extent == 0 { 1 } else { extent.div_ceil(grid.len[d]) };
        }
        grid
    }

    /// Cuts every axis into tiles of `len`, the last of which may be smaller.
    pub fn exactly(domain: &[usize], len: &[usize; MAX_RANK]) -> Grid {
        let mut grid = Grid { domain: [1; MAX_RANK], len: [1; MAX_RANK], counts: [1; MAX_RANK] };
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

    /// The tile after one.
    pub fn next(&self, tile: &mut Tile) {
        for d in (0..MAX_RANK).rev() {
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
/// buffers are dense along.
pub fn shape(program: &TileProgram, limit: &[usize; MAX_RANK]) -> ([usize; MAX_RANK], bool) {
    let rank = program.domain.len();
    let row: usize = (0..rank).filter(|d| program.row >> d & 1 == 1).map(|d| program.domain[d]).product();
    let whole = row <= LONGEST_ROW;
    let mut len = [1; MAX_RANK];
    let mut left = REGISTER;
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
    /// The axes along which some buffer is dense.
    fn dense_axes(&self) -> Mask {
        let loads = self.steps.iter().filter_map(|s| match s {
            super::Step::Affine { strides, .. } => Some(strides),
            _ => None,
        });
        let one = |strides: &[i64; MAX_RANK]| (0..MAX_RANK).filter(|&d| strides[d] == 1).fold(0, |m, d| m | 1 << d);
        loads.chain(self.writes.iter().map(|w| &w.strides)).fold(0, |m, s| m | one(s))
    }
}
