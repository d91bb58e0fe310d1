//! Branch-free elementary functions of `f32`, written so that the compiler vectorises them.
//!
//! Polynomials were fitted for this crate (weighted minimax in 40-digit arithmetic). The bounds in units in the last
//! place (of the exact result) are what `tests` below check, with fused multiply-add and without it.

use std::f32::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, LOG2_E};

use super::level::Level;

/// ln 2 = `LN2_HIGH + LN2_LOW`; the high part has so few bits that its product with an exponent is exact.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -0.000_212_194_44;
/// Adding and subtracting 1.5·2²³ rounds to the nearest integer.
const ROUND: f32 = 12_582_912.0;

/// The same in `f64`.
const ROUND_F64: f64 = 6_755_399_441_055_744.0;
/// π/2 = `QUARTER_HIGH + QUARTER_LOW`; the high part has so few bits that its product with a number of quarter turns is exact.
const QUARTER_HIGH: f64 = 1.570_796_310_901_641_8;
const QUARTER_LOW: f64 = 1.589_325_477_352_819_7e-8;
/// The largest angle whose quarter turns are counted without loss.
pub const FEW_TURNS: f32 = 1_048_576.0;

#[inline(always)]
fn polynomial<L: Level, const N: usize>(x: f32, c: [f32; N]) -> f32 {
    let mut sum = c[N - 1];
    let mut i = N - 1;
    while i > 0 {
        i -= 1;
        sum = L::fma(sum, x, c[i]);
    }
    sum
}

/// In `f64`, whose roundings do not count in results of `f32`.
#[inline(always)]
fn polynomial_f64<const N: usize>(x: f64, c: [f64; N]) -> f64 {
    c.into_iter().rev().reduce(|sum, c| sum * x + c).unwrap_or(0.0)
}

/// eʳ and n with x = n·ln 2 + r, |r| ≤ ln 2 / 2 and eʳ = 1 + r + r²·P(r).
#[inline(always)]
fn reduced<L: Level>(x: f32) -> (f32, u32) {
    reduced_sum::<L>(x, |r| r)
}

/// As [`reduced`], with something small added to r.
#[inline(always)]
fn reduced_sum<L: Level>(x: f32, add: impl Fn(f32) -> f32) -> (f32, u32) {
    let shifted = L::fma(x, LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = add(L::fma(n, -LN2_LOW, L::fma(n, -LN2_HIGH, x)));
    let p = polynomial::<L, 5>(r, [0.499_999_94, 0.166_665_15, 0.041_668_47, 0.008_369_408, 0.001_381_230_7]);
    (1.0 + L::fma(r * r, p, r), shifted.to_bits().wrapping_sub(ROUND.to_bits()))
}

/// 2ⁿ for n from −127, where it is 0, to 128, where it is ∞.
#[inline(always)]
fn power(n: u32) -> f32 {
    f32::from_bits(n.wrapping_add(127) << 23)
}

/// eˣ, within 2 ulp; 0 where it would be subnormal, which would take a hundred times longer.
#[inline(always)]
pub fn exp<L: Level>(x: f32) -> f32 {
    const LEAST: f32 = -87.336_54;
    const MOST: f32 = 88.722_83;
    let (y, n) = reduced::<L>(x);
    // Times 2ⁿ: where the result counts, exponents add up to one that there is.
    let y = f32::from_bits(y.to_bits().wrapping_add(n << 23));
    let y = if x < LEAST { 0.0 } else { y };
    // NaN stays.
    if x <= MOST { y } else { x * f32::INFINITY }
}

/// eˣ for x ≤ 0 (and NaN), within 2 ulp, 0 below −87: weights beside which less does not count.
#[inline(always)]
pub fn exp_of_negative<L: Level>(x: f32) -> f32 {
    let (y, n) = reduced::<L>(x);
    let y = y * power(n);
    if x < -87.0 { 0.0 } else { y }
}

/// 1 + eˣ, within 2 ulp, ∞ from e^88.4 on: cheaper than [`exp`], whose small results do not count beside 1.
#[inline(always)]
fn one_plus_exp<L: Level>(x: f32) -> f32 {
    let x = if x > 88.9 { 88.9 } else { x };
    let x = if x < -87.0 { -87.0 } else { x };
    let (y, n) = reduced::<L>(x);
    L::fma(y, power(n), 1.0)
}

/// The natural logarithm, within 2 ulp. −∞ at 0, NaN below.
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
    let f = m - 1.0;
    let s = f / (2.0 + f);
    let z = s * s;
    let p = z * polynomial::<L, 4>(z, [0.666_666_6, 0.400_003_4, 0.285_369_28, 0.235_898_2]);
    let half = 0.5 * f * f;
    let y = L::fma(e, LN2_HIGH, f - (half - L::fma(s, half + p, e * LN2_LOW)));
    let y = if x == f32::INFINITY { x } else { y };
    let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
    if x < 0.0 || x.is_nan() { f32::NAN } else { y }
}

