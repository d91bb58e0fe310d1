//! Vectors of weights that memory has as codes of 4 or 8 bits. Loads decode them to floats.

use half::f16;

use super::{
    stored::Stored,
    vector::{Lanes, Vector},
};

/// The number of entries of the table that decodes 4-bit codes.
pub const TABLE: usize = 16;

/// The table that decodes 4-bit codes. A packed panel begins with it.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct CodeTable {
    /// The number that each code stands for.
    pub numbers: [f32; TABLE],
    /// The numbers as 8-bit integers; valid if `whole` is set.
    pub integers: [i8; TABLE],
    /// Whether all numbers are 8-bit integers, bit for bit. A zero with a sign is none.
    pub integral: bool,
    /// Whether all numbers are 8-bit integers, where the sign of zero does not count.
    pub whole: bool,
}

impl CodeTable {
    /// Returns the table of these numbers.
    pub fn new(numbers: [f32; TABLE]) -> CodeTable {
        // Bits are compared, so −0.0 is no integer.
        let is_integer = |x: &f32| f32::from(*x as i8).to_bits() == x.to_bits();
        CodeTable {
            numbers,
            integers: numbers.map(|x| x as i8),
            integral: numbers.iter().all(is_integer),
            whole: numbers.iter().all(|&x| f32::from(x as i8) == x),
        }
    }
}

/// A vector of `f32` that can load codes.
///
/// # Safety of its functions
/// As the functions of [`Vector`]. Loads of codes read `LANES` bytes.
#[allow(clippy::missing_safety_doc)]
pub trait CodeVector: Vector<Element = f32> {
    /// The [`TABLE`] numbers of a table in registers.
    type Numbers: Copy;
    /// The [`TABLE`] integers of a table in registers.
    type Integers: Copy;
    /// A vector of 32-bit words, one for each lane.
    type Words: Copy;
    /// Whether looking up 8-bit integers and converting them to floats is faster than looking up floats.
    const INTEGERS: bool;
    /// Loads the numbers of a table into registers.
    unsafe fn numbers(table: &CodeTable) -> Self::Numbers;
    /// Loads the integers of a table into registers.
    unsafe fn integers(table: &CodeTable) -> Self::Integers;
    /// Loads bytes, and looks up the numbers for the low four bits of each byte and for the high four bits.
    unsafe fn nibbles(at: *const u8, table: Self::Numbers) -> (Self, Self);
    /// Does the work of `nibbles` with a table of integers.
    unsafe fn integer_nibbles(at: *const u8, table: Self::Integers) -> (Self, Self);
    /// Loads signed bytes and converts them to floats.
    unsafe fn signed(at: *const u8) -> Self;
    /// Loads unsigned bytes and converts them to floats.
    unsafe fn unsigned(at: *const u8) -> Self;
    /// Loads `LANES` numbers of type `f16` and converts them to `f32`.
    unsafe fn half(at: *const u8) -> Self;
    /// Loads `LANES` words of 32 bits.
    unsafe fn words(at: *const u8) -> Self::Words;
    /// Looks up the number for four bits of each word, from bit `from` on.
    unsafe fn nibble(words: Self::Words, from: u32, table: Self::Numbers) -> Self;
}

/// An encoding of weights: the size of codes, and their order in memory. Terms are those of the sums of a product. One
/// load takes the codes of a few terms for a vector of columns.
///
/// # Safety of its functions
/// As the functions of [`CodeVector`]. If the encoding has a table, the pointer to it must be valid.
#[allow(clippy::missing_safety_doc)]
pub trait Codes: Copy {
    /// The number of terms of a load.
    const TERMS: usize;
    /// The number of bytes of a column in a row of memory.
    const BYTES: usize;
    /// The number of rows of memory that the terms of a load take.
    const ROWS: usize;
    /// The table in registers; `()` for encodings without a table.
    type Table<V: CodeVector>: Copy;
    /// The result of a load for a vector of columns, decoded or not.
    type Loaded<V: CodeVector>: Copy;
    /// The encoding that decodes the same codes with a table of integers.
    type OfIntegers: Codes;
    /// Returns whether decoding is faster with a table of integers.
    fn prefers_integers<V: CodeVector>() -> bool {
        false
    }
    /// Loads the table, if the encoding has one.
    unsafe fn table<V: CodeVector>(at: *const CodeTable) -> Self::Table<V>;
    /// Loads the codes of a vector of columns. If there are two rows, the second begins `width` bytes after the first.
    unsafe fn load<V: CodeVector>(at: *const u8, width: usize, table: Self::Table<V>) -> Self::Loaded<V>;
    /// Returns the decoded numbers of one term of a load.
    unsafe fn term<V: CodeVector>(loaded: Self::Loaded<V>, term: usize, table: Self::Table<V>) -> V;
}

