//! Vectors of x86-64: AVX2 with FMA, and AVX-512.

use std::arch::x86_64::*;

use super::Vector;

/// Minus ones followed by zeros, from which AVX2 masks are loaded. The offset of the load decides the number of minus
/// ones.
const MASKS: [i64; 8] = [-1, -1, -1, -1, 0, 0, 0, 0];

macro_rules! vector {
    (
        $v:ty, $t:ty, $lanes:literal, $zero:ident $splat:ident $load:ident $store:ident $fma:ident $add:ident $mul:ident $max:ident $min:ident $first:ident,
        ($at:ident, $n:ident) $load_part:expr, ($old:ident) $load_over:expr,
        ($to:ident, $x:ident, $m:ident) $store_part:expr,
        ($a:ident, $b:ident) $or_nan:expr, $zip:expr,
        ($s:ident) $($lane:literal => $from:expr,)*
        ($u:ident, $o:ident) $($by:literal => $moved:expr,)*
        turned $turned:expr,
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
                // SAFETY: the caller promises the instruction set.
                unsafe { $splat(x) }
            }
            #[inline(always)]
            unsafe fn load(at: *const $t) -> Self {
                // SAFETY: the caller promises the instruction set and the elements.
                unsafe { $load(at) }
            }
            #[inline(always)]
            unsafe fn load_part($at: *const $t, $n: usize) -> Self {
                // SAFETY: the caller promises the instruction set; masked lanes are not read.
                unsafe { $load_part }
            }
            #[inline(always)]
            unsafe fn load_over(self, $at: *const $t, $n: usize) -> Self {
                let $old = self;
                // SAFETY: the caller promises the instruction set.
                unsafe { $load_over }
            }
            #[inline(always)]
            unsafe fn store(self, at: *mut $t) {
                // SAFETY: the caller promises the instruction set.
                unsafe { $store(at, self) }
            }
            #[inline(always)]
            unsafe fn store_part(self, $to: *mut $t, $m: usize) {
                let $x = self;
                // SAFETY: the caller promises the instruction set; masked lanes are not written.
                unsafe { $store_part }
            }
            #[inline(always)]
            unsafe fn mul_add(self, b: Self, c: Self) -> Self {
                // SAFETY: the caller promises the instruction set.
                unsafe { $fma(self, b, c) }
            }
            #[inline(always)]
            unsafe fn add(self, b: Self) -> Self {
                // SAFETY: the caller promises the instruction set.
                unsafe { $add(self, b) }
            }
            #[inline(always)]
            unsafe fn mul(self, b: Self) -> Self {
                // SAFETY: the caller promises the instruction set.
                unsafe { $mul(self, b) }
            }
            #[inline(always)]
            unsafe fn at_least(self, b: Self) -> Self {
                // SAFETY: the caller promises the instruction set. If an operand is NaN, the instruction returns the
                // second one, which is `self`.
                unsafe { $max(b, self) }
            }
            #[inline(always)]
            unsafe fn at_most(self, b: Self) -> Self {
                // SAFETY: the caller promises the instruction set.
                unsafe { $min(b, self) }
            }
            #[inline(always)]
            unsafe fn or_nan(self, $b: Self) -> Self {
                let $a = self;
                // SAFETY: the caller promises the instruction set.
                unsafe { $or_nan }
            }
            #[inline(always)]
            unsafe fn zip(self, $b: Self) -> (Self, Self) {
                let $a = self;
                // SAFETY: the caller promises the instruction set.
                unsafe { $zip }
            }
            #[inline(always)]
            unsafe fn upper<const N: usize>(self) -> Self {
                let $s = self;
                // SAFETY: the caller promises the instruction set.
                unsafe {
                    match N {
                        $($lane => $from,)*
                        _ => unreachable!("a vector has fewer lanes"),
                    }
                }
            }
            #[inline(always)]
            unsafe fn behind<const N: usize>(self, $o: Self) -> Self {
                let $u = self;
                // SAFETY: the caller promises the instruction set.
                unsafe {
                    match N {
                        $($by => $moved,)*
                        _ => unreachable!("a vector has fewer lanes"),
                    }
                }
            }
            #[inline(always)]
            unsafe fn turned(self) -> Self {
                let $u = self;
                // SAFETY: the caller promises the instruction set.
                unsafe { $turned }
            }
            #[inline(always)]
            unsafe fn first(self) -> $t {
                // SAFETY: the caller promises the instruction set.
                unsafe { $first(self) }
            }
            #[inline(always)]
            unsafe fn prefetch(at: *const $t) {
                // SAFETY: the caller promises the instruction set.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
            }
            #[inline(always)]
            unsafe fn prefetch_outer(at: *const $t) {
                // SAFETY: the caller promises the instruction set.
                unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) }
            }
        }
    };
}

