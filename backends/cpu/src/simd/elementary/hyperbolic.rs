//! Hyperbolic functions and their inverses, computed in `f64` without overflow.

use std::f64::consts::{FRAC_1_SQRT_2, LN_2, LOG2_E};

use super::polynomial::{ROUND_F64, polynomial_f64};

/// Returns eᵃ − 1 for a ≥ 0, with relative error 2⁻³⁵. For a > 100, the result is e¹⁰⁰ − 1.
#[inline(always)]
fn expm1_of(a: f64) -> f64 {
    let a = if a > 100.0 { 100.0 } else { a };
    let shifted = a * LOG2_E + ROUND_F64;
    let r = a - (shifted - ROUND_F64) * LN_2;
    let c = [
        0.500_000_000_010_498_7,
        0.166_666_667_539_256_25,
        0.041_666_665_954_520_22,
        0.008_333_289_124_520_358,
        0.001_388_898_512_382_271_3,
        0.000_199_048_584_849_439_54,
        2.479_637_892_901_788_7e-5,
    ];
    let rest = r + r * r * polynomial_f64(r, c);
    let s = f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52);
    rest * s + (s - 1.0)
}

/// Returns log(1 + w) for w ≥ 0, with relative error 2⁻³⁵.
#[inline(always)]
fn log1p_of(w: f64) -> f64 {
    let u = 1.0 + w;
    let offset = FRAC_1_SQRT_2.to_bits();
    let bits = u.to_bits().wrapping_sub(offset);
    let m = f64::from_bits((bits & 0x000f_ffff_ffff_ffff).wrapping_add(offset));
    // Converts the exponent to a float: it becomes the low bits of a number whose last bit has the value 1.
    let e = f64::from_bits((bits >> 52).wrapping_add(ROUND_F64.to_bits())) - ROUND_F64;
    let lost = w - (u - 1.0);
    let f = (m - 1.0) + lost * f64::from_bits(1023_u64.wrapping_sub(bits >> 52) << 52);
    let s = f / (2.0 + f);
    let z = s * s;
    let c = [0.333_333_328_182_738_5, 0.200_001_686_943_747_5, 0.142_685_793_041_459_17, 0.117_925_879_130_398_57];
    let y = e * LN_2 + 2.0 * s * (1.0 + z * polynomial_f64(z, c));
    if w == f64::INFINITY { w } else { y }
}

/// Returns the hyperbolic sine, within 1 ulp.
#[inline(always)]
pub fn sinh(x: f32) -> f32 {
    let rest = expm1_of(f64::from(x.abs()));
    ((0.5 * (rest + rest / (rest + 1.0))) as f32).copysign(x)
}

/// Returns the hyperbolic cosine, within 1 ulp.
#[inline(always)]
pub fn cosh(x: f32) -> f32 {
    let power = 1.0 + expm1_of(f64::from(x.abs()));
    (0.5 * (power + 1.0 / power)) as f32
}

/// Returns the inverse of the hyperbolic sine, within 1 ulp, as log(1 + a + a²/(1 + √(a² + 1))) for a = |x|.
#[inline(always)]
pub fn asinh(x: f32) -> f32 {
    let a = f64::from(x.abs());
    let square = a * a;
    let y = (log1p_of(a + square / (1.0 + (square + 1.0).sqrt())) as f32).copysign(x);
    if x.is_infinite() { x } else { y }
}

/// Returns the inverse of the hyperbolic cosine, within 1 ulp, as log(1 + d + √(d·(x + 1))) with d = x − 1. The result
/// is NaN for x < 1.
#[inline(always)]
pub fn acosh(x: f32) -> f32 {
    let d = f64::from(x) - 1.0;
    let y = log1p_of(d + (d * (d + 2.0)).sqrt()) as f32;
    if x < 1.0 { f32::NAN } else { y }
}

/// Returns the inverse of the hyperbolic tangent, within 1 ulp, as log(1 + 2a/(1 − a))/2 for a = |x|. The result is NaN
/// for a > 1.
#[inline(always)]
pub fn atanh(x: f32) -> f32 {
    let a = f64::from(x.abs());
    let y = ((0.5 * log1p_of(2.0 * a / (1.0 - a))) as f32).copysign(x);
    if a > 1.0 { f32::NAN } else { y }
}
