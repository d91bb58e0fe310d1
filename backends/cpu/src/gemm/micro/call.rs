//! The arguments of micro-kernels.

/// A register block of a product: [`MicroCall::columns`] sums for each of the kernel's rows. A sum has `k` terms for
/// each segment of the left operand.
#[derive(Clone, Copy)]
pub struct MicroCall<T> {
    /// The number of terms of a segment, a range of terms of the left operand with a constant stride.
    pub k: usize,
    /// The number of segments.
    pub segments: usize,
    /// The starts of the segments, in elements from `a` on.
    pub starts: *const isize,
    /// The left operand's first element.
    pub a: *const T,
    /// The distance in elements from a row of the left operand to the next.
    pub a_rows: isize,
    /// The distance in elements from a term of the left operand to the next, within a segment.
    pub a_columns: isize,
    /// The right operand's first row. Kernels that are not `cut` may read complete vectors from it, beyond `columns`.
    /// Some kernels read elements of another type than `T`; strides count elements of that type.
    pub b: *const T,
    /// The distance in elements from a row of the right operand, which is a term, to the next.
    pub b_rows: isize,
    /// The distance in elements from a panel of the right operand to the next, if a kernel takes several panels.
    pub b_panels: usize,
    /// Memory to prefetch, if a kernel takes one panel.
    pub prefetch: PrefetchRows<T>,
    /// Whether kernels for few rows prefetch the next rows of a right operand that is not packed.
    pub prefetches: bool,
    /// The destination of the packed panel in packing kernels, and scratch memory for partial sums in kernels for few
    /// rows.
    pub packed: *mut T,
    /// The result's first element; its columns are contiguous.
    pub c: *mut T,
    /// The distance in elements from a row of the result to the next.
    pub c_rows: isize,
    /// The number of columns that are written. At most the kernel's last vector is partial.
    pub columns: usize,
    /// The factor of the sums; `None` stands for one.
    pub scale: Option<T>,
    /// Whether the sums are added to the result's contents.
    pub add: bool,
    /// The numbers that are added, one per column; may be null.
    pub bias: *const T,
    /// The numbers that are added, one per element, with contiguous columns; may be null.
    pub other: *const T,
    /// The distance in elements from a row of `other` to the next.
    pub other_rows: isize,
    /// The lower bound of results, if any.
    pub least: Option<T>,
}

impl<T: Copy + PartialEq + From<bool>> MicroCall<T> {
    /// Returns a call with an epilogue and no terms; the caller sets the operands and the result.
    pub fn new(finish: SumFinish<T>) -> MicroCall<T> {
        let null = std::ptr::null();
        MicroCall {
            k: 0,
            segments: 1,
            starts: &0,
            a: null,
            a_rows: 0,
            a_columns: 0,
            b: null,
            b_rows: 0,
            b_panels: 0,
            prefetch: PrefetchRows { at: null, step: 0 },
            prefetches: false,
            packed: std::ptr::null_mut(),
            c: std::ptr::null_mut(),
            c_rows: 0,
            columns: 0,
            scale: Some(finish.scale).filter(|&scale| scale != T::from(true)),
            add: finish.add,
            bias: finish.bias,
            other: finish.other,
            other_rows: finish.other_rows,
            least: finish.least,
        }
    }
}

/// The epilogue of the sums.
#[derive(Clone, Copy)]
pub struct SumFinish<T> {
    /// The factor of the sums.
    pub scale: T,
    /// Whether the sums are added to the target's contents.
    pub add: bool,
    /// The numbers that are added, one per column; may be null.
    pub bias: *const T,
    /// The numbers that are added, one per element, with contiguous columns; may be null. The target may be the same
    /// memory. Products with one row or one column do not take it.
    pub other: *const T,
    /// The distance in elements from a row of `other` to the next.
    pub other_rows: isize,
    /// The lower bound of results, if any. Products with one row or one column do not take it.
    pub least: Option<T>,
}

impl<T> SumFinish<T> {
    /// Returns the epilogue that multiplies sums by a factor.
    pub fn scaled(scale: T) -> SumFinish<T> {
        SumFinish { scale, add: false, bias: std::ptr::null(), other: std::ptr::null(), other_rows: 0, least: None }
    }
}

/// Memory to prefetch for each term, a cache line or more. The addresses need not be valid.
#[derive(Clone, Copy)]
pub struct PrefetchRows<T> {
    /// The address for the first term.
    pub at: *const T,
    /// The distance in bytes from the address for a term to that for the next term.
    pub step: isize,
}

/// Prefetch distance, in rows of the right operand.
pub const PREFETCH_ROWS: isize = 16;

impl<T> PrefetchRows<T> {
    /// Returns the addresses for prefetching rows of a right operand that starts at `at`: [`PREFETCH_ROWS`] rows ahead,
    /// with rows `step` bytes apart.
    pub fn rows(at: *const T, step: isize) -> PrefetchRows<T> {
        PrefetchRows { at: at.wrapping_byte_offset(PREFETCH_ROWS * step), step }
    }
}
