//! Pointwise ops: arithmetic, elementary functions, comparison, selection and conversion.

use std::{
    cmp::Ordering::{self, *},
    f64::consts::PI,
};

use super::{
    AttrKind::*,
    Class, Default, OpDef,
    Rounding::*,
    Trait::{self, *},
    attr, each,
    eval::{Element, Whole, elements},
    lengths, op,
};
use crate::{DType, Scalar, functions, interval, round::of_integer};

/// The kinds of `act` and of the activation of `linear`.
pub(super) const ACTIVATIONS: &[&str] = &["none", "relu", "gelu-erf", "gelu-tanh", "silu", "sigmoid", "tanh"];

/// Declares an op of one operand: its name, its documentation, the class of its element types, the operations of an
/// element, and its evaluation.
macro_rules! unary {
    ($name:literal, $doc:literal, $class:literal, $flops:literal, |$x:pat_param, $attrs:pat_param, $to:pat_param| $body:expr) => {
        OpDef {
            flops: each::<$flops>,
            ..op(
                $name,
                $doc,
                Class::Pointwise,
                concat!("(F ", $class, ") F[A..] -> F[A..]"),
                elements!(|$x, $attrs, $to| $body),
            )
        }
    };
    // The evaluation is a method of the scalar.
    ($name:literal, $doc:literal, $flops:literal, $method:ident) => {
        unary!($name, $doc, "float", $flops, |x, _, _| Element::Real(x[0].real().$method()))
    };
    // The evaluation is a monotone function that kernels compute to within 4 units in the last place.
    ($name:literal, $doc:literal, $flops:literal, function $f:path) => {
        unary!($name, $doc, "float", $flops, |x, _, _| Element::Real(x[0].real().monotone($f, 4.0, 0.0)))
    };
    // The evaluation is a discontinuous function.
    ($name:literal, $doc:literal, step $f:path) => {
        OpDef {
            observes: always,
            ..correct(unary!($name, $doc, "float", 1, |x, _, _| Element::Real(x[0].real().step($f))))
        }
    };
}

