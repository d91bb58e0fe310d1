//! Boxes of domains, and sets of their axes.

/// The maximal number of axes of a domain in normal form.
pub const MAX_RANK: usize = 8;

/// A set of axes.
pub type AxisMask = u8;

/// A box of a domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tile {
    /// The first point of the box.
    pub start: [usize; MAX_RANK],
    /// The extents of the box; 1 beyond the domain's rank.
    pub len: [usize; MAX_RANK],
}

impl Tile {
    /// Returns the number of points along a set of axes.
    pub fn count(&self, mask: AxisMask) -> usize {
        (0..MAX_RANK).filter(|d| mask >> d & 1 == 1).map(|d| self.len[d]).product()
    }

    /// Returns the strides in elements of an array that is contiguous over a set of axes of the box; 0 along other
    /// axes.
    pub fn strides(&self, mask: AxisMask) -> [isize; MAX_RANK] {
        let (mut strides, mut step) = ([0; MAX_RANK], 1);
        for d in (0..MAX_RANK).rev().filter(|d| mask >> d & 1 == 1) {
            strides[d] = step;
            step *= self.len[d] as isize;
        }
        strides
    }
}
