//! The pointwise ops for each element type. The op table documents their results.

use std::marker::PhantomData;

use eutectic_ir::functions;

use super::{
    elementary,
    level::Level,
    pointwise::{Binary, Unary},
    register::integer_types,
};

/// An element type of the registers of tile programs. Elements of `f16` and `bf16` are in registers as `f32`, and those
/// of `bool` as `u8`, 0 or 1.
pub trait RegisterElement: Copy + PartialEq + PartialOrd + Default + 'static {
    /// Returns whether the element is NaN.
    fn is_nan(self) -> bool;
}

/// The arithmetic of numbers. Integers wrap on overflow.
pub trait Arithmetic: RegisterElement {
    /// Returns −a.
    fn negated(self) -> Self;
    /// Returns a + b.
    fn plus(self, b: Self) -> Self;
    /// Returns a − b.
    fn minus(self, b: Self) -> Self;
    /// Returns a · b.
    fn times(self, b: Self) -> Self;
    /// Returns a / b. For integers, the quotient is truncated, and it is 0 if b is 0.
    fn over(self, b: Self) -> Self;
    /// Returns a − b·⌊a/b⌋; for integers 0 if b is 0.
    fn modulo(self, b: Self) -> Self;
    /// Returns aᵇ.
    fn power(self, b: Self) -> Self;
    /// Returns −1 or 1 by the sign; zeros and NaN unchanged.
    fn sign(self) -> Self;
    /// Returns the absolute value.
    fn magnitude(self) -> Self;
}

macro_rules! floats {
    ($($t:ty),*) => {$(
        impl RegisterElement for $t {
            #[inline(always)]
            fn is_nan(self) -> bool {
                self.is_nan()
            }
        }
        impl Arithmetic for $t {
            #[inline(always)]
            fn negated(self) -> $t {
                -self
            }
            #[inline(always)]
            fn plus(self, b: $t) -> $t {
                self + b
            }
            #[inline(always)]
            fn minus(self, b: $t) -> $t {
                self - b
            }
            #[inline(always)]
            fn times(self, b: $t) -> $t {
                self * b
            }
            #[inline(always)]
            fn over(self, b: $t) -> $t {
                self / b
            }
            #[inline(always)]
            fn modulo(self, b: $t) -> $t {
                // The remainder of truncated division is exact. If its sign differs from that of b, b is added.
                let r = self % b;
                if r == 0.0 {
                    r.copysign(b)
                } else if (r < 0.0) != (b < 0.0) {
                    r + b
                } else {
                    r
                }
            }
            #[inline(always)]
            fn power(self, b: $t) -> $t {
                self.powf(b)
            }
            #[inline(always)]
            fn sign(self) -> $t {
                if self == 0.0 || self.is_nan() { self } else { (1.0 as $t).copysign(self) }
            }
            #[inline(always)]
            fn magnitude(self) -> $t {
                self.abs()
            }
        }
    )*};
}
floats!(f32, f64);

macro_rules! integers {
    ($($t:ty),*) => {$(
        impl RegisterElement for $t {
            #[inline(always)]
            fn is_nan(self) -> bool {
                false
            }
        }
        #[allow(unused_comparisons, clippy::manual_range_patterns)]
        impl Arithmetic for $t {
            #[inline(always)]
            fn negated(self) -> $t {
                self.wrapping_neg()
            }
            #[inline(always)]
            fn plus(self, b: $t) -> $t {
                self.wrapping_add(b)
            }
            #[inline(always)]
            fn minus(self, b: $t) -> $t {
                self.wrapping_sub(b)
            }
            #[inline(always)]
            fn times(self, b: $t) -> $t {
                self.wrapping_mul(b)
            }
            #[inline(always)]
            fn over(self, b: $t) -> $t {
                if b == 0 { 0 } else { self.wrapping_div(b) }
            }
            #[inline(always)]
            fn modulo(self, b: $t) -> $t {
                if b == 0 {
                    return 0;
                }
                let r = self.wrapping_rem(b);
                if r != 0 && (r < 0) != (b < 0) { r.wrapping_add(b) } else { r }
            }
            #[inline(always)]
            fn power(self, b: $t) -> $t {
                let (mut base, mut left) = (self, b);
                if b < 0 {
                    // 1/a^|b| is truncated, so only 1 and −1 have a result other than 0.
                    return match self {
                        1 => 1,
                        _ if self.wrapping_add(1) == 0 => if b & 1 == 0 { 1 } else { self },
                        _ => 0,
                    };
                }
                let mut product: $t = 1;
                while left > 0 {
                    if left & 1 == 1 {
                        product = product.wrapping_mul(base);
                    }
                    base = base.wrapping_mul(base);
                    left >>= 1;
                }
                product
            }
            #[inline(always)]
            fn sign(self) -> $t {
                if self > 0 { 1 } else if self < 0 { (0 as $t).wrapping_sub(1) } else { 0 }
            }
            #[inline(always)]
            fn magnitude(self) -> $t {
                if self < 0 { (0 as $t).wrapping_sub(self) } else { self }
            }
        }
    )*};
}
integer_types!(integers);

