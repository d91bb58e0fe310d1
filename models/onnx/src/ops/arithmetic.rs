//! Elementwise arithmetic, elementary functions, comparisons and conversions.

use eutectic_ir::{DType, NodeId, Tensor};

use super::{
    super::call::{NodeCall, NodeResult},
    row::{OpRow, one, same},
};

pub(super) const OPS: &[OpRow] = &[
    same("Add", 7, "add"),
    same("Sub", 7, "sub"),
    same("Mul", 7, "mul"),
    same("Div", 7, "div"),
    same("Neg", 6, "neg"),
    same("Abs", 6, "abs"),
    same("Sign", 9, "sign"),
    same("Sqrt", 6, "sqrt"),
    same("Exp", 6, "exp"),
    same("Log", 6, "log"),
    same("Reciprocal", 6, "reciprocal"),
    same("Floor", 6, "floor"),
    same("Ceil", 6, "ceil"),
    same("Round", 11, "round"),
    same("Erf", 9, "erf"),
    same("Sin", 7, "sin"),
    same("Cos", 7, "cos"),
    same("Tan", 7, "tan"),
    same("Atan", 7, "atan"),
    same("IsNaN", 9, "is-nan"),
    same("Not", 1, "not"),
    same("And", 7, "and"),
    same("Or", 7, "or"),
    same("Xor", 7, "xor"),
    same("BitwiseNot", 18, "bit-not"),
    same("BitwiseAnd", 18, "bit-and"),
    same("BitwiseOr", 18, "bit-or"),
    same("BitwiseXor", 18, "bit-xor"),
    one("BitShift", 11, |c| match c.word("direction")? {
        Some("LEFT") => c.same("shift-left"),
        Some("RIGHT") => c.same("shift-right"),
        other => Err(format!("its direction is {other:?}; it must be LEFT or RIGHT").into()),
    }),
    same("Equal", 7, "eq"),
    same("Less", 7, "lt"),
    same("LessOrEqual", 12, "le"),
    same("Greater", 7, "gt"),
    same("GreaterOrEqual", 12, "ge"),
    same("Where", 9, "where"),
    one("Pow", 7, pow),
    one("Mod", 10, modulo),
    one("Max", 6, |c| all("max", c)),
    one("Min", 6, |c| all("min", c)),
    one("Sum", 6, |c| all("add", c)),
    one("Mean", 6, mean),
    same("Asin", 7, "asin"),
    same("Acos", 7, "acos"),
    same("Sinh", 9, "sinh"),
    same("Cosh", 9, "cosh"),
    same("Asinh", 9, "asinh"),
    same("Acosh", 9, "acosh"),
    same("Atanh", 9, "atanh"),
    one("IsInf", 10, is_infinite),
    one("Cast", 6, cast),
    one("CastLike", 15, cast_like),
];

/// Imports `Pow`, whose exponent may have another element type than the base.
fn pow(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (x, y) = (c.input(0)?, c.input(1)?);
    let to = c.dtype(x);
    if to.is_int() && c.dtype(y).is_float() {
        // A float exponent of an integer must not be truncated: 4^0.5 is 2, not 4^0 = 1. So `f64` computes the power,
        // and the result is truncated.
        let (base, power) = (c.cast(x, DType::F64)?, c.cast(y, DType::F64)?);
        let power = c.apply("pow", [base, power])?;
        return c.cast(power, to);
    }
    // The exponent must not be rounded to the element type of the base. In bf16, 2.2 becomes 2.203, which gives another
    // power. So the wider type computes the power.
    let wide = c.dtype(y);
    if to.is_float() && wide.is_float() && wide.size() > to.size() && !holds(c, y, to) {
        let base = c.cast(x, wide)?;
        let power = c.apply("pow", [base, y])?;
        return c.cast(power, to);
    }
    let y = c.cast(y, to)?;
    c.apply("pow", [x, y])
}

/// Returns whether a value is known and all its elements are exact in an element type.
fn holds(c: &NodeCall<'_, '_>, value: NodeId, dtype: DType) -> bool {
    let held = |tensor: Tensor| {
        let numbers = tensor.to_f64();
        Tensor::from_f64(dtype, tensor.dims(), numbers.iter().copied()).to_f64() == numbers
    };
    c.value(value).is_some_and(held)
}

/// Computes the remainder. With `fmod`, it has the sign of the dividend, as in C: a − b·trunc(a/b). Otherwise it has
/// the sign of the divisor.
fn modulo(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (a, b) = (c.input(0)?, c.input(1)?);
    if !c.flag("fmod")? {
        return c.apply("mod", [a, b]);
    }
    if !c.dtype(a).is_float() {
        return remainder(c, a, b);
    }
    // The formula a − b·trunc(a/b) would round the quotient. |a| mod |b| is exact.
    let (sign, a, b) = (c.apply("sign", [a])?, c.apply("abs", [a])?, c.apply("abs", [b])?);
    let rest = c.apply("mod", [a, b])?;
    c.apply("mul", [sign, rest])
}

/// Computes a − b·(a/b) of integers, or 0 where b is 0. It does not use absolute values, because the absolute value of
/// the least integer overflows.
fn remainder(c: &mut NodeCall<'_, '_>, a: NodeId, b: NodeId) -> NodeResult {
    let quotient = c.apply("div", [a, b])?;
    let whole = c.apply("mul", [b, quotient])?;
    let rest = c.apply("sub", [a, whole])?;
    let (nothing, zero) = (c.with("eq", b, 0.0)?, c.number(0.0, a)?);
    c.apply("where", [nothing, zero, rest])
}

/// Applies a commutative op to any number of inputs.
fn all(op: &str, c: &mut NodeCall<'_, '_>) -> NodeResult {
    let inputs = c.inputs();
    let (first, rest) = inputs.split_first().ok_or("it has no inputs")?;
    rest.iter().try_fold(*first, |a, b| c.apply(op, [a, *b]))
}

fn mean(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let sum = all("add", c)?;
    c.with("div", sum, c.inputs().len() as f64)
}

fn is_infinite(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    match (c.int_or("detect_positive", 1)? != 0, c.int_or("detect_negative", 1)? != 0) {
        (true, false) => c.with("eq", x, f64::INFINITY),
        (false, true) => c.with("eq", x, f64::NEG_INFINITY),
        (false, false) => {
            let dims = c.shape(x);
            c.full(0.0, DType::Bool, &dims)
        }
        (true, true) => {
            let size = c.apply("abs", [x])?;
            c.with("eq", size, f64::INFINITY)
        }
    }
}

fn cast(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let to = c.dtype_attr("to")?.ok_or("its attribute `to` is missing")?;
    let x = c.input(0)?;
    narrowed(c, x, to)
}

/// Converts x to another element type. A conversion to 8-bit floats saturates unless the attribute `saturate` is 0.
pub(super) fn narrowed(c: &mut NodeCall<'_, '_>, x: NodeId, to: DType) -> NodeResult {
    let saturates = c.int_or("saturate", 1)? != 0;
    let Some(format) = to.float().filter(|_| saturates && to.bits() == 8) else { return c.cast(x, to) };
    let of = c.dtype(x);
    let number = if of.is_float() && of.computes() { x } else { c.cast(x, DType::F32)? };
    let most = format.greatest();
    let kept = c.op("clamp", &[number], &[("min", (-most).into()), ("max", most.into())])?;
    c.cast(kept, to)
}

fn cast_like(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (x, like) = (c.input(0)?, c.input(1)?);
    narrowed(c, x, c.dtype(like))
}
