//! Functions that are computed from 1 + eˣ: sigmoid, tanh, softplus, and activations that use them.

use super::{
    exponential::{MODERATE, exp, exp_with, least, moderate, power, reduced, scaled},
    polynomial::polynomial,
};
use crate::simd::level::Level;

/// Returns 1 + eˣ, within 1 ulp, for x from −87 to 88.
#[inline(always)]
fn one_plus_exp<L: Level>(x: f32) -> f32 {
    let (t, n) = reduced::<L>(x);
    let s = power(n);
    // This form rounds once less than a product of 1 + t and s would.
    L::fma(t, s, 1.0 + s)
}

/// Returns tanh x, within 2 ulp.
#[inline(always)]
pub fn tanh<L: Level>(x: f32) -> f32 {
    let a = x.abs();
    let z = x * x;
    let p = polynomial::<L, 5>(z, [-0.333_333, 0.133_319_59, -0.053_786_655, 0.020_805_292, -0.005_905_764_6]);
    let small = L::fma(x * z, p, x);
    let twice = 2.0 * a;
    let large = 1.0 - 2.0 / one_plus_exp::<L>(if twice > 40.0 { 40.0 } else { twice });
    let y = if a < 0.6 { small } else { large };
    // A zero keeps its sign, and NaN stays NaN.
    if x.is_nan() { x } else { y.copysign(x) }
}

/// Returns x/(1 + e^(v + tail)), within 2 ulp, for |v| up to [`MODERATE`].
#[inline(always)]
fn gated<L: Level>(x: f32, v: f32, tail: Option<f32>) -> f32 {
    let (t, s) = moderate::<L>(v, tail);
    // For s between 2⁻²⁴ and 2²⁴, the sum 1 + s is exact, so the sum with t·s is rounded once. For other s, the
    // rounding error of 1 + s is added.
    let sum = 1.0 + s;
    x / (L::fma(t, s, 1.0 - (sum - s)) + sum)
}

/// Returns the smaller one of x and [`MODERATE`], or NaN for NaN. For larger x, 1 + e⁻ˣ rounds to 1.
#[inline(always)]
fn up_to_moderate(x: f32) -> f32 {
    if x > MODERATE { MODERATE } else { x }
}

/// Returns 1/(1 + e⁻ˣ), within 2 ulp, for |x| up to [`MODERATE`].
#[inline(always)]
pub fn sigmoid_moderate<L: Level>(x: f32) -> f32 {
    gated::<L>(1.0, -x, None)
}

/// Returns 1/(1 + e⁻ˣ), within 2 ulp.
#[inline(always)]
pub fn sigmoid<L: Level>(x: f32) -> f32 {
    let (near, far) = (gated::<L>(1.0, -up_to_moderate(x), None), exp::<L>(x));
    if x < -MODERATE { far } else { near }
}

/// Returns x·sigmoid(x), within 2 ulp, for |x| up to [`MODERATE`].
#[inline(always)]
pub fn silu_moderate<L: Level>(x: f32) -> f32 {
    gated::<L>(x, -x, None)
}

/// Returns x·sigmoid(x), within 2 ulp.
#[inline(always)]
pub fn silu<L: Level>(x: f32) -> f32 {
    let far = exp_with::<L>(x, None, |t, s| scaled::<L>(t, s) * x, -least(x < -91.857)).copysign(x);
    let near = gated::<L>(x, -up_to_moderate(x), None);
    if x < -MODERATE { far } else { near }
}

/// Returns log(1 + eˣ), within 2 ulp, as max(x, 0) + log(1 + e) with e = e^−|x|.
///
/// With s = e/(2 + e): log(1 + e) = 2s + s³·P(s²) = e − s·(e − s²·P(s²)).
#[inline(always)]
pub fn softplus<L: Level>(x: f32) -> f32 {
    let e = exp::<L>(-x.abs());
    let s = e / (2.0 + e);
    let z = s * s;
    let p = polynomial::<L, 4>(z, [0.666_664_2, 0.400_215_28, 0.280_017_97, 0.280_120_2]);
    let rest = L::fma(-s, L::fma(-z, p, e), e);
    (if x < 0.0 { 0.0 } else { x }) + rest
}

/// Returns whether [`gelu_tanh_moderate`] is valid for an argument.
#[inline(always)]
pub fn is_moderate_gelu_tanh(x: f32) -> bool {
    x >= -GELU_MODERATE
}

/// For x down to the negative of this number, the exponent −2u of [`gelu_tanh`] is at most [`MODERATE`].
const GELU_MODERATE: f32 = 9.9;

/// Computes [`gelu_tanh`] for x ≥ −[`GELU_MODERATE`].
#[inline(always)]
pub fn gelu_tanh_moderate<L: Level>(x: f32) -> f32 {
    // For x > 6, 1 + e^(−2u) rounds to 1.
    let (v, low) = gelu_angle::<L>(if x > 6.0 { 6.0 } else { x });
    gated::<L>(x, -v, Some(-low))
}

/// Computes x·sigmoid(2u) with u = √(2/π)·(x + 0.044715·x³), within 2 ulp. This is x·(1 + tanh u)/2 without
/// cancellation.
///
/// u is computed as a sum of two numbers, because the relative error of the result is about |u| times that of u.
#[inline(always)]
pub fn gelu_tanh<L: Level>(x: f32) -> f32 {
    // For x ≤ −14, the power underflows to 0.
    let (v, low) = gelu_angle::<L>(if x < -14.0 { -14.0 } else { x });
    let far = exp_with::<L>(v, Some(low), |t, s| scaled::<L>(t, s) * x, -least(x < -10.1007)).copysign(x);
    let near = gelu_tanh_moderate::<L>(x);
    if x < -GELU_MODERATE { far } else { near }
}

/// Returns 2√(2/π)·(x + 0.044715·x³) as a sum of two numbers: the rounded value, and the rounding error.
#[inline(always)]
fn gelu_angle<L: Level>(x: f32) -> (f32, f32) {
    const SLOPE: f64 = 1.595_769_121_605_730_7;
    const CUBE: f64 = SLOPE * 0.044_715;
    if !L::FMA {
        let x = f64::from(x);
        let v = x * (x * x * CUBE + SLOPE);
        return (v as f32, (v - f64::from(v as f32)) as f32);
    }
    // The high part of `SLOPE` has few bits, so that the difference `HIGH - w` is exact.
    const HIGH: f32 = 1.595_703_1;
    let (high, low) = (CUBE as f32, (CUBE - CUBE as f32 as f64) as f32);
    let square = x * x;
    let w = L::fma(square, high, HIGH);
    let rest = L::fma(L::fma(x, x, -square), high, L::fma(square, low, (SLOPE - HIGH as f64) as f32));
    let rest = L::fma(square, high, HIGH - w) + rest;
    let v = x * w;
    (v, L::fma(x, rest, L::fma(x, w, -v)))
}
