//! Branch-free elementary functions of `f32`, written so that the compiler vectorises them.
//!
//! Polynomials were fitted for this crate (weighted minimax in 40-digit arithmetic). The bounds in units in the last
//! place (of the exact result) are what `tests` checks, with fused multiply-add and without it.

mod angle;
mod double;
mod error;
mod exponential;
mod hyperbolic;
mod sigmoid;
#[cfg(test)]
mod tests;

pub use angle::{FEW_TURNS, acos, asin, atan, cos, sin, tan};
pub use double::{gelu_tanh_f64, silu_f64};
pub use error::{erf, gelu_erf};
pub use exponential::{exp, exp_of_negative, expm1, log, log1p};
pub use hyperbolic::{acosh, asinh, atanh, cosh, sinh};
pub use sigmoid::{gelu_tanh, sigmoid, silu, softplus, tanh};

use super::level::Level;

/// Adding and subtracting 1.5·2⁵² rounds to the nearest integer.
const ROUND_F64: f64 = 6_755_399_441_055_744.0;

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
