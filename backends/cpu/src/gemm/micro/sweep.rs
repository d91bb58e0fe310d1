//! Products of few terms, which are bound by writing the result. One call computes all rows and columns, in register
//! blocks along the rows of the result.

use super::{block::finish, call::MicroCall};
use crate::simd::vector::Vector;

/// The functions that compute strips of one row, of two rows, and so on up to the maximal height. Each height has a
/// separate function, because the compiler would take seconds to optimize a common one.
pub type Strips<T> = &'static [unsafe fn(&MicroCall<T>, usize)];

/// Computes `rows` rows and [`MicroCall::columns`] columns of a product whose left operand has one segment.
///
/// # Safety
/// The requirements of [`super::block::block`] apply, for these rows and the level of the strips.
pub unsafe fn sweep<T>(strips: Strips<T>, call: &MicroCall<T>, rows: usize) {
    let most = strips.len();
    let mut row = 0;
    while row < rows {
        let left = rows - row;
        // The last two strips have similar heights, because a strip of few rows is bound by the latency of its
        // multiply-adds, not by memory.
        let high = if (most + 1..2 * most).contains(&left) { left.div_ceil(2) } else { left.min(most) };
        // SAFETY: passed on from the caller.
        unsafe { strips[high - 1](call, row) };
        row += high;
    }
}

/// Computes a strip: `ROWS` rows, in blocks of up to `WIDE` vectors, at most four.
///
/// # Safety
/// The requirements of [`sweep`] apply, for these rows.
#[inline(always)]
pub unsafe fn strip<V: Vector, const ROWS: usize, const WIDE: usize, const PANEL: usize>(
    call: &MicroCall<V::Element>,
    row: usize,
) {
    let row = row as isize;
    let mut block = MicroCall {
        a: call.a.wrapping_offset(row * call.a_rows),
        c: call.c.wrapping_offset(row * call.c_rows),
        other: call.other.wrapping_offset(row * call.other_rows),
        columns: WIDE * V::LANES,
        ..*call
    };
    let mut left = call.columns;
    // SAFETY: the caller promises the operands. Null pointers, which stand for no bias and no other operand, stay null.
    unsafe {
        while left >= WIDE * V::LANES {
            sums::<V, ROWS, WIDE, PANEL, true>(&block);
            left -= WIDE * V::LANES;
            block.b = block.b.wrapping_add(WIDE / PANEL * call.b_panels);
            block.c = block.c.wrapping_add(WIDE * V::LANES);
            if !call.bias.is_null() {
                block.bias = block.bias.wrapping_add(WIDE * V::LANES);
            }
            if !call.other.is_null() {
                block.other = block.other.wrapping_add(WIDE * V::LANES);
            }
        }
        block.columns = left;
        match left.div_ceil(V::LANES) {
            0 => {}
            1 => sums::<V, ROWS, 1, PANEL, false>(&block),
            2 if WIDE > 2 => sums::<V, ROWS, 2, PANEL, false>(&block),
            3 if WIDE > 2 => sums::<V, ROWS, 3, PANEL, false>(&block),
            _ => sums::<V, ROWS, WIDE, PANEL, false>(&block),
        }
    }
}

/// Computes a block of `ROWS` rows and `VECTORS` vectors. Unless `WHOLE`, the last vector of a row is partial.
///
/// # Safety
/// The requirements of [`sweep`] apply, for these rows and columns.
#[inline(always)]
unsafe fn sums<V: Vector, const ROWS: usize, const VECTORS: usize, const PANEL: usize, const WHOLE: bool>(
    c: &MicroCall<V::Element>,
) {
    // SAFETY: the caller promises the operands, and that the machine has the instruction set.
    unsafe {
        let mut sums = [[V::zero(); VECTORS]; ROWS];
        let last = c.columns - (VECTORS - 1) * V::LANES;
        let (mut a, mut b) = (c.a, c.b);
        if WHOLE {
            for i in 0..ROWS {
                let next = c.c.wrapping_offset(i as isize * c.c_rows).wrapping_add(VECTORS * V::LANES);
                (0..VECTORS).for_each(|j| V::prefetch(next.wrapping_add(j * V::LANES)));
            }
        }
        for _ in 0..c.k {
            let mut row = [V::zero(); VECTORS];
            for (j, v) in row.iter_mut().enumerate() {
                let at = b.add(j / PANEL * c.b_panels + j % PANEL * V::LANES);
                *v = if WHOLE || j + 1 < VECTORS { V::load(at) } else { V::load_part(at, last) };
            }
            for (i, sums) in sums.iter_mut().enumerate() {
                let x = V::splat(*a.offset(i as isize * c.a_rows));
                for (sum, &v) in sums.iter_mut().zip(&row) {
                    *sum = x.mul_add(v, *sum);
                }
            }
            a = a.wrapping_offset(c.a_columns);
            b = b.wrapping_offset(c.b_rows);
        }
        finish::<V, ROWS, VECTORS, WHOLE>(c, sums);
    }
}
