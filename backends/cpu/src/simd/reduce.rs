//! Reductions of contiguous rows, one part of a row after the other.
//!
//! For floats, a part is reduced with many accumulators. Their number is fixed, so that results do not depend on the
//! machine's vector length. The results of parts are combined in `f64`. Integers wrap, and are combined in `i64`.

use std::marker::PhantomData;

use eutectic_ir::{DType, ops::Reduction};

use super::{
    arithmetic::Arithmetic,
    level::{Baseline, Isa, Level, per_level},
    register::{Register, integer_types, with_integer, with_register},
    vector::Vector,
};

/// A function that reduces elements into an 8-byte accumulator. Its arguments are the first element, the number of
/// elements, the accumulator, and whether the accumulator is reset before.
pub type Accumulate = unsafe fn(*const u8, usize, *mut u8, bool);
/// A function that converts an accumulator to an element and writes it.
pub type FinishFn = unsafe fn(*const u8, *mut u8);

/// An element type with its accumulator type.
pub trait Wide: Arithmetic {
    /// The accumulator type.
    type Acc: Arithmetic;
    /// Converts an element to the accumulator type.
    fn wide(self) -> Self::Acc;
    /// Converts an accumulator to the element type.
    fn narrow(acc: Self::Acc) -> Self;
    /// Returns the identity of a reduction.
    fn identity(how: Reduction) -> Self::Acc;
    /// Reduces contiguous elements.
    fn reduce<C: Combine, L: Level>(row: &[Self]) -> Self::Acc;
}

macro_rules! wide {
    ($acc:ty, $low:expr, $high:expr, ($c:ident, $l:ident, $row:ident) $reduce:expr, $($t:ty),*) => {$(
        impl Wide for $t {
            type Acc = $acc;
            #[inline(always)]
            fn wide(self) -> $acc {
                self as $acc
            }
            #[inline(always)]
            fn narrow(acc: $acc) -> $t {
                acc as $t
            }
            #[inline(always)]
            fn identity(how: Reduction) -> $acc {
                match how {
                    Reduction::Sum => 0 as $acc,
                    Reduction::Product => 1 as $acc,
                    Reduction::Max => $low(<$t>::MIN),
                    Reduction::Min => $high(<$t>::MAX),
                }
            }
            #[inline(always)]
            fn reduce<$c: Combine, $l: Level>($row: &[$t]) -> $acc {
                $reduce
            }
        }
    )*};
}
wide!(f64, |_| f64::NEG_INFINITY, |_| f64::INFINITY, (C, L, row) side_by_side::<f32, L::Floats, C>(row).wide(), f32);
wide!(f64, |_| f64::NEG_INFINITY, |_| f64::INFINITY, (C, L, row) side_by_side::<f64, L::Doubles, C>(row), f64);
macro_rules! wide_integers {
    ($($t:ty),*) => {
        wide!(
            i64,
            i64::from,
            i64::from,
            // Integers are reduced in their own type, which has more lanes per vector than `i64`. Because they wrap,
            // the result is equal.
            (C, L, row) row.iter().fold(Self::narrow(Self::identity(C::HOW)), |acc, &x| C::combine(acc, x)).wide(),
            $($t),*
        );
    };
}
integer_types!(wide_integers);

/// The operation of a reduction.
pub trait Combine {
    /// The reduction.
    const HOW: Reduction;
    /// Whether loops must search for NaN separately, because the operation is a comparison and ignores NaN. A
    /// comparison that propagates NaN would take several instructions.
    const COMPARES: bool;
    /// Combines two elements. A comparison ignores `b` if it is NaN.
    fn lane<T: Arithmetic>(a: T, b: T) -> T;
    /// Combines two vectors lane by lane, like [`Combine::lane`].
    ///
    /// # Safety
    /// As the functions of [`Vector`].
    unsafe fn vector<V: Vector>(a: V, b: V) -> V;
    /// Combines two elements. The result is NaN if one of them is NaN.
    #[inline(always)]
    fn combine<T: Arithmetic>(a: T, b: T) -> T {
        if Self::COMPARES && b.is_nan() { b } else { Self::lane(a, b) }
    }
}

macro_rules! combine {
    ($($name:ident, $compares:literal, ($a:ident, $b:ident) { $lane:expr, $vector:expr })*) => {$(
        /// The operation of the [`Reduction`] of this name.
        pub struct $name;
        impl Combine for $name {
            const HOW: Reduction = Reduction::$name;
            const COMPARES: bool = $compares;
            #[inline(always)]
            fn lane<T: Arithmetic>($a: T, $b: T) -> T {
                $lane
            }
            #[inline(always)]
            unsafe fn vector<V: Vector>($a: V, $b: V) -> V {
                // SAFETY: the caller keeps this function's contract.
                unsafe { $vector }
            }
        }
    )*};
}
combine! {
    Sum, false, (a, b) { a.plus(b), a.add(b) }
    Product, false, (a, b) { a.times(b), a.mul(b) }
    Max, true, (a, b) { if b > a { b } else { a }, a.at_least(b) }
    Min, true, (a, b) { if b < a { b } else { a }, a.at_most(b) }
}

