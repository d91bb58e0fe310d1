//! Vectors of floats, one register each: what the microkernels of products are written in.

use super::{Baseline, Level};

/// A register's worth of floats.
///
/// # Safety of its functions
/// The machine must have the instruction set; pointers must be valid for the elements that are read or written, at any
/// alignment. Code that uses them must be inlined into a function with the target feature.
#[allow(clippy::missing_safety_doc)]
pub trait Vector: Copy {
    /// What it holds.
    type Element: Copy;
    /// How many.
    const LANES: usize;
    /// Zeros.
    unsafe fn zero() -> Self;
    /// The same number in every lane.
    unsafe fn splat(x: Self::Element) -> Self;
    /// `LANES` elements.
    unsafe fn load(at: *const Self::Element) -> Self;
    /// The first `n` of `LANES` elements, then zeros; the others are not touched.
    unsafe fn load_part(at: *const Self::Element, n: usize) -> Self;
    /// Writes `LANES` elements.
    unsafe fn store(self, at: *mut Self::Element);
    /// Writes the first `n` lanes.
    unsafe fn store_part(self, at: *mut Self::Element, n: usize);
    /// `self`·b + c, fused where that is one instruction.
    unsafe fn mul_add(self, b: Self, c: Self) -> Self;
    /// `self` + b.
    unsafe fn add(self, b: Self) -> Self;
    /// `self`·b.
    unsafe fn mul(self, b: Self) -> Self;
    /// The larger of both; NaN where `self` is.
    unsafe fn at_least(self, b: Self) -> Self;
    /// The lanes of both in turn: the lower halves, then the upper halves.
    unsafe fn zip(self, b: Self) -> (Self, Self);
    /// All lanes together.
    unsafe fn sum(self) -> Self::Element;
    /// Asks for the cache line of an address, which need not be valid.
    #[inline(always)]
    unsafe fn prefetch(_: *const Self::Element) {}
    /// As `prefetch`, into the second-level cache only.
    #[inline(always)]
    unsafe fn prefetch_outer(_: *const Self::Element) {}
}

/// A vector for any machine, which the compiler puts into as many registers as it takes.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Lanes<T, const N: usize>([T; N]);

impl<T, const N: usize> From<[T; N]> for Lanes<T, N> {
    #[inline(always)]
    fn from(lanes: [T; N]) -> Self {
        Lanes(lanes)
    }
}

