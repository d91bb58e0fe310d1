//! Positions of blocks of left operands in memory, as micro-kernels read them.

/// The position of a block of terms of a left operand. Strides are in elements.
#[derive(Clone, Copy)]
pub struct LeftPart<T> {
    pub at: *const T,
    /// The stride from a term to the next.
    pub terms: isize,
    /// The stride from a row to the next, within a packed block of rows.
    pub step: isize,
    /// The stride from a packed block of rows to the next; 0 if rows are not packed.
    pub block: isize,
}

/// A block of a left operand whose terms are in segments: ranges of equal length, with a constant stride between terms.
#[derive(Clone, Copy)]
pub struct Segments<'a, T> {
    pub part: LeftPart<T>,
    /// The offset of each segment from `part.at`, in elements.
    pub starts: &'a [isize],
}

impl<T> From<LeftPart<T>> for Segments<'_, T> {
    fn from(part: LeftPart<T>) -> Self {
        Segments { part, starts: &[0] }
    }
}

impl<T> Segments<'_, T> {
    /// A block without terms, for rows that are zero.
    pub const NONE: Self = {
        let part = LeftPart { at: std::ptr::null(), terms: 1, step: 0, block: 0 };
        Segments { part, starts: &[] }
    };
}