/// Declares functions of one argument.
macro_rules! unary {
    ($($name:ident<$t:ident: $bound:path>($x:ident) -> $out:ty { $e:expr })*) => {$(
        /// Implements the op of this name.
        pub struct $name<$t>(PhantomData<$t>);
        impl<$t: $bound> Unary for $name<$t> {
            type In = $t;
            type Out = $out;
            #[inline(always)]
            fn eval<L: Level>($x: $t, _: [f64; 2]) -> $out {
                $e
            }
        }
    )*};
}

/// Declares functions of two arguments.
macro_rules! binary {
    ($($name:ident<$t:ident: $bound:path>($a:ident, $b:ident) -> $out:ty { $e:expr })*) => {$(
        /// Implements the op of this name.
        pub struct $name<$t>(PhantomData<$t>);
        impl<$t: $bound> Binary for $name<$t> {
            type In = $t;
            type Out = $out;
            #[inline(always)]
            fn eval<L: Level>($a: $t, $b: $t) -> $out {
                $e
            }
        }
    )*};
}

unary! {
    Neg<T: Arithmetic>(x) -> T { x.negated() }
    Abs<T: Arithmetic>(x) -> T { x.magnitude() }
    Sign<T: Arithmetic>(x) -> T { x.sign() }
    IsNan<T: RegisterElement>(x) -> u8 { u8::from(x.is_nan()) }
    Same<T: RegisterElement>(x) -> T { x }
}

binary! {
    Add<T: Arithmetic>(a, b) -> T { a.plus(b) }
    Sub<T: Arithmetic>(a, b) -> T { a.minus(b) }
    Mul<T: Arithmetic>(a, b) -> T { a.times(b) }
    Div<T: Arithmetic>(a, b) -> T { a.over(b) }
    Mod<T: Arithmetic>(a, b) -> T { a.modulo(b) }
    Pow<T: Arithmetic>(a, b) -> T { a.power(b) }
    Max<T: RegisterElement>(a, b) -> T { if a > b || a.is_nan() { a } else { b } }
    Min<T: RegisterElement>(a, b) -> T { if a < b || a.is_nan() { a } else { b } }
    Eq<T: RegisterElement>(a, b) -> u8 { u8::from(a == b) }
    Ne<T: RegisterElement>(a, b) -> u8 { u8::from(a != b) }
    Lt<T: RegisterElement>(a, b) -> u8 { u8::from(a < b) }
    Le<T: RegisterElement>(a, b) -> u8 { u8::from(a <= b) }
    Gt<T: RegisterElement>(a, b) -> u8 { u8::from(a > b) }
    Ge<T: RegisterElement>(a, b) -> u8 { u8::from(a >= b) }
}

