//! Reductions of dense rows, a part of a row at a time.
//!
//! Within a part, many accumulators run side by side (a fixed number, so that results do not depend on the machine's vector
//! length); parts are combined in `f64`, or in wrapping `i64` for integers.

use std::marker::PhantomData;

use eutectic_ir::{DType, ops::Reduction};

use super::{Baseline, Isa, Level, arithmetic::Number, per_level};

/// Reduces `n` elements at the first pointer into the 8-byte accumulator; `true` starts it anew.
pub type Accumulate = unsafe fn(*const u8, usize, *mut u8, bool);
/// Writes an accumulator as an element.
pub type Finish = unsafe fn(*const u8, *mut u8);

/// How a type accumulates.
pub trait Wide: Number {
    /// The accumulator.
    type Acc: Number;
    /// Into the accumulator.
    fn wide(self) -> Self::Acc;
    /// Out of the accumulator.
    fn narrow(acc: Self::Acc) -> Self;
    /// The identity of a reduction.
    fn identity(how: Reduction) -> Self::Acc;
}

macro_rules! wide {
    ($acc:ty, $low:expr, $high:expr, $($t:ty),*) => {$(
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
        }
    )*};
}
wide!(f64, |_| f64::NEG_INFINITY, |_| f64::INFINITY, f32, f64);
wide!(i64, i64::from, i64::from, i8, u8, i32, i64, u32);

/// A way to combine.
pub trait Combine {
    /// Which.
    const HOW: Reduction;
    /// Whether NaN are to be looked for beside it: a comparison that they decide takes several instructions.
    const COMPARES: bool;
    /// Two into one; where it compares, a NaN `b` is passed over.
    fn lane<T: Number>(a: T, b: T) -> T;
    /// Two into one.
    #[inline(always)]
    fn combine<T: Number>(a: T, b: T) -> T {
        if Self::COMPARES && b.is_nan() { b } else { Self::lane(a, b) }
    }
}

macro_rules! combine {
    ($($name:ident, $compares:literal, ($a:ident, $b:ident) { $e:expr })*) => {$(
        /// See [`Reduction`].
        pub struct $name;
        impl Combine for $name {
            const HOW: Reduction = Reduction::$name;
            const COMPARES: bool = $compares;
            #[inline(always)]
            fn lane<T: Number>($a: T, $b: T) -> T {
                $e
            }
        }
    )*};
}
combine! {
    Sum, false, (a, b) { a.plus(b) }
    Product, false, (a, b) { a.times(b) }
    Max, true, (a, b) { if b > a { b } else { a } }
    Min, true, (a, b) { if b < a { b } else { a } }
}

const LANES: usize = 64;

/// The reduction of a row by accumulators side by side; `None` for rows shorter than their number.
#[inline(always)]
fn lanes<T: Number, C: Combine>(row: &[T]) -> Option<T> {
    let (chunks, rest) = row.as_chunks::<LANES>();
    let (first, chunks) = chunks.split_first()?;
    let (mut acc, mut nan) = (*first, Nan::<T>::default());
    nan.look::<C>(first);
    for chunk in chunks {
        for (a, &x) in acc.iter_mut().zip(chunk) {
            *a = C::lane(*a, x);
        }
        nan.look::<C>(chunk);
    }
    for (a, &x) in acc.iter_mut().zip(rest) {
        *a = C::lane(*a, x);
    }
    nan.look::<C>(rest);
    halve::<T, C, 32>(&mut acc);
    halve::<T, C, 16>(&mut acc);
    halve::<T, C, 8>(&mut acc);
    halve::<T, C, 4>(&mut acc);
    halve::<T, C, 2>(&mut acc);
    halve::<T, C, 1>(&mut acc);
    Some(nan.found().unwrap_or(acc[0]))
}

/// The NaN of a row: in each lane the last one, or zero.
#[derive(Default)]
struct Nan<T>([T; 16]);

