//! Vectors of floats, of the size of one vector register, for hand-written loops such as micro-kernels.

#[cfg(target_arch = "x86_64")]
mod x86;

/// Whether the target guarantees a fused multiply-add instruction.
pub const FMA: bool = cfg!(any(target_feature = "fma", target_arch = "aarch64"));

/// A vector of as many floats as a vector register has.
///
/// # Safety of its functions
/// The machine must have the instruction set. Pointers must be valid for the elements that are read or written, at any
/// alignment. Code that calls these functions must be inlined into a function with the target feature.
#[allow(clippy::missing_safety_doc)]
pub trait Vector: Copy {
    /// The element type.
    type Element: Copy;
    /// The number of elements.
    const LANES: usize;
    /// Returns zeros.
    unsafe fn zero() -> Self;
    /// Returns one number in every lane.
    unsafe fn splat(x: Self::Element) -> Self;
    /// Loads `LANES` elements.
    unsafe fn load(at: *const Self::Element) -> Self;
    /// Loads `n` elements into the first lanes, and zeros into the others. No further elements are read.
    unsafe fn load_part(at: *const Self::Element, n: usize) -> Self;
    /// Loads `n` elements into the first lanes, and keeps the other lanes of `self`. No further elements are read.
    unsafe fn load_over(self, at: *const Self::Element, n: usize) -> Self;
    /// Stores all lanes.
    unsafe fn store(self, at: *mut Self::Element);
    /// Stores the first `n` lanes.
    unsafe fn store_part(self, at: *mut Self::Element, n: usize);
    /// Returns `self`·b + c, with one rounding if the level has fused multiply-add.
    unsafe fn mul_add(self, b: Self, c: Self) -> Self;
    /// Returns `self` + b.
    unsafe fn add(self, b: Self) -> Self;
    /// Returns `self`·b.
    unsafe fn mul(self, b: Self) -> Self;
    /// Returns the larger element in each lane; the element of `self` if one of the two is NaN.
    unsafe fn at_least(self, b: Self) -> Self;
    /// Returns the smaller element in each lane; the element of `self` if one of the two is NaN.
    unsafe fn at_most(self, b: Self) -> Self;
    /// Returns the element of b in lanes in which it is NaN, and otherwise the element of `self`.
    unsafe fn or_nan(self, b: Self) -> Self;
    /// Interleaves the lanes of two vectors: the first result has the lower halves, and the second the upper halves.
    unsafe fn zip(self, b: Self) -> (Self, Self);
    /// Returns a vector whose first lanes are the lanes from number `N` on; `N` is 1, 2, 4 or 8.
    unsafe fn upper<const N: usize>(self) -> Self;
    /// Returns the lanes moved to positions higher by `N`. The first `N` lanes are the last lanes of `other`. `N` is 1,
    /// 2, 4 or 8, and less than the number of lanes.
    unsafe fn behind<const N: usize>(self, other: Self) -> Self;
    /// Returns the lanes in the opposite order.
    unsafe fn turned(self) -> Self;
    /// Returns the first lane.
    unsafe fn first(self) -> Self::Element;
    /// Combines all lanes into one element, in a tree: each step combines the upper half with the lower half.
    #[inline(always)]
    unsafe fn fold(self, combine: impl Fn(Self, Self) -> Self) -> Self::Element {
        let mut all = self;
        // SAFETY: the caller keeps this function's contract. Steps are written out so that vectors stay in registers.
        unsafe {
            if Self::LANES > 8 {
                all = combine(all, all.upper::<8>());
            }
            if Self::LANES > 4 {
                all = combine(all, all.upper::<4>());
            }
            if Self::LANES > 2 {
                all = combine(all, all.upper::<2>());
            }
            combine(all, all.upper::<1>()).first()
        }
    }
    /// Returns the sum of all lanes.
    #[inline(always)]
    unsafe fn sum(self) -> Self::Element {
        // SAFETY: the caller keeps this function's contract.
        unsafe { self.fold(|a, b| a.add(b)) }
    }
    /// Prefetches the cache line of an address into all cache levels. The address need not be valid.
    #[inline(always)]
    unsafe fn prefetch(_: *const Self::Element) {}
    /// Prefetches the cache line of an address into the second-level cache. The address need not be valid.
    #[inline(always)]
    unsafe fn prefetch_outer(_: *const Self::Element) {}
}

