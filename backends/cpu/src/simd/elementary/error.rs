//! The error function, and the activation that is made of it.

use super::{
    exponential::{power, reduced, reduced_sum},
    polynomial::polynomial,
};
use crate::simd::level::Level;

/// erfc z for z ≥ 0, within 6 ulp up to z = 9.15; beyond, where it is about to become subnormal, 0.
///
/// erfc z = e^(−z²)·P(q)/(z + 3) with q = (z − 3)/(z + 3); the rounding error of z² goes into the exponential as its tail.
#[inline(always)]
fn erfc_positive<L: Level>(z: f32) -> f32 {
    const LIMIT: f32 = 9.15;
    let vanishes = z > LIMIT;
    // NaN stays.
    let z = if vanishes { LIMIT } else { z };
    let t = 1.0 / (z + 3.0);
    let p = polynomial::<L, 10>(
        (z - 3.0) * t,
        [
            1.074_006_9,
            -0.883_394_5,
            0.590_228_3,
            -0.310_466_38,
            0.119_528_21,
            -0.026_837_409,
            -0.001_220_758,
            0.003_077_205_3,
            -0.000_495_340_85,
            -0.000_331_591_5,
        ],
    );
    let square = z * z;
    let (rest, n) = reduced::<L>(-square);
    let y = 1.0 + rest;
    let y = L::fma(y, -square_rest::<L>(z, square), y) * power(n) * (p * t);
    if vanishes { 0.0 } else { y }
}

/// z² − `square`, which is z² rounded.
#[inline(always)]
fn square_rest<L: Level>(z: f32, square: f32) -> f32 {
    if L::FMA {
        return z.mul_add(z, -square);
    }
    // Two halves with 12 bits each, whose products are exact.
    let high = f32::from_bits(z.to_bits() & 0xffff_f000);
    let low = z - high;
    (high * high - square) + 2.0 * high * low + low * low
}

/// The error function, within 2 ulp.
#[inline(always)]
pub fn erf<L: Level>(x: f32) -> f32 {
    let a = x.abs();
    let z = x * x;
    // The part of the slope below 1 is a small summand next to x.
    let slope = polynomial::<L, 7>(
        z,
        [0.128_379_17, -0.376_126_35, 0.112_837_195, -0.026_860_753, 0.005_204_437_8, -0.000_818_196, 0.000_085_390_1],
    );
    let small = L::fma(x, slope, x);
    let large = (1.0 - erfc_positive::<L>(a)).copysign(x);
    let y = if a < 0.8 { small } else { large };
    if x.is_nan() { x } else { y }
}

/// x·Φ(x), Φ the normal distribution function, within 8 ulp: no cancellation for negative x.
///
/// Φ(−a) = e^(−a²/2)·P(q)/(a + c) with q = (a − c)/(a + c), c = 3√2, for a ≥ 0; the rounding error of a² is corrected in the
/// exponential.
#[inline(always)]
pub fn gelu_erf<L: Level>(x: f32) -> f32 {
    // From there on x·Φ(x) rounds to 0, or to x.
    const LIMIT: f32 = 14.5;
    const C: f32 = 4.242_640_5;
    let a = x.abs();
    let vanishes = a > LIMIT;
    // NaN stays.
    let a = if vanishes { LIMIT } else { a };
    let t = 1.0 / (a + C);
    let p = polynomial::<L, 9>(
        (a - C) * t,
        [
            0.759_437_6,
            -0.624_654_77,
            0.417_351_5,
            -0.219_517_81,
            0.084_562_376,
            -0.019_068_785,
            -0.001_103_881_2,
            0.002_276_026_2,
            0.000_107_163_14,
        ],
    );
    let square = a * a;
    let (e, n) = reduced_sum::<L>(-0.5 * square, |r| L::fma(-0.5, square_rest::<L>(a, square), r));
    let y = L::fma(e, p * t, p * t);
    // Times 2ⁿ. Where that may be subnormal, it is 2⁶⁴ times as much; it vanishes when 1 is added.
    let part = if a > 12.5 { 64 << 23 } else { 0 };
    let y = f32::from_bits(y.to_bits().wrapping_add(n << 23).wrapping_add(part));
    let tail = if vanishes { 0.0 } else { y };
    x * if x < 0.0 { tail } else { 1.0 - tail } * if x < -12.5 { 1.0 / 18_446_744_073_709_551_616.0 } else { 1.0 }
}
