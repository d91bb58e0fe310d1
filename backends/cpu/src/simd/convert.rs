//! Conversions between element types for the op `cast`, and between narrow floats in memory and `f32` in registers.

use std::marker::PhantomData;

use eutectic_ir::{
    DType, FloatFormat,
    round::{of_integer, to_bf16, to_f16},
};
use half::{bf16, f16};

use super::{
    arithmetic::RegisterElement,
    level::{Isa, Level},
    pointwise::{PointFn, Unary, unary, unary_baseline},
    register::with_register,
};

/// A conversion to the element type `D` with the result of the op `cast`.
trait ConvertTo<D> {
    fn to(self) -> D;
}

macro_rules! numeric {
    ($s:ty => $($d:ty),*) => {$(
        impl ConvertTo<$d> for $s {
            #[inline(always)]
            fn to(self) -> $d {
                self as $d
            }
        }
    )*};
    ($($s:ty),*) => {$( numeric!($s => f32, f64, i8, u8, i16, u16, i32, i64, u32); )*};
}
numeric!(f64, i8, u8, i16, u16, i32, i64, u32);
numeric!(f32 => f32, f64, i64, u32);

/// Implements conversions with the result of `as`, in a form that compilers vectorise: numbers are clamped to the
/// range of the integer type before an unchecked conversion.
macro_rules! saturating {
    ($($d:ty),*) => {$(
        impl ConvertTo<$d> for f32 {
            #[inline(always)]
            fn to(self) -> $d {
                // The maximum is rounded down to a number that both types have.
                const LEAST: f32 = <$d>::MIN as f32;
                const MOST: f32 = if <$d>::MAX as f32 as i64 == <$d>::MAX as i64 {
                    <$d>::MAX as f32
                } else {
                    (<$d>::MAX as f32).next_down()
                };
                let x = if self.is_nan() { 0.0 } else { self };
                let x = if x < LEAST { LEAST } else { x };
                let kept = if x > MOST { MOST } else { x };
                // SAFETY: `kept` is between two numbers that `i32` has, and is not NaN.
                let whole = unsafe { kept.to_int_unchecked::<i32>() } as $d;
                if x > MOST { <$d>::MAX } else { whole }
            }
        }
    )*};
}
saturating!(i8, u8, i16, u16, i32);

/// The op `cast` to `D`. It has the semantics of Rust's `as`: conversions of floats to integers saturate, NaN gives 0,
/// and conversions between integers wrap.
struct Cast<S, D>(PhantomData<(S, D)>);
impl<S: ConvertTo<D> + Copy, D: Copy> Unary for Cast<S, D> {
    type In = S;
    type Out = D;
    #[inline(always)]
    fn eval<L: Level>(x: S, _: [f64; 2]) -> D {
        x.to()
    }
}

/// The op `cast` to `bool`: x ≠ 0.
struct Truth<S>(PhantomData<S>);
impl<S: RegisterElement> Unary for Truth<S> {
    type In = S;
    type Out = u8;
    #[inline(always)]
    fn eval<L: Level>(x: S, _: [f64; 2]) -> u8 {
        u8::from(x != S::default())
    }
}

/// A conversion to `f64` such that rounding the result to a narrower float rounds the element correctly.
trait Wide: Copy {
    fn wide(self) -> f64;
}

macro_rules! wide {
    ($($s:ty),*) => {$(
        impl Wide for $s {
            #[inline(always)]
            fn wide(self) -> f64 {
                f64::from(self)
            }
        }
    )*};
}
wide!(f64, f32, i8, u8, i16, u16, i32, u32);

impl Wide for i64 {
    #[inline(always)]
    fn wide(self) -> f64 {
        of_integer(self, DType::F32)
    }
}

/// A narrow float type, whose elements are in registers as `f32`.
trait Half: Copy {
    fn narrow(x: f64) -> Self;
    fn narrow_f32(x: f32) -> Self;
    fn widen(self) -> f32;
}
macro_rules! halves {
    ($($t:ty: $narrow:path),*) => {$(
        impl Half for $t {
            #[inline(always)]
            fn narrow(x: f64) -> $t {
                $narrow(x)
            }
            #[inline(always)]
            fn narrow_f32(x: f32) -> $t {
                <$t>::from_f32(x)
            }
            #[inline(always)]
            fn widen(self) -> f32 {
                self.to_f32()
            }
        }
    )*};
}
halves!(f16: to_f16, bf16: to_bf16);