macro_rules! portable {
    ($($t:ty),*) => {$(
        impl<const N: usize> Vector for Lanes<$t, N> {
            type Element = $t;
            const LANES: usize = N;
            #[inline(always)]
            unsafe fn zero() -> Self {
                Lanes([0.0; N])
            }
            #[inline(always)]
            unsafe fn splat(x: $t) -> Self {
                Lanes([x; N])
            }
            #[inline(always)]
            unsafe fn load(at: *const $t) -> Self {
                // SAFETY: the caller promises the elements.
                Lanes(unsafe { at.cast::<[$t; N]>().read_unaligned() })
            }
            #[inline(always)]
            unsafe fn load_part(at: *const $t, n: usize) -> Self {
                let mut x = [0.0; N];
                // SAFETY: as above.
                (0..n.min(N)).for_each(|i| x[i] = unsafe { at.add(i).read() });
                Lanes(x)
            }
            #[inline(always)]
            unsafe fn store(self, at: *mut $t) {
                // SAFETY: as above.
                unsafe { at.cast::<[$t; N]>().write_unaligned(self.0) }
            }
            #[inline(always)]
            unsafe fn store_part(self, at: *mut $t, n: usize) {
                // SAFETY: as above.
                (0..n.min(N)).for_each(|i| unsafe { at.add(i).write(self.0[i]) });
            }
            #[inline(always)]
            unsafe fn mul_add(self, b: Self, c: Self) -> Self {
                let fused = |i: usize| if Baseline::FMA { self.0[i].mul_add(b.0[i], c.0[i]) } else { self.0[i] * b.0[i] + c.0[i] };
                Lanes(std::array::from_fn(fused))
            }
            #[inline(always)]
            unsafe fn add(self, b: Self) -> Self {
                Lanes(std::array::from_fn(|i| self.0[i] + b.0[i]))
            }
            #[inline(always)]
            unsafe fn mul(self, b: Self) -> Self {
                Lanes(std::array::from_fn(|i| self.0[i] * b.0[i]))
            }
            #[inline(always)]
            unsafe fn at_least(self, b: Self) -> Self {
                Lanes(std::array::from_fn(|i| if self.0[i] < b.0[i] { b.0[i] } else { self.0[i] }))
            }
            #[inline(always)]
            unsafe fn zip(self, b: Self) -> (Self, Self) {
                let at = |i: usize| if i.is_multiple_of(2) { self.0[i / 2] } else { b.0[i / 2] };
                (Lanes(std::array::from_fn(at)), Lanes(std::array::from_fn(|i| at(i + N))))
            }
            #[inline(always)]
            unsafe fn sum(self) -> $t {
                self.0.into_iter().sum()
            }
        }
    )*};
}
portable!(f32, f64);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::Vector;

    /// Minus ones, then zeros: the masks of AVX2 are read from it, at the place that gives the number of lanes.
    const MASKS: [i64; 8] = [-1, -1, -1, -1, 0, 0, 0, 0];

    macro_rules! vector {
        (
            $v:ty, $t:ty, $lanes:literal, $zero:ident $splat:ident $load:ident $store:ident $fma:ident $add:ident $mul:ident $max:ident,
            ($at:ident, $n:ident) $load_part:expr, ($to:ident, $x:ident, $m:ident) $store_part:expr,
            ($a:ident, $b:ident) $zip:expr,
            $s:ident $sum:expr
        ) => {
            impl Vector for $v {
                type Element = $t;
                const LANES: usize = $lanes;
                #[inline(always)]
                unsafe fn zero() -> Self {
                    // SAFETY: the caller promises the instruction set.
                    unsafe { $zero() }
                }
                #[inline(always)]
                unsafe fn splat(x: $t) -> Self {
                    // SAFETY: as above.
                    unsafe { $splat(x) }
                }
                #[inline(always)]
                unsafe fn load(at: *const $t) -> Self {
                    // SAFETY: as above; and the elements.
                    unsafe { $load(at) }
                }
                #[inline(always)]
                unsafe fn load_part($at: *const $t, $n: usize) -> Self {
                    // SAFETY: as above; lanes that are masked out are not read.
                    unsafe { $load_part }
                }
                #[inline(always)]
                unsafe fn store(self, at: *mut $t) {
                    // SAFETY: as above.
                    unsafe { $store(at, self) }
                }
                #[inline(always)]
                unsafe fn store_part(self, $to: *mut $t, $m: usize) {
                    let $x = self;
                    // SAFETY: as above; lanes that are masked out are not written.
                    unsafe { $store_part }
                }
                #[inline(always)]
                unsafe fn mul_add(self, b: Self, c: Self) -> Self {
                    // SAFETY: as above.
                    unsafe { $fma(self, b, c) }
                }
                #[inline(always)]
                unsafe fn add(self, b: Self) -> Self {
                    // SAFETY: as above.
                    unsafe { $add(self, b) }
                }
                #[inline(always)]
                unsafe fn mul(self, b: Self) -> Self {
                    // SAFETY: as above.
                    unsafe { $mul(self, b) }
                }
                #[inline(always)]
                unsafe fn at_least(self, b: Self) -> Self {
                    // SAFETY: as above. The second operand is what comes out where one is NaN.
                    unsafe { $max(b, self) }
                }
                #[inline(always)]
                unsafe fn zip(self, $b: Self) -> (Self, Self) {
                    let $a = self;
                    // SAFETY: as above.
                    unsafe { $zip }
                }
                #[inline(always)]
                unsafe fn sum(self) -> $t {
                    let $s = self;
                    // SAFETY: as above.
                    unsafe { $sum }
                }
                #[inline(always)]
                unsafe fn prefetch(at: *const $t) {
                    // SAFETY: as above.
                    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
                }
                #[inline(always)]
                unsafe fn prefetch_outer(at: *const $t) {
                    // SAFETY: as above.
                    unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) }
                }
            }
        };
    }

    vector!(
        __m512, f32, 16, _mm512_setzero_ps _mm512_set1_ps _mm512_loadu_ps _mm512_storeu_ps _mm512_fmadd_ps _mm512_add_ps _mm512_mul_ps _mm512_max_ps,
        (at, n) _mm512_maskz_loadu_ps(mask(n) as __mmask16, at),
        (to, x, n) _mm512_mask_storeu_ps(to, mask(n) as __mmask16, x),
        (a, b) {
            let low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            let high = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
            (_mm512_permutex2var_ps(a, low, b), _mm512_permutex2var_ps(a, high, b))
        },
        x _mm512_reduce_add_ps(x)
    );
    vector!(
        __m512d, f64, 8, _mm512_setzero_pd _mm512_set1_pd _mm512_loadu_pd _mm512_storeu_pd _mm512_fmadd_pd _mm512_add_pd _mm512_mul_pd _mm512_max_pd,
        (at, n) _mm512_maskz_loadu_pd(mask(n) as __mmask8, at),
        (to, x, n) _mm512_mask_storeu_pd(to, mask(n) as __mmask8, x),
        (a, b) {
            let low = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
            let high = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
            (_mm512_permutex2var_pd(a, low, b), _mm512_permutex2var_pd(a, high, b))
        },
        x _mm512_reduce_add_pd(x)
    );
    vector!(
        __m256, f32, 8, _mm256_setzero_ps _mm256_set1_ps _mm256_loadu_ps _mm256_storeu_ps _mm256_fmadd_ps _mm256_add_ps _mm256_mul_ps _mm256_max_ps,
        (at, n) _mm256_maskload_ps(at, mask_of_words(n)),
        (to, x, n) _mm256_maskstore_ps(to, mask_of_words(n), x),
        (a, b) {
            let (low, high) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
            (_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31))
        },
        x {
            let four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)))
        }
    );
    vector!(
        __m256d, f64, 4, _mm256_setzero_pd _mm256_set1_pd _mm256_loadu_pd _mm256_storeu_pd _mm256_fmadd_pd _mm256_add_pd _mm256_mul_pd _mm256_max_pd,
        (at, n) _mm256_maskload_pd(at, _mm256_loadu_si256(MASKS.as_ptr().add(4 - n.min(4)).cast())),
        (to, x, n) _mm256_maskstore_pd(to, _mm256_loadu_si256(MASKS.as_ptr().add(4 - n.min(4)).cast()), x),
        (a, b) {
            let (low, high) = (_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b));
            (_mm256_permute2f128_pd(low, high, 0x20), _mm256_permute2f128_pd(low, high, 0x31))
        },
        x {
            let two = _mm_add_pd(_mm256_castpd256_pd128(x), _mm256_extractf128_pd(x, 1));
            _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)))
        }
    );

    /// The lowest `n` bits.
    #[inline(always)]
    fn mask(n: usize) -> u32 {
        ((1_u64 << n) - 1) as u32
    }

    #[inline(always)]
    unsafe fn mask_of_words(n: usize) -> __m256i {
        // SAFETY: 32 bytes from byte 32 − 4n on lie within the table for n up to 8.
        unsafe { _mm256_loadu_si256(MASKS.as_ptr().cast::<i32>().add(8 - n.min(8)).cast()) }
    }
}

