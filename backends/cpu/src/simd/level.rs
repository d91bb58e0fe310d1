//! Instruction-set levels, and a macro that compiles a function for each level.

use std::marker::PhantomData;

use super::vector::{self, Lanes, Vector};

/// The instruction-set levels for which functions are compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// The instructions that the compilation target guarantees.
    Portable,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// x86-64 with AVX-512 F, VL, BW and DQ.
    Avx512,
}

impl Isa {
    /// Returns the highest level of the machine that executes the call.
    pub fn detect() -> Isa {
        #[cfg(target_arch = "x86_64")]
        {
            let wide = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq");
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c") {
                return if wide { Isa::Avx512 } else { Isa::Avx2 };
            }
        }
        Isa::Portable
    }

    /// Returns the name of the level, for reports.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Avx2 => "AVX2",
            Isa::Avx512 => "AVX-512",
        }
    }
}

/// The properties of a level that generic code depends on.
pub trait Level: Copy {
    /// Whether a fused multiply-add is one instruction.
    const FMA: bool;
    /// The vectors of `f32`.
    type Floats: Vector<Element = f32>;
    /// The vectors of `f64`.
    type Doubles: Vector<Element = f64>;

    /// Returns a·b + c, with one rounding if the level has fused multiply-add.
    #[inline(always)]
    fn fma(a: f32, b: f32, c: f32) -> f32 {
        if Self::FMA { a.mul_add(b, c) } else { a * b + c }
    }
}

/// The level of [`Isa::Portable`].
#[derive(Clone, Copy)]
pub struct Baseline;
/// A level with fused multiply-add and these vectors of `f32` and `f64`.
#[derive(Clone, Copy)]
pub struct FusedLevel<F, D>(PhantomData<(F, D)>);
/// The level of [`Isa::Avx2`].
#[cfg(target_arch = "x86_64")]
pub type Avx2 = FusedLevel<std::arch::x86_64::__m256, std::arch::x86_64::__m256d>;
/// The level of [`Isa::Avx512`].
#[cfg(target_arch = "x86_64")]
pub type Avx512 = FusedLevel<std::arch::x86_64::__m512, std::arch::x86_64::__m512d>;

impl Level for Baseline {
    const FMA: bool = vector::FMA;
    type Floats = Lanes<f32, 4>;
    type Doubles = Lanes<f64, 2>;
}
impl<F: Vector<Element = f32>, D: Vector<Element = f64>> Level for FusedLevel<F, D> {
    const FMA: bool = true;
    type Floats = F;
    type Doubles = D;
}

/// Declares a function `$name(isa)` that returns the function `$body`, compiled for an instruction-set level. `$body`
/// is inlined, so the compiler vectorises its loops for each level. The generic constants of both follow the types.
macro_rules! per_level {
    (
        $(#[$doc:meta])*
        $name:ident<$($g:ident : $bound:path),* $(; $($c:ident : $of:ty),+)?>($($arg:ident : $ty:ty),*) $(-> $ret:ty)? = $body:ident
    ) => {
        $(#[$doc])*
        pub fn $name<$($g: $bound,)* $($(const $c: $of),+)?>(
            isa: $crate::simd::level::Isa,
        ) -> unsafe fn($($ty),*) $(-> $ret)? {
            use $crate::simd::level::{Baseline, Isa};
            unsafe fn portable<$($g: $bound,)* $($(const $c: $of),+)?>($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: the caller keeps the contract of the body.
                unsafe { $body::<$($g,)* Baseline, $($($c),+)?>($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2")]
            unsafe fn avx2<$($g: $bound,)* $($(const $c: $of),+)?>($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: the caller keeps the contract of the body.
                unsafe { $body::<$($g,)* $crate::simd::level::Avx2, $($($c),+)?>($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma,f16c,bmi1,bmi2")]
            unsafe fn avx512<$($g: $bound,)* $($(const $c: $of),+)?>($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: the caller keeps the contract of the body.
                unsafe { $body::<$($g,)* $crate::simd::level::Avx512, $($($c),+)?>($($arg),*) }
            }
            match isa {
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 => avx512::<$($g,)* $($($c),+)?>,
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 => avx2::<$($g,)* $($($c),+)?>,
                _ => portable::<$($g,)* $($($c),+)?>,
            }
        }
    };
}
pub(crate) use per_level;

/// Runs a generic function for the vectors of `f32` of every level that the machine has.
#[cfg(test)]
macro_rules! at_every_level {
    ($exercise:ident) => {{
        // SAFETY: each function is called only if the machine has its instruction set.
        unsafe {
            $exercise::<$crate::simd::vector::Lanes<f32, 4>>();
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma,f16c")]
                unsafe fn avx2() {
                    // SAFETY: the caller has checked that the machine has the instruction set.
                    unsafe { $exercise::<std::arch::x86_64::__m256>() }
                }
                #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma,f16c")]
                unsafe fn avx512() {
                    // SAFETY: the caller has checked that the machine has the instruction set.
                    unsafe { $exercise::<std::arch::x86_64::__m512>() }
                }
                if $crate::simd::Isa::detect() >= $crate::simd::Isa::Avx2 {
                    avx2();
                }
                if $crate::simd::Isa::detect() >= $crate::simd::Isa::Avx512 {
                    avx512();
                }
            }
        }
    }};
}
#[cfg(test)]
pub(crate) use at_every_level;
