//! Gathers elements of four bytes by 32-bit indices. A single pass checks indices and reads elements, in half the time
//! of two passes. If the indices of a vector are close, as in the rows of an enlarged image, all elements between them
//! are loaded and permuted.

use super::Isa;

/// The arguments of a gather.
#[derive(Clone, Copy)]
pub struct Pick {
    /// The first element of the target.
    pub to: *mut u32,
    /// The source elements.
    pub from: *const u32,
    /// The number of source elements, at most `i32::MAX`.
    pub count: u32,
    /// The number that is added to each index.
    pub base: u32,
    /// The index of each target element.
    pub ids: *const i32,
    /// The number of target elements.
    pub len: usize,
}

/// A function that gathers elements. It returns whether all indices are in range; if not, the target is incomplete.
///
/// # Safety
/// The pointers must be valid, the machine must have the instruction set, and `base` must be at most `count`.
pub type PickFn = unsafe fn(&Pick) -> bool;

/// Returns the function for a level.
pub fn pick(isa: Isa) -> PickFn {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512,
        // The gather instructions of AVX2 are no faster than single loads.
        _ => one_by_one,
    }
}

unsafe fn one_by_one(pick: &Pick) -> bool {
    // SAFETY: the caller keeps this function's contract.
    let ids = unsafe { std::slice::from_raw_parts(pick.ids, pick.len) };
    let place = |id: i32| pick.base.wrapping_add(id as u32);
    // The check does not stop at the first index out of range, so that the compiler vectorises it.
    if !ids.iter().fold(true, |all, &id| all & (place(id) < pick.count)) {
        return false;
    }
    for (j, &id) in ids.iter().enumerate() {
        // SAFETY: the index was compared with the count, and the target has `len` elements.
        unsafe { pick.to.add(j).write(pick.from.add(place(id) as usize).read()) };
    }
    true
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq")]
unsafe fn avx512(pick: &Pick) -> bool {
    use std::arch::x86_64::*;
    let (base, count) = (_mm512_set1_epi32(pick.base as i32), _mm512_set1_epi32(pick.count as i32));
    for at in (0..pick.len).step_by(16) {
        let lanes: __mmask16 = if pick.len - at < 16 { (1 << (pick.len - at)) - 1 } else { !0 };
        // SAFETY: lanes beyond the target are masked, and each index is compared with the count before its element is
        // read.
        unsafe {
            let places = _mm512_add_epi32(_mm512_maskz_loadu_epi32(lanes, pick.ids.add(at)), base);
            if _mm512_mask_cmplt_epu32_mask(lanes, places, count) != lanes {
                return false;
            }
            let picked = _mm512_mask_i32gather_epi32::<4>(_mm512_setzero_si512(), lanes, places, pick.from.cast());
            _mm512_mask_storeu_epi32(pick.to.add(at).cast(), lanes, picked);
        }
    }
    true
}

/// The number of elements of a register, and so of a window.
pub const LANES: usize = 16;

/// Up to [`LANES`] consecutive elements of a target line, whose source elements are close to each other.
#[derive(Clone, Copy, Default)]
pub struct Window {
    /// The least offset of a source element, from the start of the source line.
    pub first: isize,
    /// The offset of each source element from `first`.
    pub ids: [i32; LANES],
    /// The greatest of `ids`.
    pub last: i32,
}

/// The functions that gather a line in windows.
#[derive(Clone, Copy, Debug)]
pub struct Permute {
    /// Divides the offsets of source elements, from the start of the source line, into windows. Returns whether the
    /// source elements of each window fit into two registers. Offsets of one window must differ by less than 2³¹.
    ///
    /// # Safety
    /// The machine must have the instruction set.
    pub divide: unsafe fn(&[i64], &mut [Window]) -> bool,
    /// Gathers a line, given the target, the start of the source line, the windows, and the number of elements.
    ///
    /// # Safety
    /// The source elements and the target must be valid. The windows must cover the target and fit into two registers
    /// each. The machine must have the instruction set.
    pub read: unsafe fn(*mut u32, *const u32, &[Window], usize),
}

/// Returns the permutation functions of a level; `None` if it has none.
pub fn permute(isa: Isa) -> Option<Permute> {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => Some(Permute { divide: divide_avx512, read: permute_avx512 }),
        _ => None,
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq")]
fn divide_avx512(places: &[i64], windows: &mut [Window]) -> bool {
    let mut all = true;
    for (window, places) in windows.iter_mut().zip(places.chunks(LANES)) {
        // Lanes beyond the end of the line repeat the first offset of the window.
        let mut at = [places[0]; LANES];
        at[..places.len()].copy_from_slice(places);
        let least = at.iter().fold(i64::MAX, |least, &at| least.min(at));
        window.first = least as isize;
        window.ids.iter_mut().zip(at).for_each(|(id, at)| *id = at.wrapping_sub(least) as i32);
        window.last = window.ids.iter().fold(0, |last, &id| last.max(id));
        all &= (window.last as usize) < 2 * LANES;
    }
    all
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq")]
unsafe fn permute_avx512(to: *mut u32, line: *const u32, windows: &[Window], len: usize) {
    use std::arch::x86_64::*;
    let first_lanes = |n: usize| if n >= LANES { !0 } else { (1 << n) - 1 };
    for (n, window) in windows.iter().enumerate() {
        let (at, span) = (n * LANES, window.last as usize + 1);
        // SAFETY: lanes beyond the target, and beyond the last source element of the window, are masked.
        unsafe {
            let from = line.wrapping_offset(window.first);
            let low = _mm512_maskz_loadu_epi32(first_lanes(span), from.cast());
            let high = first_lanes(span.saturating_sub(LANES));
            let high = _mm512_maskz_loadu_epi32(high, from.wrapping_add(LANES).cast());
            let ids = _mm512_loadu_si512(window.ids.as_ptr().cast());
            let permuted = _mm512_permutex2var_epi32(low, ids, high);
            _mm512_mask_storeu_epi32(to.add(at).cast(), first_lanes(len - at), permuted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_within_is_picked_and_nothing_else() {
        let from: Vec<u32> = (0..100).map(|i| 1000 + i).collect();
        for isa in [Isa::Portable, Isa::Avx2, Isa::Avx512].into_iter().filter(|&isa| isa <= Isa::detect()) {
            for (len, base) in [0, 1, 15, 16, 17, 33].into_iter().flat_map(|len| [(len, 0_u32), (len, 40)]) {
                let ids: Vec<i32> = (0..len as i32).map(|i| (i * 37) % 60 - base as i32 / 2).collect();
                let mut to = vec![7; len + 1];
                let call = |ids: &[i32], to: &mut [u32]| {
                    let (from, count) = (from.as_ptr(), from.len() as u32);
                    // SAFETY: both have room for the line.
                    unsafe { pick(isa)(&Pick { to: to.as_mut_ptr(), from, count, base, ids: ids.as_ptr(), len }) }
                };
                let within = ids.iter().all(|id| id + base as i32 >= 0);
                assert_eq!(call(&ids, &mut to), within, "{len} from {base} on {}", isa.name());
                if within {
                    let want: Vec<u32> = ids.iter().map(|id| (1000 + id + base as i32) as u32).chain([7]).collect();
                    assert_eq!(to, want);
                }
                for wrong in [100 - base as i32, -1 - base as i32, i32::MAX, i32::MIN] {
                    for at in 0..len {
                        let mut ids: Vec<i32> = vec![0; len];
                        ids[at] = wrong;
                        assert!(!call(&ids, &mut to), "{wrong} at {at} of {len} from {base}");
                    }
                }
            }
        }
    }

    #[test]
    fn windows_of_any_span_are_read_where_they_are() {
        let Some(Permute { divide, read }) = permute(Isa::detect()) else { return };
        for span in [1, 2, 15, 16, 17, 31, 32, 33, 100] {
            let from: Vec<u32> = (0..span as u32 + 5).map(|i| 1000 + i).collect();
            for len in [1, 15, 16, 17, 40] {
                let place = |j: usize| 5 + (if j.is_multiple_of(LANES) { span - 1 } else { (j * 7) % span }) as i64;
                let places: Vec<i64> = (0..len).map(place).collect();
                let spread = |at: &[i64]| at.iter().max().unwrap() - at.iter().min().unwrap();
                let near = places.chunks(LANES).all(|at| spread(at) < 2 * LANES as i64);
                let (mut windows, mut to) = (vec![Window::default(); len.div_ceil(LANES)], vec![7; len + 1]);
                // SAFETY: all positions are within `from`, and the target has room.
                unsafe {
                    assert_eq!(divide(&places, &mut windows), near, "{len} of a span of {span}");
                    if !near {
                        continue;
                    }
                    read(to.as_mut_ptr(), from.as_ptr(), &windows, len);
                }
                let want: Vec<u32> = places.iter().map(|&at| 1000 + at as u32).chain([7]).collect();
                assert_eq!(to, want, "{len} of a span of {span}");
            }
        }
    }
}