/// Declares an op on two operands of the same element type, whose shapes are broadcast. `$result` is the element type
/// of the result.
macro_rules! binary {
    ($name:literal, $doc:literal, $class:literal -> $result:literal, $commutative:literal, $flops:literal,
     |$x:pat_param, $attrs:pat_param, $to:pat_param| $body:expr) => {
        OpDef {
            legal: concat!("(F ", $class, ") F[A..] F[A..] -> ", $result, "[A..]"),
            commutative: $commutative,
            rounding: Correct,
            flops: each::<$flops>,
            ..op(
                $name,
                $doc,
                Class::Pointwise,
                concat!("(F ", $class, ") F[A..] F[B..] -> ", $result, "[C..] (broadcast A B C)"),
                elements!(|$x, $attrs, $to| $body),
            )
        }
    };
    // An op on numbers, with a function of reals and one of integers.
    ($name:literal, $doc:literal, $commutative:literal, $flops:literal, $real:expr, $int:expr) => {
        binary!($name, $doc, "number" -> "F", $commutative, $flops, |x, _, _| numbers(x, $real, $int))
    };
    // A comparison, given the orders for which it holds (`None`: one operand is NaN).
    ($name:literal, $doc:literal, $commutative:literal, $($order:pat_param)|+) => {
        OpDef {
            observes: always,
            interval: |x, _| interval::compare(x, |o| matches!(o, $($order)|+)),
            lengths: |x, _| lengths::compare(x, |o| matches!(o, $($order)|+)),
            ..binary!($name, $doc, "any" -> "bool", $commutative, 1, |x, _, _| compare(x, |o| matches!(o, $($order)|+)))
        }
    };
}

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        interval: interval::neg,
        lengths: lengths::neg,
        rounding: Correct,
        ..with(&[Odd], unary!("neg", "−x; integers wrap.", "number", 1, |x, _, _| number(x, S::neg, i64::wrapping_neg)))
    },
    with(
        &[Even],
        correct(unary!("abs", "|x|; integers wrap.", "number", 1, |x, _, _| number(
            x,
            |a| a.gentle(f64::abs, 0.0, 0.0),
            i64::wrapping_abs
        ))),
    ),
    OpDef {
        rounding: Correct,
        traits: &[Monotone, Odd],
        observes: always,
        ..unary!("sign", "−1, 0 or 1 by the sign of x; x itself if it is a zero or NaN.", "number", 1, |x, _, _| {
            number(x, |a| a.step(|v| if v == 0.0 || v.is_nan() { v } else { v.signum() }), i64::signum)
        })
    },
    with(&[Monotone], unary!("exp", "eˣ.", 8, exp)),
    with(
        &[Monotone],
        unary!(
            "exp-normal",
            "eˣ, and 0 for x < −87 (in f64, −708), where eˣ is nearly subnormal.",
            "float",
            8,
            |x, _, to| {
                let least = if to == DType::F64 { -708.0 } else { -87.0 };
                Element::Real(exp_normal(x[0].real(), least))
            }
        ),
    ),
    with(&[Monotone], unary!("expm1", "eˣ − 1, without cancellation near 0.", 10, function f64::exp_m1)),
    unary!("log", "The natural logarithm: −∞ at 0, NaN below.", 8, ln),
    unary!("log1p", "log(1 + x), also of small x: −∞ at −1, NaN below.", 12, function f64::ln_1p),
    correct(unary!("sqrt", "√x: NaN below 0.", 4, sqrt)),
    unary!("rsqrt", "1/√x.", 4, rsqrt),
    correct(unary!("reciprocal", "1/x.", "float", 4, |x, _, _| Element::Real(S::exact(1.0) / x[0].real()))),
    with(&[Odd], unary!("sin", "The sine of x radians.", 8, sin)),
    with(&[Even], unary!("cos", "The cosine of x radians.", 8, cos)),
    with(
        &[Odd],
        unary!("tan", "The tangent of x radians.", "float", 16, |x, _, _| {
            Element::Real(x[0].real().sin() / x[0].real().cos())
        }),
    ),
    with(&[Monotone, Odd], unary!("atan", "The arc tangent in radians.", 16, atan)),
    with(&[Odd], unary!("asin", "The arc sine in radians: NaN beyond ±1.", 24, function f64::asin)),
    unary!("acos", "The arc cosine in radians: NaN beyond ±1.", 24, function f64::acos),
    with(&[Monotone, Odd], unary!("sinh", "The hyperbolic sine (eˣ − e⁻ˣ)/2.", 16, function f64::sinh)),
    with(&[Even], unary!("cosh", "The hyperbolic cosine (eˣ + e⁻ˣ)/2.", 16, function f64::cosh)),
    with(&[Monotone, Odd], unary!("tanh", "The hyperbolic tangent.", 10, tanh)),
    with(&[Monotone, Odd], unary!("asinh", "The inverse hyperbolic sine.", 24, function functions::asinh)),
    unary!("acosh", "The inverse hyperbolic cosine: NaN below 1.", 24, function functions::acosh),
    with(
        &[Odd],
        unary!("atanh", "The inverse hyperbolic tangent: ±∞ at ±1, NaN beyond.", 24, function functions::atanh),
    ),
    with(&[Monotone, Odd], unary!("erf", "The error function 2/√π ∫₀ˣ e^(−t²) dt.", 16, erf)),
    with(&[Monotone], unary!("sigmoid", "1/(1 + e⁻ˣ).", 10, sigmoid)),
    with(
        &[Monotone],
        unary!("softplus", "log(1 + eˣ) = max(x, 0) + log(1 + e^−|x|).", "float", 20, |x, _, _| {
            Element::Real(x[0].real().monotone(functions::softplus, 4.0, 0.0))
        }),
    ),
    with(&[Monotone], unary!("floor", "The largest integer not above x.", step f64::floor)),
    with(&[Monotone], unary!("ceil", "The smallest integer not below x.", step f64::ceil)),
    with(
        &[Monotone, Odd],
        unary!("round", "The nearest integer; halves go to the even one.", step f64::round_ties_even),
    ),
    with(
        &[Monotone, Odd],
        op(
            "tf32",
            "x, rounded to as few as eleven significant bits, because matrix units read only these bits of an f32.",
            Class::Pointwise,
            "f32[A..] -> f32[A..]",
            elements!(|x, _, _| Element::Real(short(x[0].real()))),
        ),
    ),
    OpDef {
        observes: always,
        rounding: Correct,
        flops: each::<1>,
        ..op(
            "is-nan",
            "Whether x is NaN.",
            Class::Pointwise,
            "(F float) F[A..] -> bool[A..]",
            elements!(|x, _, _| compare(&[x[0], x[0]], |o| o.is_none())),
        )
    },
    OpDef {
        interval: interval::not,
        rounding: Correct,
        ..unary!("not", "The negated truth value.", "bool", 1, |x, _, _| Element::Int(x[0].int().map(|n| 1 - n)))
    },
    OpDef {
        interval: interval::add,
        lengths: lengths::add,
        ..binary!("add", "a + b; integers wrap.", true, 1, S::add, i64::wrapping_add)
    },
    OpDef {
        interval: interval::sub,
        lengths: lengths::sub,
        ..binary!("sub", "a − b; integers wrap.", false, 1, S::sub, i64::wrapping_sub)
    },
    OpDef {
        interval: interval::mul,
        lengths: lengths::mul,
        ..binary!("mul", "a · b; integers wrap.", true, 1, S::mul, i64::wrapping_mul)
    },
    OpDef {
        interval: interval::div,
        lengths: lengths::div,
        ..binary!(
            "div",
            "a / b; integers truncate towards 0, and the result is 0 if b is 0.",
            false,
            4,
            S::div,
            |a, b| if b == 0 { 0 } else { a.wrapping_div(b) }
        )
    },
    OpDef {
        interval: interval::max,
        lengths: lengths::max,
        rounding: OpenZero,
        ..binary!(
            "max",
            "The larger operand; NaN if one is NaN. Of zeros with different signs, either may be returned.",
            true,
            1,
            S::larger,
            i64::max
        )
    },
    OpDef {
        interval: interval::min,
        lengths: lengths::min,
        rounding: OpenZero,
        ..binary!(
            "min",
            "The smaller operand; NaN if one is NaN. Of zeros with different signs, either may be returned.",
            true,
            1,
            S::smaller,
            i64::min
        )
    },
    OpDef {
        rounding: Approximate,
        ..binary!(
            "pow",
            "aᵇ; integers wrap, and a negative power is 1/a⁻ᵇ, truncated (0 for a = 0).",
            false,
            20,
            S::pow,
            integer_power
        )
    },
    OpDef {
        observes: always,
        ..binary!(
            "mod",
            "a − b·⌊a/b⌋, which has the sign of b; 0 for integers if b is 0.",
            false,
            6,
            S::modulo,
            |a, b| if b == 0 {
                0
            } else {
                let r = a.wrapping_rem(b);
                if r != 0 && (r < 0) != (b < 0) { r + b } else { r }
            }
        )
    },
    OpDef {
        interval: interval::and,
        ..binary!("and", "Whether both operands are true.", "bool" -> "bool", true, 1, |x, _, _| truths(x, 0, |a, b| a & b))
    },
    OpDef {
        interval: interval::or,
        ..binary!("or", "Whether at least one operand is true.", "bool" -> "bool", true, 1, |x, _, _| truths(x, 1, |a, b| a | b))
    },
    binary!("xor", "Whether exactly one operand is true.", "bool" -> "bool", true, 1, |x, _, _| truths(x, -1, |a, b| a ^ b)),
    unary!("bit-not", "Each bit of an integer inverted.", "int", 1, |x, _, to| Element::Int(
        x[0].int().map(|n| to.wrap(!n))
    )),
    OpDef {
        interval: interval::bit_and,
        ..binary!("bit-and", "The bits that are set in both integers.", "int" -> "F", true, 1, |x, _, _| wholes(x, |a, b| a & b))
    },
    OpDef {
        interval: interval::bit_or,
        ..binary!("bit-or", "The bits that are set in one integer or both.", "int" -> "F", true, 1, |x, _, _| wholes(x, |a, b| a | b))
    },
    OpDef {
        interval: interval::bit_or,
        ..binary!("bit-xor", "The bits that are set in exactly one of the integers.", "int" -> "F", true, 1, |x, _, _| wholes(x, |a, b| a ^ b))
    },
    OpDef {
        interval: interval::shift_left,
        ..binary!(
            "shift-left", "a · 2ᵇ of integers, which wraps; 0 if b is negative or not less than the number of bits.", "int" -> "F", false, 1,
            |x, _, to| wholes(x, |a, b| shift(b, to).map_or(0, |b| a.wrapping_shl(b)))
        )
    },
    OpDef {
        interval: interval::shift_right,
        ..binary!(
            "shift-right", "⌊a / 2ᵇ⌋ of integers; 0 or −1 by the sign of a if b is negative or not less than the number of bits.", "int" -> "F", false, 1,
            |x, _, to| wholes(x, |a, b| a >> shift(b, to).unwrap_or(63))
        )
    },
    binary!("eq", "a = b; false if one is NaN.", true, Some(Equal)),
    binary!("ne", "a ≠ b; true if one is NaN.", true, None | Some(Less | Greater)),
    binary!("lt", "a < b; false if one is NaN.", false, Some(Less)),
    binary!("le", "a ≤ b; false if one is NaN.", false, Some(Less | Equal)),
    binary!("gt", "a > b; false if one is NaN.", false, Some(Greater)),
    binary!("ge", "a ≥ b; false if one is NaN.", false, Some(Greater | Equal)),
    OpDef {
        legal: "(F any) bool[A..] F[A..] F[A..] -> F[A..]",
        interval: interval::select,
        lengths: lengths::select,
        rounding: Correct,
        flops: each::<1>,
        ..op(
            "where",
            "a where the condition holds, b elsewhere.",
            Class::Pointwise,
            "(F any) bool[A..] F[B..] F[C..] -> F[D..] (broadcast A B [X..]) (broadcast X C D)",
            elements!(|x, _, _| select(x[0].int(), x[1], x[2])),
        )
    },
    OpDef {
        attrs: &[attr("to", DType)],
        observes: |from, to| !to.is_float() || to.unit_roundoff() < from.unit_roundoff(),
        interval: interval::cast,
        lengths: lengths::cast,
        rounding: Correct,
        flops: each::<1>,
        ..op(
            "cast",
            "x as an element of another type. Floats round to nearest, halves to even; float to integer truncates and \
             saturates, NaN gives 0; integers wrap; to bool: x ≠ 0 (NaN is true).",
            Class::Pointwise,
            "(F any) (G any) F[A..] -> G[A..] (dtype to G)",
            elements!(|x, _, to| cast(x[0], to)),
        )
    },
    OpDef {
        attrs: &[attr("kind", Word(ACTIVATIONS))],
        ..unary!(
            "act",
            "An activation: x, max(x, 0), x·(1 + erf(x/√2))/2, x·(1 + tanh(√(2/π)·(x + 0.044715 x³)))/2, x·sigmoid(x), \
             sigmoid(x), tanh(x).",
            "float",
            16,
            |x, attrs, _| Element::Real(activate(x[0].real(), attrs[0].word().unwrap_or_default()))
        )
    },
    OpDef {
        traits: &[Monotone],
        rounding: OpenZero,
        attrs: &[attr_or_infinite("min", f64::NEG_INFINITY), attr_or_infinite("max", f64::INFINITY)],
        ..unary!("clamp", "min(max(x, :min), :max); NaN stays.", "float", 2, |x, attrs, _| {
            let bound = |n: usize| S::exact(attrs[n].float().unwrap_or(f64::NAN));
            Element::Real(x[0].real().larger(bound(0)).smaller(bound(1)))
        })
    },
];

