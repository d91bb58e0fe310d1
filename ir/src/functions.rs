//! Functions of real numbers that the standard library lacks, or computes inaccurately at the ends of their range.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

pub use libm::{asinh, atanh, erf};

/// Returns the inverse hyperbolic cosine, NaN below 1.
pub fn acosh(x: f64) -> f64 {
    if x < 1.0 { f64::NAN } else { libm::acosh(x) }
}

/// Returns 1/(1 + e⁻ˣ), accurate also for subnormal results.
pub fn sigmoid(x: f64) -> f64 {
    let e = (-x.abs()).exp();
    (if x < 0.0 { e } else { 1.0 }) / (1.0 + e)
}

/// Returns log(1 + eˣ) without overflow of eˣ.
pub fn softplus(x: f64) -> f64 {
    let high = if x < 0.0 { 0.0 } else { x };
    high + (-x.abs()).exp().ln_1p()
}

/// Returns Φ(x), the normal distribution function.
///
/// In the lower tail, a relative error of x/√2 is amplified by x². So the rounding error of x/√2 is corrected by
/// means of the derivative.
pub fn normal_distribution(x: f64) -> f64 {
    /// 1/√2 minus its nearest `f64`.
    const REST: f64 = -4.833_646_656_726_457e-17;
    let z = -x * FRAC_1_SQRT_2;
    if !z.is_finite() {
        return 0.5 * libm::erfc(z);
    }
    let lost = (-x).mul_add(FRAC_1_SQRT_2, -z) - x * REST;
    let slope = FRAC_2_SQRT_PI * (-z * z).exp();
    0.5 * (libm::erfc(z) - lost * slope)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks a function against exact values. `most` bounds the relative error, in units of `f64::EPSILON`.
    fn near(name: &str, f: fn(f64) -> f64, most: f64, exact: &[(f64, f64)]) {
        for (x, y) in exact {
            let got = f(*x);
            let error = ((got - y) / y).abs() / f64::EPSILON;
            assert!(error < most, "{name}({x}) = {got:e}, not {y:e}");
        }
    }

    #[test]
    fn values_in_forty_digits() {
        let normal = [
            (-37.1, 1.4047119663106221e-301),
            (-30.3, 5.731723503315496e-202),
            (-20.7, 1.7318518790197378e-95),
            (-5.3, 5.790134039964594e-08),
            (-1.1, 0.13566606094638264),
            (-0.01, 0.4960106436853684),
            (0.3, 0.6179114221889527),
            (1.7, 0.955434537241457),
            (8.9, 1.0),
        ];
        near("Φ", normal_distribution, 4.0, &normal);
        let logistic = [
            (-700.3, 7.304228033645715e-305),
            (-88.7, 3.006626321563833e-39),
            (-16.6, 6.17606095414305e-08),
            (-0.1, 0.47502081252106),
            (0.7, 0.668187772168166),
            (17.3, 0.999999969330588),
        ];
        near("σ", sigmoid, 3.0, &logistic);
        let smooth = [
            (-700.3, 7.304228033645715e-305),
            (-88.7, 3.006626321563833e-39),
            (-0.1, 0.6443966600735709),
            (0.7, 1.103186048885458),
            (17.3, 17.300000030669413),
            (800.5, 800.5),
        ];
        near("softplus", softplus, 3.0, &smooth);
        // Subnormal results have too few bits for a relative error, so they are compared exactly.
        assert_eq!([sigmoid(-740.0), softplus(-740.0)], [4.2e-322; 2]);
        assert_eq!(
            (sigmoid(f64::NEG_INFINITY), sigmoid(f64::INFINITY), normal_distribution(f64::NEG_INFINITY)),
            (0.0, 1.0, 0.0)
        );
        assert!([-8192.0, -1.5, 0.5].into_iter().all(|x| acosh(x).is_nan()) && acosh(1.0) == 0.0);
        assert!(sigmoid(f64::NAN).is_nan() && softplus(f64::NAN).is_nan() && normal_distribution(f64::NAN).is_nan());
    }
}
