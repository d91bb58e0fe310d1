//! The loop nest of a pointwise step: an innermost loop (a run) that a vectorised function executes, and loops around
//! it.

use super::domain::{AxisMask, MAX_RANK, Tile};

/// The distances in bytes of neighbouring elements in three arguments and the result.
pub type SideSteps = [isize; 4];

/// A loop nest whose arguments and result have separate strides.
#[derive(Clone, Copy, Debug, Default)]
pub struct Loops {
    /// The number of elements of a run.
    pub n: usize,
    /// The distances of neighbouring elements of a run.
    pub unit: SideSteps,
    /// The set of arguments that have one element for a whole run: bit `n` for argument `n`.
    pub scalar: u8,
    /// The loops around runs, innermost first: the number of iterations, and the distances of consecutive iterations.
    outer: [(usize, SideSteps); MAX_RANK],
    /// The number of loops around runs.
    rank: usize,
}

impl Loops {
    /// Returns the loops over the axes of a mask, given the strides in bytes of three arguments and the result
    /// (`sides`). Along the innermost axis, strides must be one element or 0. Axes that all sides traverse as one axis
    /// are merged, so that runs are long.
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

    /// Returns whether two loop nests have runs of equal length and equal loops around them.
    pub fn goes_with(&self, other: &Loops) -> bool {
        self.n == other.n && self.outer().iter().map(|o| o.0).eq(other.outer().iter().map(|o| o.0))
    }

    /// Returns the number of runs.
    pub fn runs(&self) -> usize {
        self.outer().iter().map(|o| o.0).product()
    }

    /// Returns the loops around runs, innermost first: the number of iterations, and the distances of iterations.
    pub fn outer(&self) -> &[(usize, SideSteps)] {
        &self.outer[..self.rank]
    }
}