/// 4-bit codes that select from a table. A byte has the codes of two terms, the first one in its lower half.
#[derive(Clone, Copy)]
pub struct Nibbles;

/// 4-bit codes that select from a table of integers. A byte has the codes of two terms, the first one in its lower
/// half.
#[derive(Clone, Copy)]
pub struct IntegerNibbles;

/// 4-bit codes that select from a table. A 32-bit word has the codes of eight terms of a column: the first four in the
/// lower halves of its bytes, and the last four in the upper halves.
#[derive(Clone, Copy)]
pub struct NibbleWords;

/// The number of 8-bit codes in a 32-bit word. A word of 4-bit codes has twice as many.
pub const WORD: usize = 4;

/// 8-bit codes that are signed integers.
#[derive(Clone, Copy)]
pub struct Signed;

/// 8-bit codes that are unsigned integers.
#[derive(Clone, Copy)]
pub struct Unsigned;

/// The items of [`Codes`] for encodings whose loads decode two terms.
macro_rules! of_pairs {
    ($rows:literal) => {
        const TERMS: usize = 2;
        const BYTES: usize = 1;
        const ROWS: usize = $rows;
        type Loaded<V: CodeVector> = [V; 2];
        #[inline(always)]
        unsafe fn term<V: CodeVector>(loaded: [V; 2], term: usize, _: Self::Table<V>) -> V {
            loaded[term]
        }
    };
}

impl Codes for Nibbles {
    of_pairs!(1);
    type Table<V: CodeVector> = V::Numbers;
    type OfIntegers = IntegerNibbles;
    fn prefers_integers<V: CodeVector>() -> bool {
        V::INTEGERS
    }
    #[inline(always)]
    unsafe fn table<V: CodeVector>(at: *const CodeTable) -> V::Numbers {
        // SAFETY: the caller keeps this function's contract.
        unsafe { V::numbers(&*at) }
    }
    #[inline(always)]
    unsafe fn load<V: CodeVector>(at: *const u8, _: usize, table: V::Numbers) -> [V; 2] {
        // SAFETY: the caller keeps this function's contract.
        unsafe { V::nibbles(at, table) }.into()
    }
}

impl Codes for IntegerNibbles {
    of_pairs!(1);
    type Table<V: CodeVector> = V::Integers;
    type OfIntegers = IntegerNibbles;
    #[inline(always)]
    unsafe fn table<V: CodeVector>(at: *const CodeTable) -> V::Integers {
        // SAFETY: the caller keeps this function's contract.
        unsafe { V::integers(&*at) }
    }
    #[inline(always)]
    unsafe fn load<V: CodeVector>(at: *const u8, _: usize, table: V::Integers) -> [V; 2] {
        // SAFETY: the caller keeps this function's contract.
        unsafe { V::integer_nibbles(at, table) }.into()
    }
}

impl Codes for NibbleWords {
    const TERMS: usize = 2 * WORD;
    const BYTES: usize = WORD;
    const ROWS: usize = 1;
    type Table<V: CodeVector> = V::Numbers;
    type Loaded<V: CodeVector> = V::Words;
    type OfIntegers = NibbleWords;
    #[inline(always)]
    unsafe fn table<V: CodeVector>(at: *const CodeTable) -> V::Numbers {
        // SAFETY: the caller keeps this function's contract.
        unsafe { V::numbers(&*at) }
    }
    #[inline(always)]
    unsafe fn load<V: CodeVector>(at: *const u8, _: usize, _: V::Numbers) -> V::Words {
        // SAFETY: the caller keeps this function's contract.
        unsafe { V::words(at) }
    }
    #[inline(always)]
    unsafe fn term<V: CodeVector>(words: V::Words, term: usize, table: V::Numbers) -> V {
        // SAFETY: the caller keeps this function's contract.
        unsafe { V::nibble(words, (term % WORD * 8 + term / WORD * 4) as u32, table) }
    }
}