/// tanh x, within 3 ulp.
#[inline(always)]
pub fn tanh<L: Level>(x: f32) -> f32 {
    let a = x.abs();
    let z = x * x;
    let p = polynomial::<L, 5>(z, [-0.333_333, 0.133_319_59, -0.053_786_655, 0.020_805_292, -0.005_905_764_6]);
    let small = L::fma(x * z, p, x);
    let large = (1.0 - 2.0 / one_plus_exp::<L>(2.0 * a)).copysign(x);
    let y = if a < 0.6 { small } else { large };
    if x.is_nan() { x } else { y }
}

/// erfc z for z ≥ 0, within 6 ulp up to z = 9.15; beyond, where it is about to become subnormal, 0.
///
/// erfc z = e^(−z²)·P(q)/(z + 3) with q = (z − 3)/(z + 3); what is lost in squaring goes into the exponential as its tail.
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
    let (y, n) = reduced::<L>(-square);
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

/// The error function, within 3 ulp.
#[inline(always)]
pub fn erf<L: Level>(x: f32) -> f32 {
    let a = x.abs();
    let z = x * x;
    let small = x * polynomial::<L, 7>(
        z,
        [
            FRAC_2_SQRT_PI,
            -0.376_126_35,
            0.112_837_195,
            -0.026_860_753,
            0.005_204_437_8,
            -0.000_818_196,
            0.000_085_390_1,
        ],
    );
    let large = (1.0 - erfc_positive::<L>(a)).copysign(x);
    let y = if a < 0.8 { small } else { large };
    if x.is_nan() { x } else { y }
}

/// 1/(1 + e⁻ˣ), within 4 ulp where the result is normal (subnormal results may be zero).
#[inline(always)]
pub fn sigmoid<L: Level>(x: f32) -> f32 {
    1.0 / one_plus_exp::<L>(-x)
}

/// x·sigmoid(x), within 5 ulp where sigmoid(x) is normal.
#[inline(always)]
pub fn silu<L: Level>(x: f32) -> f32 {
    x / one_plus_exp::<L>(-x)
}

/// log(1 + eˣ), within 6 ulp: max(x, 0) + log1p(e^−|x|), the latter by u = 1 + e, log1p e = log u · e/(u − 1), in which the
/// rounding of u cancels (Goldberg, 1991, theorem 4).
#[inline(always)]
pub fn softplus<L: Level>(x: f32) -> f32 {
    let e = exp::<L>(-x.abs());
    let u = 1.0 + e;
    let vanishes = u == 1.0;
    // Computed in any case: a branch would keep the loop from being vectorised.
    let rest = log::<L>(u) * (e / if vanishes { 1.0 } else { u - 1.0 });
    (if vanishes { e } else { rest }) + if x > 0.0 { x } else { 0.0 }
}

