//! Loads of vectors from elements in memory, which have the vector's element type, or a narrower type that the load
//! widens.

use std::mem::MaybeUninit;

use half::{bf16, f16};

use super::vector::{Lanes, Vector};

/// An element type in memory from which vectors can be loaded.
///
/// # Safety of its functions
/// As the functions of [`Vector`].
#[allow(clippy::missing_safety_doc)]
pub trait Stored<V: Vector>: Copy {
    /// Loads `LANES` elements.
    unsafe fn load(at: *const Self) -> V;

    /// Loads `n` elements into the first lanes, and zeros into the others. No further elements are read.
    #[inline(always)]
    unsafe fn load_part(at: *const Self, n: usize) -> V {
        let mut lanes = [MaybeUninit::<Self>::zeroed(); 16];
        // SAFETY: the caller promises the elements. Vectors have at most 16 lanes, and zero bytes are valid for each
        // type.
        unsafe {
            lanes.as_mut_ptr().cast::<Self>().copy_from_nonoverlapping(at, n.min(V::LANES));
            Self::load(lanes.as_ptr().cast())
        }
    }
}

macro_rules! as_they_are {
    ($($t:ty),*) => {$(
        impl<V: Vector<Element = $t>> Stored<V> for $t {
            #[inline(always)]
            unsafe fn load(at: *const $t) -> V {
                // SAFETY: the caller keeps this function's contract.
                unsafe { V::load(at) }
            }
            #[inline(always)]
            unsafe fn load_part(at: *const $t, n: usize) -> V {
                // SAFETY: the caller keeps this function's contract.
                unsafe { V::load_part(at, n) }
            }
        }
    )*};
}
as_they_are!(f32, f64);

macro_rules! widened_one_by_one {
    ($($t:ty),*) => {$(
        impl<const N: usize> Stored<Lanes<f32, N>> for $t {
            #[inline(always)]
            unsafe fn load(at: *const $t) -> Lanes<f32, N> {
                let mut lanes = [0.0; N];
                // SAFETY: the caller promises the elements.
                lanes.iter_mut().enumerate().for_each(|(i, x)| *x = f32::from(unsafe { at.add(i).read_unaligned() }));
                // SAFETY: the array has `N` elements.
                unsafe { Lanes::load(lanes.as_ptr()) }
            }
        }
    )*};
}
widened_one_by_one!(f16, bf16, i8, u8);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use half::{bf16, f16};

    use super::Stored;

    macro_rules! widened {
        ($($t:ty => $v:ty: $at:ident $widened:expr;)*) => {$(
            impl Stored<$v> for $t {
                #[inline(always)]
                unsafe fn load($at: *const $t) -> $v {
                    let $at = $at.cast();
                    // SAFETY: the caller promises the elements and the instruction set.
                    unsafe { $widened }
                }
            }
        )*};
    }
    // A bf16 is the upper half of an f32, so a shift converts it.
    widened! {
        f16 => __m512: at _mm512_cvtph_ps(_mm256_loadu_si256(at));
        f16 => __m256: at _mm256_cvtph_ps(_mm_loadu_si128(at));
        bf16 => __m512: at _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(at))));
        bf16 => __m256: at _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(at))));
        i8 => __m512: at _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(at)));
        i8 => __m256: at _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(at)));
        u8 => __m512: at _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(at)));
        u8 => __m256: at _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(at)));
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use std::arch::x86_64::{__m256, __m512};

    use half::{bf16, f16};

    use super::*;
    use crate::simd::Isa;

    /// Checks that every bit pattern of up to 16 bits is widened correctly.
    #[inline(always)]
    unsafe fn exercise<V: Vector<Element = f32>, S: Stored<V>>(of_bits: fn(u16) -> S, widen: fn(S) -> f32) {
        let numbers: Vec<S> = (0..=u16::MAX).map(of_bits).collect();
        for chunk in numbers.chunks(V::LANES) {
            let mut got = [0.0_f32; 16];
            // SAFETY: the caller checked for the instruction set; a chunk has as many elements as a vector.
            unsafe { S::load(chunk.as_ptr()).store(got.as_mut_ptr()) };
            for (&x, got) in chunk.iter().zip(got) {
                let want = widen(x);
                assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{got:e} for {want:e}");
            }
        }
    }

    #[test]
    fn every_number_of_a_shorter_type_is_widened() {
        #[target_feature(enable = "avx2,fma,f16c")]
        unsafe fn avx2() {
            // SAFETY: the caller has checked that the machine has the instruction set.
            unsafe {
                exercise::<__m256, f16>(f16::from_bits, f16::to_f32);
                exercise::<__m256, bf16>(bf16::from_bits, bf16::to_f32);
                exercise::<__m256, i8>(|bits| bits as i8, f32::from);
                exercise::<__m256, u8>(|bits| bits as u8, f32::from);
            }
        }
        #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma,f16c")]
        unsafe fn avx512() {
            // SAFETY: the caller has checked that the machine has the instruction set.
            unsafe {
                exercise::<__m512, f16>(f16::from_bits, f16::to_f32);
                exercise::<__m512, bf16>(bf16::from_bits, bf16::to_f32);
                exercise::<__m512, i8>(|bits| bits as i8, f32::from);
                exercise::<__m512, u8>(|bits| bits as u8, f32::from);
            }
        }
        // SAFETY: each function is called only if the machine has its instruction set.
        unsafe {
            if Isa::detect() >= Isa::Avx2 {
                avx2();
            }
            if Isa::detect() >= Isa::Avx512 {
                avx512();
            }
        }
    }
}
