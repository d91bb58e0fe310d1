//! De-interleaves contiguous lines by phase. The phase of an element is its position modulo the number of phases.
//! Elements of one phase become contiguous, so that an axis with that stride is read by vector loads.

use super::{
    level::{Isa, Level, per_level},
    vector::Vector,
};

/// Lines to de-interleave.
pub struct Split {
    /// The first element of the target.
    pub to: *mut u8,
    /// The distance of neighbouring target lines, in elements.
    pub to_lines: isize,
    /// The distance of neighbouring phases of a target line, in elements.
    pub plane: isize,
    /// The first element of the source.
    pub from: *const u8,
    /// The distance of neighbouring source lines, in elements.
    pub from_lines: isize,
    /// The number of phases.
    pub phases: usize,
    /// The number of elements of a source line.
    pub len: usize,
    /// The number of lines.
    pub count: usize,
}

/// Returns the function for elements of four or eight bytes.
pub fn find(size: usize, isa: Isa) -> unsafe fn(&Split) {
    if size == 4 { of_floats(isa) } else { of_doubles(isa) }
}

/// De-interleaves all lines.
///
/// # Safety
/// All source lines must be valid, the target must have room for the elements of each phase, and the machine must have
/// the instruction set.
#[inline(always)]
unsafe fn run<V: Vector>(split: &Split) {
    for n in 0..split.count as isize {
        let to = split.to.cast::<V::Element>().wrapping_offset(n * split.to_lines);
        let from = split.from.cast::<V::Element>().wrapping_offset(n * split.from_lines);
        // SAFETY: the caller keeps this function's contract.
        unsafe {
            match split.phases {
                2 => pairs::<V>(to, split.plane, from, split.len),
                phases => {
                    for at in 0..split.len {
                        let (phase, place) = (at % phases, at / phases);
                        to.offset(phase as isize * split.plane).add(place).write(from.add(at).read());
                    }
                }
            }
        }
    }
}

/// De-interleaves one line with two phases.
///
/// # Safety
/// As [`run`], for this line.
#[inline(always)]
unsafe fn pairs<V: Vector>(to: *mut V::Element, plane: isize, from: *const V::Element, len: usize) {
    let mut at = 0;
    // SAFETY: the caller keeps this function's contract; partial vectors access only the remaining elements.
    unsafe {
        while at + 2 * V::LANES <= len {
            let from = from.add(at);
            let (first, second) = deinterleave(V::load(from), V::load(from.add(V::LANES)));
            let to = to.add(at / 2);
            first.store(to);
            second.store(to.offset(plane));
            at += 2 * V::LANES;
        }
        let left = len - at;
        if left == 0 {
            return;
        }
        let (from, to) = (from.add(at), to.add(at / 2));
        let (lower, upper) = (left.min(V::LANES), left.saturating_sub(V::LANES));
        let upper = if upper == 0 { V::zero() } else { V::load_part(from.add(V::LANES), upper) };
        let (first, second) = deinterleave(V::load_part(from, lower), upper);
        first.store_part(to, left.div_ceil(2));
        if left > 1 {
            second.store_part(to.offset(plane), left / 2);
        }
    }
}

/// Returns the even-numbered and the odd-numbered elements of two vectors: the inverse of [`Vector::zip`]. `zip` is a
/// perfect shuffle, and n shuffles restore the order of 2ⁿ elements. So all shuffles but one are its inverse.
///
/// # Safety
/// The machine must have the instruction set.
#[inline(always)]
unsafe fn deinterleave<V: Vector>(a: V, b: V) -> (V, V) {
    let (mut a, mut b) = (a, b);
    for _ in 0..V::LANES.trailing_zeros() {
        // SAFETY: the caller keeps this function's contract.
        (a, b) = unsafe { a.zip(b) };
    }
    (a, b)
}

/// De-interleaves lines of elements of four bytes.
///
/// # Safety
/// As [`run`].
#[inline(always)]
unsafe fn floats<L: Level>(split: &Split) {
    // SAFETY: the caller keeps this function's contract.
    unsafe { run::<L::Floats>(split) }
}

/// De-interleaves lines of elements of eight bytes.
///
/// # Safety
/// As [`run`].
#[inline(always)]
unsafe fn doubles<L: Level>(split: &Split) {
    // SAFETY: the caller keeps this function's contract.
    unsafe { run::<L::Doubles>(split) }
}

per_level! {
    /// Returns the function for elements of four bytes.
    of_floats<>(split: &Split) = floats
}
per_level! {
    /// Returns the function for elements of eight bytes.
    of_doubles<>(split: &Split) = doubles
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Copy + PartialEq + std::fmt::Debug>(of: impl Fn(usize) -> T) {
        let levels = [Isa::Portable, Isa::Avx2, Isa::Avx512].into_iter().filter(|&isa| isa <= Isa::detect());
        let lens = [1_usize, 2, 3, 15, 16, 17, 31, 32, 33, 47, 64, 113];
        let phases = [1_usize, 2, 3];
        for (isa, len, phases) in levels.flat_map(|isa| lens.map(|len| phases.map(|p| (isa, len, p)))).flatten() {
            let (count, plane, apart) = (3, len.div_ceil(phases) + 1, len + 2);
            let from: Vec<T> = (0..count * apart).map(&of).collect();
            let mut to = vec![of(9999); count * phases * plane];
            let split = Split {
                to: to.as_mut_ptr().cast(),
                to_lines: (phases * plane) as isize,
                plane: plane as isize,
                from: from.as_ptr().cast(),
                from_lines: apart as isize,
                phases,
                len,
                count,
            };
            // SAFETY: both buffers have room for the lines, and the machine has the level.
            unsafe { find(size_of::<T>(), isa)(&split) };
            for (at, &got) in to.iter().enumerate() {
                let (line, phase, place) = (at / plane / phases, at / plane % phases, at % plane);
                let element = place * phases + phase;
                let want = if element < len { from[line * apart + element] } else { of(9999) };
                assert_eq!(got, want, "{element} of line {line} of {len}, {phases} phases, {isa:?}");
            }
        }
    }

    #[test]
    fn phases_of_lines_are_put_side_by_side_and_nothing_else_is_written() {
        check(|i| i as f32);
        check(|i| i as f64);
    }
}
