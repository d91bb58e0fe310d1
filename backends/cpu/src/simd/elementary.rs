//! Elementary functions of `f32` without branches, so that compilers vectorise loops over them.
//!
//! The polynomials were fitted for this crate (weighted minimax in 40-digit arithmetic). The module `tests` checks the
//! error bounds, with and without fused multiply-add. Bounds are in ulp: units in the last place of the exact result.

mod angle;
mod double;
mod error;
mod exponential;
mod hyperbolic;
mod polynomial;
mod sigmoid;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub use angle::FEW_TURNS;
pub use angle::{acos, any_angle, asin, atan, cos, is_few_turns, sin, tan};
pub use double::{gelu_tanh_f64, silu_f64};
pub use error::{erf, gelu_erf, gelu_erf_moderate, is_moderate_gelu_erf};
pub use exponential::{
    exp, exp_moderate, exp_normal, exp_normal_moderate, expm1, is_moderate, is_not_large, log, log1p,
};
pub use hyperbolic::{acosh, asinh, atanh, cosh, sinh};
pub use sigmoid::{
    gelu_tanh, gelu_tanh_moderate, is_moderate_gelu_tanh, sigmoid, sigmoid_moderate, silu, silu_moderate, softplus,
    tanh,
};
