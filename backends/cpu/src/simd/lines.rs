//! Copies many short contiguous lines with vector loads and stores. A `memcpy` call per line would take longer than the
//! copy.

use super::{
    level::{Level, per_level},
    vector::Vector,
};

/// A copy of lines. Each line is contiguous in the source and in the target, at fixed distances.
pub struct LineCopy {
    /// The first element of the target.
    pub to: *mut f32,
    /// The distance of neighbouring target lines, in elements.
    pub to_lines: isize,
    /// The first element of the source.
    pub from: *const f32,
    /// The distance of neighbouring source lines, in elements.
    pub from_lines: isize,
    /// The number of elements of a line.
    pub len: usize,
    /// The number of lines.
    pub count: usize,
}

/// Copies lines with vectors of a level.
///
/// # Safety
/// All lines must be valid, and the machine must have the instruction set.
#[inline(always)]
unsafe fn run<L: Level>(call: &LineCopy) {
    let lanes = <L::Floats as Vector>::LANES;
    for n in 0..call.count as isize {
        let (to, from) = (call.to.wrapping_offset(n * call.to_lines), call.from.wrapping_offset(n * call.from_lines));
        // SAFETY: the caller keeps this function's contract. The last vector of a line overlaps the vector before, or
        // is partial if the line is shorter than a vector.
        unsafe {
            if call.len < lanes {
                L::Floats::load_part(from, call.len).store_part(to, call.len);
                continue;
            }
            let last = call.len - lanes;
            let mut at = 0;
            while at < last {
                L::Floats::load(from.add(at)).store(to.add(at));
                at += lanes;
            }
            L::Floats::load(from.add(last)).store(to.add(last));
        }
    }
}

per_level! {
    /// Returns the function that copies lines of elements of four bytes.
    copy<>(call: &LineCopy) = run
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Isa;

    #[test]
    fn lines_are_copied_and_nothing_else() {
        let source: Vec<f32> = (0..1000).map(|i| i as f32).collect();
        for isa in [Isa::Portable, Isa::Avx2, Isa::Avx512].into_iter().filter(|&isa| isa <= Isa::detect()) {
            for len in [0, 1, 3, 8, 15, 16, 17, 31, 32, 40] {
                let mut target = vec![-1.0; 500];
                let (to, from) = (target.as_mut_ptr(), source.as_ptr());
                let call = LineCopy { to, to_lines: 45, from, from_lines: 60, len, count: 10 };
                // SAFETY: both have room for the lines.
                unsafe { copy(isa)(&call) };
                for (at, &got) in target.iter().enumerate() {
                    let (line, element) = (at / 45, at % 45);
                    let want = if line < 10 && element < len { (line * 60 + element) as f32 } else { -1.0 };
                    assert_eq!(got, want, "element {element} of line {line} of {len}");
                }
            }
        }
    }
}
