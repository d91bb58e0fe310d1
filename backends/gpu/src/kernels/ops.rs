//! Maps pointwise ops to expressions, by op name and kind of element type.
//!
//! `$0`, `$1` and `$2` stand for the arguments, `$min` and `$max` for attributes. `$T(…)`, `$S(…)` and `$F(…)` convert
//! to the type of the result, to that of the last argument, and to 32-bit floats. `@name` is a function of the
//! dialect's prelude. A conversion chooses its variant by the type of the result, any other op by the type of the last
//! argument.

use eutectic_backend::{Body, Instr};
use eutectic_ir::{Attr, DType, Op, dtype::Kind};

use crate::dialect::Dialect;

type Spelling = (&'static str, &'static str);

/// Ops of every type.
const ANY: &[Spelling] = &[
    ("eq", "($0 == $1)"),
    ("ne", "(!($0 == $1))"),
    ("lt", "($0 < $1)"),
    ("le", "($0 <= $1)"),
    ("gt", "($0 > $1)"),
    ("ge", "($0 >= $1)"),
    ("where", "@choose($0, $1, $2)"),
    ("none", "$0"),
];

/// Ops of floats.
const FLOATS: &[Spelling] = &[
    ("neg", "(-$0)"),
    ("abs", "@fabs($0)"),
    ("sign", "@sign_of($0)"),
    ("exp", "@exp($0)"),
    ("exp-normal", "@exp_normal($0)"),
    ("expm1", "@expm1($0)"),
    ("log", "@log($0)"),
    ("log1p", "@log1p($0)"),
    ("sqrt", "@sqrt($0)"),
    ("rsqrt", "($T(1) / @sqrt($0))"),
    ("reciprocal", "@div_of($T(1), $0)"),
    ("sin", "@sin($0)"),
    ("cos", "@cos($0)"),
    ("tan", "@tan($0)"),
    ("atan", "@atan($0)"),
    ("asin", "@asin($0)"),
    ("acos", "@acos($0)"),
    ("sinh", "@sinh($0)"),
    ("cosh", "@cosh($0)"),
    ("asinh", "@asinh($0)"),
    ("acosh", "@acosh($0)"),
    ("atanh", "@atanh($0)"),
    ("tanh", "@tanh($0)"),
    ("erf", "@erf($0)"),
    ("sigmoid", "@sigmoid($0)"),
    ("softplus", "(@max_of($0, $T(0)) + @log1p(@exp(-@fabs($0))))"),
    ("floor", "@floor($0)"),
    ("ceil", "@ceil($0)"),
    ("round", "@rint($0)"),
    ("clamp", "@min_of(@max_of($0, $min), $max)"),
    ("is-nan", "(!($0 == $0))"),
    ("tf32", "$0"),
    ("relu", "@choose($0 < $T(0), $T(0), $0)"),
    ("gelu-erf", "@gelu_erf($0)"),
    ("gelu-tanh", "@gelu_tanh($0)"),
    ("silu", "@gated($0, $0)"),
    ("add", "($0 + $1)"),
    ("sub", "($0 - $1)"),
    ("mul", "@mul_of($0, $1)"),
    ("div", "@div_of($0, $1)"),
    ("max", "@max_of($0, $1)"),
    ("min", "@min_of($0, $1)"),
    ("pow", "@pow($0, $1)"),
    ("mod", "@mod_of($0, $1)"),
];

/// Ops of integers, which wrap around on overflow.
const INTEGERS: &[Spelling] = &[
    ("neg", "@wrap_sub($T(0), $0)"),
    ("abs", "@choose($0 < $T(0), @wrap_sub($T(0), $0), $0)"),
    ("sign", "($T($0 > $T(0)) - $T($0 < $T(0)))"),
    ("add", "@wrap_add($0, $1)"),
    ("sub", "@wrap_sub($0, $1)"),
    ("mul", "@wrap_mul($0, $1)"),
    ("div", "@div_of($0, $1)"),
    ("max", "@max_of($0, $1)"),
    ("min", "@min_of($0, $1)"),
    ("pow", "@power_of($0, $1)"),
    ("mod", "@mod_of($0, $1)"),
    ("bit-not", "@wrap_sub(@wrap_sub($T(0), $0), $T(1))"),
    ("bit-and", "($0 & $1)"),
    ("bit-or", "($0 | $1)"),
    ("bit-xor", "($0 ^ $1)"),
    ("shift-left", "@shift_left($0, $1)"),
    ("shift-right", "@shift_right($0, $1)"),
];

/// Ops of truth values.
const BOOLS: &[Spelling] = &[
    ("not", "(!$0)"),
    ("and", "($0 && $1)"),
    ("or", "($0 || $1)"),
    ("xor", "($0 != $1)"),
    ("lt", "(!$0 && $1)"),
    ("le", "(!$0 || $1)"),
    ("gt", "($0 && !$1)"),
    ("ge", "($0 || !$1)"),
    ("max", "($0 || $1)"),
    ("min", "($0 && $1)"),
];

