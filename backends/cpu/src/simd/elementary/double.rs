//! Activations of `f64`. For large negative arguments, the result is a product of factors that do not underflow unless
//! the result does.

use eutectic_ir::functions::sigmoid;

/// Returns x·sigmoid(v + rest) for a small `rest`.
fn gated(x: f64, v: f64, rest: f64) -> f64 {
    if v > -700.0 {
        let odds = sigmoid(v);
        return x * (odds + odds * (1.0 - odds) * rest);
    }
    let half = (0.5 * v).exp();
    (x * half) * (half * (1.0 + rest))
}

/// Returns x·sigmoid(x).
pub fn silu_f64(x: f64) -> f64 {
    gated(x, x, 0.0)
}

/// Returns x·sigmoid(2u) with u = √(2/π)·(x + 0.044715·x³). u is computed as a sum of two numbers, because the relative
/// error of the result is about |u| times that of u.
pub fn gelu_tanh_f64(x: f64) -> f64 {
    /// 2√(2/π) as a sum of two numbers.
    const SLOPE: [f64; 2] = [1.5957691216057308, -9.96930880911092e-17];
    /// 0.044715·2√(2/π) as a sum of two numbers.
    const CUBE: [f64; 2] = [0.07135481627260025, -6.175149918155315e-19];
    // For |x| ≥ 30, the sigmoid rounds to 1 or underflows to 0.
    if !(-30.0..30.0).contains(&x) {
        return if x < 0.0 { x * 0.0 } else { x };
    }
    let square = x * x;
    let cube = CUBE[0] * square;
    let lost = CUBE[0].mul_add(square, -cube) + CUBE[0] * x.mul_add(x, -square) + CUBE[1] * square;
    let w = SLOPE[0] + cube;
    let lost = if cube > SLOPE[0] { cube - w + SLOPE[0] } else { SLOPE[0] - w + cube } + lost + SLOPE[1];
    let v = x * w;
    gated(x, v, x.mul_add(w, -v) + x * lost)
}
