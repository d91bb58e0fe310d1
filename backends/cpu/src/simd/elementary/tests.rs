//! Compares each function with its computation in `f64`, over arguments with all exponents and signs.

use eutectic_ir::functions;

use super::*;
use crate::simd::{
    level::{Baseline, FusedLevel},
    vector::Lanes,
};

type Fused = FusedLevel<Lanes<f32, 8>, Lanes<f64, 4>>;
type Function = fn(f32) -> f32;
type Exact = fn(f64) -> f64;
/// A test of a function: its name, its versions with and without fused multiply-add, the exact function, and the
/// maximal error in ulp.
type Row<'a> = (&'a str, [Function; 2], Exact, f64);

/// Returns the distance of a result from the exact one, in units in the last place of the exact result, which may be
/// subnormal.
fn ulps(got: f32, exact: f64) -> f64 {
    let rounded = exact as f32;
    if got.is_nan() || rounded.is_nan() {
        return if got.is_nan() && rounded.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if got == rounded {
        // A zero with the wrong sign counts as an infinite error.
        return if got != 0.0 || got.is_sign_negative() == exact.is_sign_negative() { 0.0 } else { f64::INFINITY };
    }
    // An infinity counts as the next number beyond the range.
    let number = |x: f32| if x.is_finite() { f64::from(x) } else { 2f64.powi(128).copysign(f64::from(x)) };
    let exact = if rounded.is_finite() { exact } else { number(rounded) };
    let exponent = exact.abs().max(f64::from(f32::MIN_POSITIVE)).log2().floor();
    (number(got) - exact).abs() / 2f64.powf(exponent - 23.0)
}

/// Returns arguments: every exponent with many mantissas, the ends of the range of each exponent, and special values.
fn inputs() -> impl Iterator<Item = f32> {
    let special = [0.0, 1.0, f32::INFINITY, f32::NAN, f32::MIN_POSITIVE, f32::MAX, f32::EPSILON, 1e-45, 0.5, 2.0];
    let ends = (0..=255_u32).flat_map(|e| [0, 1, 0x3f_ffff, 0x40_0000, 0x7f_ffff].map(|m| f32::from_bits(e << 23 | m)));
    let wide = (0..=u32::MAX / 2).step_by(4_099).map(f32::from_bits);
    // In this range, most functions change their shape.
    let near = (0..200_000).map(|n| n as f32 * (110.0 / 200_000.0));
    special.into_iter().chain(ends).chain(wide).chain(near).flat_map(|x| [x, -x])
}

/// Returns the largest error in ulp, and the argument that has it.
fn worst(f: Function, exact: fn(f64) -> f64) -> (f64, f32) {
    inputs().map(|x| (ulps(f(x), exact(f64::from(x))), x)).fold((0.0, 0.0), |a, b| if b.0 > a.0 { b } else { a })
}

/// Checks the error bounds of functions, with and without fused multiply-add.
fn check(table: &[Row<'_>]) {
    for (name, levels, exact, bound) in table {
        for (f, level) in levels.iter().zip(["fused", "plain"]) {
            let (off, x) = worst(*f, *exact);
            println!("{name:10} {level}: at most {off:.3} ulp, at {x:e}");
            assert!(off <= *bound, "{name}({x:e}) is {:e}, not {:e}: {off} ulp", f(x), exact(f64::from(x)));
        }
    }
}

macro_rules! levels {
    ($f:ident) => {
        [$f::<Fused> as Function, $f::<Baseline>]
    };
}

fn gelu_erf_exact(x: f64) -> f64 {
    x * functions::normal_distribution(x)
}

fn gelu_tanh_exact(x: f64) -> f64 {
    x * functions::sigmoid((8.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x))
}

#[test]
fn exponentials_and_logarithms() {
    check(&[
        ("exp", levels!(exp), f64::exp, 1.25),
        ("exp-normal", levels!(exp_normal), |x| if x < -87.0 { 0.0 } else { x.exp() }, 1.25),
        ("expm1", levels!(expm1), f64::exp_m1, 2.0),
        ("log", levels!(log), f64::ln, 1.0),
        ("log1p", levels!(log1p), f64::ln_1p, 2.0),
    ]);
}

#[test]
fn sigmoids() {
    check(&[
        ("tanh", levels!(tanh), f64::tanh, 1.5),
        ("sigmoid", levels!(sigmoid), functions::sigmoid, 2.0),
        ("silu", levels!(silu), |x| x * functions::sigmoid(x), 2.0),
        ("softplus", levels!(softplus), functions::softplus, 2.0),
        ("gelu-tanh", levels!(gelu_tanh), gelu_tanh_exact, 2.0),
    ]);
}

/// Checks the error bounds of activations for every `f32`. This takes minutes with optimization.
#[test]
#[ignore = "takes minutes"]
fn activations_of_every_float() {
    let table: [Row<'_>; 4] = [
        ("sigmoid", levels!(sigmoid), functions::sigmoid, 2.0),
        ("silu", levels!(silu), |x| x * functions::sigmoid(x), 2.0),
        ("gelu-tanh", levels!(gelu_tanh), gelu_tanh_exact, 2.0),
        ("gelu-erf", [gelu_erf::<Fused>; 2], gelu_erf_exact, 2.0),
    ];
    for (name, [fused, plain], exact, bound) in table {
        for x in (0..=u32::MAX).map(f32::from_bits) {
            let off = [fused, plain].map(|f| ulps(f(x), exact(f64::from(x))));
            assert!(off.iter().all(|off| *off <= bound), "{name}({x:e}): {off:?} ulp");
        }
    }
}

#[test]
fn error_functions() {
    check(&[
        ("erf", levels!(erf), functions::erf, 2.0),
        ("gelu-erf", [gelu_erf::<Fused>; 2], gelu_erf_exact, 2.0),
        ("gelu-erf", [gelu_erf::<Baseline>; 2], gelu_erf_exact, 2.25),
    ]);
}

#[test]
fn hyperbolic_functions() {
    check(&[
        ("sinh", [sinh; 2], f64::sinh, 1.0),
        ("cosh", [cosh; 2], f64::cosh, 1.0),
        ("asinh", [asinh; 2], functions::asinh, 1.0),
        ("acosh", [acosh; 2], functions::acosh, 1.0),
        ("atanh", [atanh; 2], functions::atanh, 1.0),
    ]);
}

#[test]
fn angles() {
    let few = |f: Function, exact: fn(f64) -> f64| {
        inputs()
            .filter(|x| x.is_nan() || x.abs() <= FEW_TURNS)
            .map(|x| ulps(f(x), exact(f64::from(x))))
            .fold(0.0, f64::max)
    };
    assert!(few(sin, f64::sin) <= 1.0 && few(cos, f64::cos) <= 1.0 && few(tan, f64::tan) <= 1.0);
    check(&[
        ("atan", [atan; 2], f64::atan, 1.0),
        ("asin", [asin; 2], f64::asin, 1.0),
        ("acos", [acos; 2], f64::acos, 1.0),
    ]);
}

#[test]
fn weights_of_attention() {
    for f in levels!(exp_normal_moderate) {
        let off = inputs().filter(|x| (-87.0..=0.0).contains(x)).map(|x| ulps(f(x), f64::from(x).exp()));
        assert!(off.fold(0.0, f64::max) <= 1.25);
        assert!(f(-87.1) == 0.0 && f(f32::NEG_INFINITY) == 0.0 && f(f32::NAN).is_nan());
    }
}

/// A function, a variant that is valid for some numbers only, and the predicate that accepts these numbers.
type Partial = (Function, Function, fn(f32) -> bool);

#[test]
fn functions_of_moderate_numbers_have_the_same_bits() {
    macro_rules! partial {
        ($($any:ident, $some:ident where $holds:path;)*) => {
            [$(($any::<Fused>, $some::<Fused>, $holds), ($any::<Baseline>, $some::<Baseline>, $holds)),*]
        };
    }
    let table: [Partial; 10] = partial! {
        exp, exp_moderate where is_moderate;
        sigmoid, sigmoid_moderate where is_moderate;
        silu, silu_moderate where is_moderate;
        gelu_erf, gelu_erf_moderate where is_moderate_gelu_erf;
        gelu_tanh, gelu_tanh_moderate where is_moderate_gelu_tanh;
    };
    for (any, some, holds) in table {
        assert!(holds(0.0) && !holds(f32::NAN) && !holds(-100.0));
        for x in inputs().filter(|&x| holds(x)) {
            assert_eq!(any(x).to_bits(), some(x).to_bits(), "{x:e}: {:e}, {:e}", any(x), some(x));
        }
    }
}

#[test]
fn ends_of_activations() {
    for f in [levels!(tanh), levels!(sigmoid), levels!(silu), levels!(gelu_erf), levels!(gelu_tanh)].concat() {
        assert!(f(f32::NAN).is_nan());
    }
    for x in [8.9, 9.1, 17.0, 20.0, 88.0, 100.0, 1e30, f32::INFINITY].into_iter().flat_map(|x| [x, -x]) {
        for level in 0..2 {
            assert!(levels!(tanh)[level](x).abs() <= 1.0 && (0.0..=1.0).contains(&levels!(sigmoid)[level](x)));
            for f in [levels!(silu), levels!(gelu_erf), levels!(gelu_tanh)].map(|f| f[level]) {
                let y = f(x);
                // For −∞, the exact result is a product −∞·0, which is NaN.
                assert!(
                    if x == f32::NEG_INFINITY { y.is_nan() } else { y.abs() <= x.abs() && y * x >= 0.0 },
                    "{x}: {y}"
                );
                assert!(x < 17.0 || y == x, "{x}: {y}");
            }
        }
    }
}

#[test]
fn activations_of_doubles() {
    // The expected values were computed with forty digits.
    let table: [(Exact, &[(f64, f64)]); 2] = [
        (
            silu_f64,
            &[
                (-705.3, -3.4711693109165037e-304),
                (-700.1, -6.245875126994224e-302),
                (-88.7, -2.66687754722712e-37),
                (-16.6, -1.0252261183877465e-06),
                (-0.3, -0.1276672449565023),
                (1.7, 1.437409049357991),
                (20.5, 20.499999974371867),
            ],
        ),
        (
            gelu_tanh_f64,
            &[
                (-20.4, -1.2176412069797077e-276),
                (-11.3, -3.2200154316341908e-52),
                (-5.7, -1.165832621672358e-09),
                (-1.1, -0.14941895382548914),
                (-0.01, -0.0049601064401444276),
                (0.4, 0.2621611694273562),
                (3.3, 3.298688771881664),
                (21.0, 21.0),
            ],
        ),
    ];
    for (f, values) in table {
        for &(x, y) in values {
            assert!(((f(x) - y) / y).abs() <= 4.0 * f64::EPSILON, "{x}: {:e}, not {y:e}", f(x));
        }
        assert!(f(f64::NAN).is_nan() && f(f64::NEG_INFINITY).is_nan() && f(f64::INFINITY) == f64::INFINITY);
        assert!(f(-1e300) == 0.0 && f(1e300) == 1e300);
    }
}
