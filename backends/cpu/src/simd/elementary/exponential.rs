//! Exponentials and logarithms.

use std::f32::consts::{FRAC_1_SQRT_2, LOG2_E};

use super::polynomial::polynomial;
use crate::simd::level::Level;

/// The high part of ln 2 = `LN2_HIGH + LN2_LOW`. It has few enough bits that its product with an exponent is exact.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -0.000_212_194_44;
/// The largest |x| for which the functions `…_moderate` are valid: eˣ and x·eˣ are finite and not subnormal.
pub const MODERATE: f32 = 87.0;
/// For x below this number, eˣ is subnormal or 0.
const LEAST: f32 = -87.336_54;
/// For x above this number, eˣ is infinite.
const MOST: f32 = 88.722_83;
/// A number slightly above `MOST`. [`exp_with`] clamps to it, because its product overflows to infinity there.
const ENOUGH: f32 = 88.8;
/// For x at or below this number, the factors of 2ⁿ in [`exp_with`] are 0.
const NOTHING: f32 = -176.0;
/// The bias of the exponent in the bits of a float.
const BIAS: u32 = 127;

/// Returns 1.5·2²³ + `bias`. Adding this number and subtracting it again rounds a small number to the nearest integer.
/// The last bits of the sum are that integer plus `bias`.
const fn round(bias: u32) -> f32 {
    12_582_912.0 + bias as f32
}

/// Returns whether the functions `…_moderate` are valid for an argument.
#[inline(always)]
pub fn is_moderate(x: f32) -> bool {
    x.abs() <= MODERATE
}

/// Returns eʳ − 1, and a number whose last nine bits are n + `bias`, where x + tail = n·ln 2 + r and
/// |x − n·ln 2| ≤ ln 2 / 2. It computes eʳ − 1 as r + r²·P(r). The tail must be small; `None` saves an addition.
#[inline(always)]
fn reduced_by<L: Level>(x: f32, tail: Option<f32>, bias: u32) -> (f32, u32) {
    let shifted = L::fma(x, LOG2_E, round(bias));
    let n = shifted - round(bias);
    // This difference is exact.
    let r = L::fma(n, -LN2_HIGH, x);
    let r = match tail {
        None => L::fma(n, -LN2_LOW, r),
        Some(tail) => r + L::fma(n, -LN2_LOW, tail),
    };
    // With powers of r², the chain of dependent operations has four steps instead of five.
    let square = r * r;
    let high = L::fma(square, 0.001_381_230_7, L::fma(r, 0.008_369_408, 0.041_668_47));
    let p = L::fma(square, high, L::fma(r, 0.166_665_15, 0.499_999_94));
    (L::fma(square, p, r), shifted.to_bits())
}

/// Returns t and s = 2ⁿ, where e^(x + tail) = s·(1 + t), for |x| up to [`MODERATE`].
#[inline(always)]
pub(super) fn moderate<L: Level>(x: f32, tail: Option<f32>) -> (f32, f32) {
    let (t, n) = reduced_by::<L>(x, tail, BIAS);
    (t, f32::from_bits(n << 23))
}

/// Returns s·(1 + t) for a power of two s, rounded once.
#[inline(always)]
pub(super) fn scaled<L: Level>(t: f32, s: f32) -> f32 {
    if L::FMA { t.mul_add(s, s) } else { (1.0 + t) * s }
}

/// Returns eˣ for |x| up to [`MODERATE`], within 1.25 ulp.
#[inline(always)]
pub fn exp_moderate<L: Level>(x: f32) -> f32 {
    let (t, s) = moderate::<L>(x, None);
    scaled::<L>(t, s)
}

/// Returns eˣ, within 1.25 ulp.
#[inline(always)]
pub fn exp<L: Level>(x: f32) -> f32 {
    exp_with::<L>(x, None, scaled::<L>, least(x < LEAST))
}

/// Returns 2⁻¹²⁶ if a result may be subnormal, otherwise 0. It is computed from bits, because with an `if` the compiler
/// would compute the results of [`exp_with`] for both numbers.
#[inline(always)]
pub(super) fn least(may_be_subnormal: bool) -> f32 {
    f32::from_bits(u32::from(may_be_subnormal) << 23)
}