/// Returns true. It is the field `observes` of discontinuous ops, which observe rounding for every element type.
fn always(_: DType, _: DType) -> bool {
    true
}

/// Returns the op `tf32` of x. Its error is at most 2¹³ units in the last place of `f32`, because kernels may drop 13
/// bits.
pub(super) fn short<S: Scalar>(x: S) -> S {
    x.gentle(|v| v, 8192.0, 0.0)
}

const fn correct(def: OpDef) -> OpDef {
    OpDef { rounding: Correct, ..def }
}

const fn with(traits: &'static [Trait], def: OpDef) -> OpDef {
    OpDef { traits, ..def }
}

fn number<S: Scalar>(x: &[Element<S>], real: impl Fn(S) -> S, int: impl Fn(i64) -> i64) -> Element<S> {
    match x[0] {
        Element::Real(a) => Element::Real(real(a)),
        Element::Int(a) => Element::Int(a.map(int)),
    }
}

/// Applies a function to two integers.
fn wholes<S: Scalar>(x: &[Element<S>], f: impl Fn(i64, i64) -> i64) -> Element<S> {
    Element::Int(x[0].int().zip(x[1].int()).map(|(a, b)| f(a, b)))
}

/// Returns a shift as a number of bits, if it is less than the bits of the type.
fn shift(by: i64, dtype: DType) -> Option<u32> {
    u32::try_from(by).ok().filter(|&by| by < dtype.def().bits)
}

