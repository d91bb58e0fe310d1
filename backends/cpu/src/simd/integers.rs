//! Dot products of bytes with 32-bit sums. Each 32-bit word of a vector has four 8-bit weights of one column.

use super::{
    codes::{CodeTable, CodeVector, TABLE, WORD},
    vector::Lanes,
};

/// A vector of 32-bit lanes. A lane is a word of four weights, or a sum.
///
/// # Safety of its functions
/// The machine must have the instruction set. Loads read 32 bits for each lane.
#[allow(clippy::missing_safety_doc)]
pub trait WordVector: Copy {
    /// The vector of floats with the same number of lanes.
    type Floats: CodeVector;
    /// A table of 8-bit integers in registers.
    type Table: Copy;
    /// The number that is added to each weight in the form that [`WordVector::dot`] takes. Callers subtract its effect
    /// from the sums.
    const EXCESS: i32;
    /// The least byte `x` that [`WordVector::dot`] multiplies exactly.
    const LEAST: i8;
    /// Loads a vector.
    unsafe fn load(at: *const u8) -> Self;
    /// Returns a vector with a number in each lane.
    unsafe fn splat(x: i32) -> Self;
    /// Loads the integers of a table into registers.
    unsafe fn table(table: &CodeTable) -> Self::Table;
    /// Converts signed weights to the form that [`WordVector::dot`] takes.
    unsafe fn bytes(self) -> Self;
    /// Looks up the weights for the lower four bits of each byte, and for the upper four bits, in the form that
    /// [`WordVector::dot`] takes.
    unsafe fn nibbles(self, table: Self::Table) -> [Self; 2];
    /// Adds to each sum the products of the four weights of its lane with the four signed bytes of `x`.
    unsafe fn dot(self, weights: Self, x: i32) -> Self;
    /// Converts sums to floats.
    unsafe fn floats(self) -> Self::Floats;
}

/// The vector of the portable level. A lane has the four bytes of a word or of a sum.
#[derive(Clone, Copy)]
pub struct Words<const N: usize>([[i8; WORD]; N]);

impl<const N: usize> Words<N> {
    fn sums(self) -> [i32; N] {
        self.0.map(|bytes| i32::from_le_bytes(bytes.map(i8::cast_unsigned)))
    }

    fn of(sums: [i32; N]) -> Words<N> {
        Words(sums.map(|sum| sum.to_le_bytes().map(u8::cast_signed)))
    }
}

macro_rules! portable {
    ($($n:literal),*) => {$(
        impl WordVector for Words<$n> {
            type Floats = Lanes<f32, $n>;
            type Table = [i8; TABLE];
            const EXCESS: i32 = 0;
            const LEAST: i8 = i8::MIN;
            #[inline(always)]
            unsafe fn load(at: *const u8) -> Self {
                // SAFETY: the caller promises the bytes.
                Words(unsafe { at.cast::<[[i8; WORD]; $n]>().read() })
            }
            #[inline(always)]
            unsafe fn splat(x: i32) -> Self {
                Words::of([x; $n])
            }
            #[inline(always)]
            unsafe fn table(table: &CodeTable) -> [i8; TABLE] {
                table.integers
            }
            #[inline(always)]
            unsafe fn bytes(self) -> Self {
                self
            }
            #[inline(always)]
            unsafe fn nibbles(self, table: [i8; TABLE]) -> [Self; 2] {
                let look_up = |from: u32| {
                    Words(self.0.map(|word| word.map(|b| table[usize::from(b.cast_unsigned() >> from & 15)])))
                };
                [look_up(0), look_up(4)]
            }
            #[inline(always)]
            unsafe fn dot(self, weights: Self, x: i32) -> Self {
                let (mut sums, x) = (self.sums(), x.to_le_bytes().map(u8::cast_signed));
                for (sum, weights) in sums.iter_mut().zip(weights.0) {
                    let products = weights.into_iter().zip(x).map(|(w, x)| i32::from(w) * i32::from(x));
                    *sum += products.sum::<i32>();
                }
                Words::of(sums)
            }
            #[inline(always)]
            unsafe fn floats(self) -> Lanes<f32, $n> {
                Lanes(self.sums().map(|sum| sum as f32))
            }
        }
    )*};
}
portable!(4);

