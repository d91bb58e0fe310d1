//! Execution plans of tiles (shapes): everything that depends only on a tile's extents. A plan is computed once for all
//! tiles of equal extents.

mod derive;

use super::{
    domain::{AxisMask, MAX_RANK, Tile},
    loops::Loops,
};

/// The maximal number of pointwise steps that run together, strip by strip.
pub const TOGETHER: usize = 8;
/// The minimal number of elements of contiguous lines that are read or written in place. With shorter lines, the
/// start-up of a loop for each line takes longer than copying the tile.
pub const SHORTEST_LINE: usize = 32;

/// The execution plan of a program for tiles of given extents.
#[derive(Clone, Debug)]
pub struct TileShape {
    /// The extents of the tiles.
    pub len: [usize; MAX_RANK],
    /// The traversal of the tile by each step.
    pub steps: Vec<TileWalk>,
    /// The loads that are read in place, and whose elements of a tile are contiguous.
    pub loads: Vec<usize>,
    /// The stages in order: first those of all steps together, then those of each pass over a row.
    pub stages: Vec<Vec<Stage>>,
    /// The number of elements of a strip. Pointwise steps that run together compute one strip after the other.
    pub piece: usize,
    /// The number of cache lines to prefetch for the next tile: those of the largest load whose address changes from
    /// tile to tile. It is 0 unless the program's data exceeds the second-level cache.
    pub lines: usize,
    /// The number of lines of each load per prefetch.
    pub each: usize,
    /// Whether to prefetch between strips, because no step prefetches while it computes.
    pub between: bool,
}

/// A step or several steps that run together.
#[derive(Clone, Debug)]
pub enum Stage {
    /// A step that is not pointwise.
    Step(usize),
    /// Pointwise steps with equal loop nests.
    Points {
        /// The steps.
        ids: Vec<usize>,
        /// Whether a step may need other loops than planned, depending on the addresses of values at run time.
        vary: bool,
    },
}

/// The traversal of a tile by a step.
#[derive(Clone, Debug, Default)]
pub struct TileWalk {
    /// The layout of the tile in the buffer that a load reads, or to which a pointwise step stores.
    pub place: TileLayout,
    /// The load that is read in place in lines, if this value is that load or a selection of it.
    pub lines: Option<usize>,
    /// For a row operation, the number of elements of a row in the tile; for a load, the number of its elements.
    pub n: usize,
    /// The number of rows that are reduced, or of groups of rows that are scanned.
    pub rows: usize,
    /// The number of interleaved rows of a group that is scanned.
    pub lanes: usize,
    /// The loops of a pointwise step.
    pub loops: Loops,
    /// Whether a pointwise step has an argument that is in lines only if a box covers the tile.
    pub varies: bool,
}

/// The layout of a tile's elements in a buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TileLayout {
    /// A layout that cannot be used in place, so the tile is copied.
    #[default]
    Copied,
    /// Contiguous lines of at least [`SHORTEST_LINE`] elements.
    Lines,
    /// Contiguous elements, as in a register.
    Dense,
}

impl TileShape {
    /// Returns whether a tile has the extents of this plan. Extents are compared one by one. A wide load right after
    /// narrow stores cannot be store-forwarded, and would wait behind pending streaming stores.
    pub fn is_of(&self, tile: &Tile) -> bool {
        self.len.iter().zip(&tile.len).all(|(a, b)| a == b)
    }
}

/// Returns the layout of a tile in a buffer with these strides. `mask` has the axes on which the value depends. The
/// result is [`TileLayout::Lines`] only if `lines` is set.
pub fn place(tile: &Tile, strides: &[i64; MAX_RANK], mask: AxisMask, lines: bool) -> TileLayout {
    if is_dense(tile, strides, mask) {
        return TileLayout::Dense;
    }
    let mut line = 1;
    for d in (0..MAX_RANK).rev().filter(|&d| tile.len[d] > 1) {
        if mask >> d & 1 == 0 || strides[d] != line {
            break;
        }
        line *= tile.len[d] as i64;
    }
    if line >= SHORTEST_LINE as i64 && lines { TileLayout::Lines } else { TileLayout::Copied }
}

/// Returns whether a tile is contiguous in a buffer with these strides, over the axes of a mask.
pub fn is_dense(tile: &Tile, strides: &[i64; MAX_RANK], mask: AxisMask) -> bool {
    let dense = tile.strides(mask);
    (0..MAX_RANK).all(|d| tile.len[d] <= 1 || strides[d] == dense[d] as i64)
}