/// Declares functions of one float, in `f32` and in `f64`. `LONG` is [`Unary::LONG`]. If a function in `f32` has a
/// `where` clause, it is valid only for numbers that the predicate accepts; the function after `else` is valid for all.
macro_rules! elementary {
    (LONG = $long:literal; $($name:ident($x:ident, $k:ident, $l:ident) $f32:block $(where $holds:path, else $any:block)? $f64:block)*) => {$(
        /// Implements the op of this name.
        pub struct $name<T>(PhantomData<T>);
        impl Unary for $name<f32> {
            type In = f32;
            type Out = f32;
            const LONG: bool = $long;
            #[inline(always)]
            fn eval<$l: Level>($x: f32, $k: [f64; 2]) -> f32 {
                let _ = $k;
                $f32
            }
            $(
                const PARTIAL: bool = true;
                #[inline(always)]
                fn holds(x: f32) -> bool {
                    $holds(x)
                }
                #[inline(always)]
                fn eval_any<$l: Level>($x: f32, _: [f64; 2]) -> f32 {
                    $any
                }
            )?
        }
        impl Unary for $name<f64> {
            type In = f64;
            type Out = f64;
            const LONG: bool = $long;
            #[inline(always)]
            fn eval<$l: Level>($x: f64, $k: [f64; 2]) -> f64 {
                let _ = $k;
                $f64
            }
        }
    )*};
}

elementary! {
    LONG = true;
    Exp(x, k, L)
        { elementary::exp_moderate::<L>(x) } where elementary::is_moderate, else { elementary::exp::<L>(x) }
        { x.exp() }
    ExpNormal(x, k, L)
        { elementary::exp_normal_moderate::<L>(x) } where elementary::is_not_large, else { elementary::exp_normal::<L>(x) }
        { if x < -708.0 { 0.0 } else { x.exp() } }
    Expm1(x, k, L) { elementary::expm1::<L>(x) } { x.exp_m1() }
    Log(x, k, L) { elementary::log::<L>(x) } { x.ln() }
    Log1p(x, k, L) { elementary::log1p::<L>(x) } { x.ln_1p() }
    Sin(x, k, L)
        { elementary::sin(x) } where elementary::is_few_turns, else { elementary::any_angle(x, elementary::sin, f64::sin) }
        { x.sin() }
    Cos(x, k, L)
        { elementary::cos(x) } where elementary::is_few_turns, else { elementary::any_angle(x, elementary::cos, f64::cos) }
        { x.cos() }
    Tan(x, k, L)
        { elementary::tan(x) } where elementary::is_few_turns, else { elementary::any_angle(x, elementary::tan, f64::tan) }
        { x.tan() }
    Atan(x, k, L) { elementary::atan(x) } { x.atan() }
    Asin(x, k, L) { elementary::asin(x) } { x.asin() }
    Acos(x, k, L) { elementary::acos(x) } { x.acos() }
    Sinh(x, k, L) { elementary::sinh(x) } { x.sinh() }
    Cosh(x, k, L) { elementary::cosh(x) } { x.cosh() }
    Asinh(x, k, L) { elementary::asinh(x) } { functions::asinh(x) }
    Acosh(x, k, L) { elementary::acosh(x) } { functions::acosh(x) }
    Atanh(x, k, L) { elementary::atanh(x) } { functions::atanh(x) }
    Tanh(x, k, L) { elementary::tanh::<L>(x) } { x.tanh() }
    Erf(x, k, L) { elementary::erf::<L>(x) } { functions::erf(x) }
    Sigmoid(x, k, L)
        { elementary::sigmoid_moderate::<L>(x) } where elementary::is_moderate, else { elementary::sigmoid::<L>(x) }
        { functions::sigmoid(x) }
    Softplus(x, k, L) { elementary::softplus::<L>(x) } { functions::softplus(x) }
    GeluErf(x, k, L)
        { elementary::gelu_erf_moderate::<L>(x) }
        where elementary::is_moderate_gelu_erf, else { elementary::gelu_erf::<L>(x) }
        { x * functions::normal_distribution(x) }
    GeluTanh(x, k, L)
        { elementary::gelu_tanh_moderate::<L>(x) }
        where elementary::is_moderate_gelu_tanh, else { elementary::gelu_tanh::<L>(x) }
        { elementary::gelu_tanh_f64(x) }
    Silu(x, k, L)
        { elementary::silu_moderate::<L>(x) } where elementary::is_moderate, else { elementary::silu::<L>(x) }
        { elementary::silu_f64(x) }
}