#[cfg(target_arch = "x86_64")]
pub use x86::{Vnni, Words256};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{CodeTable, WordVector};

    /// The vector of AVX2. Its instruction multiplies unsigned bytes with signed ones, and adds two products in 16
    /// bits. The unsigned bytes are the magnitudes of weights, at most 128, so the sums of two products do not
    /// overflow.
    #[derive(Clone, Copy)]
    pub struct Words256(__m256i);

    impl WordVector for Words256 {
        type Floats = __m256;
        type Table = __m256i;
        const EXCESS: i32 = 0;
        const LEAST: i8 = -127;
        #[inline(always)]
        unsafe fn load(at: *const u8) -> Self {
            // SAFETY: the caller promises the bytes and the instruction set.
            Words256(unsafe { _mm256_loadu_si256(at.cast()) })
        }
        #[inline(always)]
        unsafe fn splat(x: i32) -> Self {
            // SAFETY: the caller promises the instruction set.
            Words256(unsafe { _mm256_set1_epi32(x) })
        }
        #[inline(always)]
        unsafe fn table(table: &CodeTable) -> __m256i {
            // SAFETY: the caller promises the instruction set.
            unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(table.integers.as_ptr().cast())) }
        }
        #[inline(always)]
        unsafe fn bytes(self) -> Self {
            self
        }
        #[inline(always)]
        unsafe fn nibbles(self, table: __m256i) -> [Self; 2] {
            // SAFETY: the caller promises the instruction set. Shifts of 16 bits move bits of the
            // next byte in; the mask removes them.
            unsafe {
                let low = _mm256_set1_epi8(15);
                let upper = _mm256_and_si256(_mm256_srli_epi16::<4>(self.0), low);
                [_mm256_and_si256(self.0, low), upper].map(|codes| Words256(_mm256_shuffle_epi8(table, codes)))
            }
        }
        #[inline(always)]
        unsafe fn dot(self, weights: Self, x: i32) -> Self {
            // SAFETY: the caller promises the instruction set.
            unsafe {
                let signed = _mm256_sign_epi8(_mm256_set1_epi32(x), weights.0);
                let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(weights.0), signed);
                Words256(_mm256_add_epi32(self.0, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))))
            }
        }
        #[inline(always)]
        unsafe fn floats(self) -> __m256 {
            // SAFETY: the caller promises the instruction set.
            unsafe { _mm256_cvtepi32_ps(self.0) }
        }
    }

    /// The vector of AVX-512 with VNNI. Its instruction multiplies unsigned bytes with signed ones, so 128 is added to
    /// each weight.
    #[derive(Clone, Copy)]
    pub struct Vnni(__m512i);

    /// Flips the highest bit of each byte, which adds 128 to a signed byte.
    ///
    /// # Safety
    /// The machine must have AVX-512.
    #[inline(always)]
    unsafe fn flipped(bytes: __m512i) -> __m512i {
        // SAFETY: the caller keeps this function's contract.
        unsafe { _mm512_xor_si512(bytes, _mm512_set1_epi8(i8::MIN)) }
    }

    impl WordVector for Vnni {
        type Floats = __m512;
        type Table = __m512i;
        const EXCESS: i32 = 128;
        const LEAST: i8 = i8::MIN;
        #[inline(always)]
        unsafe fn load(at: *const u8) -> Self {
            // SAFETY: the caller promises the bytes and the instruction set.
            Vnni(unsafe { _mm512_loadu_si512(at.cast()) })
        }
        #[inline(always)]
        unsafe fn splat(x: i32) -> Self {
            // SAFETY: the caller promises the instruction set.
            Vnni(unsafe { _mm512_set1_epi32(x) })
        }
        #[inline(always)]
        unsafe fn table(table: &CodeTable) -> __m512i {
            // SAFETY: the caller promises the instruction set.
            unsafe { flipped(_mm512_broadcast_i32x4(_mm_loadu_si128(table.integers.as_ptr().cast()))) }
        }
        #[inline(always)]
        unsafe fn bytes(self) -> Self {
            // SAFETY: the caller promises the instruction set.
            Vnni(unsafe { flipped(self.0) })
        }
        #[inline(always)]
        unsafe fn nibbles(self, table: __m512i) -> [Self; 2] {
            // SAFETY: the caller promises the instruction set. Shifts of 16 bits move bits of the
            // next byte in; the mask removes them.
            unsafe {
                let low = _mm512_set1_epi8(15);
                let upper = _mm512_and_si512(_mm512_srli_epi16::<4>(self.0), low);
                [_mm512_and_si512(self.0, low), upper].map(|codes| Vnni(_mm512_shuffle_epi8(table, codes)))
            }
        }
        #[inline(always)]
        unsafe fn dot(self, weights: Self, x: i32) -> Self {
            // SAFETY: the caller promises the instruction set.
            Vnni(unsafe { _mm512_dpbusd_epi32(self.0, weights.0, _mm512_set1_epi32(x)) })
        }
        #[inline(always)]
        unsafe fn floats(self) -> __m512 {
            // SAFETY: the caller promises the instruction set.
            unsafe { _mm512_cvtepi32_ps(self.0) }
        }
    }
}