fn numbers<S: Scalar>(x: &[Element<S>], real: impl Fn(S, S) -> S, int: impl Fn(i64, i64) -> i64) -> Element<S> {
    match x[0] {
        Element::Real(a) => Element::Real(real(a, x[1].real())),
        Element::Int(a) => Element::Int(a.zip(x[1].int()).map(|(a, b)| int(a, b))),
    }
}

/// Applies a function to two truth values. An operand equal to `decides` determines the result, even if the other one
/// is uncertain.
fn truths<S: Scalar>(x: &[Element<S>], decides: i64, f: impl Fn(i64, i64) -> i64) -> Element<S> {
    Element::Int(match (x[0].int(), x[1].int()) {
        (Some(a), Some(b)) => Some(f(a, b)),
        (Some(a), None) | (None, Some(a)) if a == decides => Some(a),
        _ => None,
    })
}

fn compare<S: Scalar>(x: &[Element<S>], holds: fn(Option<Ordering>) -> bool) -> Element<S> {
    let answer = match x[0] {
        Element::Real(a) => a.judge(x[1].real(), holds),
        Element::Int(a) => a.zip(x[1].int()).map(|(a, b)| holds(Some(a.cmp(&b)))),
    };
    Element::Int(answer.map(i64::from))
}

fn select<S: Scalar>(condition: Whole, a: Element<S>, b: Element<S>) -> Element<S> {
    match (condition, a, b) {
        (Some(0), ..) => b,
        (Some(_), ..) => a,
        (None, Element::Real(a), Element::Real(b)) => Element::Real(a.either(b)),
        (None, ..) if a == b => a,
        (None, ..) => Element::Int(None),
    }
}

