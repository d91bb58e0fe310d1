//! The arguments of micro-kernels.

/// A block of a product: `rows` by [`MicroCall::columns`] sums of `k` terms for each segment.
#[derive(Clone, Copy)]
pub struct MicroCall<T> {
    /// Number of terms of each segment of the left operand.
    pub k: usize,
    /// The number of segments.
    pub segments: usize,
    /// The starts of the segments, in elements from `a` on.
    pub starts: *const isize,
    /// The left operand's first element.
    pub a: *const T,
    /// The distance of two of its rows.
    pub a_rows: isize,
    /// The distance of two terms.
    pub a_columns: isize,
    /// The right operand's first row. Kernels may read whole vectors from it, whatever `columns` says, unless they are
    /// `cut`. Some kernels read elements of another type than `T`; strides count these.
    pub b: *const T,
    /// The distance of two of its rows, which are terms.
    pub b_rows: isize,
    /// The distance of two of its panels, if a kernel takes several.
    pub b_panels: usize,
    /// Memory to prefetch, if a kernel takes one panel.
    pub prefetch: PrefetchRows<T>,
    /// Whether kernels for few rows prefetch the next rows of a right operand that is not packed.
    pub prefetches: bool,
    /// Packing kernels: destination of the packed panel. Few-row kernels: scratch for partial sums.
    pub packed: *mut T,
    /// The result's first element; its columns are contiguous.
    pub c: *mut T,
    /// The distance of two of its rows.
    pub c_rows: isize,
    /// The number of columns that are written. At most the kernel's last vector is partial.
    pub columns: usize,
    /// Factor of the sums, unless it is one.
    pub scale: Option<T>,
    /// Whether the sums are added to the result's contents.
    pub add: bool,
    /// If not null: a number per column, which is added.
    pub bias: *const T,
    /// If not null: a number per element, which is added; its columns are contiguous.
    pub other: *const T,
    /// The distance of two of its rows.
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
    /// Their factor.
    pub scale: T,
    /// Whether they are added to the target's contents.
    pub add: bool,
    /// If not null: a number per column, which is added.
    pub bias: *const T,
    /// If not null, for products without a vector side: a number per element, which is added. Its columns are
    /// contiguous. The target may be the same memory.
    pub other: *const T,
    /// The distance of two of its rows.
    pub other_rows: isize,
    /// The lower bound of results, if any; for products without a vector side.
    pub least: Option<T>,
}

impl<T> SumFinish<T> {
    /// Sums times a factor.
    pub fn scaled(scale: T) -> SumFinish<T> {
        SumFinish { scale, add: false, bias: std::ptr::null(), other: std::ptr::null(), other_rows: 0, least: None }
    }
}

/// Memory to prefetch, a cache line or more per term: the address, which need not be valid, and the distance to the
/// next one in bytes.
#[derive(Clone, Copy)]
pub struct PrefetchRows<T> {
    /// The address for the first term.
    pub at: *const T,
    /// The distance to the next one.
    pub step: isize,
}

/// Prefetch distance, in rows of the right operand.
pub const PREFETCH_ROWS: isize = 16;

impl<T> PrefetchRows<T> {
    /// Returns the rows from `at` on, `step` bytes apart, at the prefetch distance.
    pub fn rows(at: *const T, step: isize) -> PrefetchRows<T> {
        PrefetchRows { at: at.wrapping_byte_offset(PREFETCH_ROWS * step), step }
    }
}