/// Declares 8-bit float types, named like their element types.
macro_rules! bytes {
    ($($name:ident),*) => {$(
        #[derive(Clone, Copy)]
        struct $name(u8);

        impl $name {
            const FORMAT: FloatFormat = DType::$name.float().expect("the type is a float");
            /// The number for each bit pattern.
            const NUMBERS: [f32; 256] = {
                let mut numbers = [0.0; 256];
                let mut bits = 0;
                while bits < numbers.len() {
                    numbers[bits] = Self::FORMAT.decode(bits as u64) as f32;
                    bits += 1;
                }
                numbers
            };
        }

        impl Half for $name {
            #[inline(always)]
            fn narrow(x: f64) -> $name {
                $name(Self::FORMAT.encode(x) as u8)
            }
            #[inline(always)]
            fn narrow_f32(x: f32) -> $name {
                Self::narrow(x.into())
            }
            #[inline(always)]
            fn widen(self) -> f32 {
                Self::NUMBERS[usize::from(self.0)]
            }
        }
    )*};
}
bytes!(F8E5M2, F8E4M3);

/// The op `cast` to a narrow float `H`, whose result is in a register as `f32`. It rounds only once, even from `f64`.
struct Rounded<S, H>(PhantomData<(S, H)>);
impl<S: Wide, H: Half> Unary for Rounded<S, H> {
    type In = S;
    type Out = f32;
    #[inline(always)]
    fn eval<L: Level>(x: S, _: [f64; 2]) -> f32 {
        H::narrow(x.wide()).widen()
    }
}

/// The op `cast` from `f32` to a narrow float `H`, in a form that is compiled for each instruction-set level.
struct RoundedF32<H>(PhantomData<H>);
impl<H: Half> Unary for RoundedF32<H> {
    type In = f32;
    type Out = f32;
    #[inline(always)]
    fn eval<L: Level>(x: f32, _: [f64; 2]) -> f32 {
        H::narrow_f32(x).widen()
    }
}

/// Converts narrow floats in memory to `f32` in a register.
struct Widen<H>(PhantomData<H>);
impl<H: Half> Unary for Widen<H> {
    type In = H;
    type Out = f32;
    #[inline(always)]
    fn eval<L: Level>(x: H, _: [f64; 2]) -> f32 {
        x.widen()
    }
}

/// Converts `f32` in a register to narrow floats in memory.
struct Narrow<H>(PhantomData<H>);
impl<H: Half> Unary for Narrow<H> {
    type In = f32;
    type Out = H;
    #[inline(always)]
    fn eval<L: Level>(x: f32, _: [f64; 2]) -> H {
        H::narrow_f32(x)
    }
}

/// Returns the function of the op `cast` between the register types of two element types.
pub fn cast(from: DType, to: DType, isa: Isa) -> PointFn {
    fn of<
        S: RegisterElement
            + Wide
            + ConvertTo<f32>
            + ConvertTo<f64>
            + ConvertTo<i8>
            + ConvertTo<u8>
            + ConvertTo<i16>
            + ConvertTo<u16>
            + ConvertTo<i32>
            + ConvertTo<i64>
            + ConvertTo<u32>,
    >(
        to: DType,
        isa: Isa,
    ) -> PointFn {
        match to {
            DType::F32 => unary_baseline::<Cast<S, f32>>(isa),
            DType::F64 => unary_baseline::<Cast<S, f64>>(isa),
            DType::F16 => unary_baseline::<Rounded<S, f16>>(isa),
            DType::Bf16 => unary_baseline::<Rounded<S, bf16>>(isa),
            DType::I8 => unary_baseline::<Cast<S, i8>>(isa),
            DType::U8 => unary_baseline::<Cast<S, u8>>(isa),
            DType::I16 => unary_baseline::<Cast<S, i16>>(isa),
            DType::U16 => unary_baseline::<Cast<S, u16>>(isa),
            DType::I32 => unary_baseline::<Cast<S, i32>>(isa),
            DType::I64 => unary_baseline::<Cast<S, i64>>(isa),
            DType::U32 => unary_baseline::<Cast<S, u32>>(isa),
            DType::Bool => unary_baseline::<Truth<S>>(isa),
            DType::F8E5M2 => unary_baseline::<Rounded<S, F8E5M2>>(isa),
            DType::F8E4M3 => unary_baseline::<Rounded<S, F8E4M3>>(isa),
        }
    }
    match (from.register(), to) {
        #[cfg(target_arch = "x86_64")]
        (DType::F32, DType::F16) if isa >= Isa::Avx2 => return PointFn::plain(f16c::rounded),
        (DType::F32, DType::F16) => return unary::<RoundedF32<f16>>(isa),
        (DType::F32, DType::Bf16) => return unary::<RoundedF32<bf16>>(isa),
        _ => {}
    }
    with_register!(from, Element => of::<Element>(to, isa))
}