fn cast<S: Scalar>(x: Element<S>, to: DType) -> Element<S> {
    let (low, high) = to.integers();
    match x {
        Element::Real(a) if to.is_float() => Element::Real(a),
        Element::Real(_) if to == DType::Bool => compare(&[x, Element::Real(S::exact(0.0))], |o| o != Some(Equal)),
        // `as` truncates, saturates and converts NaN to 0.
        Element::Real(a) => {
            let whole = move |v: f64| (v as i64).clamp(low, high);
            Element::Int(a.step(move |v| whole(v) as f64).certain().map(|_| whole(a.value())))
        }
        Element::Int(Some(n)) if to.is_float() => Element::Real(S::element(of_integer(n, to), to)),
        Element::Int(None) => Element::open(to),
        Element::Int(n) => Element::Int(n),
    }
}

/// Returns eˣ, and 0 for x < `least`. Near `least`, rounding of x decides between them, so the result may be either.
fn exp_normal<S: Scalar>(x: S, least: f64) -> S {
    let (zero, power) = (S::exact(0.0), x.exp());
    match x.value() {
        x if x < least => zero.either(power),
        x if x < least + 1.0 => power.either(zero),
        _ => power,
    }
}

fn integer_power(a: i64, b: i64) -> i64 {
    match (a, b) {
        (_, 0..) => power_of(a, b),
        (1, _) => 1,
        (-1, _) => 1 - 2 * (b & 1),
        _ => 0,
    }
}

/// Computes aᵇ by squaring, modulo 2⁶⁴, for `b` ≥ 0.
fn power_of(mut a: i64, mut b: i64) -> i64 {
    let mut power = 1_i64;
    while b > 0 {
        if b & 1 == 1 {
            power = power.wrapping_mul(a);
        }
        a = a.wrapping_mul(a);
        b >>= 1;
    }
    power
}

/// Returns the activation `kind` of x.
pub(super) fn activate<S: Scalar>(x: S, kind: &str) -> S {
    match kind {
        "none" => x,
        "relu" => x.larger(S::exact(0.0)),
        // The formula is x·Φ(x). A kernel for it may be less accurate than x/2·(1 + erf(x/√2)) near 0, and more
        // accurate in the tail.
        "gelu-erf" => x * x.monotone(functions::normal_distribution, 4.0, 2.0),
        "gelu-tanh" => {
            let twice = S::exact((8.0 / PI).sqrt()) * (x + S::exact(0.044715) * x * x * x);
            (x * twice.sigmoid()).plus_ulps(8.0)
        }
        "silu" => (x * x.sigmoid()).plus_ulps(1.0),
        "sigmoid" => x.sigmoid(),
        "tanh" => x.tanh(),
        _ => unreachable!("`ACTIVATIONS` lists all activations"),
    }
}

const fn attr_or_infinite(name: &'static str, default: f64) -> super::AttrDef {
    super::attr_or(name, Float, Default::Float(default))
}
