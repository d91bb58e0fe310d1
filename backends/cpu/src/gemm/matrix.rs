//! Matrices in memory, and parts of them.

/// One matrix: its first element and strides in elements.
#[derive(Clone, Copy)]
pub struct Matrix {
    /// The first element.
    pub at: *mut u8,
    /// The distance of two rows.
    pub rows: isize,
    /// The distance of two columns.
    pub columns: isize,
}

impl Matrix {
    /// Returns the address of a row's first element.
    pub fn row<T>(&self, row: usize) -> *mut u8 {
        self.at.cast::<T>().wrapping_offset(row as isize * self.rows).cast()
    }
}

/// Rows, columns or terms that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The first one.
    pub first: usize,
    /// The number of them.
    pub count: usize,
}

impl Stretch {
    /// Returns the stretch of `count` elements from `first` on.
    pub fn new(first: usize, count: usize) -> Stretch {
        Stretch { first, count }
    }
}

/// The number of rows and columns of an operand's part, as a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartSize {
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
}