/// A vector for any machine. The compiler maps it to as many registers as necessary.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Lanes<T, const N: usize>(pub(super) [T; N]);

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
                // SAFETY: the caller promises the elements.
                unsafe { Self::zero().load_over(at, n) }
            }
            #[inline(always)]
            unsafe fn load_over(self, at: *const $t, n: usize) -> Self {
                let mut x = self.0;
                // SAFETY: the caller promises the elements.
                (0..n.min(N)).for_each(|i| x[i] = unsafe { at.add(i).read() });
                Lanes(x)
            }
            #[inline(always)]
            unsafe fn store(self, at: *mut $t) {
                // SAFETY: the caller promises the elements.
                unsafe { at.cast::<[$t; N]>().write_unaligned(self.0) }
            }
            #[inline(always)]
            unsafe fn store_part(self, at: *mut $t, n: usize) {
                // SAFETY: the caller promises the elements.
                (0..n.min(N)).for_each(|i| unsafe { at.add(i).write(self.0[i]) });
            }
            #[inline(always)]
            unsafe fn mul_add(self, b: Self, c: Self) -> Self {
                let fused = |i: usize| if FMA { self.0[i].mul_add(b.0[i], c.0[i]) } else { self.0[i] * b.0[i] + c.0[i] };
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
            unsafe fn at_most(self, b: Self) -> Self {
                Lanes(std::array::from_fn(|i| if self.0[i] > b.0[i] { b.0[i] } else { self.0[i] }))
            }
            #[inline(always)]
            unsafe fn or_nan(self, b: Self) -> Self {
                Lanes(std::array::from_fn(|i| if b.0[i].is_nan() { b.0[i] } else { self.0[i] }))
            }
            #[inline(always)]
            unsafe fn zip(self, b: Self) -> (Self, Self) {
                let at = |i: usize| if i.is_multiple_of(2) { self.0[i / 2] } else { b.0[i / 2] };
                (Lanes(std::array::from_fn(at)), Lanes(std::array::from_fn(|i| at(i + N))))
            }
            #[inline(always)]
            unsafe fn upper<const LANE: usize>(self) -> Self {
                Lanes(std::array::from_fn(|i| self.0[(i + LANE).min(N - 1)]))
            }
            #[inline(always)]
            unsafe fn behind<const LANE: usize>(self, other: Self) -> Self {
                let at = |i: usize| if i >= LANE { self.0[i - LANE] } else { other.0[(N + i).saturating_sub(LANE)] };
                Lanes(std::array::from_fn(at))
            }
            #[inline(always)]
            unsafe fn turned(self) -> Self {
                Lanes(std::array::from_fn(|i| self.0[N - 1 - i]))
            }
            #[inline(always)]
            unsafe fn first(self) -> $t {
                self.0[0]
            }
        }
    )*};
}
portable!(f32, f64);

/// A square of elements: `LANES` rows, each of them a vector. Further vectors are unused.
pub type Square<V> = [V; 16];