/// sin r, cos r and n with x = n·π/2 + r, |r| ≤ π/4, for |x| up to [`FEW_TURNS`].
#[inline(always)]
fn quarter_turns(x: f32) -> (f64, f64, u32) {
    let x = f64::from(x);
    let shifted = x * std::f64::consts::FRAC_2_PI + ROUND_F64;
    let n = shifted - ROUND_F64;
    let r = (x - n * QUARTER_HIGH) - n * QUARTER_LOW;
    let z = r * r;
    let sine =
        [-0.166_666_666_414_265_1, 0.008_333_329_362_279_58, -0.000_198_393_271_363_720_88, 2.718_237_275_389_318e-6];
    let cosine = [1.0, -0.5, 0.041_666_646_747_783_795, -0.001_388_736_145_048_77, 2.443_773_012_490_525_4e-5];
    (r * (1.0 + z * polynomial_f64(z, sine)), polynomial_f64(z, cosine), shifted.to_bits() as u32)
}

/// The sine of the angle that is so many quarter turns more.
#[inline(always)]
fn turned(x: f32, more: u32) -> f32 {
    let (sine, cosine, n) = quarter_turns(x);
    let n = n.wrapping_add(more);
    let y = if n & 1 == 0 { sine } else { cosine };
    (if n & 2 == 0 { y } else { -y }) as f32
}

/// The sine, within 1 ulp for |x| up to [`FEW_TURNS`].
#[inline(always)]
pub fn sin(x: f32) -> f32 {
    turned(x, 0)
}

/// The cosine, within 1 ulp for |x| up to [`FEW_TURNS`].
#[inline(always)]
pub fn cos(x: f32) -> f32 {
    turned(x, 1)
}

/// The tangent, within 1 ulp for |x| up to [`FEW_TURNS`].
#[inline(always)]
pub fn tan(x: f32) -> f32 {
    let (sine, cosine, n) = quarter_turns(x);
    let (above, below) = if n & 1 == 0 { (sine, cosine) } else { (-cosine, sine) };
    (above / below) as f32
}

/// The arc tangent, within 1 ulp: that of (a − 1)/(a + 1) or −1/a is π/4 or π/2 less.
#[inline(always)]
pub fn atan(x: f32) -> f32 {
    use std::f64::consts::{FRAC_PI_2, FRAC_PI_4};
    const TAN_PI_8: f64 = 0.414_213_562_373_095_03;
    let a = f64::from(x.abs());
    let (steep, middle) = (a > 1.0 / TAN_PI_8, a > TAN_PI_8);
    let above = if steep {
        -1.0
    } else if middle {
        a - 1.0
    } else {
        a
    };
    let below = if steep {
        a
    } else if middle {
        a + 1.0
    } else {
        1.0
    };
    let more = if steep {
        FRAC_PI_2
    } else if middle {
        FRAC_PI_4
    } else {
        0.0
    };
    let t = above / below;
    let c = [
        -0.333_333_325_144_682_95,
        0.199_999_051_735_690_35,
        -0.142_820_416_721_885,
        0.110_450_882_867_435_14,
        -0.084_783_753_718_397_26,
        0.047_482_085_680_094_904,
    ];
    ((more + t * (1.0 + t * t * polynomial_f64(t * t, c))) as f32).copysign(x)
}

/// x·Φ(x), Φ the normal distribution function, within 8 ulp where Φ(x) > 2⁻¹²⁶ (0 below): no cancellation for negative x.
///
/// Φ(−a) = e^(−a²/2)·P(q)/(a + c) with q = (a − c)/(a + c), c = 3√2, for a ≥ 0; what is lost in squaring is made good in the
/// exponential.
#[inline(always)]
pub fn gelu_erf<L: Level>(x: f32) -> f32 {
    const LIMIT: f32 = 12.94;
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
    let (y, n) = reduced_sum::<L>(-0.5 * square, |r| L::fma(-0.5, square_rest::<L>(a, square), r));
    // Times 2ⁿ, which is normal. What becomes of NaN does not matter: the result is a product with x.
    let y = f32::from_bits(y.to_bits().wrapping_add(n << 23)) * (p * t);
    let tail = if vanishes { 0.0 } else { y };
    x * if x < 0.0 { tail } else { 1.0 - tail }
}

