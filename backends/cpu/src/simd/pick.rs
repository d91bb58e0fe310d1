//! Elements of four bytes that lie where integers of 32 bits say: what is compared and read in one pass takes half the time of two.

use super::Isa;

/// A line of elements to pick.
#[derive(Clone, Copy)]
pub struct Pick {
    /// The first element of the line.
    pub to: *mut u32,
    /// What is picked from.
    pub from: *const u32,
    /// How many elements that has, at most `i32::MAX`.
    pub count: u32,
    /// What each integer counts from.
    pub base: u32,
    /// For each element, where it lies.
    pub ids: *const i32,
    /// Elements of the line.
    pub len: usize,
}

/// Picks a line, and returns whether all of it lies in what is picked from; where it does not, the line is unfinished.
///
/// # Safety
/// The line and its integers must be valid, the machine must have the instruction set, and the base must be at most the count.
pub type PickFn = unsafe fn(&Pick) -> bool;

/// The function for a level.
pub fn pick(isa: Isa) -> PickFn {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512,
        // The gathers of AVX2 are no faster than reads one by one.
        _ => one_by_one,
    }
}

unsafe fn one_by_one(pick: &Pick) -> bool {
    // SAFETY: passed on from the caller.
    let ids = unsafe { std::slice::from_raw_parts(pick.ids, pick.len) };
    let place = |id: i32| pick.base.wrapping_add(id as u32);
    // Without an end in between, which vectors cannot have.
    if !ids.iter().fold(true, |all, &id| all & (place(id) < pick.count)) {
        return false;
    }
    for (j, &id) in ids.iter().enumerate() {
        // SAFETY: the place was compared with the count, and the line has room.
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
        // SAFETY: lanes beyond the line are masked, and each place is compared with the count before it is read.
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
}