elementary! {
    LONG = false;
    Sqrt(x, k, L) { x.sqrt() } { x.sqrt() }
    Rsqrt(x, k, L) { 1.0 / x.sqrt() } { 1.0 / x.sqrt() }
    Reciprocal(x, k, L) { 1.0 / x } { 1.0 / x }
    Floor(x, k, L) { x.floor() } { x.floor() }
    Ceil(x, k, L) { x.ceil() } { x.ceil() }
    Round(x, k, L) { x.round_ties_even() } { x.round_ties_even() }
    Clamp(x, k, L)
        { let (low, high) = (k[0] as f32, k[1] as f32); let x = if x < low { low } else { x }; if x > high { high } else { x } }
        { let x = if x < k[0] { k[0] } else { x }; if x > k[1] { k[1] } else { x } }
    Relu(x, k, L) { if x < 0.0 { 0.0 } else { x } } { if x < 0.0 { 0.0 } else { x } }
}

/// The bitwise operations of integers.
pub trait Bits: Arithmetic {
    /// The number of bits.
    const COUNT: i64;
    /// Returns the complement of each bit.
    fn turned(self) -> Self;
    /// Returns the bits that are set in both integers.
    fn in_both(self, b: Self) -> Self;
    /// Returns the bits that are set in at least one of the integers.
    fn in_any(self, b: Self) -> Self;
    /// Returns the bits that are set in exactly one of the integers.
    fn in_one(self, b: Self) -> Self;
    /// Shifts to the left; returns 0 if `by` is not in `0..COUNT`.
    fn up(self, by: Self) -> Self;
    /// Shifts to the right, arithmetically for signed integers. If `by` is not in `0..COUNT`, every bit of the result
    /// is the sign (0 for unsigned integers).
    fn down(self, by: Self) -> Self;
}

macro_rules! bits {
    ($($t:ty),*) => {$(
        #[allow(unused_comparisons)]
        impl Bits for $t {
            const COUNT: i64 = <$t>::BITS as i64;
            #[inline(always)]
            fn turned(self) -> $t {
                !self
            }
            #[inline(always)]
            fn in_both(self, b: $t) -> $t {
                self & b
            }
            #[inline(always)]
            fn in_any(self, b: $t) -> $t {
                self | b
            }
            #[inline(always)]
            fn in_one(self, b: $t) -> $t {
                self ^ b
            }
            #[inline(always)]
            fn up(self, by: $t) -> $t {
                if (0..Self::COUNT).contains(&(by as i64)) { self << by } else { 0 }
            }
            #[inline(always)]
            fn down(self, by: $t) -> $t {
                let by = if (0..Self::COUNT).contains(&(by as i64)) { by as u32 } else { <$t>::BITS };
                self.checked_shr(by).unwrap_or(if self < 0 { !0 } else { 0 })
            }
        }
    )*};
}
integer_types!(bits);

unary! {
    BitNot<T: Bits>(x) -> T { x.turned() }
}
binary! {
    BitAnd<T: Bits>(a, b) -> T { a.in_both(b) }
    BitOr<T: Bits>(a, b) -> T { a.in_any(b) }
    BitXor<T: Bits>(a, b) -> T { a.in_one(b) }
    ShiftLeft<T: Bits>(a, b) -> T { a.up(b) }
    ShiftRight<T: Bits>(a, b) -> T { a.down(b) }
}

/// Implements the op `not`.
pub struct Not;
impl Unary for Not {
    type In = u8;
    type Out = u8;
    #[inline(always)]
    fn eval<L: Level>(x: u8, _: [f64; 2]) -> u8 {
        x ^ 1
    }
}

/// Declares functions of two truth values.
macro_rules! logic {
    ($($name:ident($a:ident, $b:ident) { $e:expr })*) => {$(
        /// Implements the op of this name.
        pub struct $name;
        impl Binary for $name {
            type In = u8;
            type Out = u8;
            #[inline(always)]
            fn eval<L: Level>($a: u8, $b: u8) -> u8 {
                $e
            }
        }
    )*};
}
logic! {
    And(a, b) { a & b }
    Or(a, b) { a | b }
    Xor(a, b) { a ^ b }
}