/// Transposes a square.
///
/// # Safety
/// As the functions of [`Vector`].
#[inline(always)]
pub unsafe fn transpose<V: Vector>(square: Square<V>) -> Square<V> {
    // Each step interleaves the lower half of the rows with the upper half. Steps are written out so that the vectors
    // stay in registers.
    let mut square = square;
    // SAFETY: the caller keeps this function's contract.
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

/// Interleaves the first half of the rows of a square with the second half.
///
/// # Safety
/// The machine must have the instruction set.
#[inline(always)]
unsafe fn interleave<V: Vector>(square: Square<V>) -> Square<V> {
    let mut next = square;
    for i in 0..V::LANES / 2 {
        // SAFETY: the caller keeps this function's contract.
        (next[2 * i], next[2 * i + 1]) = unsafe { square[i].zip(square[i + V::LANES / 2]) };
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::level::at_every_level;

    /// Checks [`Vector::behind`] for one `N`, if the vector has more lanes.
    #[inline(always)]
    unsafe fn exercise_moves<V: Vector<Element = f32>, const N: usize>(numbers: *const f32) {
        let n = V::LANES;
        if N >= n {
            return;
        }
        let mut got = vec![0.0; n];
        // SAFETY: the caller keeps this function's contract.
        unsafe { V::load(numbers.add(n)).behind::<N>(V::load(numbers)).store(got.as_mut_ptr()) };
        assert!((0..n).all(|i| got[i] == (n - N + i) as f32), "{N} of {n}: {got:?}");
    }

    /// Checks the functions of a vector type with numbers that are equal to their positions.
    #[inline(always)]
    unsafe fn exercise<V: Vector<Element = f32>>() {
        let n = V::LANES;
        let numbers: Vec<f32> = (0..n * n).map(|i| i as f32).collect();
        let at = |i: usize| numbers[i..].as_ptr();
        // SAFETY: the caller checked for the instruction set, and the buffers have as many elements.
        unsafe {
            let square = std::array::from_fn(|i| if i < n { V::load(at(i * n)) } else { V::zero() });
            for (j, column) in transpose::<V>(square).iter().enumerate().take(n) {
                let mut got = vec![0.0; n];
                column.store(got.as_mut_ptr());
                assert!((0..n).all(|i| got[i] == (i * n + j) as f32), "column {j}: {got:?}");
            }
            let all = V::load(at(0));
            assert_eq!(all.sum(), (n * (n - 1) / 2) as f32);
            assert_eq!(all.fold(|a, b| a.at_least(b)), (n - 1) as f32);
            assert!(all.turned().first() == (n - 1) as f32);
            exercise_moves::<V, 1>(at(0));
            exercise_moves::<V, 2>(at(0));
            exercise_moves::<V, 4>(at(0));
            exercise_moves::<V, 8>(at(0));
            let (nan, five) = (V::splat(f32::NAN), V::splat(5.0));
            assert_eq!(all.at_most(five).fold(|a, b| a.at_least(b)), 5.0_f32.min((n - 1) as f32));
            assert_eq!([five.at_least(nan), five.at_most(nan), five.or_nan(all)].map(|v| v.first()), [5.0; 3]);
            assert!([nan.at_least(five), nan.at_most(five), five.or_nan(nan)].iter().all(|v| v.first().is_nan()));
            for part in 0..=n {
                // The last element that is read is the last of the allocation, so Miri reports any read beyond it.
                let loaded = V::load_part(numbers[n * n - part..].as_ptr(), part);
                let mut got = vec![-1.0; n];
                loaded.store(got.as_mut_ptr());
                let want = |i: usize, other| if i < part { (n * n - part + i) as f32 } else { other };
                assert!((0..n).all(|i| got[i] == want(i, 0.0)), "{part} of {n}: {got:?}");
                five.load_over(numbers[n * n - part..].as_ptr(), part).store(got.as_mut_ptr());
                assert!((0..n).all(|i| got[i] == want(i, 5.0)), "{part} of {n}: {got:?}");
                let mut got = vec![-1.0; n];
                V::load(at(0)).store_part(got.as_mut_ptr(), part);
                assert!((0..n).all(|i| got[i] == if i < part { i as f32 } else { -1.0 }), "{part} of {n}: {got:?}");
            }
        }
    }

    #[test]
    fn every_level_moves_lanes_as_documented() {
        at_every_level!(exercise);
    }
}
