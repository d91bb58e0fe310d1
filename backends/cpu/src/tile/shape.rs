//! The part of a tile's execution plan that depends on its extents alone. It is computed once for the extents that a
//! kernel's tiles have.

mod derive;

use super::{
    domain::{AxisMask, MAX_RANK, Tile},
    loops::Loops,
};

/// The most pointwise steps that run together, strip by strip.
pub const TOGETHER: usize = 8;
/// The shortest lines, in elements, that are read or written in place. A run of each then takes less time than a copy.
pub const SHORTEST_LINE: usize = 32;

/// A program, for tiles of certain extents.
#[derive(Clone, Debug)]
pub struct TileShape {
    /// The extents.
    pub len: [usize; MAX_RANK],
    /// For each step, its traversal.
    pub steps: Vec<TileWalk>,
    /// The loads that are read in place and dense.
    pub loads: Vec<usize>,
    /// The groups of steps that run at once, in order: for all steps, and for each pass.
    pub stages: Vec<Vec<Stage>>,
    /// Elements of a strip.
    pub piece: usize,
    /// Cache lines to prefetch for the next tile: those of the largest load whose address changes per tile, where the
    /// data exceeds the second-level cache.
    pub lines: usize,
    /// The number of these lines per prefetch.
    pub each: usize,
    /// Whether to do so between strips, because no step does while it computes.
    pub between: bool,
}

/// Steps that run at once.
#[derive(Clone, Debug)]
pub enum Stage {
    /// A step that is not pointwise.
    Step(usize),
    /// Pointwise steps that go through the tile in the same runs.
    Points {
        /// The steps.
        ids: Vec<usize>,
        /// Whether one of them may be unable to run as planned, because of the positions of values at run time.
        vary: bool,
    },
}

/// The traversal of a tile by a step.
#[derive(Clone, Debug, Default)]
pub struct TileWalk {
    /// The layout of the tile where a load reads it, or where a pointwise step may store it.
    pub place: TileLayout,
    /// The load in whose lines the value is read.
    pub lines: Option<usize>,
    /// Elements of a row that is reduced, or of all that a dense load reads.
    pub n: usize,
    /// Rows that are reduced, or groups of rows that are scanned.
    pub rows: usize,
    /// Rows of a group, whose elements of one number are neighbours.
    pub lanes: usize,
    /// For a pointwise step.
    pub loops: Loops,
    /// Whether an argument is in lines only if a box covers the tile.
    pub varies: bool,
}

/// The layout of a tile in a buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TileLayout {
    /// Not usable in place: the tile is copied.
    #[default]
    Copied,
    /// In lines that are long enough for a run.
    Lines,
    /// As in a register.
    Dense,
}

impl TileShape {
    /// Returns whether a tile has these extents. They are compared one by one: one wide load right after narrow stores
    /// cannot be store-forwarded, and stalls behind pending streaming stores.
    pub fn is_of(&self, tile: &Tile) -> bool {
        self.len.iter().zip(&tile.len).all(|(a, b)| a == b)
    }
}

/// Returns the layout of a tile in a buffer with these strides; lines only if they are allowed.
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

/// Returns whether strides are those of a dense box over the axes of a mask.
pub fn is_dense(tile: &Tile, strides: &[i64; MAX_RANK], mask: AxisMask) -> bool {
    let dense = tile.strides(mask);
    (0..MAX_RANK).all(|d| tile.len[d] <= 1 || strides[d] == dense[d] as i64)
}
