//! Products of a few vectors with a matrix that is contiguous along the terms: a dot product for each vector and each
//! line of the matrix.

use crate::simd::{
    stored::Stored,
    vector::{Square, Vector},
};

/// Dot products of a few contiguous vectors with the lines of a matrix. A line is contiguous along the terms.
pub struct Dots<T> {
    /// The number of lines.
    pub n: usize,
    /// The number of terms.
    pub k: usize,
    /// The first vector.
    pub x: *const T,
    /// The distance in elements from a vector to the next.
    pub x_rows: isize,
    /// The first line of the matrix. Some kernels read elements of another type than `T`; strides count elements of
    /// that type.
    pub w: *const T,
    /// The distance in elements from a line to the next.
    pub line: isize,
    /// The first result.
    pub out: *mut T,
    /// The distance in elements from the results of a vector to those of the next vector.
    pub out_rows: isize,
    /// The distance in elements from a vector's result for a line to its result for the next line.
    pub step: isize,
    /// The factor of the sums.
    pub scale: T,
    /// Whether the sums are added to the old contents of the results.
    pub add: bool,
}

/// A function that computes dot products for one number of vectors.
///
/// # Safety
/// The requirements of [`dots`] apply.
pub type DotKernel<T> = unsafe fn(&Dots<T>);

/// Computes the dot products of `ROWS` vectors, at most as many as a register has lanes. It processes as many lines at
/// once as there are lanes for the sums of all vectors. Multiply-adds of different lines overlap, and one tree of
/// additions reduces the lanes of all sums.
///
/// # Safety
/// The vectors, lines and results must be valid; the machine must have the instruction set.
#[inline(always)]
pub unsafe fn dots<V: Vector, S: Stored<V>, const ROWS: usize>(d: &Dots<V::Element>) {
    let at_once = V::LANES / ROWS.next_power_of_two();
    let mut first = 0;
    while first < d.n {
        let lines = at_once.min(d.n - first);
        // SAFETY: the caller promises the operands. If there are fewer lines than are processed at once, the last one
        // is read several times.
        unsafe {
            let mut w = [d.w.cast::<S>(); 16];
            for (i, w) in w.iter_mut().enumerate().take(at_once) {
                *w = w.wrapping_offset((first + i.min(lines - 1)) as isize * d.line);
            }
            let mut sums = [V::zero(); 16];
            let mut l = 0;
            while l + V::LANES <= d.k {
                for (i, w) in w.iter().enumerate().take(at_once) {
                    let w = S::load(w.add(l));
                    for r in 0..ROWS {
                        let x = V::load(d.x.offset(r as isize * d.x_rows).add(l));
                        sums[r * at_once + i] = x.mul_add(w, sums[r * at_once + i]);
                    }
                }
                l += V::LANES;
            }
            if l < d.k {
                for (i, w) in w.iter().enumerate().take(at_once) {
                    let w = S::load_part(w.add(l), d.k - l);
                    for r in 0..ROWS {
                        let x = V::load_part(d.x.offset(r as isize * d.x_rows).add(l), d.k - l);
                        sums[r * at_once + i] = x.mul_add(w, sums[r * at_once + i]);
                    }
                }
            }
            // The sums of a vector may begin at any lane, so that they are read back from memory.
            let mut all = [V::zero(); 1];
            all[0] = lane_sums::<V>(sums).mul(V::splat(d.scale));
            for r in 0..ROWS {
                let to = d.out.wrapping_offset(r as isize * d.out_rows + first as isize * d.step);
                let from = all.as_ptr().cast::<V::Element>().add(r * at_once);
                if d.step == 1 {
                    write::<V>(from, to, lines, d.add);
                } else {
                    (0..lines).for_each(|i| write::<V>(from.add(i), to.wrapping_offset(i as isize * d.step), 1, d.add));
                }
            }
        }
        first += lines;
    }
}

/// Returns a vector whose lane `i` is the sum of the lanes of vector `i` of the square.
///
/// # Safety
/// The machine must have the instruction set.
#[inline(always)]
unsafe fn lane_sums<V: Vector>(sums: Square<V>) -> V {
    let mut sums = sums;
    // SAFETY: passed on from the caller. The steps are written one by one, so that all vectors stay in registers.
    unsafe {
        if V::LANES > 8 {
            sums = halved::<V, 8>(sums);
        }
        if V::LANES > 4 {
            sums = halved::<V, 4>(sums);
        }
        if V::LANES > 2 {
            sums = halved::<V, 2>(sums);
        }
        halved::<V, 1>(sums)[0]
    }
}

/// Adds the upper half of the lanes to the lower half, in vectors `i` and `i + HALF`. The sums of both alternate in the
/// lanes of vector `i` of the result.
///
/// # Safety
/// The machine must have the instruction set.
#[inline(always)]
unsafe fn halved<V: Vector, const HALF: usize>(sums: Square<V>) -> Square<V> {
    let mut next = sums;
    for i in 0..HALF {
        // SAFETY: passed on from the caller.
        unsafe {
            let (low, high) = sums[i].zip(sums[i + HALF]);
            next[i] = low.add(high);
        }
    }
    next
}

/// Writes `count` numbers to the target, or adds them to its contents if `add`.
///
/// # Safety
/// Both ranges must hold `count` elements, at most those of a vector. The machine must have the instruction set.
#[inline(always)]
unsafe fn write<V: Vector>(from: *const V::Element, to: *mut V::Element, count: usize, add: bool) {
    // SAFETY: passed on from the caller.
    unsafe {
        let numbers = V::load_part(from, count);
        (if add { V::load_part(to, count).add(numbers) } else { numbers }).store_part(to, count);
    }
}
