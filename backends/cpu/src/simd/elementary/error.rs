//! The error function, and the activation gelu, which uses it.

use super::{
    exponential::{exp_with, least, moderate, power, reduced},
    polynomial::polynomial,
};
use crate::simd::level::Level;

/// Computes erfc z for z ≥ 0, within 6 ulp up to z = 9.15. For larger z, erfc is almost subnormal, and the result is 0.
///
/// erfc z = e^(−z²)·P(q)/(z + 3) with q = (z − 3)/(z + 3). The rounding error of z² is the tail of the exponent.
#[inline(always)]
fn erfc_positive<L: Level>(z: f32) -> f32 {
    const LIMIT: f32 = 9.15;
    let vanishes = z > LIMIT;
    // The comparison is false for NaN, so NaN stays.
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
    let y = L::fma(y, -product_rest::<L>(z, z, square), y) * power(n) * (p * t);
    if vanishes { 0.0 } else { y }
}

/// Returns the rounding error a·b − `product`, where `product` is a·b rounded.
#[inline(always)]
fn product_rest<L: Level>(a: f32, b: f32, product: f32) -> f32 {
    if L::FMA {
        return a.mul_add(b, -product);
    }
    // Splits a number into two with 12 bits each, whose products are exact.
    let halves = |x: f32| {
        let high = f32::from_bits(x.to_bits() & 0xffff_f000);
        (high, x - high)
    };
    let ((a, more_a), (b, more_b)) = (halves(a), halves(b));
    (a * b - product) + a * more_b + more_a * b + more_a * more_b
}

/// Returns a·b + c without the rounding error of the product, even if a·b and c nearly cancel.
#[inline(always)]
fn fused<L: Level>(a: f32, b: f32, c: f32) -> f32 {
    if L::FMA {
        return a.mul_add(b, c);
    }
    let product = a * b;
    (product + c) + product_rest::<L>(a, b, product)
}

/// Returns the error function, within 2 ulp.
#[inline(always)]
pub fn erf<L: Level>(x: f32) -> f32 {
    let a = x.abs();
    let z = x * x;
    // erf x = x + x·slope. The second summand is small, so its error matters little.
    let slope = polynomial::<L, 7>(
        z,
        [0.128_379_17, -0.376_126_35, 0.112_837_195, -0.026_860_753, 0.005_204_437_8, -0.000_818_196, 0.000_085_390_1],
    );
    let small = L::fma(x, slope, x);
    let large = (1.0 - erfc_positive::<L>(a)).copysign(x);
    let y = if a < 0.8 { small } else { large };
    if x.is_nan() { x } else { y }
}

/// The constant c of [`TailParts`].
const OFFSET: f32 = 3.781_25;
/// For x down to the negative of this number, x·Φ(x) is a normal number (not subnormal).
const NORMAL: f32 = 13.1;

/// The terms of a·Φ(−a) = a·(g + rest)·e^(exponent + tail) for a ≥ 0, where Φ is the normal distribution function.
///
/// Φ(−a) = e^(−a²/2)·g with g = t·P(t), t = 1/(a + c). P was fitted with weight 1/P for a up to 13.3; for larger a, the
/// result is subnormal. `rest` has the rounding errors of t, P(t) and g to first order. Without `rest`, the result
/// would be off by 8 ulp.
struct TailParts {
    a: f32,
    g: f32,
    rest: f32,
    exponent: f32,
    tail: f32,
}

impl TailParts {
    #[inline(always)]
    fn new<L: Level>(a: f32) -> TailParts {
        const CENTRE: f32 = 0.133_065_37;
        const FIRST: f32 = 0.754_703_04;
        let t = 1.0 / (a + OFFSET);
        // t·(a + c) − 1.
        let excess = fused::<L>(t, a, product_rest::<L>(t, OFFSET, 1.0));
        let u = t - CENTRE;
        let square = u * u;
        // The last two steps are by Horner's rule, because their rounding errors matter. The other steps use powers of
        // u², which makes the chain of dependent operations shorter.
        let high = L::fma(square, L::fma(u, 4_941.485, -901.283_75), L::fma(u, -792.317_4, -10.928_813));
        let high = L::fma(square, high, L::fma(u, 131.527_7, 67.881_41));
        let slope = L::fma(u, L::fma(u, high, 20.609_022), 4.502_170_6);
        let p = L::fma(u, slope, FIRST);
        let g = t * p;
        let rest = L::fma(t, fused::<L>(u, slope, FIRST - p), product_rest::<L>(t, p, g));
        // The relative error of g is that of t times d log g / d log t, which is about 8.45·t + 0.74.
        let rest = L::fma(-(g * excess), L::fma(t, 8.45, 0.74), rest);
        let exponent = -0.5 * a * a;
        TailParts { a, g, rest, exponent, tail: product_rest::<L>(-0.5 * a, a, exponent) }
    }

    /// Returns a·(g + rest)·(1 + e).
    #[inline(always)]
    fn times<L: Level>(&self, e: f32) -> f32 {
        let y = self.a * self.g;
        let rest = L::fma(self.g, e, L::fma(self.rest, e, self.rest));
        y + L::fma(self.a, rest, product_rest::<L>(self.a, self.g, y))
    }
}

/// Returns whether [`gelu_erf_moderate`] is valid for an argument.
#[inline(always)]
pub fn is_moderate_gelu_erf(x: f32) -> bool {
    x >= -NORMAL
}

/// Returns x·Φ(x), within 2 ulp, for x ≥ −13.1, as max(x, 0) − |x|·Φ(−|x|).
#[inline(always)]
pub fn gelu_erf_moderate<L: Level>(x: f32) -> f32 {
    let a = x.abs();
    let parts = TailParts::new::<L>(if a > NORMAL { NORMAL } else { a });
    let (t, s) = moderate::<L>(parts.exponent, Some(parts.tail));
    // A zero keeps its sign.
    L::fma(-s, parts.times::<L>(t), if x < -0.0 { -0.0 } else { x })
}

/// Returns x·Φ(x), where Φ is the normal distribution function, within 2 ulp, even for negative x.
#[inline(always)]
pub fn gelu_erf<L: Level>(x: f32) -> f32 {
    // For x below −19, the power underflows to 0.
    const NOTHING: f32 = 19.0;
    let a = -x;
    let parts = TailParts::new::<L>(if a > NOTHING { NOTHING } else { a });
    let far = exp_with::<L>(parts.exponent, Some(parts.tail), |t, s| parts.times::<L>(t) * s, least(x < -13.151));
    let near = gelu_erf_moderate::<L>(x);
    // For x = −∞, the exact product −∞·0 is NaN; adding x·0 gives NaN too.
    if x < -NORMAL { (-far).copysign(x) + x * 0.0 } else { near }
}
