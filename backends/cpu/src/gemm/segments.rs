//! Parts of left operands in memory, in the form that micro-kernels read.

/// An operand's part of some terms.
#[derive(Clone, Copy)]
pub struct LeftPart<T> {
    pub at: *const T,
    /// Along the terms.
    pub terms: isize,
    /// Along the target's rows, within a block.
    pub step: isize,
    /// The distance of two packed blocks; 0 if rows are not packed.
    pub block: isize,
}

/// A part of the operand whose terms are in segments of one length.
#[derive(Clone, Copy)]
pub struct Segments<'a, T> {
    pub part: LeftPart<T>,
    /// The starts of the segments.
    pub starts: &'a [isize],
}

impl<T> From<LeftPart<T>> for Segments<'_, T> {
    fn from(part: LeftPart<T>) -> Self {
        Segments { part, starts: &[0] }
    }
}

impl<T> Segments<'_, T> {
    /// No terms.
    pub const NONE: Self = {
        let part = LeftPart { at: std::ptr::null(), terms: 1, step: 0, block: 0 };
        Segments { part, starts: &[] }
    };
}
