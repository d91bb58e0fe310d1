//! Sine, cosine, tangent and their inverses for arguments in `f32`, computed in `f64`.

use super::polynomial::{ROUND_F64, polynomial_f64};

/// The high part of π/2 = `QUARTER_HIGH + QUARTER_LOW`. It has few enough bits that its product with a number of
/// quarter turns is exact.
const QUARTER_HIGH: f64 = 1.570_796_310_901_641_8;
const QUARTER_LOW: f64 = 1.589_325_477_352_819_7e-8;
/// The largest angle in radians for which the product of [`QUARTER_HIGH`] and the number of quarter turns is exact.
pub const FEW_TURNS: f32 = 1_048_576.0;

/// Returns whether [`sin`], [`cos`] and [`tan`] are valid for an argument.
#[inline(always)]
pub fn is_few_turns(x: f32) -> bool {
    x.abs() <= FEW_TURNS
}

/// Computes a function of any angle: by `few` for angles of few turns, and by `many`, in `f64`, for larger ones.
#[inline(always)]
pub fn any_angle(x: f32, few: impl Fn(f32) -> f32, many: impl Fn(f64) -> f64) -> f32 {
    if is_few_turns(x) { few(x) } else { many(f64::from(x)) as f32 }
}

/// Returns sin r, cos r and n, where x = n·π/2 + r and |r| ≤ π/4, for |x| up to [`FEW_TURNS`].
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

/// Returns the sine of x + `more`·π/2.
#[inline(always)]
fn turned(x: f32, more: u32) -> f32 {
    let (sine, cosine, n) = quarter_turns(x);
    let n = n.wrapping_add(more);
    let y = if n & 1 == 0 { sine } else { cosine };
    (if n & 2 == 0 { y } else { -y }) as f32
}

/// Returns the sine, within 1 ulp for |x| up to [`FEW_TURNS`].
#[inline(always)]
pub fn sin(x: f32) -> f32 {
    turned(x, 0)
}

/// Returns the cosine, within 1 ulp for |x| up to [`FEW_TURNS`].
#[inline(always)]
pub fn cos(x: f32) -> f32 {
    turned(x, 1)
}

/// Returns the tangent, within 1 ulp for |x| up to [`FEW_TURNS`].
#[inline(always)]
pub fn tan(x: f32) -> f32 {
    let (sine, cosine, n) = quarter_turns(x);
    let (above, below) = if n & 1 == 0 { (sine, cosine) } else { (-cosine, sine) };
    (above / below) as f32
}

/// Returns the arc tangent of a ≥ 0. For a > tan π/8, it is π/4 + atan((a − 1)/(a + 1)); for a > 1/tan π/8, it is
/// π/2 + atan(−1/a).
#[inline(always)]
fn atan_of(a: f64) -> f64 {
    use std::f64::consts::{FRAC_PI_2, FRAC_PI_4};
    const TAN_PI_8: f64 = 0.414_213_562_373_095_03;
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
    more + t * (1.0 + t * t * polynomial_f64(t * t, c))
}

/// Returns the arc tangent, within 1 ulp.
#[inline(always)]
pub fn atan(x: f32) -> f32 {
    (atan_of(f64::from(x.abs())) as f32).copysign(x)
}

/// Returns the arc sine, within 1 ulp, as atan(x/√(1 − x²)). For x² near 1, the difference is exact in `f64`.
#[inline(always)]
pub fn asin(x: f32) -> f32 {
    let a = f64::from(x.abs());
    (atan_of(a / (1.0 - a * a).sqrt()) as f32).copysign(x)
}

/// Returns the arc cosine, within 1 ulp, as 2·atan √((1 − x)/(1 + x)), which has no cancellation near 1.
#[inline(always)]
pub fn acos(x: f32) -> f32 {
    let x = f64::from(x);
    (2.0 * atan_of(((1.0 - x) / (1.0 + x)).sqrt())) as f32
}
