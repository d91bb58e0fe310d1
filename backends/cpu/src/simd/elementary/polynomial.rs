//! Evaluation of polynomials, and a constant for rounding, which the elementary functions use.

use crate::simd::level::Level;

/// 1.5·2⁵². Adding this number and subtracting it again rounds a small number to the nearest integer.
pub const ROUND_F64: f64 = 6_755_399_441_055_744.0;

/// Evaluates a polynomial by Horner's rule. Coefficients start with the constant term.
#[inline(always)]
pub fn polynomial<L: Level, const N: usize>(x: f32, c: [f32; N]) -> f32 {
    let mut sum = c[N - 1];
    let mut i = N - 1;
    while i > 0 {
        i -= 1;
        sum = L::fma(sum, x, c[i]);
    }
    sum
}

/// Evaluates a polynomial in `f64` by Horner's rule, without fused multiply-add: rounding errors in `f64` do not matter
/// for results in `f32`. Coefficients start with the constant term.
#[inline(always)]
pub fn polynomial_f64<const N: usize>(x: f64, c: [f64; N]) -> f64 {
    c.into_iter().rev().reduce(|sum, c| sum * x + c).unwrap_or(0.0)
}