impl<T: Number> Nan<T> {
    #[inline(always)]
    fn look<C: Combine>(&mut self, row: &[T]) {
        if C::COMPARES {
            for part in row.chunks(16) {
                for (nan, &x) in self.0.iter_mut().zip(part) {
                    *nan = if x.is_nan() { x } else { *nan };
                }
            }
        }
    }

    #[inline(always)]
    fn found(self) -> Option<T> {
        let any = self.0.iter().fold(false, |any, x| any | x.is_nan());
        // Zeros and NaN.
        any.then(|| self.0.into_iter().fold(T::default(), T::plus))
    }
}

/// Combines the second `WIDTH` accumulators into the first ones; a constant, so that none of them leaves its register.
#[inline(always)]
fn halve<T: Number, C: Combine, const WIDTH: usize>(acc: &mut [T; LANES]) {
    for i in 0..WIDTH {
        acc[i] = C::lane(acc[i], acc[i + WIDTH]);
    }
}

/// The reduction of a dense row; rows shorter than the number of accumulators one by one.
#[inline(always)]
pub fn reduce_row<T: Wide, C: Combine>(row: &[T]) -> T::Acc {
    match lanes::<T, C>(row) {
        Some(x) => x.wide(),
        None => row.iter().fold(T::identity(C::HOW), |acc, &x| C::combine(acc, x.wide())),
    }
}

struct Of<T, C>(PhantomData<(T, C)>);

/// A reduction of a type.
pub trait Accumulator {
    /// Reduces a part of a row.
    ///
    /// # Safety
    /// As [`Accumulate`].
    unsafe fn accumulate<L: Level>(row: *const u8, n: usize, acc: *mut u8, first: bool);
}

impl<T: Wide, C: Combine> Accumulator for Of<T, C> {
    #[inline(always)]
    unsafe fn accumulate<L: Level>(row: *const u8, n: usize, acc: *mut u8, first: bool) {
        // SAFETY: the caller gives `n` elements and an aligned accumulator.
        unsafe {
            let part = reduce_row::<T, C>(std::slice::from_raw_parts(row.cast(), n));
            let acc = acc.cast::<T::Acc>();
            acc.write(if first { part } else { C::combine(acc.read(), part) });
        }
    }
}

#[inline(always)]
unsafe fn run<A: Accumulator, L: Level>(row: *const u8, n: usize, acc: *mut u8, first: bool) {
    // SAFETY: the caller keeps the contract.
    unsafe { A::accumulate::<L>(row, n, acc, first) }
}

per_level! {
    /// The loop of a reduction.
    accumulate<A: Accumulator>(row: *const u8, n: usize, acc: *mut u8, first: bool) = run
}

unsafe fn finish<T: Wide>(acc: *const u8, out: *mut u8) {
    // SAFETY: both are aligned and of their type.
    unsafe { out.cast::<T>().write(T::narrow(acc.cast::<T::Acc>().read())) }
}

/// The functions of a reduction over what registers hold for an element type.
pub fn find(how: Reduction, dtype: DType, isa: Isa) -> (Accumulate, Finish) {
    fn of<T: Wide>(how: Reduction) -> (Accumulate, Finish) {
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
    match super::convert::register(dtype) {
        DType::F64 => of::<f64>(how),
        DType::I8 => of::<i8>(how),
        DType::U8 | DType::Bool => of::<u8>(how),
        DType::I32 => of::<i32>(how),
        DType::I64 => of::<i64>(how),
        DType::U32 => of::<u32>(how),
        _ => (accumulate, finish::<f32>),
    }
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
            assert_eq!(reduce_row::<f32, Max>(&row), f64::from(largest), "of {n}");
            assert_eq!(reduce_row::<f32, Min>(&row), f64::from(least), "of {n}");
            for at in 0..n {
                let mut row = row.clone();
                row[at] = f32::NAN;
                assert!(reduce_row::<f32, Max>(&row).is_nan(), "{at} of {n}");
                assert!(reduce_row::<f32, Min>(&row).is_nan(), "{at} of {n}");
            }
        }
    }
}
