//! Few vectors times the dense lines of a matrix: a dot product for each vector and line.

use crate::simd::{
    stored::Stored,
    vector::{Square, Vector},
};

/// Dot products of a few dense vectors with the dense lines of a matrix.
pub struct Dots<T> {
    /// The number of lines.
    pub n: usize,
    /// The number of terms.
    pub k: usize,
    /// The vectors.
    pub x: *const T,
    /// The distance of two vectors.
    pub x_rows: isize,
    /// The matrix. Some kernels read elements of another type than `T`; strides count these.
    pub w: *const T,
    /// The distance of two of its lines.
    pub line: isize,
    /// The first result.
    pub out: *mut T,
    /// The distance of the results of two vectors.
    pub out_rows: isize,
    /// The distance of two results.
    pub step: isize,
    /// Factor of the sums.
    pub scale: T,
    /// Whether they are added to the results' contents.
    pub add: bool,
}

/// The kernel for a number of vectors.
///
/// # Safety
/// As [`dots`].
pub type DotKernel<T> = unsafe fn(&Dots<T>);

/// Computes the dot products of `ROWS` vectors, at most as many as lanes. It processes as many lines at once as there
/// are lanes for their sums: additions overlap, and the lanes of all sums are added together.
///
/// # Safety
/// The vectors, lines and results must be valid; the machine must have the instruction set.
#[inline(always)]
pub unsafe fn dots<V: Vector, S: Stored<V>, const ROWS: usize>(d: &Dots<V::Element>) {
    let at_once = V::LANES / ROWS.next_power_of_two();
    let mut first = 0;
    while first < d.n {
        let lines = at_once.min(d.n - first);
        // SAFETY: the caller promises the operands. Where there are fewer lines, the last one stands in.
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
            // Each vector's sums are read back from memory, whatever lanes they are in.
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

/// Returns the sums of the lanes of each vector of a square, in their order.
///
/// # Safety
/// The machine must have the instruction set.
#[inline(always)]
unsafe fn lane_sums<V: Vector>(sums: Square<V>) -> V {
    let mut sums = sums;
    // SAFETY: passed on from the caller. No loop over steps, so that all stay in registers.
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

/// Adds the lanes of vectors `i` and `i + HALF` in pairs: the sums of both take turns in one vector.
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

/// Copies numbers, or adds them to the target's contents.
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