/// The number of accumulators.
const LANES: usize = 64;
/// The number of vectors of accumulators for the narrowest vectors, of two lanes.
const VECTORS: usize = 32;

/// Reduces a row of floats with vectors of a level. The machine must have the level.
#[inline(always)]
fn side_by_side<T: Wide, V: Vector<Element = T>, C: Combine>(row: &[T]) -> T {
    let (chunks, rest) = row.as_chunks::<LANES>();
    // SAFETY: this function is inlined into functions of the level, and vectors are read from within the row.
    unsafe {
        let identity = V::splat(T::narrow(T::identity(C::HOW)));
        let (mut acc, mut nan) = ([identity; VECTORS], V::zero());
        let mut take = |acc: &mut V, x: V| {
            if C::COMPARES {
                nan = nan.or_nan(x);
            }
            *acc = C::vector(*acc, x);
        };
        for chunk in chunks {
            for (j, acc) in acc.iter_mut().enumerate().take(LANES / V::LANES) {
                take(acc, V::load(chunk.as_ptr().add(j * V::LANES)));
            }
        }
        for (j, acc) in acc.iter_mut().enumerate().take(LANES / V::LANES) {
            let left = rest.len().saturating_sub(j * V::LANES);
            if left >= V::LANES {
                take(acc, V::load(rest.as_ptr().add(j * V::LANES)));
            } else if left > 0 {
                take(acc, identity.load_over(rest.as_ptr().add(j * V::LANES), left));
            }
        }
        halve::<V, C, 16>(&mut acc);
        halve::<V, C, 8>(&mut acc);
        halve::<V, C, 4>(&mut acc);
        halve::<V, C, 2>(&mut acc);
        halve::<V, C, 1>(&mut acc);
        let nan = nan.sum();
        if nan.is_nan() { nan } else { acc[0].fold(|a, b| C::vector(a, b)) }
    }
}

/// Combines the second `COUNT` vectors of accumulators with the first `COUNT`, if there are as many. `COUNT` is a
/// constant, so that the vectors stay in registers.
///
/// # Safety
/// The machine must have the instruction set.
#[inline(always)]
unsafe fn halve<V: Vector, C: Combine, const COUNT: usize>(acc: &mut [V; VECTORS]) {
    if 2 * COUNT * V::LANES <= LANES {
        for i in 0..COUNT {
            // SAFETY: the caller keeps this function's contract.
            acc[i] = unsafe { C::vector(acc[i], acc[i + COUNT]) };
        }
    }
}

struct Of<T, C>(PhantomData<(T, C)>);

/// A reduction of elements of one type.
pub trait Accumulator {
    /// Reduces a part of a row into the accumulator.
    ///
    /// # Safety
    /// The row must have `n` elements, and `acc` must point to an accumulator of eight bytes.
    unsafe fn accumulate<L: Level>(row: *const u8, n: usize, acc: *mut u8, first: bool);
}

impl<T: Wide, C: Combine> Accumulator for Of<T, C> {
    #[inline(always)]
    unsafe fn accumulate<L: Level>(row: *const u8, n: usize, acc: *mut u8, first: bool) {
        // SAFETY: the caller gives `n` elements and an aligned accumulator.
        unsafe {
            let part = T::reduce::<C, L>(std::slice::from_raw_parts(row.cast(), n));
            let acc = acc.cast::<T::Acc>();
            acc.write(if first { part } else { C::combine(acc.read(), part) });
        }
    }
}

/// Reduces a part of a row into an accumulator.
///
/// # Safety
/// The row must have `n` elements, `acc` must point to an accumulator, and the machine must have the instruction set.
#[inline(always)]
unsafe fn run<A: Accumulator, L: Level>(row: *const u8, n: usize, acc: *mut u8, first: bool) {
    // SAFETY: the caller keeps the contract.
    unsafe { A::accumulate::<L>(row, n, acc, first) }
}

per_level! {
    /// Returns the function that reduces a part of a row.
    accumulate<A: Accumulator>(row: *const u8, n: usize, acc: *mut u8, first: bool) = run
}

/// Converts an accumulator to an element.
///
/// # Safety
/// `acc` must point to an accumulator of this type, and `out` to memory for an element.
unsafe fn finish<T: Wide>(acc: *const u8, out: *mut u8) {
    // SAFETY: both pointers are aligned and point to their types.
    unsafe { out.cast::<T>().write(T::narrow(acc.cast::<T::Acc>().read())) }
}

