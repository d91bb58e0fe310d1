//! Matrices in memory.

/// One matrix: its first element and strides in elements.
#[derive(Clone, Copy)]
pub struct Matrix {
    /// The first element.
    pub at: *mut u8,
    /// From a row to the next.
    pub rows: isize,
    /// From a column to the next.
    pub columns: isize,
}