/// x·sigmoid(2u) with u = √(2/π)·(x + 0.044715·x³), which is x·(1 + tanh u)/2 without cancellation; within
/// 4 + 8·|u| ulp where sigmoid(2u) is normal.
#[inline(always)]
pub fn gelu_tanh<L: Level>(x: f32) -> f32 {
    const TWICE: f32 = 1.595_769;
    let u = x * L::fma(x * x, TWICE * 0.044_715, TWICE);
    x / one_plus_exp::<L>(-u)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{level::Baseline, vector::Lanes};

    type Fused = crate::simd::level::FusedLevel<Lanes<f32, 8>, Lanes<f64, 4>>;

    /// Distance in units in the last place of the exact result.
    fn ulps(got: f32, exact: f64) -> f64 {
        if got.is_nan() && exact.is_nan() || f64::from(got) == exact || got == exact as f32 {
            return 0.0;
        }
        let exponent = exact.abs().max(f64::from(f32::MIN_POSITIVE)).log2().floor();
        (f64::from(got) - exact).abs() / 2f64.powf(exponent - 23.0)
    }

    fn inputs(low: f32, high: f32) -> impl Iterator<Item = f32> {
        let special =
            [0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MIN_POSITIVE, 1e-42, -1e-42];
        let n = 400_000;
        let even = (0..=n).map(move |i| low + (high - low) * (i as f32 / n as f32));
        // Every magnitude: the bits of a float are roughly its logarithm.
        let wide = (0..2_000_000_u32).map(|i| f32::from_bits(i.wrapping_mul(2_654_435_761)));
        special.into_iter().chain(even).chain(wide)
    }

    #[track_caller]
    fn check(name: &str, f: [fn(f32) -> f32; 2], exact: fn(f64) -> f64, range: (f32, f32), bound: fn(f32, f64) -> f64) {
        for x in inputs(range.0, range.1) {
            let e = exact(f64::from(x));
            for f in f {
                let (got, bound) = (f(x), bound(x, e));
                assert!(
                    ulps(got, e) == 0.0 || ulps(got, e) <= bound,
                    "{name}({x:e}) = {got:e}, exact {e:e}, {} ulp, bound {bound}",
                    ulps(got, e)
                );
            }
        }
    }

    /// erfc by its continued fraction (Lentz) for z > 2, by the Taylor series of erf below.
    fn erfc(z: f64) -> f64 {
        if z < 0.0 {
            return 2.0 - erfc(-z);
        }
        if z < 2.0 {
            let (mut term, mut sum) = (z, z);
            for n in 1..100 {
                term *= -z * z / f64::from(n);
                sum += term / f64::from(2 * n + 1);
            }
            return 1.0 - sum * 2.0 / std::f64::consts::PI.sqrt();
        }
        if z.is_nan() || z > 40.0 {
            return if z.is_nan() { z } else { 0.0 };
        }
        let fraction = (1..200).rev().fold(z, |f, n| z + f64::from(n) / 2.0 / f);
        (-z * z).exp() / fraction / std::f64::consts::PI.sqrt()
    }

    fn exact_erf(x: f64) -> f64 {
        if x.abs() < 0.5 {
            let (mut term, mut sum) = (x, x);
            for n in 1..40 {
                term *= -x * x / f64::from(n);
                sum += term / f64::from(2 * n + 1);
            }
            return sum * 2.0 / std::f64::consts::PI.sqrt();
        }
        1.0 - erfc(x)
    }

    #[test]
    fn exponential_and_logarithm() {
        check("exp", [exp::<Fused>, exp::<Baseline>], f64::exp, (-104.0, 89.0), |_, e| {
            if e < f64::from(f32::MIN_POSITIVE) { f64::INFINITY } else { 2.0 }
        });
        let subnormal = inputs(-104.0, -87.4).filter(|&x| x < -87.4).map(exp::<Fused>);
        assert!(subnormal.into_iter().all(|y| y == 0.0));
        let negative: [fn(f32) -> f32; 2] =
            [|x| exp_of_negative::<Fused>(-x.abs()), |x| exp_of_negative::<Baseline>(-x.abs())];
        check(
            "exp",
            negative,
            |x| (-x.abs()).exp(),
            (-87.0, 0.0),
            |x, _| {
                if x.abs() > 87.0 { f64::INFINITY } else { 2.0 }
            },
        );
        assert_eq!(exp_of_negative::<Fused>(f32::NEG_INFINITY), 0.0);
        check("log", [log::<Fused>, log::<Baseline>], f64::ln, (1e-3, 10.0), |_, _| 2.0);
    }

    #[test]
    fn sigmoids() {
        check("tanh", [tanh::<Fused>, tanh::<Baseline>], f64::tanh, (-10.0, 10.0), |_, _| 3.0);
        let sigmoid_exact = |x: f64| 1.0 / (1.0 + (-x).exp());
        check("sigmoid", [sigmoid::<Fused>, sigmoid::<Baseline>], sigmoid_exact, (-87.0, 20.0), |x, _| {
            if x < -87.0 { f64::INFINITY } else { 4.0 }
        });
        assert_eq!(sigmoid::<Fused>(f32::NEG_INFINITY), 0.0);
        check(
            "silu",
            [silu::<Fused>, silu::<Baseline>],
            |x| x / (1.0 + (-x).exp()),
            (-87.0, 20.0),
            |x, _| {
                if x < -87.0 { f64::INFINITY } else { 5.0 }
            },
        );
    }

    #[test]
    fn softplus_keeps_its_tail() {
        let exact = |x: f64| x.max(0.0) + (-x.abs()).exp().ln_1p();
        let bound = |x: f32, _| if x < -87.0 { f64::INFINITY } else { 6.0 };
        check("softplus", [softplus::<Fused>, softplus::<Baseline>], exact, (-87.0, 20.0), bound);
        assert_eq!(softplus::<Fused>(f32::NEG_INFINITY), 0.0);
    }

    #[test]
    fn angles() {
        let few = |x: f32, _: f64| if x.abs() <= FEW_TURNS { 1.0 } else { f64::INFINITY };
        for range in [(-10.0, 10.0), (-1e4, 1e4), (-FEW_TURNS, FEW_TURNS)] {
            check("sin", [sin, sin], f64::sin, range, few);
            check("cos", [cos, cos], f64::cos, range, few);
            check("tan", [tan, tan], f64::tan, range, few);
        }
        check("atan", [atan, atan], f64::atan, (-10.0, 10.0), |_, _| 1.0);
        for f in [sin, tan, atan] {
            assert_eq!(f(-0.0).to_bits(), (-0.0_f32).to_bits());
        }
    }

    #[test]
    fn error_function_and_gelu() {
        check("erf", [erf::<Fused>, erf::<Baseline>], exact_erf, (-5.0, 5.0), |_, _| 3.0);
        let gelu = |x: f64| x * 0.5 * erfc(-x / std::f64::consts::SQRT_2);
        check("gelu-erf", [gelu_erf::<Fused>, gelu_erf::<Baseline>], gelu, (-12.9, 12.9), |x, _| {
            if x < -12.9 { f64::INFINITY } else { 8.0 }
        });
        let gelu = |x: f64| x / (1.0 + (-2.0 * (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).exp());
        check("gelu-tanh", [gelu_tanh::<Fused>, gelu_tanh::<Baseline>], gelu, (-10.0, 10.0), |x, _| {
            let u = 0.8 * (x.abs() + 0.045 * x.abs().powi(3));
            if x < -9.0 { f64::INFINITY } else { 4.0 + 8.0 * f64::from(u) }
        });
    }
}
