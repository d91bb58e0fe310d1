//! Exponentials and logarithms.

use std::f32::consts::{FRAC_1_SQRT_2, LOG2_E};

use super::polynomial::polynomial;
use crate::simd::level::Level;

/// ln 2 = `LN2_HIGH + LN2_LOW`; the high part has so few bits that its product with an exponent is exact.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -0.000_212_194_44;
/// Adding and subtracting 1.5·2²³ rounds to the nearest integer.
const ROUND: f32 = 12_582_912.0;
/// Below it, eˣ is subnormal.
pub(super) const LEAST: f32 = -87.336_54;
/// Above it, eˣ is infinite.
const MOST: f32 = 88.722_83;
/// Below it, eˣ rounds to 0.
const NOTHING: f32 = -104.0;

/// eʳ − 1 and n with x = n·ln 2 + r, |r| ≤ ln 2 / 2 and eʳ − 1 = r + r²·P(r).
#[inline(always)]
pub(super) fn reduced<L: Level>(x: f32) -> (f32, u32) {
    reduced_sum::<L>(x, |r| r)
}

/// As [`reduced`], with something small added to r.
#[inline(always)]
pub(super) fn reduced_sum<L: Level>(x: f32, add: impl Fn(f32) -> f32) -> (f32, u32) {
    let shifted = L::fma(x, LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = add(L::fma(n, -LN2_LOW, L::fma(n, -LN2_HIGH, x)));
    // By powers of r², for which it takes four steps that wait for each other, and not five.
    let square = r * r;
    let high = L::fma(square, 0.001_381_230_7, L::fma(r, 0.008_369_408, 0.041_668_47));
    let p = L::fma(square, high, L::fma(r, 0.166_665_15, 0.499_999_94));
    (L::fma(square, p, r), shifted.to_bits().wrapping_sub(ROUND.to_bits()))
}

/// 2ⁿ for n from −127, where it is 0, to 128, where it is ∞.
#[inline(always)]
pub(super) fn power(n: u32) -> f32 {
    f32::from_bits(n.wrapping_add(127) << 23)
}

/// y·2ⁿ, where both are normal: exponents are added.
#[inline(always)]
pub(super) fn scaled(y: f32, n: u32) -> f32 {
    f32::from_bits(y.to_bits().wrapping_add(n << 23))
}

/// y·2⁻¹²⁶ for y from 0 up to 1, rounded once: the sum with 1 ends in the bits of the subnormal result. A product would take a hundred times as
/// long on some processors.
#[inline(always)]
pub(super) fn subnormal(y: f32) -> f32 {
    f32::from_bits((1.0 + y).to_bits().wrapping_sub(1.0_f32.to_bits()))
}

/// eˣ, within 1.25 ulp.
#[inline(always)]
pub fn exp<L: Level>(x: f32) -> f32 {
    let y = exp_up_to_most::<L>(x);
    // NaN stays.
    if x <= MOST { y } else { x * f32::INFINITY }
}

/// As [`exp`], where the result is finite.
#[inline(always)]
pub(super) fn exp_up_to_most<L: Level>(x: f32) -> f32 {
    let (t, n) = reduced::<L>(if x < NOTHING { NOTHING } else { x });
    let y = scaled(1.0 + t, n);
    // A subnormal result has larger bits than `y`, whose exponent is then 0 or has wrapped; a normal one has smaller bits.
    let low = subnormal(scaled(y, 126));
    f32::from_bits((y.to_bits() as i32).max(low.to_bits() as i32) as u32)
}

/// eˣ for x ≤ 0 (and NaN), within 1.25 ulp, 0 below −87, since such a weight does not change a sum.
#[inline(always)]
pub fn exp_of_negative<L: Level>(x: f32) -> f32 {
    let (t, n) = reduced::<L>(x);
    let y = (1.0 + t) * power(n);
    if x < -87.0 { 0.0 } else { y }
}

/// eˣ − 1, within 2 ulp: no cancellation near 0.
#[inline(always)]
pub fn expm1<L: Level>(x: f32) -> f32 {
    let (t, n) = reduced::<L>(if x < -20.0 { -20.0 } else { x });
    // Half of it is finite wherever the result is.
    let half = power(n.wrapping_sub(1));
    let y = L::fma(t, half, half - 0.5);
    let y = if n == 0 { t } else { y + y };
    // Zeros have their sign, and NaN stays.
    if x <= MOST { y.copysign(x) } else { x * f32::INFINITY }
}

/// The natural logarithm, within 1 ulp. −∞ at 0, NaN below.
///
/// x = 2ᵉ·m with m in √½..√2, f = m − 1, s = f/(2 + f): ln m = 2s + s³·P(s²) = f − (f²/2 − s·(f²/2 + s²·P(s²))).
#[inline(always)]
pub fn log<L: Level>(x: f32) -> f32 {
    let tiny = x < f32::MIN_POSITIVE;
    let scaled = if tiny { x * 33_554_432.0 } else { x };
    let offset = FRAC_1_SQRT_2.to_bits();
    let bits = scaled.to_bits().wrapping_sub(offset);
    let e = ((bits as i32) >> 23) as f32 - if tiny { 25.0 } else { 0.0 };
    let m = f32::from_bits((bits & 0x007f_ffff).wrapping_add(offset));
    let y = log_of::<L>(m - 1.0, e);
    let y = if x == f32::INFINITY { x } else { y };
    let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
    if x < 0.0 || x.is_nan() { f32::NAN } else { y }
}

/// e·ln 2 + ln(1 + f) for 1 + f in √½..√2.
#[inline(always)]
fn log_of<L: Level>(f: f32, e: f32) -> f32 {
    let s = f / (2.0 + f);
    let z = s * s;
    let p = z * polynomial::<L, 4>(z, [0.666_666_6, 0.400_003_4, 0.285_369_28, 0.235_898_2]);
    let half = 0.5 * f * f;
    L::fma(e, LN2_HIGH, f - (half - L::fma(s, half + p, e * LN2_LOW)))
}

/// log(1 + x), within 2 ulp: the rounding error of 1 + x is added to the logarithm. −∞ at −1, NaN below.
#[inline(always)]
pub fn log1p<L: Level>(x: f32) -> f32 {
    let u = 1.0 + x;
    let lost = x - (u - 1.0);
    let offset = FRAC_1_SQRT_2.to_bits();
    let bits = u.to_bits().wrapping_sub(offset);
    let e = (bits as i32) >> 23;
    let m = f32::from_bits((bits & 0x007f_ffff).wrapping_add(offset));
    // 2¹⁻ᵉ, which is 0 for the largest exponent.
    let scale = f32::from_bits(128_u32.wrapping_sub(e as u32) << 23);
    let y = log_of::<L>(L::fma(0.5 * lost, scale, m - 1.0), e as f32);
    // Zeros have their sign.
    let y = if u == 1.0 || x == f32::INFINITY { x } else { y };
    let y = if x == -1.0 { f32::NEG_INFINITY } else { y };
    if x < -1.0 || x.is_nan() { f32::NAN } else { y }
}
