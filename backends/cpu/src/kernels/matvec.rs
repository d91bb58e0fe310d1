//! A few rows times a matrix whose rows are dense, bound by the bandwidth at which the matrix is read: a page of several of its rows
//! at once, as processors fetch ahead, while sums wait in the first-level cache.

use super::{block::finish, call::Call};
use crate::simd::vector::Vector;

/// Bytes of the sums that wait, of each row and of all of them.
const PAGE: usize = 4096;
const PAGES: usize = 4;

/// Elements of each row whose sums wait, and so of the pieces that are read.
fn piece<T>(rows: usize) -> usize {
    let pieces = rows.div_ceil(PAGES).max(1);
    (PAGE / pieces / size_of::<T>()).next_multiple_of(16)
}

/// Elements of all sums that wait.
pub fn room<T>(rows: usize) -> usize {
    rows * piece::<T>(rows)
}

/// `M` rows of [`Call::columns`] sums, of one segment, that wait in [`Call::packed`]; `AT_ONCE` terms at a time.
#[inline(always)]
pub unsafe fn few<V: Vector, const M: usize, const AT_ONCE: usize>(c: &Call<V::Element>) {
    let piece = piece::<V::Element>(M);
    for first in (0..c.columns).step_by(piece) {
        let columns = piece.min(c.columns - first);
        let mut from = 0;
        // SAFETY: the caller promises the operands and room for the sums.
        unsafe {
            while from + AT_ONCE <= c.k {
                let part = (first, columns);
                if c.asks {
                    terms::<V, M, AT_ONCE, true>(c, from, part, piece);
                } else {
                    terms::<V, M, AT_ONCE, false>(c, from, part, piece);
                }
                from += AT_ONCE;
            }
            for from in from..c.k {
                terms::<V, M, 1, false>(c, from, (first, columns), piece);
            }
            for j in (0..columns).step_by(V::LANES) {
                let at = first + j;
                let shifted = |p: *const V::Element| if p.is_null() { p } else { p.wrapping_add(at) };
                let part = Call {
                    c: c.c.wrapping_add(at),
                    bias: shifted(c.bias),
                    other: shifted(c.other),
                    columns: V::LANES.min(columns - j),
                    ..*c
                };
                let mut sums = [[V::zero()]; M];
                if c.k > 0 {
                    sums.iter_mut().enumerate().for_each(|(i, sum)| sum[0] = V::load(c.packed.add(i * piece + j)));
                }
                finish::<V, M, 1, false>(&part, sums);
            }
        }
    }
}

/// Some terms of the sums of some columns; the first ones begin the sums.
#[inline(always)]
unsafe fn terms<V: Vector, const M: usize, const TERMS: usize, const ASKS: bool>(
    c: &Call<V::Element>,
    from: usize,
    (first, columns): (usize, usize),
    piece: usize,
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
        let b = c.b.wrapping_offset(from as isize * c.b_rows).wrapping_add(first);
        for j in (0..columns).step_by(V::LANES) {
            let mut sums = [V::zero(); M];
            if from > 0 {
                sums.iter_mut().enumerate().for_each(|(i, sum)| *sum = V::load(c.packed.add(i * piece + j)));
            }
            for l in 0..TERMS {
                let at = b.wrapping_offset(l as isize * c.b_rows).wrapping_add(j);
                if ASKS {
                    V::prefetch_outer(at.wrapping_offset(TERMS as isize * c.b_rows));
                }
                let w = if j + V::LANES <= columns { V::load(at) } else { V::load_part(at, columns - j) };
                for (sum, x) in sums.iter_mut().zip(&x) {
                    *sum = x[l].mul_add(w, *sum);
                }
            }
            for (i, sum) in sums.into_iter().enumerate() {
                sum.store(c.packed.add(i * piece + j));
            }
        }
    }
}
