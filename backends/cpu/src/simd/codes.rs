//! Vectors of decoded weights: codes of 4 or 8 bits become floats as they are loaded.

use half::f16;

use super::{
    stored::Stored,
    vector::{Lanes, Vector},
};

/// Entries of the table that codes of 4 bits select from.
pub const TABLE: usize = 16;

/// The table of codes of 4 bits, as a panel begins with it.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct CodeTable {
    /// The numbers.
    pub numbers: [f32; TABLE],
    /// The same as integers of 8 bits, if all of them are such.
    pub integers: [i8; TABLE],
    /// Whether all of them are, bit for bit: −0.0 is none.
    pub integral: bool,
    /// Whether all of them are but for the sign of zero.
    pub whole: bool,
}

impl CodeTable {
    /// Returns the table of some numbers.
    pub fn new(numbers: [f32; TABLE]) -> CodeTable {
        // The sign of zero counts.
        let is_integer = |x: &f32| f32::from(*x as i8).to_bits() == x.to_bits();
        CodeTable {
            numbers,
            integers: numbers.map(|x| x as i8),
            integral: numbers.iter().all(is_integer),
            whole: numbers.iter().all(|&x| f32::from(x as i8) == x),
        }
    }
}

/// A vector of `f32` that loads codes.
///
/// # Safety of its functions
/// As those of [`Vector`]. Loads of codes read `LANES` bytes.
#[allow(clippy::missing_safety_doc)]
pub trait CodeVector: Vector<Element = f32> {
    /// [`TABLE`] numbers in registers.
    type Numbers: Copy;
    /// As many integers of 8 bits.
    type Integers: Copy;
    /// A word of 32 bits of each column.
    type Words: Copy;
    /// Whether looking integers up and converting them is faster than looking numbers up.
    const INTEGERS: bool;
    /// Loads a table.
    unsafe fn numbers(table: &CodeTable) -> Self::Numbers;
    /// Loads a table of integers.
    unsafe fn integers(table: &CodeTable) -> Self::Integers;
    /// Looks up the low four bits of each byte, and the high four bits.
    unsafe fn nibbles(at: *const u8, table: Self::Numbers) -> (Self, Self);
    /// As `nibbles`, in a table of integers.
    unsafe fn integer_nibbles(at: *const u8, table: Self::Integers) -> (Self, Self);
    /// Converts signed bytes.
    unsafe fn signed(at: *const u8) -> Self;
    /// Converts unsigned bytes.
    unsafe fn unsigned(at: *const u8) -> Self;
    /// Widens `LANES` numbers of 16 bits.
    unsafe fn half(at: *const u8) -> Self;
    /// Loads `LANES` words.
    unsafe fn words(at: *const u8) -> Self::Words;
    /// Looks up four bits of each word, from bit `from` on.
    unsafe fn nibble(words: Self::Words, from: u32, table: Self::Numbers) -> Self;
}

/// A kind of codes in an order, which decodes a few terms at a time.
///
/// # Safety of its functions
/// As those of [`CodeVector`]. There is a table where codes are looked up.
#[allow(clippy::missing_safety_doc)]
pub trait Codes: Copy {
    /// Terms that are loaded together.
    const TERMS: usize;
    /// Bytes of a column in a row.
    const BYTES: usize;
    /// Rows that the terms of a load take.
    const ROWS: usize;
    /// The table in registers; nothing for codes without one.
    type Table<V: CodeVector>: Copy;
    /// The codes of a vector of columns, decoded or not.
    type Loaded<V: CodeVector>: Copy;
    /// The kind that decodes the same codes by a table of integers.
    type OfIntegers: Codes;
    /// Returns whether a table of integers makes them faster to decode.
    fn prefers_integers<V: CodeVector>() -> bool {
        false
    }
    /// Loads the table, if there is one.
    unsafe fn table<V: CodeVector>(at: *const CodeTable) -> Self::Table<V>;
    /// Loads the codes of a vector of columns; the second row begins `width` bytes after the first one.
    unsafe fn load<V: CodeVector>(at: *const u8, width: usize, table: Self::Table<V>) -> Self::Loaded<V>;
    /// Returns the numbers of a term of a load.
    unsafe fn term<V: CodeVector>(loaded: Self::Loaded<V>, term: usize, table: Self::Table<V>) -> V;
}

/// Codes of 4 bits, which select from a table. A byte holds the codes of two terms, the first one in its lower half.
#[derive(Clone, Copy)]
pub struct Nibbles;

/// The same where the table holds integers.
#[derive(Clone, Copy)]
pub struct IntegerNibbles;

/// Codes of 4 bits, which select from a table. A word of 32 bits holds the codes of eight terms of a column: in the lower halves of its bytes
/// the first four, in the upper halves the others.
#[derive(Clone, Copy)]
pub struct NibbleWords;

/// Terms of a word of codes of 8 bits; one of codes of 4 bits has twice as many.
pub const WORD: usize = 4;

/// Signed integers of 8 bits.
#[derive(Clone, Copy)]
pub struct Signed;

/// Unsigned integers of 8 bits.
#[derive(Clone, Copy)]
pub struct Unsigned;

/// The items of codes that are decoded as they are loaded, two terms at a time.
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
        // SAFETY: passed on from the caller.
        unsafe { V::numbers(&*at) }
    }
    #[inline(always)]
    unsafe fn load<V: CodeVector>(at: *const u8, _: usize, table: V::Numbers) -> [V; 2] {
        // SAFETY: passed on from the caller.
        unsafe { V::nibbles(at, table) }.into()
    }
}

