//! A register block of a product: sums of outer products, and their epilogue.

use super::call::{MicroCall, PREFETCH_ROWS};
use crate::simd::{stored::Stored, vector::Vector};

/// The number of terms from which on prefetching the result before the sums hides its latency.
const LONG: usize = 64;

/// A mode of reading right operands: one cached panel, while other memory is prefetched.
pub const CACHED: u8 = 0;
/// A mode of reading right operands: one panel that is not packed yet. The kernel also writes its packed form.
pub const PACKS: u8 = 1;
/// A mode of reading right operands: several panels at once, each as a separate stream from memory.
pub const STREAMS: u8 = 2;

/// Sums outer products in `ROWS`·`VECTORS` registers. A panel has `PANEL` vectors, and further vectors belong to the
/// panels after it. Products of few rows are bound by reading panels, and several streams are read faster than one.
///
/// If `DENSE`, the terms of the left operand are contiguous, which takes fewer instructions. The right operand has
/// elements of type `B`. If `CUT`, `B` is the element type of `V`, and no element beyond [`MicroCall::columns`] is
/// read.
///
/// # Safety
/// The operands must be valid for the extents of the call, and the machine must have the vectors' instruction set.
#[inline(always)]
pub unsafe fn block<
    V: Vector,
    B: Stored<V>,
    const ROWS: usize,
    const VECTORS: usize,
    const PANEL: usize,
    const READS: u8,
    const DENSE: bool,
    const CUT: bool,
>(
    c: &MicroCall<V::Element>,
) {
    // SAFETY: the caller promises the operands, and that the machine has the instruction set.
    unsafe {
        debug_assert!(
            c.columns > (VECTORS - 1) * V::LANES && c.columns <= VECTORS * V::LANES,
            "{} columns do not fill {VECTORS} vectors",
            c.columns
        );
        let mut sums = [[V::zero(); VECTORS]; ROWS];
        let mut b = c.b.cast::<B>();
        let last = c.columns - (VECTORS - 1) * V::LANES;
        let mut packed = c.packed;
        let mut prefetch = c.prefetch.at;
        let a_columns = if DENSE { 1 } else { c.a_columns };
        let place = |j: usize| j / PANEL * c.b_panels + j % PANEL * V::LANES;
        // Blocks of rows share the prefetches of a group. With few blocks, each prefetches more bytes per term than a
        // vector has.
        let more = c.prefetch.step > (V::LANES * size_of::<V::Element>()) as isize;
        if c.k >= LONG {
            for i in 0..ROWS {
                let row = c.c.wrapping_offset(i as isize * c.c_rows);
                (0..VECTORS).for_each(|j| V::prefetch(row.wrapping_add(j * V::LANES)));
            }
        }
        for segment in 0..c.segments {
            let mut a = c.a.wrapping_offset(c.starts.add(segment).read());
            for _ in 0..c.k {
                if READS == STREAMS {
                    // One prefetch per cache line. A panel's row of 8-bit elements is shorter than a line.
                    for j in (0..VECTORS).step_by((size_of::<V::Element>() / size_of::<B>()).min(PANEL)) {
                        V::prefetch(b.wrapping_offset(PREFETCH_ROWS * c.b_rows).wrapping_add(place(j)).cast());
                    }
                } else {
                    let lines = match READS {
                        PACKS => VECTORS,
                        _ if more => 2,
                        _ => 1,
                    };
                    for j in 0..lines {
                        V::prefetch_outer(prefetch.wrapping_add(j * V::LANES));
                    }
                    prefetch = prefetch.wrapping_byte_offset(c.prefetch.step);
                }
                let mut row = [V::zero(); VECTORS];
                for (j, v) in row.iter_mut().enumerate() {
                    let at = b.add(place(j));
                    *v = if CUT && j + 1 == VECTORS { V::load_part(at.cast(), last) } else { B::load(at) };
                }
                if READS == PACKS {
                    row.iter().enumerate().for_each(|(j, v)| v.store(packed.add(j * V::LANES)));
                    packed = packed.add(VECTORS * V::LANES);
                }
                for (i, sums) in sums.iter_mut().enumerate() {
                    let x = V::splat(*a.offset(i as isize * c.a_rows));
                    for (sum, &v) in sums.iter_mut().zip(&row) {
                        *sum = x.mul_add(v, *sum);
                    }
                }
                a = a.wrapping_offset(a_columns);
                b = b.wrapping_offset(c.b_rows);
            }
        }
        if c.columns == VECTORS * V::LANES {
            finish::<V, ROWS, VECTORS, true>(c, sums);
        } else {
            finish::<V, ROWS, VECTORS, false>(c, sums);
        }
    }
}

/// Applies the epilogue to sums, and stores them. Unless `WHOLE`, the last vector of a row is partial. Each step of the
/// epilogue is a loop over all sums. Loops this short are unrolled, so that sums stay in registers.
///
/// # Safety
/// The call's result, bias and other must be valid for `ROWS` rows of its columns, and the machine must have the
/// instruction set.
#[inline(always)]
pub unsafe fn finish<V: Vector, const ROWS: usize, const VECTORS: usize, const WHOLE: bool>(
    c: &MicroCall<V::Element>,
    sums: [[V; VECTORS]; ROWS],
) {
    // SAFETY: the caller promises the operands, and that the machine has the instruction set.
    unsafe {
        let mut sums = sums;
        let last = c.columns - (VECTORS - 1) * V::LANES;
        let read = |row: *const V::Element, j: usize| {
            let at = row.add(j * V::LANES);
            if WHOLE || j + 1 < VECTORS { V::load(at) } else { V::load_part(at, last) }
        };
        macro_rules! each {
            ($sum:ident, $i:pat, $j:pat => $new:expr) => {
                for ($i, row) in sums.iter_mut().enumerate() {
                    for ($j, $sum) in row.iter_mut().enumerate() {
                        *$sum = $new;
                    }
                }
            };
        }
        if let Some(scale) = c.scale {
            let scale = V::splat(scale);
            each!(sum, _, _ => sum.mul(scale));
        }
        if c.add {
            each!(sum, i, j => sum.add(read(c.c.offset(i as isize * c.c_rows), j)));
        }
        if !c.bias.is_null() {
            let mut bias = [V::zero(); VECTORS];
            bias.iter_mut().enumerate().for_each(|(j, v)| *v = read(c.bias, j));
            each!(sum, _, j => sum.add(bias[j]));
        }
        if !c.other.is_null() {
            each!(sum, i, j => sum.add(read(c.other.offset(i as isize * c.other_rows), j)));
        }
        if let Some(least) = c.least {
            let least = V::splat(least);
            each!(sum, _, _ => sum.at_least(least));
        }
        for (i, sums) in sums.iter().enumerate() {
            for (j, sum) in sums.iter().enumerate() {
                let to = c.c.offset(i as isize * c.c_rows).add(j * V::LANES);
                if WHOLE || j + 1 < VECTORS { sum.store(to) } else { sum.store_part(to, last) }
            }
        }
    }
}