/// Returns the functions of a reduction of elements of the register type of an element type.
pub fn find(how: Reduction, dtype: DType, isa: Isa) -> (Accumulate, FinishFn) {
    fn of<T: Wide>(how: Reduction) -> (Accumulate, FinishFn) {
        let accumulate: Accumulate = match how {
            Reduction::Sum => run::<Of<T, Sum>, Baseline>,
            Reduction::Product => run::<Of<T, Product>, Baseline>,
            Reduction::Max => run::<Of<T, Max>, Baseline>,
            Reduction::Min => run::<Of<T, Min>, Baseline>,
        };
        (accumulate, finish::<T>)
    }
    let accumulate = match how {
        Reduction::Sum => accumulate::<Of<f32, Sum>>(isa),
        Reduction::Product => accumulate::<Of<f32, Product>>(isa),
        Reduction::Max => accumulate::<Of<f32, Max>>(isa),
        Reduction::Min => accumulate::<Of<f32, Min>>(isa),
    };
    match Register::of(dtype) {
        Register::F32 => (accumulate, finish::<f32>),
        Register::F64 => of::<f64>(how),
        _ => with_integer!(dtype, Int => of::<Int>(how)),
    }
}

/// The functions of a store that combines values with a buffer's contents, in order.
#[derive(Clone, Copy, Debug)]
pub struct Combining {
    /// Combines strided elements with strided elements: `(dst, dst_stride, src, src_stride, len)`, strides in elements.
    pub line: unsafe fn(*mut u8, isize, *const u8, isize, usize),
    /// Combines strided elements with elements at given positions of a buffer.
    pub each: ScatterFn,
}

/// A function that stores strided elements, each at its own position in a buffer. Its arguments are the buffer, the
/// positions, the first element and the stride. Elements with a negative position are not stored.
pub type ScatterFn = unsafe fn(*mut u8, &[i64], *const u8, isize);

/// Combines strided elements with strided elements.
///
/// # Safety
/// Both ranges must have `n` elements, and must not overlap. With stride 0, the target may be one element.
unsafe fn combine_line<T: Wide, C: Combine>(to: *mut u8, step: isize, from: *const u8, from_stride: isize, n: usize) {
    let (to, from) = (to.cast::<T>(), from.cast::<T>());
    if [step, from_stride] == [1, 1] {
        // SAFETY: the caller keeps this function's contract.
        let (to, from) = unsafe { (std::slice::from_raw_parts_mut(to, n), std::slice::from_raw_parts(from, n)) };
        return to.iter_mut().zip(from).for_each(|(to, &from)| *to = C::combine(*to, from));
    }
    for j in 0..n as isize {
        // SAFETY: the caller keeps this function's contract.
        unsafe {
            let to = to.offset(j * step);
            to.write(C::combine(to.read(), from.offset(j * from_stride).read()));
        }
    }
}

/// Combines strided elements with elements at given positions of a buffer.
///
/// # Safety
/// The buffer must have elements at the positions, and the source must have an element for each position.
unsafe fn combine_each<T: Wide, C: Combine>(buffer: *mut u8, places: &[i64], from: *const u8, from_stride: isize) {
    let (buffer, from) = (buffer.cast::<T>(), from.cast::<T>());
    for (j, &place) in (0..).zip(places).filter(|(_, place)| **place >= 0) {
        // SAFETY: the caller keeps this function's contract.
        unsafe {
            let to = buffer.offset(place as isize);
            to.write(C::combine(to.read(), from.offset(j * from_stride).read()));
        }
    }
}

/// Returns the functions that combine stored values with a buffer's contents. Returns `None` for `bool` and for types
/// that have another register type, such as 16-bit floats, because every combination would be rounded.
pub fn combining(how: Reduction, dtype: DType) -> Option<Combining> {
    fn with<T: Wide, C: Combine>() -> Combining {
        Combining { line: combine_line::<T, C>, each: combine_each::<T, C> }
    }
    fn of<T: Wide>(how: Reduction) -> Combining {
        match how {
            Reduction::Sum => with::<T, Sum>(),
            Reduction::Product => with::<T, Product>(),
            Reduction::Max => with::<T, Max>(),
            Reduction::Min => with::<T, Min>(),
        }
    }
    if dtype == DType::Bool || dtype.register() != dtype {
        return None;
    }
    Some(with_register!(dtype, Element => of::<Element>(how)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_of_a_row_is_its_nan_wherever_that_is() {
        for n in [1, 63, 64, 65, 128, 200] {
            let row: Vec<f32> = (0..n).map(|i| ((i * 37) % 101) as f32 - 50.0).collect();
            let (largest, least) =
                (row.iter().fold(f32::MIN, |m, &x| m.max(x)), row.iter().fold(f32::MAX, |m, &x| m.min(x)));
            assert_eq!(f32::reduce::<Max, Baseline>(&row), f64::from(largest), "of {n}");
            assert_eq!(f32::reduce::<Min, Baseline>(&row), f64::from(least), "of {n}");
            for at in 0..n {
                let mut row = row.clone();
                row[at] = f32::NAN;
                assert!(f32::reduce::<Max, Baseline>(&row).is_nan(), "{at} of {n}");
                assert!(f32::reduce::<Min, Baseline>(&row).is_nan(), "{at} of {n}");
            }
        }
    }
}