/// The vectors of the largest square; of smaller ones, the first `LANES` count.
pub type Square<V> = [V; 16];

/// Turns the rows of a square into its columns.
///
/// # Safety
/// As the functions of [`Vector`].
#[inline(always)]
pub unsafe fn transpose<V: Vector>(square: Square<V>) -> Square<V> {
    // Each step moves the upper half of the vectors in between the lower half; no loop, so that all stay in registers.
    let mut square = square;
    // SAFETY: passed on from the caller.
    unsafe {
        square = interleave(square);
        if V::LANES > 2 {
            square = interleave(square);
        }
        if V::LANES > 4 {
            square = interleave(square);
        }
        if V::LANES > 8 {
            square = interleave(square);
        }
    }
    square
}

#[inline(always)]
unsafe fn interleave<V: Vector>(square: Square<V>) -> Square<V> {
    let mut next = square;
    for i in 0..V::LANES / 2 {
        // SAFETY: passed on from the caller.
        (next[2 * i], next[2 * i + 1]) = unsafe { square[i].zip(square[i + V::LANES / 2]) };
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Isa;

    /// Loads, stores, sums, zips and transposes numbers that tell their place.
    #[inline(always)]
    unsafe fn exercise<V: Vector<Element = f32>>() {
        let n = V::LANES;
        let numbers: Vec<f32> = (0..n * n).map(|i| i as f32).collect();
        let at = |i: usize| numbers[i..].as_ptr();
        // SAFETY: the caller checked for the instruction set; the buffers hold as many elements.
        unsafe {
            let square = std::array::from_fn(|i| if i < n { V::load(at(i * n)) } else { V::zero() });
            for (j, column) in transpose::<V>(square).iter().enumerate().take(n) {
                let mut got = vec![0.0; n];
                column.store(got.as_mut_ptr());
                assert!((0..n).all(|i| got[i] == (i * n + j) as f32), "column {j}: {got:?}");
            }
            assert_eq!(V::load(at(0)).sum(), (n * (n - 1) / 2) as f32);
            for part in 0..=n {
                // The last element that may be touched is the last of the allocation.
                let loaded = V::load_part(numbers[n * n - part..].as_ptr(), part);
                let mut got = vec![-1.0; n];
                loaded.store(got.as_mut_ptr());
                let want = |i: usize| if i < part { (n * n - part + i) as f32 } else { 0.0 };
                assert!((0..n).all(|i| got[i] == want(i)), "{part} of {n}: {got:?}");
                let mut got = vec![-1.0; n];
                V::load(at(0)).store_part(got.as_mut_ptr(), part);
                assert!((0..n).all(|i| got[i] == if i < part { i as f32 } else { -1.0 }), "{part} of {n}: {got:?}");
            }
        }
    }

    #[test]
    fn every_level_moves_lanes_as_documented() {
        // SAFETY: each is called where the machine has the instruction set.
        unsafe {
            exercise::<Lanes<f32, 4>>();
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma")]
                unsafe fn avx2() {
                    // SAFETY: as above.
                    unsafe { exercise::<std::arch::x86_64::__m256>() }
                }
                #[target_feature(enable = "avx512f")]
                unsafe fn avx512() {
                    // SAFETY: as above.
                    unsafe { exercise::<std::arch::x86_64::__m512>() }
                }
                if Isa::detect() >= Isa::Avx2 {
                    avx2();
                }
                if Isa::detect() >= Isa::Avx512 {
                    avx512();
                }
            }
        }
    }
}