/// Conversions of vectors of `f16` with F16C instructions. The crate `half` converts one number at a time.
#[cfg(target_arch = "x86_64")]
mod f16c {
    use std::arch::x86_64::*;

    use crate::simd::pointwise::PointCall;

    const LANES: usize = 8;
    const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT;

    macro_rules! loops {
        ($name:ident: $from:ty, $to:ty, ($at:ident, $out:ident) $body:expr) => {
            #[target_feature(enable = "avx2,fma,f16c")]
            pub unsafe fn $name(call: &PointCall<'_>) {
                let one = |$at: *const $from, $out: *mut $to| {
                    // SAFETY: the pointers have room for a vector of numbers.
                    unsafe { $body }
                };
                let (from, to) = (call.args[0].cast::<$from>(), call.out.cast::<$to>());
                let whole = call.n / LANES * LANES;
                for i in (0..whole).step_by(LANES) {
                    one(from.wrapping_add(i), to.wrapping_add(i));
                }
                if whole < call.n {
                    let (mut x, mut y) = ([<$from>::default(); LANES], [<$to>::default(); LANES]);
                    // SAFETY: `PointCall` promises the elements.
                    unsafe {
                        x.as_mut_ptr().copy_from_nonoverlapping(from.add(whole), call.n - whole);
                        one(x.as_ptr(), y.as_mut_ptr());
                        to.add(whole).copy_from_nonoverlapping(y.as_ptr(), call.n - whole);
                    }
                }
            }
        };
    }
    loops!(widen: u16, f32, (at, out) _mm256_storeu_ps(out, _mm256_cvtph_ps(_mm_loadu_si128(at.cast()))));
    loops!(narrow: f32, u16, (at, out) _mm_storeu_si128(out.cast(), _mm256_cvtps_ph::<NEAREST>(_mm256_loadu_ps(at))));
    loops!(rounded: f32, f32, (at, out) {
        _mm256_storeu_ps(out, _mm256_cvtph_ps(_mm256_cvtps_ph::<NEAREST>(_mm256_loadu_ps(at))));
    });
}

/// Returns the conversion from an element type in memory to its register type; `None` if the two are equal.
pub fn widen(memory: DType, isa: Isa) -> Option<PointFn> {
    match memory {
        #[cfg(target_arch = "x86_64")]
        DType::F16 if isa >= Isa::Avx2 => Some(PointFn::plain(f16c::widen)),
        DType::F16 => Some(unary::<Widen<f16>>(isa)),
        DType::Bf16 => Some(unary::<Widen<bf16>>(isa)),
        DType::F8E5M2 => Some(unary_baseline::<Widen<F8E5M2>>(isa)),
        DType::F8E4M3 => Some(unary_baseline::<Widen<F8E4M3>>(isa)),
        _ => None,
    }
}

/// Returns the conversion from a register type to the element type in memory; `None` if the two are equal.
pub fn narrow(memory: DType, isa: Isa) -> Option<PointFn> {
    match memory {
        #[cfg(target_arch = "x86_64")]
        DType::F16 if isa >= Isa::Avx2 => Some(PointFn::plain(f16c::narrow)),
        DType::F16 => Some(unary::<Narrow<f16>>(isa)),
        DType::Bf16 => Some(unary::<Narrow<bf16>>(isa)),
        DType::F8E5M2 => Some(unary_baseline::<Narrow<F8E5M2>>(isa)),
        DType::F8E4M3 => Some(unary_baseline::<Narrow<F8E4M3>>(isa)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_become_integers_as_by_the_operator() {
        let near = [
            0.0_f32,
            127.0,
            128.0,
            255.0,
            256.0,
            32_768.0,
            65_535.0,
            65_536.0,
            2_147_483_648.0,
            f32::MAX,
            f32::INFINITY,
            f32::NAN,
        ];
        let near = near.into_iter().flat_map(|x| [x, x.next_down(), x.next_up(), x - 0.5, x + 0.5]);
        let any = (0..1_000_000_u32).map(|i| f32::from_bits(i.wrapping_mul(2_654_435_761)));
        for x in near.flat_map(|x| [x, -x]).chain(any) {
            let got: (i8, u8, i16, u16, i32) = (x.to(), x.to(), x.to(), x.to(), x.to());
            assert_eq!(got, (x as i8, x as u8, x as i16, x as u16, x as i32), "{x:e}");
        }
    }
}
