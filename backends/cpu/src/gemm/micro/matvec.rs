//! Products of a few rows with a matrix whose columns are contiguous, bound by the bandwidth of reading the matrix.
//! Several rows of the matrix are read at once, in long contiguous streams that suit hardware prefetchers. Partial sums
//! stay in the first-level cache.

use super::{block::finish, call::MicroCall};
use crate::simd::vector::Vector;

/// Software prefetch policy, measured on an AMD and an Intel processor. For one row of the target, hardware prefetch
/// suffices. Up to this number of rows, kernels prefetch [`PREFETCH_BYTES`] ahead in the same row of the matrix. More
/// rows are also compute-bound: kernels prefetch the next rows of the matrix if [`MicroCall::prefetches`].
pub const IN_ROW: usize = 3;
const PREFETCH_BYTES: usize = 1024;

/// Computes `M` rows and [`MicroCall::columns`] columns of a product whose left operand has one segment. Partial sums
/// are in [`MicroCall::packed`], where each row starts at a multiple of the vector's length. `AT_ONCE` terms of `WIDE`
/// vectors are processed together, so that there are fewer instructions for addresses than for data.
///
/// # Safety
/// The requirements of [`super::block::block`] apply. [`MicroCall::packed`] must have room for the sums of all columns.
#[inline(always)]
pub unsafe fn few<V: Vector, const M: usize, const AT_ONCE: usize, const WIDE: usize>(c: &MicroCall<V::Element>) {
    debug_assert!(c.segments == 1 && !c.packed.is_null(), "partial sums have no room");
    let pitch = c.columns.next_multiple_of(V::LANES);
    let mut from = 0;
    // SAFETY: the caller promises the operands and room for the sums.
    unsafe {
        while from + AT_ONCE <= c.k {
            terms::<V, M, AT_ONCE, WIDE>(c, from, pitch);
            from += AT_ONCE;
        }
        for from in from..c.k {
            terms::<V, M, 1, WIDE>(c, from, pitch);
        }
        for j in (0..c.columns).step_by(V::LANES) {
            let shifted = |p: *const V::Element| if p.is_null() { p } else { p.wrapping_add(j) };
            let part = MicroCall {
                c: c.c.wrapping_add(j),
                bias: shifted(c.bias),
                other: shifted(c.other),
                columns: V::LANES.min(c.columns - j),
                ..*c
            };
            let mut sums = [[V::zero()]; M];
            if c.k > 0 {
                sums.iter_mut().enumerate().for_each(|(i, sum)| sum[0] = V::load(c.packed.add(i * pitch + j)));
            }
            finish::<V, M, 1, false>(&part, sums);
        }
    }
}

/// Adds `TERMS` terms from `from` on to the partial sums. The first terms replace the sums' contents.
///
/// # Safety
/// The requirements of [`few`] apply.
#[inline(always)]
unsafe fn terms<V: Vector, const M: usize, const TERMS: usize, const WIDE: usize>(
    c: &MicroCall<V::Element>,
    from: usize,
    pitch: usize,
) {
    // SAFETY: passed on from the caller.
    unsafe {
        let mut x = [[V::zero(); TERMS]; M];
        for (i, x) in x.iter_mut().enumerate() {
            for (l, x) in x.iter_mut().enumerate() {
                let at = i as isize * c.a_rows + (from + l) as isize * c.a_columns;
                *x = V::splat(c.a.wrapping_offset(at).read());
            }
        }
        let mut b = c.b.wrapping_offset(from as isize * c.b_rows);
        let mut sums = c.packed;
        let mut left = c.columns;
        while left >= WIDE * V::LANES {
            vectors::<V, M, TERMS, WIDE>(&x, (b, c.b_rows), (sums, pitch), from > 0, c.prefetches, None);
            left -= WIDE * V::LANES;
            (b, sums) = (b.wrapping_add(WIDE * V::LANES), sums.wrapping_add(WIDE * V::LANES));
        }
        while left > 0 {
            let columns = left.min(V::LANES);
            vectors::<V, M, TERMS, 1>(&x, (b, c.b_rows), (sums, pitch), from > 0, c.prefetches, Some(columns));
            left -= columns;
            (b, sums) = (b.wrapping_add(V::LANES), sums.wrapping_add(V::LANES));
        }
    }
}

/// Adds terms to the partial sums of `VECTORS` vectors of columns. If there is a `part`, it is the number of columns of
/// the only vector.
///
/// # Safety
/// The requirements of [`few`] apply.
#[inline(always)]
unsafe fn vectors<V: Vector, const M: usize, const TERMS: usize, const VECTORS: usize>(
    x: &[[V; TERMS]; M],
    (b, rows): (*const V::Element, isize),
    (to, pitch): (*mut V::Element, usize),
    add: bool,
    asks: bool,
    part: Option<usize>,
) {
    // SAFETY: passed on from the caller.
    unsafe {
        let mut sums = [[V::zero(); VECTORS]; M];
        if add {
            for (i, sums) in sums.iter_mut().enumerate() {
                sums.iter_mut().enumerate().for_each(|(j, sum)| *sum = V::load(to.add(i * pitch + j * V::LANES)));
            }
        }
        for l in 0..TERMS {
            let at = b.wrapping_offset(l as isize * rows);
            for j in 0..VECTORS {
                let at = at.wrapping_add(j * V::LANES);
                if (2..=IN_ROW).contains(&M) {
                    V::prefetch(at.wrapping_byte_add(PREFETCH_BYTES));
                } else if asks {
                    V::prefetch_outer(at.wrapping_offset(TERMS as isize * rows));
                }
                let w = part.map_or_else(|| V::load(at), |n| V::load_part(at, n));
                for (sums, x) in sums.iter_mut().zip(x) {
                    sums[j] = x[l].mul_add(w, sums[j]);
                }
            }
        }
        for (i, sums) in sums.into_iter().enumerate() {
            sums.into_iter().enumerate().for_each(|(j, sum)| sum.store(to.add(i * pitch + j * V::LANES)));
        }
    }
}