macro_rules! bytes {
    ($($codes:ty: $load:ident),*) => {$(
        impl Codes for $codes {
            of_pairs!(2);
            type Table<V: CodeVector> = ();
            type OfIntegers = $codes;
            #[inline(always)]
            unsafe fn table<V: CodeVector>(_: *const CodeTable) {}
            #[inline(always)]
            unsafe fn load<V: CodeVector>(at: *const u8, width: usize, (): ()) -> [V; 2] {
                // SAFETY: the caller keeps this function's contract.
                unsafe { [V::$load(at), V::$load(at.add(width))] }
            }
        }
    )*};
}
bytes!(Signed: signed, Unsigned: unsigned);

impl<const N: usize> CodeVector for Lanes<f32, N> {
    type Numbers = [f32; TABLE];
    type Integers = [i8; TABLE];
    type Words = [u32; N];
    const INTEGERS: bool = false;
    #[inline(always)]
    unsafe fn numbers(table: &CodeTable) -> [f32; TABLE] {
        table.numbers
    }
    #[inline(always)]
    unsafe fn integers(table: &CodeTable) -> [i8; TABLE] {
        table.integers
    }
    #[inline(always)]
    unsafe fn integer_nibbles(at: *const u8, table: [i8; TABLE]) -> (Self, Self) {
        // SAFETY: the caller keeps this function's contract.
        unsafe { Self::nibbles(at, table.map(f32::from)) }
    }
    #[inline(always)]
    unsafe fn nibbles(at: *const u8, table: [f32; TABLE]) -> (Self, Self) {
        // SAFETY: the caller promises the bytes.
        let bytes = unsafe { at.cast::<[u8; N]>().read() };
        (Lanes(bytes.map(|b| table[usize::from(b & 15)])), Lanes(bytes.map(|b| table[usize::from(b >> 4)])))
    }
    #[inline(always)]
    unsafe fn signed(at: *const u8) -> Self {
        // SAFETY: the caller promises the bytes.
        Lanes(unsafe { at.cast::<[i8; N]>().read() }.map(f32::from))
    }
    #[inline(always)]
    unsafe fn unsigned(at: *const u8) -> Self {
        // SAFETY: the caller promises the bytes.
        Lanes(unsafe { at.cast::<[u8; N]>().read() }.map(f32::from))
    }
    #[inline(always)]
    unsafe fn half(at: *const u8) -> Self {
        // SAFETY: the caller promises the bytes.
        Lanes(unsafe { at.cast::<[f16; N]>().read_unaligned() }.map(f32::from))
    }
    #[inline(always)]
    unsafe fn words(at: *const u8) -> [u32; N] {
        // SAFETY: the caller promises the bytes.
        unsafe { at.cast::<[[u8; WORD]; N]>().read() }.map(u32::from_le_bytes)
    }
    #[inline(always)]
    unsafe fn nibble(words: [u32; N], from: u32, table: [f32; TABLE]) -> Self {
        Lanes(words.map(|word| table[(word >> from & 15) as usize]))
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{CodeTable, CodeVector, Stored, TABLE, f16};

    /// The items of [`CodeVector`] that are equal for all numbers of lanes.
    macro_rules! of_any_length {
        () => {
            type Integers = __m128i;
            #[inline(always)]
            unsafe fn integers(table: &CodeTable) -> __m128i {
                // SAFETY: the caller promises the instruction set.
                unsafe { _mm_loadu_si128(table.integers.as_ptr().cast()) }
            }
            #[inline(always)]
            unsafe fn signed(at: *const u8) -> Self {
                // SAFETY: the caller promises the bytes and the instruction set.
                unsafe { <i8 as Stored<Self>>::load(at.cast()) }
            }
            #[inline(always)]
            unsafe fn unsigned(at: *const u8) -> Self {
                // SAFETY: the caller promises the bytes and the instruction set.
                unsafe { <u8 as Stored<Self>>::load(at) }
            }
            #[inline(always)]
            unsafe fn half(at: *const u8) -> Self {
                // SAFETY: the caller promises the bytes and the instruction set.
                unsafe { <f16 as Stored<Self>>::load(at.cast()) }
            }
        };
    }

    impl CodeVector for __m512 {
        type Numbers = __m512;
        type Words = __m512i;
        const INTEGERS: bool = false;
        #[inline(always)]
        unsafe fn words(at: *const u8) -> __m512i {
            // SAFETY: the caller promises the bytes and the instruction set.
            unsafe { _mm512_loadu_si512(at.cast()) }
        }
        #[inline(always)]
        unsafe fn nibble(words: __m512i, from: u32, table: __m512) -> Self {
            // SAFETY: the caller promises the bytes and the instruction set. The permutation uses only the
            // lower four bits of each index.
            unsafe { _mm512_permutexvar_ps(_mm512_srlv_epi32(words, _mm512_set1_epi32(from.cast_signed())), table) }
        }
        #[inline(always)]
        unsafe fn numbers(table: &CodeTable) -> __m512 {
            // SAFETY: the caller promises the instruction set.
            unsafe { _mm512_loadu_ps(table.numbers.as_ptr()) }
        }
        #[inline(always)]
        unsafe fn integer_nibbles(at: *const u8, table: __m128i) -> (Self, Self) {
            // SAFETY: the caller promises the bytes and the instruction set.
            unsafe {
                let [low, high] = integers(_mm_loadu_si128(at.cast()), table);
                (_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(low)), _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(high)))
            }
        }
        #[inline(always)]
        unsafe fn nibbles(at: *const u8, table: __m512) -> (Self, Self) {
            // SAFETY: the caller promises the bytes and the instruction set. The permutation uses only the
            // lower four bits of each index.
            unsafe {
                let codes = _mm512_cvtepu8_epi32(_mm_loadu_si128(at.cast()));
                let upper = _mm512_srli_epi32::<4>(codes);
                (_mm512_permutexvar_ps(codes, table), _mm512_permutexvar_ps(upper, table))
            }
        }
        of_any_length!();
    }

    impl CodeVector for __m256 {
        type Numbers = [__m256; 2];
        type Words = __m256i;
        const INTEGERS: bool = true;
        #[inline(always)]
        unsafe fn words(at: *const u8) -> __m256i {
            // SAFETY: the caller promises the bytes and the instruction set.
            unsafe { _mm256_loadu_si256(at.cast()) }
        }
        #[inline(always)]
        unsafe fn nibble(words: __m256i, from: u32, table: [__m256; 2]) -> Self {
            // SAFETY: the caller promises the bytes and the instruction set.
            unsafe { look_up(_mm256_srlv_epi32(words, _mm256_set1_epi32(from.cast_signed())), table) }
        }
        #[inline(always)]
        unsafe fn numbers(table: &CodeTable) -> [__m256; 2] {
            let [low, high] = [0, TABLE / 2].map(|from| table.numbers[from..].as_ptr());
            // SAFETY: the caller promises the bytes and the instruction set.
            unsafe { [_mm256_loadu_ps(low), _mm256_loadu_ps(high)] }
        }
        #[inline(always)]
        unsafe fn integer_nibbles(at: *const u8, table: __m128i) -> (Self, Self) {
            // SAFETY: the caller promises the bytes and the instruction set.
            unsafe {
                let [low, high] = integers(_mm_loadl_epi64(at.cast()), table);
                (_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(low)), _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(high)))
            }
        }
        #[inline(always)]
        unsafe fn nibbles(at: *const u8, table: [__m256; 2]) -> (Self, Self) {
            // SAFETY: the caller promises the bytes and the instruction set.
            unsafe {
                let codes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(at.cast()));
                (look_up(codes, table), look_up(_mm256_srli_epi32::<4>(codes), table))
            }
        }
        of_any_length!();
    }

    /// Looks up the integers for the lower four bits of each byte, and for the upper four bits.
    ///
    /// # Safety
    /// The machine must have SSSE3.
    #[inline(always)]
    unsafe fn integers(bytes: __m128i, table: __m128i) -> [__m128i; 2] {
        // SAFETY: the caller keeps this function's contract. Shifts of 16 bits move bits of the next byte in, and the
        // mask removes them.
        unsafe {
            let low = _mm_set1_epi8(15);
            let upper = _mm_and_si128(_mm_srli_epi16::<4>(bytes), low);
            [_mm_shuffle_epi8(table, _mm_and_si128(bytes, low)), _mm_shuffle_epi8(table, upper)]
        }
    }

    /// Looks up the numbers for the lower four bits of each index. A permutation of each half of the table uses three
    /// of the bits, and the fourth bit chooses between the two results.
    ///
    /// # Safety
    /// The machine must have AVX2.
    #[inline(always)]
    unsafe fn look_up(codes: __m256i, table: [__m256; 2]) -> __m256 {
        // SAFETY: the caller keeps this function's contract.
        unsafe {
            let [low, high] = table.map(|half| _mm256_permutevar8x32_ps(half, codes));
            _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32::<28>(codes)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::level::at_every_level;

    /// Checks the decoding of every byte in every lane.
    #[inline(always)]
    unsafe fn exercise<V: CodeVector>() {
        let numbers: [f32; TABLE] = std::array::from_fn(|n| (n * n) as f32 - 7.5);
        let whole: [f32; TABLE] = std::array::from_fn(|n| n as f32 * 17.0 - 128.0);
        for first in 0..=255_u8 {
            let bytes: Vec<u8> = (0..64_u8).map(|n| first.wrapping_add(n.wrapping_mul(37))).collect();
            let halves: Vec<u8> = bytes.iter().flat_map(|&b| f16::from_f32(f32::from(b) / 8.0).to_le_bytes()).collect();
            let got = |v: V| {
                let mut got = vec![0.0; V::LANES];
                // SAFETY: there is room for the lanes.
                unsafe { v.store(got.as_mut_ptr()) };
                got
            };
            let want = |f: &dyn Fn(u8) -> f32| bytes[..V::LANES].iter().map(|&b| f(b)).collect::<Vec<_>>();
            // SAFETY: the caller checked for the instruction set, and `bytes` has as many bytes as a vector of words.
            unsafe {
                let (low, high) = V::nibbles(bytes.as_ptr(), V::numbers(&CodeTable::new(numbers)));
                assert_eq!(got(low), want(&|b| numbers[usize::from(b & 15)]));
                assert_eq!(got(high), want(&|b| numbers[usize::from(b >> 4)]));
                let (low, high) = V::integer_nibbles(bytes.as_ptr(), V::integers(&CodeTable::new(whole)));
                assert_eq!(got(low), want(&|b| whole[usize::from(b & 15)]));
                assert_eq!(got(high), want(&|b| whole[usize::from(b >> 4)]));
                let words = V::words(bytes.as_ptr());
                for (byte, from) in (0..WORD).flat_map(|byte| [(byte, 0), (byte, 4)]) {
                    let code = |n: usize| usize::from(bytes[n * WORD + byte] >> from & 15);
                    let want: Vec<f32> = (0..V::LANES).map(|n| numbers[code(n)]).collect();
                    let table = V::numbers(&CodeTable::new(numbers));
                    assert_eq!(got(V::nibble(words, byte as u32 * 8 + from, table)), want);
                }
                assert_eq!(got(V::signed(bytes.as_ptr())), want(&|b| f32::from(b.cast_signed())));
                assert_eq!(got(V::unsigned(bytes.as_ptr())), want(&|b| f32::from(b)));
                assert_eq!(got(V::half(halves.as_ptr())), want(&|b| f32::from(b) / 8.0));
            }
        }
    }

    #[test]
    fn tables_of_integers_are_told_from_others() {
        let mut numbers = [0.0; TABLE];
        assert!(CodeTable::new(numbers).integral);
        for (number, integral, whole) in [
            (127.0, true, true),
            (-128.0, true, true),
            (128.0, false, false),
            (0.5, false, false),
            (-0.0, false, true),
            (f32::NAN, false, false),
        ] {
            numbers[5] = number;
            let table = CodeTable::new(numbers);
            assert_eq!((table.integral, table.whole), (integral, whole), "{number}");
        }
    }

    #[test]
    fn every_code_is_decoded_at_every_level() {
        at_every_level!(exercise);
    }
}