/// Returns e^(x + tail) times a factor. `product` maps t and s to s·(1 + t) times the factor. `least` is 2⁻¹²⁶ with the
/// factor's sign if the result may be subnormal, and otherwise 0.
///
/// The power of two is a product of two factors, which are normal numbers even if their product is not. Adding `least`
/// rounds the result to the precision of subnormal numbers without a multiplication that has a subnormal result. On
/// some processors, such a multiplication takes a hundred times as long.
#[inline(always)]
pub(super) fn exp_with<L: Level>(x: f32, tail: Option<f32>, product: impl Fn(f32, f32) -> f32, least: f32) -> f32 {
    // The comparison is false for NaN, so NaN stays.
    let x = if x > ENOUGH { ENOUGH } else { x };
    let (t, n) = reduced_by::<L>(if x < NOTHING { NOTHING } else { x }, tail, 2 * BIAS);
    let low = (n << 22) & 0xff80_0000;
    let (low, high) = (f32::from_bits(low), f32::from_bits((n << 23).wrapping_sub(low)));
    L::fma(product(t, low), high, least) - least
}

/// Returns eʳ − 1 and n, where x = n·ln 2 + r and |r| ≤ ln 2 / 2.
#[inline(always)]
pub(super) fn reduced<L: Level>(x: f32) -> (f32, u32) {
    let (t, n) = reduced_by::<L>(x, None, 0);
    (t, n.wrapping_sub(round(0).to_bits()))
}

/// Returns 2ⁿ for n in −127..=128. For −127 the result is 0, and for 128 it is ∞.
#[inline(always)]
pub(super) fn power(n: u32) -> f32 {
    f32::from_bits(n.wrapping_add(BIAS) << 23)
}

/// Returns whether [`exp_normal_moderate`] is valid for an argument.
#[inline(always)]
pub fn is_not_large(x: f32) -> bool {
    x <= MODERATE
}

/// Returns eˣ for x up to [`MODERATE`] and for NaN, within 1.25 ulp. The result is 0 below −[`MODERATE`].
#[inline(always)]
pub fn exp_normal_moderate<L: Level>(x: f32) -> f32 {
    let y = exp_moderate::<L>(x);
    if x < -MODERATE { 0.0 } else { y }
}

/// Returns eˣ, within 1.25 ulp. The result is 0 below −[`MODERATE`].
#[inline(always)]
pub fn exp_normal<L: Level>(x: f32) -> f32 {
    let y = exp::<L>(x);
    if x < -MODERATE { 0.0 } else { y }
}

/// Returns eˣ − 1, within 2 ulp, even near 0.
#[inline(always)]
pub fn expm1<L: Level>(x: f32) -> f32 {
    let (t, n) = reduced::<L>(if x < -20.0 { -20.0 } else { x });
    // Half of 2ⁿ is finite whenever the result is.
    let half = power(n.wrapping_sub(1));
    let y = L::fma(t, half, half - 0.5);
    let y = if n == 0 { t } else { y + y };
    // A zero keeps its sign. The comparison is false for NaN, so NaN stays.
    if x <= MOST { y.copysign(x) } else { x * f32::INFINITY }
}

/// Returns the natural logarithm, within 1 ulp. The result is −∞ for 0, and NaN for negative numbers.
///
/// With x = 2ᵉ·m, m in √½..√2, f = m − 1 and s = f/(2 + f), ln m = 2s + s³·P(s²) = f − (f²/2 − s·(f²/2 + s²·P(s²))).
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

/// Returns e·ln 2 + ln(1 + f) for 1 + f in √½..√2.
#[inline(always)]
fn log_of<L: Level>(f: f32, e: f32) -> f32 {
    let s = f / (2.0 + f);
    let z = s * s;
    let p = z * polynomial::<L, 4>(z, [0.666_666_6, 0.400_003_4, 0.285_369_28, 0.235_898_2]);
    let half = 0.5 * f * f;
    L::fma(e, LN2_HIGH, f - (half - L::fma(s, half + p, e * LN2_LOW)))
}

/// Returns log(1 + x), within 2 ulp. The logarithm accounts for the rounding error of 1 + x. The result is −∞ for −1,
/// and NaN for smaller numbers.
#[inline(always)]
pub fn log1p<L: Level>(x: f32) -> f32 {
    let u = 1.0 + x;
    let lost = x - (u - 1.0);
    let offset = FRAC_1_SQRT_2.to_bits();
    let bits = u.to_bits().wrapping_sub(offset);
    let e = (bits as i32) >> 23;
    let m = f32::from_bits((bits & 0x007f_ffff).wrapping_add(offset));
    // 2¹⁻ᵉ; 0 for the largest exponent.
    let scale = f32::from_bits(128_u32.wrapping_sub(e as u32) << 23);
    let y = log_of::<L>(L::fma(0.5 * lost, scale, m - 1.0), e as f32);
    // A zero keeps its sign.
    let y = if u == 1.0 || x == f32::INFINITY { x } else { y };
    let y = if x == -1.0 { f32::NEG_INFINITY } else { y };
    if x < -1.0 || x.is_nan() { f32::NAN } else { y }
}
