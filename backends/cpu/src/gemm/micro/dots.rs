//! A matrix whose lines are dense times a vector: a dot product for each line.

use crate::simd::vector::Vector;

/// Sums of products of a dense vector with the dense lines of a matrix.
pub struct Dots<T> {
    /// How many.
    pub n: usize,
    /// Number of terms.
    pub k: usize,
    /// The vector.
    pub x: *const T,
    /// The matrix.
    pub w: *const T,
    /// From a line of it to the next.
    pub line: isize,
    /// The first result.
    pub out: *mut T,
    /// From a result to the next.
    pub step: isize,
    /// Factor of the sums.
    pub scale: T,
    /// Whether they are added to what the results hold.
    pub add: bool,
}

/// Eight lines at a time, so that additions overlap.
///
/// # Safety
/// The lines and results must be valid; the machine must have the instruction set.
#[inline(always)]
pub unsafe fn dots<V: Vector>(d: &Dots<V::Element>) {
    const LINES: usize = 8;
    let mut first = 0;
    while first < d.n {
        let lines = LINES.min(d.n - first);
        // SAFETY: the caller promises the operands. Where there are fewer lines, the last one stands in.
        unsafe {
            let mut w = [d.w; LINES];
            for (i, w) in w.iter_mut().enumerate() {
                *w = d.w.wrapping_offset((first + i.min(lines - 1)) as isize * d.line);
            }
            let mut sums = [V::zero(); LINES];
            let mut l = 0;
            while l + V::LANES <= d.k {
                let x = V::load(d.x.add(l));
                for (sum, w) in sums.iter_mut().zip(w) {
                    *sum = x.mul_add(V::load(w.add(l)), *sum);
                }
                l += V::LANES;
            }
            if l < d.k {
                let x = V::load_part(d.x.add(l), d.k - l);
                for (sum, w) in sums.iter_mut().zip(w) {
                    *sum = x.mul_add(V::load_part(w.add(l), d.k - l), *sum);
                }
            }
            for (i, sum) in sums.into_iter().enumerate().take(lines) {
                let to = d.out.wrapping_offset((first + i) as isize * d.step);
                // One lane's worth, for arithmetic on an element.
                let sum = V::splat(sum.sum()).mul(V::splat(d.scale));
                (if d.add { V::load_part(to, 1).add(sum) } else { sum }).store_part(to, 1);
            }
        }
        first += lines;
    }
}
