//! What a micro-kernel is called with.

/// A block of a product: `rows` by [`MicroCall::columns`] sums of `k` terms for each segment.
#[derive(Clone, Copy)]
pub struct MicroCall<T> {
    /// Number of terms of each segment of the left operand.
    pub k: usize,
    /// How many segments there are.
    pub segments: usize,
    /// Where they begin, in elements from `a` on.
    pub starts: *const isize,
    /// The left operand's first element.
    pub a: *const T,
    /// From a row of it to the next.
    pub a_rows: isize,
    /// From a term to the next.
    pub a_columns: isize,
    /// The right operand's first row: whole vectors can be read from it, however many columns count, but by kernels that read no more
    /// than these. Some kernels read elements of another type than `T`; strides count these.
    pub b: *const T,
    /// From a row of it, which is a term, to the next.
    pub b_rows: isize,
    /// From a panel of it to the next, where a kernel takes several.
    pub b_panels: usize,
    /// What to prefetch meanwhile, where a kernel takes one panel.
    pub prefetch: PrefetchRows<T>,
    /// Whether kernels for few rows prefetch the next rows of a right operand that is not packed.
    pub prefetches: bool,
    /// Packing kernels: where the packed panel goes. Few-row kernels: scratch for partial sums.
    pub packed: *mut T,
    /// The result's first element; its columns lie side by side.
    pub c: *mut T,
    /// From a row of it to the next.
    pub c_rows: isize,
    /// How many columns are written: from one vector less than the kernel's on.
    pub columns: usize,
    /// Factor of the sums, unless it is one.
    pub scale: Option<T>,
    /// Whether they are added to what the result holds.
    pub add: bool,
    /// If not null: a number for each column, which is added.
    pub bias: *const T,
    /// If not null: a number for each element, which is added; its columns lie side by side.
    pub other: *const T,
    /// From a row of it to the next.
    pub other_rows: isize,
    /// What results are at least, if anything.
    pub least: Option<T>,
}

impl<T: Copy + PartialEq + From<bool>> MicroCall<T> {
    /// What becomes of the sums of no terms: operands and the result are still to be filled in.
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

/// What becomes of the sums.
#[derive(Clone, Copy)]
pub struct SumFinish<T> {
    /// Their factor.
    pub scale: T,
    /// Whether they are added to what the target holds.
    pub add: bool,
    /// If not null: a number for each column, which is added.
    pub bias: *const T,
    /// If not null, where neither side is a vector: a number for each element, which is added, side by side in rows. The target may
    /// be the same memory.
    pub other: *const T,
    /// From a row of it to the next.
    pub other_rows: isize,
    /// What results are at least, if anything; where neither side is a vector.
    pub least: Option<T>,
}

impl<T> SumFinish<T> {
    /// Sums times a factor.
    pub fn scaled(scale: T) -> SumFinish<T> {
        SumFinish { scale, add: false, bias: std::ptr::null(), other: std::ptr::null(), other_rows: 0, least: None }
    }
}

/// What to prefetch, a line or more with each term: the address, which need not be valid, and bytes from it to the next.
#[derive(Clone, Copy)]
pub struct PrefetchRows<T> {
    /// With the first term.
    pub at: *const T,
    /// To the next.
    pub step: isize,
}

/// Prefetch distance, in rows of the right operand.
pub const PREFETCH_ROWS: isize = 16;

impl<T> PrefetchRows<T> {
    /// The rows from `at` on, so many bytes apart, at the prefetch distance.
    pub fn rows(at: *const T, step: isize) -> PrefetchRows<T> {
        PrefetchRows { at: at.wrapping_byte_offset(PREFETCH_ROWS * step), step }
    }
}
