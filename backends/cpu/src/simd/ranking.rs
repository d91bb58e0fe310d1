//! Ranks of the elements of a row. They are found by sorting integers that have an element's key in the upper bits and
//! its position in the row in the lower bits.

use eutectic_ir::DType;

use super::register::with_register;

/// A function that writes the rank of each element of a row. Its arguments are the row, the number of elements, the
/// maximal rank (which all further elements get), scratch memory for as many keys, and the target.
pub type RankFn = unsafe fn(*const u8, usize, usize, *mut u8, *mut i32);

/// An element with an integer key. Keys have the order of the elements, and NaN has the largest key.
trait Keyed: Copy {
    /// An integer with the key in the upper bits, and a position in the lower 32 bits.
    type Packed: Copy + Ord;
    /// Packs the key with a position. If `descending` is set, larger elements come first.
    fn packed(self, place: u32, descending: bool) -> Self::Packed;
    /// Returns the position.
    fn place(packed: Self::Packed) -> u32;
}

macro_rules! keyed {
    ($($t:ty, $key:ty, $packed:ty, $x:ident => $of:expr;)*) => {$(
        impl Keyed for $t {
            type Packed = $packed;
            #[inline(always)]
            fn packed(self, place: u32, descending: bool) -> $packed {
                let $x = self;
                let key: $key = $of;
                <$packed>::from(if descending { !key } else { key }) << 32 | <$packed>::from(place)
            }
            #[inline(always)]
            fn place(packed: $packed) -> u32 {
                packed as u32
            }
        }
    )*};
}

/// Computes the key of a float from its bits. For negative numbers all bits are inverted, because their order is
/// opposite to that of their bits. For other numbers, the sign bit is set.
macro_rules! key_of_float {
    ($x:ident, $bits:ty) => {{
        const SIGN: $bits = !(<$bits>::MAX >> 1);
        // Adding 0 turns −0 into 0, so both have one key.
        let bits = ($x + 0.0).to_bits();
        match () {
            () if $x.is_nan() => <$bits>::MAX,
            () if bits & SIGN != 0 => !bits,
            () => bits | SIGN,
        }
    }};
}

keyed! {
    f32, u32, u64, x => key_of_float!(x, u32);
    f64, u64, u128, x => key_of_float!(x, u64);
    i8, u32, u64, x => (x as u32) ^ (1 << 31);
    u8, u32, u64, x => u32::from(x);
    i16, u32, u64, x => (x as u32) ^ (1 << 31);
    u16, u32, u64, x => u32::from(x);
    i32, u32, u64, x => (x as u32) ^ (1 << 31);
    u32, u32, u64, x => x;
    i64, u64, u128, x => (x as u64) ^ (1 << 63);
}

/// Implements [`RankFn`] for elements of a type.
///
/// # Safety
/// The row and the target must have `n` elements. `keys` must have room for `n` packed keys, and be aligned to 16
/// bytes.
unsafe fn rank<T: Keyed, const DESCENDING: bool>(row: *const u8, n: usize, most: usize, keys: *mut u8, to: *mut i32) {
    // SAFETY: the caller keeps this function's contract.
    let (row, keys, to) = unsafe {
        let keys = keys.cast::<T::Packed>();
        let row = std::slice::from_raw_parts(row.cast::<T>(), n);
        (0..).zip(row).for_each(|(place, x)| keys.add(place as usize).write(x.packed(place, DESCENDING)));
        (row, std::slice::from_raw_parts_mut(keys, n), std::slice::from_raw_parts_mut(to, n))
    };
    let first = most.min(row.len());
    if first < keys.len() && first > 0 {
        keys.select_nth_unstable(first - 1);
    }
    let first = &mut keys[..first];
    first.sort_unstable();
    to.fill(i32::try_from(most).unwrap_or(i32::MAX));
    (0..).zip(first).for_each(|(rank, packed)| to[T::place(*packed) as usize] = rank);
}

/// Returns the function for the register type of an element type, and the bytes of a packed key.
pub fn find(dtype: DType, descending: bool) -> (RankFn, usize) {
    fn of<T: Keyed>(descending: bool) -> (RankFn, usize) {
        (if descending { rank::<T, true> } else { rank::<T, false> }, size_of::<T::Packed>())
    }
    with_register!(dtype, Element => of::<Element>(descending))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(row: &[f32], most: usize, descending: bool) -> Vec<i32> {
        let (function, bytes) = find(DType::F32, descending);
        assert_eq!(bytes, 8);
        let (mut keys, mut ranks) = (vec![0_u64; row.len()], vec![-1; row.len()]);
        // SAFETY: the arrays have as many elements as the row.
        unsafe {
            function(row.as_ptr().cast(), row.len(), most, keys.as_mut_ptr().cast(), ranks.as_mut_ptr());
        }
        ranks
    }

    #[test]
    fn equal_elements_keep_their_order_and_nan_is_the_largest() {
        let row = [2.0, -0.0, f32::NAN, 0.0, f32::INFINITY, -1.5, 2.0, f32::NEG_INFINITY];
        assert_eq!(ranks(&row, 8, false), [4, 2, 7, 3, 6, 1, 5, 0]);
        assert_eq!(ranks(&row, 8, true), [2, 4, 0, 5, 1, 6, 3, 7]);
        assert_eq!(ranks(&row, 3, true), [2, 3, 0, 3, 1, 3, 3, 3]);
        assert_eq!(ranks(&row, 0, true), [0; 8]);
        assert_eq!(ranks(&[], 3, true), []);
    }
}