/// Conversions, by the kinds of the two types.
const CASTS: &[(&str, &str, &str)] = &[
    ("float", "f16", "@round_f16($F($0))"),
    ("float", "bf16", "@round_bf16($F($0))"),
    ("float", "float", "$T($0)"),
    ("float", "whole", "@saturate($0)"),
    ("whole", "f16", "@round_f16($F($0))"),
    ("whole", "bf16", "@round_bf16($F($0))"),
    ("whole", "float", "$T($0)"),
    ("whole", "whole", "@wrap($0)"),
    ("float", "bool", "(!($0 == $S(0)))"),
    ("whole", "bool", "(!($0 == $S(0)))"),
];

fn kind(dtype: DType) -> (&'static str, &'static [Spelling]) {
    match dtype.def().kind {
        // Each float type that is shorter than its register has its own rounding function, so it is a kind of its own.
        Kind::Float(_) if dtype.register() != dtype => (dtype.name(), FLOATS),
        Kind::Float(_) => ("float", FLOATS),
        Kind::Bool => ("bool", BOOLS),
        Kind::Int { .. } => ("whole", INTEGERS),
    }
}

/// Returns the name of an op in the table: its kind, if the op has several.
pub fn key(op: Op, attrs: &[Attr]) -> &str {
    let kind = op.attr("kind").and_then(|at| attrs.get(at));
    kind.and_then(Attr::word).unwrap_or(op.name())
}

/// Returns the expression of an op on arguments of these types. `half` allows a function whose result has 16 correct
/// bits only.
///
/// # Errors
/// Names the op and the types.
pub fn expression(
    dialect: &dyn Dialect,
    (op, attrs): (Op, &[Attr]),
    args: &[(String, DType)],
    (result, half): (DType, bool),
) -> Result<String, String> {
    // The last argument gives the type, because the first argument of `where` is the condition.
    let last = args.last().map(|arg| arg.1);
    let template = template(dialect, (op, attrs), last, (result, half));
    let (mut text, last) = template.zip(last).ok_or_else(|| lacking(op, &mut args.iter().map(|arg| arg.1)))?;
    let attr = |name: &str| op.attr(name).and_then(|at| attrs.get(at));
    for (mark, dtype) in [("$T", result), ("$S", last), ("$F", DType::F32)] {
        text = text.replace(mark, &dialect.conversion(dialect.register(dtype)));
    }
    for (n, (arg, _)) in args.iter().enumerate() {
        text = text.replace(&format!("${n}"), arg);
    }
    for name in ["min", "max"] {
        if let Some(value) = attr(name).and_then(Attr::float) {
            text = text.replace(&format!("${name}"), &dialect.literal(value, result));
        }
    }
    Ok(text)
}

/// Returns the template of an op for the type of its last argument, with the dialect's names of functions; `None` if
/// the table or the dialect lacks it.
fn template(
    dialect: &dyn Dialect,
    (op, attrs): (Op, &[Attr]),
    last: Option<DType>,
    (result, half): (DType, bool),
) -> Option<String> {
    let last = last?;
    let is_cast = op.attr("to").and_then(|at| attrs.get(at)).is_some();
    let template = if is_cast {
        let from = if last.is_float() { "float" } else { "whole" };
        CASTS.iter().find(|c| c.0 == from && c.1 == kind(result).0).map(|c| c.2)
    } else {
        let name = key(op, attrs);
        let templates: &[Spelling] =
            if last.is_float() && (half || last.is_half()) { dialect.half_templates() } else { &[] };
        templates.iter().chain(kind(last).1).chain(ANY).find(|e| e.0 == name).map(|e| e.1)
    };
    call(dialect, template?, (if is_cast { result } else { last }, last))
}

/// Returns a reason that names an op without an expression, and the types of its arguments.
fn lacking(op: Op, args: &mut dyn Iterator<Item = DType>) -> String {
    format!(
        "cannot compute `{op}` on {} because the dialect has no expression for it",
        args.map(DType::name).collect::<Vec<_>>().join(", ")
    )
}

/// Returns a template with the dialect's names of its functions for a type; `None` if the dialect lacks one.
fn call(dialect: &dyn Dialect, template: &str, (dtype, last): (DType, DType)) -> Option<String> {
    let mut parts = template.split('@');
    let mut text = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let (name, rest) = part.split_at(part.find('(')?);
        text += &dialect.function(name, dtype, last)?;
        text += rest;
    }
    Some(text)
}

/// Returns the ops of a body that the table lacks.
pub fn missing(dialect: &dyn Dialect, body: &Body) -> Vec<String> {
    let of = |instr: &Instr| match instr {
        Instr::Map { op, attrs, args, dtype } => {
            let mut types = args.iter().map(|&arg| body.instrs[arg].dtype());
            let last = types.clone().next_back();
            let is_there = template(dialect, (*op, attrs), last, (*dtype, false)).is_some();
            (!is_there).then(|| lacking(*op, &mut types))
        }
        _ => None,
    };
    body.instrs.iter().filter_map(of).collect()
}
