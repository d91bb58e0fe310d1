//! Evaluates pointwise ops on `f64` and `i64`, as their documentation defines them.

use eutectic_ir::{Attr, DType, Op, Tensor};

/// An element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Val {
    Real(f64),
    Int(i64),
}

impl Val {
    pub fn real(self) -> f64 {
        match self {
            Val::Real(x) => x,
            Val::Int(n) => n as f64,
        }
    }

    pub fn int(self) -> i64 {
        match self {
            Val::Real(x) => x as i64,
            Val::Int(n) => n,
        }
    }
}

/// Wraps an integer to a type's width.
pub fn wrap(n: i64, dtype: DType) -> i64 {
    match dtype {
        DType::I8 => n as i8 as i64,
        DType::U8 => n as u8 as i64,
        DType::I16 => n as i16 as i64,
        DType::U16 => n as u16 as i64,
        DType::I32 => n as i32 as i64,
        DType::U32 => n as u32 as i64,
        DType::Bool => i64::from(n != 0),
        _ => n,
    }
}

pub fn zero(dtype: DType) -> Val {
    if dtype.is_float() { Val::Real(0.0) } else { Val::Int(0) }
}

pub fn eval(op: Op, attrs: &[Attr], from: DType, to: DType, args: &[Val]) -> Val {
    let name = op.name();
    if name == "cast" {
        return cast(args[0], from, to);
    }
    if name == "where" {
        return if args[0].int() != 0 { args[1] } else { args[2] };
    }
    if let Some(truth) = compare(name, args) {
        return Val::Int(i64::from(truth));
    }
    match args {
        [Val::Int(a)] => Val::Int(wrap(int_unary(name, *a), to)),
        [Val::Int(a), Val::Int(b)] if name.starts_with("shift") => Val::Int(wrap(shift(name, *a, *b, to), to)),
        [Val::Int(a), Val::Int(b)] => Val::Int(wrap(int_binary(name, *a, *b), to)),
        [Val::Real(a)] if name == "is-nan" => Val::Int(i64::from(a.is_nan())),
        [Val::Real(a)] => Val::Real(real_unary(name, attrs, *a)),
        [Val::Real(a), Val::Real(b)] => Val::Real(real_binary(name, *a, *b)),
        _ => panic!("{name} of {args:?}"),
    }
}

fn cast(x: Val, from: DType, to: DType) -> Val {
    match (x, to) {
        (Val::Real(x), DType::Bool) => Val::Int(i64::from(x != 0.0)),
        (Val::Int(n), to) if !to.is_float() => Val::Int(wrap(n, to)),
        (Val::Int(n), to) => Val::Real(Tensor::from_f64(to, &[], [n as f64]).to_f64()[0]),
        (Val::Real(x), to) if to.is_float() => {
            let x = if from == DType::F64 { x } else { f64::from(x as f32) };
            Val::Real(Tensor::from_f64(to, &[], [x]).to_f64()[0])
        }
        (Val::Real(x), to) => Val::Int(Tensor::from_f64(to, &[], [x]).to_i64()[0]),
    }
}

fn compare(name: &str, args: &[Val]) -> Option<bool> {
    let [a, b] = args else { return None };
    let order = match (a, b) {
        (Val::Int(a), Val::Int(b)) => Some(a.cmp(b)),
        _ => a.real().partial_cmp(&b.real()),
    };
    Some(match name {
        "eq" => order.is_some_and(|o| o.is_eq()),
        "ne" => order.is_none_or(|o| o.is_ne()),
        "lt" => order.is_some_and(|o| o.is_lt()),
        "le" => order.is_some_and(|o| o.is_le()),
        "gt" => order.is_some_and(|o| o.is_gt()),
        "ge" => order.is_some_and(|o| o.is_ge()),
        _ => return None,
    })
}

fn int_unary(name: &str, a: i64) -> i64 {
    match name {
        "neg" => a.wrapping_neg(),
        "abs" => a.wrapping_abs(),
        "sign" => a.signum(),
        "not" => 1 - a,
        "bit-not" => -1 - a,
        _ => panic!("{name}"),
    }
}

