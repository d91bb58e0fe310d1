//! The loops of a pointwise step: runs along the innermost axes, and outer loops around them.

use super::domain::{AxisMask, MAX_RANK, Tile};

/// The steps of three arguments and the result, in bytes.
pub type SideSteps = [isize; 4];

/// A loop nest whose arguments and result have separate strides.
#[derive(Clone, Copy, Debug, Default)]
pub struct Loops {
    /// Elements of a run.
    pub n: usize,
    /// The distance of two elements of a run.
    pub unit: SideSteps,
    /// The arguments that have one element for the whole run.
    pub scalar: u8,
    /// The loops around runs, innermost first: the number of iterations, and the steps of each side.
    outer: [(usize, SideSteps); MAX_RANK],
    /// The number of these loops.
    rank: usize,
}

impl Loops {
    /// Returns the loops over the axes of a mask, for sides with these strides in bytes, which are one element or 0
    /// along the innermost axis. Axes that all sides traverse as one are merged, so that runs are long.
    pub fn new(tile: &Tile, mask: AxisMask, sides: &[[isize; MAX_RANK]; 4]) -> Loops {
        let mut axes: [(usize, SideSteps); MAX_RANK] = Default::default();
        let mut rank = 0_usize;
        for d in (0..MAX_RANK).rev().filter(|&d| mask >> d & 1 == 1 && tile.len[d] != 1) {
            let steps: SideSteps = std::array::from_fn(|i| sides[i][d]);
            match rank.checked_sub(1).map(|last| &mut axes[last]) {
                Some((count, unit)) if (0..4).all(|i| steps[i] == unit[i] * *count as isize) => *count *= tile.len[d],
                _ => {
                    axes[rank] = (tile.len[d], steps);
                    rank += 1;
                }
            }
        }
        if rank == 0 {
            return Loops { n: 1, scalar: 7, ..Loops::default() };
        }
        let (n, unit) = axes[0];
        let scalar = (0..3).filter(|&i| unit[i] == 0).fold(0, |bits, i| bits | 1 << i);
        axes.rotate_left(1);
        Loops { n, unit, scalar, outer: axes, rank: rank - 1 }
    }

    /// Returns whether runs are as long and as many.
    pub fn goes_with(&self, other: &Loops) -> bool {
        self.n == other.n && self.outer().iter().map(|o| o.0).eq(other.outer().iter().map(|o| o.0))
    }

    /// Number of runs.
    pub fn runs(&self) -> usize {
        self.outer().iter().map(|o| o.0).product()
    }

    /// Returns the loops around runs.
    pub fn outer(&self) -> &[(usize, SideSteps)] {
        &self.outer[..self.rank]
    }
}