impl Codes for IntegerNibbles {
    of_pairs!(1);
    type Table<V: CodeVector> = V::Integers;
    type OfIntegers = IntegerNibbles;
    #[inline(always)]
    unsafe fn table<V: CodeVector>(at: *const CodeTable) -> V::Integers {
        // SAFETY: passed on from the caller.
        unsafe { V::integers(&*at) }
    }
    #[inline(always)]
    unsafe fn load<V: CodeVector>(at: *const u8, _: usize, table: V::Integers) -> [V; 2] {
        // SAFETY: passed on from the caller.
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
        // SAFETY: passed on from the caller.
        unsafe { V::numbers(&*at) }
    }
    #[inline(always)]
    unsafe fn load<V: CodeVector>(at: *const u8, _: usize, _: V::Numbers) -> V::Words {
        // SAFETY: passed on from the caller.
        unsafe { V::words(at) }
    }
    #[inline(always)]
    unsafe fn term<V: CodeVector>(words: V::Words, term: usize, table: V::Numbers) -> V {
        // SAFETY: passed on from the caller.
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
                // SAFETY: passed on from the caller.
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
        // SAFETY: passed on from the caller.
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
        // SAFETY: as above.
        Lanes(unsafe { at.cast::<[i8; N]>().read() }.map(f32::from))
    }
    #[inline(always)]
    unsafe fn unsigned(at: *const u8) -> Self {
        // SAFETY: as above.
        Lanes(unsafe { at.cast::<[u8; N]>().read() }.map(f32::from))
    }
    #[inline(always)]
    unsafe fn half(at: *const u8) -> Self {
        // SAFETY: as above.
        Lanes(unsafe { at.cast::<[f16; N]>().read_unaligned() }.map(f32::from))
    }
    #[inline(always)]
    unsafe fn words(at: *const u8) -> [u32; N] {
        // SAFETY: as above.
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

    /// The items that do not depend on the number of lanes.
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
                // SAFETY: as above.
                unsafe { <u8 as Stored<Self>>::load(at) }
            }
            #[inline(always)]
            unsafe fn half(at: *const u8) -> Self {
                // SAFETY: as above.
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
            // SAFETY: as above. The permutation reads the lower four bits of each index alone.
            unsafe { _mm512_permutexvar_ps(_mm512_srlv_epi32(words, _mm512_set1_epi32(from.cast_signed())), table) }
        }
        #[inline(always)]
        unsafe fn numbers(table: &CodeTable) -> __m512 {
            // SAFETY: the caller promises the instruction set.
            unsafe { _mm512_loadu_ps(table.numbers.as_ptr()) }
        }
        #[inline(always)]
        unsafe fn integer_nibbles(at: *const u8, table: __m128i) -> (Self, Self) {
            // SAFETY: as above; and the bytes.
            unsafe {
                let [low, high] = integers(_mm_loadu_si128(at.cast()), table);
                (_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(low)), _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(high)))
            }
        }
        #[inline(always)]
        unsafe fn nibbles(at: *const u8, table: __m512) -> (Self, Self) {
            // SAFETY: as above. The permutation reads the lower four bits of each index alone.
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
            // SAFETY: as above.
            unsafe { look_up(_mm256_srlv_epi32(words, _mm256_set1_epi32(from.cast_signed())), table) }
        }
        #[inline(always)]
        unsafe fn numbers(table: &CodeTable) -> [__m256; 2] {
            let [low, high] = [0, TABLE / 2].map(|from| table.numbers[from..].as_ptr());
            // SAFETY: as above.
            unsafe { [_mm256_loadu_ps(low), _mm256_loadu_ps(high)] }
        }
        #[inline(always)]
        unsafe fn integer_nibbles(at: *const u8, table: __m128i) -> (Self, Self) {
            // SAFETY: as above.
            unsafe {
                let [low, high] = integers(_mm_loadl_epi64(at.cast()), table);
                (_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(low)), _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(high)))
            }
        }
        #[inline(always)]
        unsafe fn nibbles(at: *const u8, table: [__m256; 2]) -> (Self, Self) {
            // SAFETY: as above.
            unsafe {
                let codes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(at.cast()));
                (look_up(codes, table), look_up(_mm256_srli_epi32::<4>(codes), table))
            }
        }
        of_any_length!();
    }

    /// Looks up the lower four bits of each byte, and the upper ones.
    ///
    /// # Safety
    /// The machine must have SSSE3.
    #[inline(always)]
    unsafe fn integers(bytes: __m128i, table: __m128i) -> [__m128i; 2] {
        // SAFETY: passed on from the caller. Shifts of 16 bits move bits of the next byte in, which are masked out.
        unsafe {
            let low = _mm_set1_epi8(15);
            let upper = _mm_and_si128(_mm_srli_epi16::<4>(bytes), low);
            [_mm_shuffle_epi8(table, _mm_and_si128(bytes, low)), _mm_shuffle_epi8(table, upper)]
        }
    }

    /// Looks up the lower four bits of each index: the permutations read three of them, and the fourth one chooses between their results.
    ///
    /// # Safety
    /// The machine must have AVX2.
    #[inline(always)]
    unsafe fn look_up(codes: __m256i, table: [__m256; 2]) -> __m256 {
        // SAFETY: passed on from the caller.
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

    /// Decodes every byte in every lane.
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
            // SAFETY: the caller checked for the instruction set; there are as many bytes as two vectors take.
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