/// Returns a shifted integer. It is a product with a power of two, or a quotient by one, in 128 bits so that nothing
/// overflows.
fn shift(name: &str, a: i64, b: i64, dtype: DType) -> i64 {
    let a = i128::from(a);
    match (name, (0..i64::from(dtype.def().bits)).contains(&b)) {
        ("shift-left", true) => (a << b) as i64,
        ("shift-left", false) => 0,
        (_, true) => a.div_euclid(1 << b) as i64,
        (_, false) => a.signum().min(0) as i64,
    }
}

fn int_binary(name: &str, a: i64, b: i64) -> i64 {
    match name {
        "add" => a.wrapping_add(b),
        "sub" => a.wrapping_sub(b),
        "mul" => a.wrapping_mul(b),
        "div" if b == 0 => 0,
        "div" => a.wrapping_div(b),
        "mod" if b == 0 => 0,
        "mod" => (a.wrapping_rem(b)).wrapping_add(b).wrapping_rem(b),
        "max" => a.max(b),
        "min" => a.min(b),
        "and" => a & b,
        "or" => a | b,
        "xor" => a ^ b,
        "bit-and" => a & b,
        "bit-or" => a | b,
        "bit-xor" => a ^ b,
        "pow" if b < 0 => match a {
            1 => 1,
            -1 => {
                if b % 2 == 0 {
                    1
                } else {
                    -1
                }
            }
            _ => 0,
        },
        "pow" => (0..b).fold(1_i64, |p, _| p.wrapping_mul(a)),
        _ => panic!("{name}"),
    }
}

fn real_unary(name: &str, attrs: &[Attr], x: f64) -> f64 {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    match attrs.first().and_then(Attr::word).unwrap_or(name) {
        "neg" => -x,
        "abs" => x.abs(),
        "sign" => {
            if x == 0.0 || x.is_nan() {
                x
            } else {
                x.signum()
            }
        }
        "exp" | "exp-normal" => x.exp(),
        "expm1" => x.exp_m1(),
        "log" => x.ln(),
        "log1p" => x.ln_1p(),
        "sqrt" => x.sqrt(),
        "rsqrt" => 1.0 / x.sqrt(),
        "reciprocal" => 1.0 / x,
        "sin" => x.sin(),
        "cos" => x.cos(),
        "tan" => x.tan(),
        "atan" => x.atan(),
        "asin" => x.asin(),
        "acos" => x.acos(),
        "sinh" => x.sinh(),
        "cosh" => x.cosh(),
        "asinh" => x.asinh(),
        "acosh" => x.acosh(),
        "atanh" => x.atanh(),
        "tanh" => x.tanh(),
        "erf" => libm::erf(x),
        "sigmoid" => sigmoid(x),
        "softplus" => (1.0 + x.exp()).ln(),
        "floor" => x.floor(),
        "ceil" => x.ceil(),
        "round" => x.round_ties_even(),
        "none" | "tf32" => x,
        "relu" => {
            if x < 0.0 {
                0.0
            } else {
                x
            }
        }
        "silu" => x * sigmoid(x),
        "gelu-erf" => x * (1.0 + libm::erf(x / 2f64.sqrt())) / 2.0,
        "gelu-tanh" => x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh()) / 2.0,
        "clamp" => {
            let (low, high) = (attrs[0].float().unwrap(), attrs[1].float().unwrap());
            if x.is_nan() { x } else { x.max(low).min(high) }
        }
        name => panic!("{name}"),
    }
}

fn real_binary(name: &str, a: f64, b: f64) -> f64 {
    match name {
        "add" => a + b,
        "sub" => a - b,
        "mul" => a * b,
        "div" => a / b,
        "max" => {
            if a.is_nan() || b.is_nan() {
                f64::NAN
            } else {
                a.max(b)
            }
        }
        "min" => {
            if a.is_nan() || b.is_nan() {
                f64::NAN
            } else {
                a.min(b)
            }
        }
        "pow" => a.powf(b),
        "mod" => {
            let r = a % b;
            if r != 0.0 && (r < 0.0) != (b < 0.0) { r + b } else { r }
        }
        _ => panic!("{name}"),
    }
}
