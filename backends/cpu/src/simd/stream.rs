//! Prefetches of cache lines, and copies with streaming stores, which write cache lines without reading them first.
//! Under Miri, which lacks streaming stores, copies are plain.

use super::level::Isa;

/// Bytes of a cache line.
pub const LINE: usize = 64;

/// Prefetches the cache line of an address. The address need not be valid.
#[inline(always)]
pub fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction, which never faults.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// A function that copies bytes between ranges that do not overlap, given the target, the source and the number of
/// bytes.
///
/// # Safety
/// The target must be valid for writing this number of bytes, and the source for reading as many. The machine must have
/// the level that was given to [`copy`].
pub type Copy = unsafe fn(*mut u8, *const u8, usize);

/// Returns a function that copies with streaming stores, or with normal stores on machines other than x86-64. Call
/// [`fence`] before another thread reads the target.
pub fn copy(isa: Isa) -> Copy {
    /// Copies whole cache lines of the target with `line`, and the rest with normal stores: a streaming store to a part
    /// of a line would need a read of the line.
    ///
    /// # Safety
    /// As [`Copy`].
    #[inline(always)]
    unsafe fn lines(to: *mut u8, from: *const u8, bytes: usize, line: impl Fn(*mut u8, *const u8)) {
        let head = to.align_offset(LINE).min(bytes);
        let tail = bytes - (bytes - head) % LINE;
        // SAFETY: the three parts together are the range that the caller guarantees.
        unsafe {
            if head > 0 {
                to.copy_from_nonoverlapping(from, head);
            }
            (head..tail).step_by(LINE).for_each(|at| line(to.add(at), from.add(at)));
            if tail < bytes {
                to.add(tail).copy_from_nonoverlapping(from.add(tail), bytes - tail);
            }
        }
    }
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::*;
        #[target_feature(enable = "avx512f")]
        unsafe fn avx512(to: *mut u8, from: *const u8, bytes: usize) {
            // SAFETY: the caller keeps this function's contract; `lines` gives valid, aligned targets.
            unsafe {
                lines(to, from, bytes, |to, from| _mm512_stream_si512(to.cast(), _mm512_loadu_si512(from.cast())))
            }
        }
        unsafe fn sse2(to: *mut u8, from: *const u8, bytes: usize) {
            // SAFETY: `lines` gives valid, aligned targets, and every x86-64 processor has the instructions.
            unsafe {
                lines(to, from, bytes, |to, from| {
                    let (to, from) = (to.cast::<__m128i>(), from.cast::<__m128i>());
                    let parts = [0, 1, 2, 3].map(|i| _mm_loadu_si128(from.add(i)));
                    parts.into_iter().enumerate().for_each(|(i, part)| _mm_stream_si128(to.add(i), part));
                })
            }
        }
        if isa >= Isa::Avx512 { avx512 } else { sse2 }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        unsafe fn plain(to: *mut u8, from: *const u8, bytes: usize) {
            // SAFETY: the caller keeps this function's contract.
            unsafe { to.copy_from_nonoverlapping(from, bytes) }
        }
        let _ = isa;
        plain
    }
}

/// Orders streaming stores before later stores.
pub fn fence() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 processor has the instruction.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_every_size_and_offset_write_no_more_than_their_bytes() {
        let levels = [Isa::Portable, Isa::Avx2, Isa::Avx512].into_iter().filter(|&isa| isa <= Isa::detect());
        let from: Vec<u8> = (0..512).map(|i| (i % 251) as u8 + 1).collect();
        for (isa, offset) in levels.flat_map(|isa| [0, 1, 4, 16, 60, 63].map(|offset| (isa, offset))) {
            for bytes in [0, 1, 15, 63, 64, 65, 130, 300] {
                let mut to = vec![0_u8; 512];
                // SAFETY: both ranges have more bytes; the machine has the level.
                unsafe { copy(isa)(to.as_mut_ptr().add(offset), from.as_ptr(), bytes) };
                fence();
                assert_eq!(to[offset..offset + bytes], from[..bytes], "{bytes} bytes at {offset}, {isa:?}");
                let mut rest = to[..offset].iter().chain(&to[offset + bytes..]);
                assert!(rest.all(|&b| b == 0), "{bytes} bytes at {offset}, {isa:?}");
            }
        }
    }
}
