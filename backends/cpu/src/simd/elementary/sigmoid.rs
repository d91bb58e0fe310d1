//! Functions of 1 + eˣ: sigmoid, tanh, softplus, and the activations that are made of them.

use super::{
    exponential::{LEAST, exp_up_to_most, power, reduced, reduced_sum},
    polynomial::polynomial,
};
use crate::simd::level::Level;

/// 1 + eˣ, within 1 ulp, for x from −87 to 88.
#[inline(always)]
fn one_plus_exp<L: Level>(x: f32) -> f32 {
    let (t, n) = reduced::<L>(x);
    one_plus::<L>(t, power(n), 1.0)
}

/// one + s·(1 + t): one rounding less than by way of 1 + t.
#[inline(always)]
fn one_plus<L: Level>(t: f32, s: f32, one: f32) -> f32 {
    L::fma(t, s, one + s)
}

/// tanh x, within 2 ulp.
#[inline(always)]
pub fn tanh<L: Level>(x: f32) -> f32 {
    let a = x.abs();
    let z = x * x;
    let p = polynomial::<L, 5>(z, [-0.333_333, 0.133_319_59, -0.053_786_655, 0.020_805_292, -0.005_905_764_6]);
    let small = L::fma(x * z, p, x);
    let twice = 2.0 * a;
    let large = 1.0 - 2.0 / one_plus_exp::<L>(if twice > 40.0 { 40.0 } else { twice });
    let y = if a < 0.6 { small } else { large };
    // Zeros have their sign, and NaN stays.
    if x.is_nan() { x } else { y.copysign(x) }
}

/// A number of exponents, as the bits of a float have it.
const fn exponents(n: u32) -> u32 {
    n << 23
}

/// 1/(1 + e⁻ˣ), within 2.2 ulp.
#[inline(always)]
pub fn sigmoid<L: Level>(x: f32) -> f32 {
    const SMALL: f32 = 1.0 / 18_446_744_073_709_551_616.0;
    let v = if -x < -40.0 { -40.0 } else { -x };
    let (t, n) = reduced::<L>(if v > 104.0 { 104.0 } else { v });
    // Both parts of the fraction are scaled by 2⁻⁶⁴. A subnormal result is scaled by 2¹²⁶, so that a sum with 1 ends in its bits.
    let low = x < LEAST;
    let above = f32::from_bits(SMALL.to_bits() + if low { exponents(126) } else { 0 });
    let one: f32 = if low { 1.0 } else { 0.0 };
    let y = above / one_plus::<L>(t, power(n.wrapping_sub(64)), SMALL);
    f32::from_bits((one + y).to_bits().wrapping_sub(one.to_bits()))
}

/// x/(1 + eᵛ) for eᵛ = 2ⁿ·(1 + t), where v, if it is above 87, is `large`, and from −87 up to [`ENDLESS`].
#[inline(always)]
fn gated<L: Level>(x: f32, (t, n): (f32, u32), large: bool) -> f32 {
    // 2⁻⁶⁴ of eᵛ is finite. By a factor, as the compiler would divide twice for a choice of two results.
    let part = if large { exponents(64) } else { 0 };
    let s = f32::from_bits(power(n).to_bits().wrapping_sub(part));
    x / one_plus::<L>(t, s, 1.0) * f32::from_bits(1.0_f32.to_bits() - part)
}

/// At it, 2⁻⁶⁴·eᵛ is infinite, because 2ⁿ is 2¹⁹² and t is positive; a little below, t is negative.
const ENDLESS: f32 = 133.2;

/// x·sigmoid(x), within 2.2 ulp.
#[inline(always)]
pub fn silu<L: Level>(x: f32) -> f32 {
    let v = if -x < -87.0 { -87.0 } else { -x };
    let parts = reduced::<L>(if v > 132.0 { ENDLESS } else { v });
    gated::<L>(x, parts, v > 87.0)
}

/// log(1 + eˣ), within 2 ulp: max(x, 0) + log(1 + e) with e = e^−|x|.
///
/// With s = e/(2 + e): log(1 + e) = 2s + s³·P(s²) = e − s·(e − s²·P(s²)).
#[inline(always)]
pub fn softplus<L: Level>(x: f32) -> f32 {
    let e = exp_up_to_most::<L>(-x.abs());
    let s = e / (2.0 + e);
    let z = s * s;
    let p = polynomial::<L, 4>(z, [0.666_664_2, 0.400_215_28, 0.280_017_97, 0.280_120_2]);
    let rest = L::fma(-s, L::fma(-z, p, e), e);
    (if x < 0.0 { 0.0 } else { x }) + rest
}

/// x·sigmoid(2u) with u = √(2/π)·(x + 0.044715·x³), which is x·(1 + tanh u)/2 without cancellation, within 2 ulp.
///
/// An error of u counts |u| times, so that u has two parts.
#[inline(always)]
pub fn gelu_tanh<L: Level>(x: f32) -> f32 {
    // Beyond, eᵛ vanishes, or is infinite: see `ENDLESS`.
    let (v, low) = gelu_angle::<L>(if x < -11.6 {
        -11.711
    } else if x > 9.9 {
        9.9
    } else {
        x
    });
    let parts = reduced_sum::<L>(v, |r| r + low);
    gated::<L>(x, parts, v > 87.0)
}

/// −2√(2/π)·(x + 0.044715·x³) in two parts.
#[inline(always)]
fn gelu_angle<L: Level>(x: f32) -> (f32, f32) {
    const SLOPE: f64 = 1.595_769_121_605_730_7;
    const CUBE: f64 = SLOPE * 0.044_715;
    if !L::FMA {
        let x = f64::from(x);
        let v = -x * (x * x * CUBE + SLOPE);
        return (v as f32, (v - f64::from(v as f32)) as f32);
    }
    // Of few bits: the difference from what it is added to is exact.
    const HIGH: f32 = 1.595_703_1;
    let (high, low) = (CUBE as f32, (CUBE - CUBE as f32 as f64) as f32);
    let square = x * x;
    let w = L::fma(square, high, HIGH);
    let rest = L::fma(L::fma(x, x, -square), high, L::fma(square, low, (SLOPE - HIGH as f64) as f32));
    let rest = L::fma(square, high, HIGH - w) + rest;
    let v = -x * w;
    (v, -L::fma(x, rest, L::fma(x, w, v)))
}