vector!(
    __m512, f32, 16, _mm512_setzero_ps _mm512_set1_ps _mm512_loadu_ps _mm512_storeu_ps _mm512_fmadd_ps _mm512_add_ps _mm512_mul_ps _mm512_max_ps _mm512_min_ps _mm512_cvtss_f32,
    (at, n) _mm512_maskz_loadu_ps(mask(n) as __mmask16, at),
    (old) _mm512_mask_loadu_ps(old, mask(n) as __mmask16, at),
    (to, x, n) _mm512_mask_storeu_ps(to, mask(n) as __mmask16, x),
    (a, b) _mm512_mask_mov_ps(a, _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(b, b), b), {
        let low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
        let high = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
        (_mm512_permutex2var_ps(a, low, b), _mm512_permutex2var_ps(a, high, b))
    },
    (x)
    8 => _mm512_shuffle_f32x4::<0b11_10>(x, x),
    4 => _mm512_shuffle_f32x4::<0b01>(x, x),
    2 => _mm512_permute_ps::<0b11_10>(x),
    1 => _mm512_permute_ps::<0b01>(x),
    (x, other)
    8 => words_behind::<8>(x, other),
    4 => words_behind::<12>(x, other),
    2 => words_behind::<14>(x, other),
    1 => words_behind::<15>(x, other),
    turned _mm512_permutexvar_ps(_mm512_setr_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0), x),
);
vector!(
    __m512d, f64, 8, _mm512_setzero_pd _mm512_set1_pd _mm512_loadu_pd _mm512_storeu_pd _mm512_fmadd_pd _mm512_add_pd _mm512_mul_pd _mm512_max_pd _mm512_min_pd _mm512_cvtsd_f64,
    (at, n) _mm512_maskz_loadu_pd(mask(n) as __mmask8, at),
    (old) _mm512_mask_loadu_pd(old, mask(n) as __mmask8, at),
    (to, x, n) _mm512_mask_storeu_pd(to, mask(n) as __mmask8, x),
    (a, b) _mm512_mask_mov_pd(a, _mm512_cmp_pd_mask::<_CMP_UNORD_Q>(b, b), b), {
        let low = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
        let high = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
        (_mm512_permutex2var_pd(a, low, b), _mm512_permutex2var_pd(a, high, b))
    },
    (x)
    4 => _mm512_shuffle_f64x2::<0b11_10>(x, x),
    2 => _mm512_shuffle_f64x2::<0b01>(x, x),
    1 => _mm512_permute_pd::<0b01>(x),
    (x, other)
    4 => _mm512_castps_pd(words_behind::<8>(_mm512_castpd_ps(x), _mm512_castpd_ps(other))),
    2 => _mm512_castps_pd(words_behind::<12>(_mm512_castpd_ps(x), _mm512_castpd_ps(other))),
    1 => _mm512_castps_pd(words_behind::<14>(_mm512_castpd_ps(x), _mm512_castpd_ps(other))),
    turned _mm512_permutexvar_pd(_mm512_setr_epi64(7, 6, 5, 4, 3, 2, 1, 0), x),
);
vector!(
    __m256, f32, 8, _mm256_setzero_ps _mm256_set1_ps _mm256_loadu_ps _mm256_storeu_ps _mm256_fmadd_ps _mm256_add_ps _mm256_mul_ps _mm256_max_ps _mm256_min_ps _mm256_cvtss_f32,
    (at, n) _mm256_maskload_ps(at, mask_of_words(n)),
    (old) _mm256_blendv_ps(old, _mm256_maskload_ps(at, mask_of_words(n)), _mm256_castsi256_ps(mask_of_words(n))),
    (to, x, n) store_words(to, x, n),
    (a, b) _mm256_blendv_ps(a, b, _mm256_cmp_ps::<_CMP_UNORD_Q>(b, b)), {
        let (low, high) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
        (_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31))
    },
    (x)
    4 => _mm256_permute2f128_ps::<1>(x, x),
    2 => _mm256_permute_ps::<0b11_10>(x),
    1 => _mm256_permute_ps::<0b01>(x),
    (x, other)
    4 => _mm256_permute2f128_ps::<0x21>(other, x),
    2 => bytes_behind::<8>(x, _mm256_permute2f128_ps::<0x21>(other, x)),
    1 => bytes_behind::<12>(x, _mm256_permute2f128_ps::<0x21>(other, x)),
    turned _mm256_permute_ps::<0b00_01_10_11>(_mm256_permute2f128_ps::<1>(x, x)),
);
vector!(
    __m256d, f64, 4, _mm256_setzero_pd _mm256_set1_pd _mm256_loadu_pd _mm256_storeu_pd _mm256_fmadd_pd _mm256_add_pd _mm256_mul_pd _mm256_max_pd _mm256_min_pd _mm256_cvtsd_f64,
    (at, n) _mm256_maskload_pd(at, mask_of_doubles(n)),
    (old) _mm256_blendv_pd(old, _mm256_maskload_pd(at, mask_of_doubles(n)), _mm256_castsi256_pd(mask_of_doubles(n))),
    (to, x, n) store_words(to.cast(), _mm256_castpd_ps(x), 2 * n),
    (a, b) _mm256_blendv_pd(a, b, _mm256_cmp_pd::<_CMP_UNORD_Q>(b, b)), {
        let (low, high) = (_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b));
        (_mm256_permute2f128_pd(low, high, 0x20), _mm256_permute2f128_pd(low, high, 0x31))
    },
    (x)
    2 => _mm256_permute2f128_pd::<1>(x, x),
    1 => _mm256_permute_pd::<0b01>(x),
    (x, other)
    2 => _mm256_permute2f128_pd::<0x21>(other, x),
    1 => _mm256_shuffle_pd::<0b01_01>(_mm256_permute2f128_pd::<0x21>(other, x), x),
    turned _mm256_permute_pd::<0b01_01>(_mm256_permute2f128_pd::<1>(x, x)),
);

