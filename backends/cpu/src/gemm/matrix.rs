//! Strided matrices in memory, and ranges of their rows, columns or terms.

/// One matrix: its first element and strides in elements.
#[derive(Clone, Copy)]
pub struct Matrix {
    /// The first element.
    pub at: *mut u8,
    /// The distance in elements from a row to the next.
    pub rows: isize,
    /// The distance in elements from a column to the next.
    pub columns: isize,
}

impl Matrix {
    /// Returns the address of a row's first element.
    pub fn row<T>(&self, row: usize) -> *mut u8 {
        self.at.cast::<T>().wrapping_offset(row as isize * self.rows).cast()
    }
}

/// A range of rows, columns or terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The first row, column or term.
    pub first: usize,
    /// The number of rows, columns or terms.
    pub count: usize,
}

impl Stretch {
    /// Returns the range of `count` rows, columns or terms from `first` on.
    pub fn new(first: usize, count: usize) -> Stretch {
        Stretch { first, count }
    }
}

/// The size of a block of an operand, as a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartSize {
    /// The number of rows.
    pub rows: usize,
    /// The number of columns.
    pub columns: usize,
}