/// Concatenates the 32-bit words of `other` and `x`, and returns 16 words from word `FROM` on.
///
/// # Safety
/// The machine must have AVX-512.
#[inline(always)]
unsafe fn words_behind<const FROM: i32>(x: __m512, other: __m512) -> __m512 {
    // SAFETY: the caller keeps this function's contract.
    unsafe {
        let words = _mm512_alignr_epi32::<FROM>(_mm512_castps_si512(x), _mm512_castps_si512(other));
        _mm512_castsi512_ps(words)
    }
}

/// Concatenates the bytes of `other` and `x` in each 128-bit half, and returns 16 bytes per half from byte `FROM` on.
///
/// # Safety
/// The machine must have AVX2.
#[inline(always)]
unsafe fn bytes_behind<const FROM: i32>(x: __m256, other: __m256) -> __m256 {
    // SAFETY: the caller keeps this function's contract.
    unsafe {
        let bytes = _mm256_alignr_epi8::<FROM>(_mm256_castps_si256(x), _mm256_castps_si256(other));
        _mm256_castsi256_ps(bytes)
    }
}

/// Returns the lowest `n` bits.
#[inline(always)]
fn mask(n: usize) -> u32 {
    ((1_u64 << n) - 1) as u32
}

/// Stores the first `n` of 8 words of 32 bits, with up to three stores. A masked store takes some 40 micro-operations
/// on AMD's processors.
///
/// # Safety
/// The machine must have AVX; `n` words must be valid.
#[inline(always)]
unsafe fn store_words(to: *mut f32, x: __m256, n: usize) {
    // SAFETY: the caller keeps this function's contract.
    unsafe {
        if n >= 8 {
            return _mm256_storeu_ps(to, x);
        }
        let (mut to, mut left) = (to, _mm256_castps256_ps128(x));
        if n & 4 != 0 {
            _mm_storeu_ps(to, left);
            (to, left) = (to.add(4), _mm256_extractf128_ps::<1>(x));
        }
        if n & 2 != 0 {
            _mm_storel_pd(to.cast(), _mm_castps_pd(left));
            (to, left) = (to.add(2), _mm_movehl_ps(left, left));
        }
        if n & 1 != 0 {
            _mm_store_ss(to, left);
        }
    }
}

/// Returns a mask of the first `n` of 4 doubles.
///
/// # Safety
/// The machine must have AVX.
#[inline(always)]
unsafe fn mask_of_doubles(n: usize) -> __m256i {
    // SAFETY: for n up to 4, the 32 bytes from entry 4 − n on are within the table.
    unsafe { _mm256_loadu_si256(MASKS.as_ptr().add(4 - n.min(4)).cast()) }
}

/// Returns a mask of the first `n` of 8 words of 32 bits.
///
/// # Safety
/// The machine must have AVX.
#[inline(always)]
unsafe fn mask_of_words(n: usize) -> __m256i {
    // SAFETY: for n up to 8, the 32 bytes from byte 32 − 4n on are within the table.
    unsafe { _mm256_loadu_si256(MASKS.as_ptr().cast::<i32>().add(8 - n.min(8)).cast()) }
}
