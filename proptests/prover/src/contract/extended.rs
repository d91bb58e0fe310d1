//! Arithmetic on NaN, infinities, signed zeros, and symbolic numbers with a known sign.

use std::fmt;

use eutectic_ir::{
    Attr, DType, Op,
    ops::eval::{Element, Eval},
};

use crate::{
    logic::compares,
    term::{Kind, T, Ty, apply, num},
};

/// The sign of a finite number, as far as it is known. Zeros have signs, too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sign {
    /// An unknown sign of a number that may be 0.
    Open,
    /// The sign of a nonzero number: `true` if it is negative.
    Of(bool),
    /// The sign of a zero, if it is known.
    Zero(Option<bool>),
}

/// The value of a term: special, or finite with a sign.
#[derive(Clone, Debug)]
pub enum Value {
    /// NaN.
    Nan,
    /// An infinity, with `true` for the negative one. `None` is an infinity of unknown sign.
    Infinity(Option<bool>),
    /// A finite number.
    Finite(T, Sign),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Nan => f.write_str("NaN"),
            Value::Infinity(Some(false)) => f.write_str("∞"),
            Value::Infinity(Some(true)) => f.write_str("−∞"),
            Value::Infinity(None) => f.write_str("±∞"),
            Value::Finite(_, Sign::Zero(Some(true))) => f.write_str("−0"),
            Value::Finite(t, _) => write!(f, "{t}"),
        }
    }
}

impl Value {
    /// Makes the value of a number, NaN or an infinity.
    pub fn of(x: f64) -> Value {
        match () {
            () if x.is_nan() => Value::Nan,
            () if x.is_infinite() => Value::Infinity(Some(x < 0.0)),
            () if x == 0.0 => Value::Finite(num(x), Sign::Zero(Some(x.is_sign_negative()))),
            () => Value::Finite(num(x), Sign::Of(x < 0.0)),
        }
    }

    /// Returns the number, NaN or infinity, if it is known.
    pub fn number(&self) -> Option<f64> {
        match self {
            Value::Nan => Some(f64::NAN),
            Value::Infinity(sign) => sign.map(|below| if below { f64::NEG_INFINITY } else { f64::INFINITY }),
            Value::Finite(_, Sign::Zero(sign)) => sign.map(|below| if below { -0.0 } else { 0.0 }),
            Value::Finite(t, _) => t.number(),
        }
    }

    fn negated(self) -> Value {
        match self {
            Value::Nan => Value::Nan,
            Value::Infinity(sign) => Value::Infinity(sign.map(|s| !s)),
            Value::Finite(t, sign) => {
                let ty = t.ty().cloned().unwrap_or(Ty::fixed(DType::F64));
                let turned = match sign {
                    Sign::Open => Sign::Open,
                    Sign::Of(s) => Sign::Of(!s),
                    Sign::Zero(s) => Sign::Zero(s.map(|s| !s)),
                };
                Value::Finite(apply("neg", &ty, vec![t]), turned)
            }
        }
    }

    /// Returns the sign of the number, also of a zero or an infinity.
    fn sign(&self) -> Option<bool> {
        match self {
            Value::Nan => None,
            Value::Infinity(sign) => *sign,
            Value::Finite(_, Sign::Of(sign)) => Some(*sign),
            Value::Finite(_, Sign::Zero(sign)) => *sign,
            Value::Finite(_, Sign::Open) => None,
        }
    }
}

/// Evaluates a function. Returns `None` if the values of the operands do not determine the value of the result.
pub fn function(op: &str, ty: &Ty, args: Vec<Value>) -> Option<Value> {
    let nan = args.iter().any(|a| matches!(a, Value::Nan));
    match (op, args.as_slice()) {
        ("act none" | "wrap" | "store", [a]) => return Some(a.clone()),
        ("cast", [a]) if ty.kind == Kind::Float => return Some(a.clone()),
        ("neg", [a]) => return Some(a.clone().negated()),
        ("is-nan", [_]) => return Some(Value::of(f64::from(u8::from(nan)))),
        ("add" | "+", [a, b]) if !nan => return add(ty, a, b),
        ("sub" | "-", [a, b]) if !nan => return add(ty, a, &b.clone().negated()),
        ("mul" | "*", [a, b]) if !nan => return mul(ty, a, b),
        ("div" | "/", [a, b]) if !nan => return div(ty, a, b),
        ("reciprocal", [b]) if !nan => return div(ty, &Value::of(1.0), b),
        ("add" | "+" | "sub" | "-" | "mul" | "*" | "div" | "/" | "reciprocal", _) => return Some(Value::Nan),
        ("max" | "min", [a, b]) => return extreme(op == "max", a, b, ty),
        ("eq" | "ne" | "lt" | "le" | "gt" | "ge", [a, b]) => return compare(op, a, b),
        ("not", [a]) => return Some(Value::of(f64::from(u8::from(a.number()? == 0.0)))),
        _ => {}
    }
    by_the_table(op, ty, args)
}

fn add(ty: &Ty, a: &Value, b: &Value) -> Option<Value> {
    Some(match (a, b) {
        (Value::Infinity(a), Value::Infinity(b)) => match (a, b) {
            (Some(a), Some(b)) if a == b => Value::Infinity(Some(*a)),
            (Some(_), Some(_)) => Value::Nan,
            _ => return None,
        },
        (Value::Infinity(_), _) => a.clone(),
        (_, Value::Infinity(_)) => b.clone(),
        (Value::Finite(x, s), Value::Finite(y, t)) => match (s, t) {
            (Sign::Zero(s), Sign::Zero(t)) => {
                let sign = match (s, t) {
                    (Some(s), Some(t)) => Some(*s && *t),
                    _ => None,
                };
                Value::Finite(num(0.0), Sign::Zero(sign))
            }
            (Sign::Zero(_), _) => b.clone(),
            (_, Sign::Zero(_)) => a.clone(),
            _ if x.number().is_some() && y.number().is_some() => Value::of(x.number()? + y.number()?),
            (Sign::Of(s), Sign::Of(t)) if s == t => Value::Finite(sum(ty, x, y), Sign::Of(*s)),
            _ => Value::Finite(sum(ty, x, y), Sign::Open),
        },
        _ => return None,
    })
}

fn sum(ty: &Ty, x: &T, y: &T) -> T {
    match (x.number(), y.number()) {
        (Some(x), Some(y)) => num(x + y),
        _ => apply("add", ty, vec![x.clone(), y.clone()]),
    }
}

fn signs(a: &Value, b: &Value) -> Option<bool> {
    Some(a.sign()? != b.sign()?)
}

fn mul(ty: &Ty, a: &Value, b: &Value) -> Option<Value> {
    Some(match (a, b) {
        (Value::Infinity(_), Value::Finite(_, Sign::Zero(_)))
        | (Value::Finite(_, Sign::Zero(_)), Value::Infinity(_)) => Value::Nan,
        (Value::Infinity(_), Value::Finite(_, Sign::Open)) | (Value::Finite(_, Sign::Open), Value::Infinity(_)) => {
            return None;
        }
        (Value::Infinity(_), _) | (_, Value::Infinity(_)) => Value::Infinity(signs(a, b)),
        (Value::Finite(_, Sign::Zero(_)), _) | (_, Value::Finite(_, Sign::Zero(_))) => {
            Value::Finite(num(0.0), Sign::Zero(signs(a, b)))
        }
        (Value::Finite(x, _), Value::Finite(y, _)) => {
            Value::Finite(apply("mul", ty, vec![x.clone(), y.clone()]), signs(a, b).map_or(Sign::Open, Sign::Of))
        }
        _ => return None,
    })
}

fn div(ty: &Ty, a: &Value, b: &Value) -> Option<Value> {
    Some(match (a, b) {
        (Value::Infinity(_), Value::Infinity(_)) => Value::Nan,
        (Value::Finite(_, Sign::Zero(_)), Value::Finite(_, Sign::Zero(_))) => Value::Nan,
        (_, Value::Finite(_, Sign::Open)) => return None,
        (_, Value::Infinity(_)) => Value::Finite(num(0.0), Sign::Zero(signs(a, b))),
        (Value::Infinity(_), _) => Value::Infinity(signs(a, b)),
        (Value::Finite(_, Sign::Open), Value::Finite(_, Sign::Zero(_))) => return None,
        (_, Value::Finite(_, Sign::Zero(_))) => Value::Infinity(signs(a, b)),
        (Value::Finite(_, Sign::Zero(_)), _) => Value::Finite(num(0.0), Sign::Zero(signs(a, b))),
        (Value::Finite(x, _), Value::Finite(y, _)) => {
            Value::Finite(apply("div", ty, vec![x.clone(), y.clone()]), signs(a, b).map_or(Sign::Open, Sign::Of))
        }
        _ => return None,
    })
}

fn order(a: &Value, b: &Value) -> Option<std::cmp::Ordering> {
    use std::cmp::Ordering::{Equal, Greater, Less};
    // The order of the classes of values: −∞, negative, zero, positive, ∞.
    let rank = |v: &Value| match v {
        Value::Infinity(Some(true)) => Some(-2),
        Value::Finite(_, Sign::Of(true)) => Some(-1),
        Value::Finite(_, Sign::Zero(_)) => Some(0),
        Value::Finite(_, Sign::Of(false)) => Some(1),
        Value::Infinity(Some(false)) => Some(2),
        _ => None,
    };
    if let (Some(x), Some(y)) = (a.number(), b.number()) {
        return x.partial_cmp(&y);
    }
    match (a, b) {
        (Value::Infinity(Some(below)), Value::Finite(..)) => Some(if *below { Less } else { Greater }),
        (Value::Finite(..), Value::Infinity(Some(below))) => Some(if *below { Greater } else { Less }),
        (Value::Finite(x, _), Value::Finite(y, _)) if x == y => Some(Equal),
        _ => {
            let order = rank(a)?.cmp(&rank(b)?);
            (order != Equal || rank(a) == Some(0)).then_some(order)
        }
    }
}

fn extreme(largest: bool, a: &Value, b: &Value, ty: &Ty) -> Option<Value> {
    if matches!(a, Value::Nan) || matches!(b, Value::Nan) {
        return Some(Value::Nan);
    }
    match order(a, b) {
        Some(order) => Some(if order.is_ge() == largest { a.clone() } else { b.clone() }),
        None => match (a, b) {
            (Value::Finite(x, s), Value::Finite(y, t)) => {
                let sign = if s == t { *s } else { Sign::Open };
                Some(Value::Finite(apply(if largest { "max" } else { "min" }, ty, vec![x.clone(), y.clone()]), sign))
            }
            _ => None,
        },
    }
}

fn compare(op: &str, a: &Value, b: &Value) -> Option<Value> {
    let truth = |b: bool| Some(Value::of(f64::from(u8::from(b))));
    if matches!(a, Value::Nan) || matches!(b, Value::Nan) {
        return truth(op == "ne");
    }
    truth(compares(op, order(a, b)?))
}

/// Evaluates a function by the op table if the operands are known numbers. Otherwise the result is a symbolic number
/// with a sign, if the sign is known.
fn by_the_table(op: &str, ty: &Ty, args: Vec<Value>) -> Option<Value> {
    let (name, attrs) = match op.split_once(' ') {
        Some((name, word)) => (name, vec![Attr::from(word)]),
        None => (op, Vec::new()),
    };
    let at = |xs: &[f64]| -> Option<f64> {
        let Eval::Elements(eval) = Op::named(name)?.def().eval else { return None };
        let operands: Vec<Element<f64>> = xs.iter().map(|x| Element::Real(*x)).collect();
        match (eval.exact)(&operands, &attrs, DType::F64) {
            Element::Real(x) => Some(x),
            Element::Int(_) => None,
        }
    };
    let numbers: Option<Vec<f64>> = args.iter().map(Value::number).collect();
    if let Some(numbers) = numbers {
        return Some(Value::of(at(&numbers)?));
    }
    // The function may have a pole at 0, so it is evaluated at both zeros.
    if let [Value::Finite(_, Sign::Zero(None))] = args.as_slice() {
        let (a, b) = (Value::of(at(&[0.0])?), Value::of(at(&[-0.0])?));
        return match (&a, &b) {
            (Value::Infinity(_), Value::Infinity(_)) => Some(Value::Infinity(None)),
            _ if a.number() == b.number() => Some(a),
            _ => None,
        };
    }
    let terms: Option<Vec<T>> = args
        .iter()
        .map(|v| match v {
            Value::Finite(t, _) => Some(t.clone()),
            _ => v.number().map(num),
        })
        .collect();
    let finite = args.iter().all(|v| matches!(v, Value::Finite(..)));
    let term = apply(op, ty, terms?);
    // For a known exponent e, xᵉ has the sign of 1ᵉ or (−1)ᵉ, depending on the sign of x. It is NaN if that power is
    // NaN.
    if let ("pow", [Value::Finite(_, Sign::Of(below)), exponent]) = (op, args.as_slice())
        && let Some(e) = exponent.number().filter(|e| e.is_finite())
    {
        let y = at(&[if *below { -1.0 } else { 1.0 }, e])?;
        return Some(if y.is_nan() { Value::Nan } else { Value::Finite(term, Sign::Of(y < 0.0)) });
    }
    let [Value::Finite(_, sign)] = args.as_slice() else {
        // A power of a positive number with a finite exponent is positive.
        let positive = matches!(args.first(), Some(Value::Finite(_, Sign::Of(false))));
        return (finite && op == "pow" && positive).then_some(Value::Finite(term, Sign::Of(false)));
    };
    // Each function below has one sign for all x > 0 and one for all x < 0. Its value at 1 or −1 shows that sign.
    let side = |below: bool| -> Option<Sign> {
        let x = at(&[if below { -1.0 } else { 1.0 }])?;
        Some(if x == 0.0 { Sign::Zero(Some(x.is_sign_negative())) } else { Sign::Of(x < 0.0) })
    };
    let nan_below = |op: &str| at(&[-1.0]).is_some_and(f64::is_nan) && matches!(op, "sqrt" | "rsqrt" | "log");
    match (op, sign) {
        (_, Sign::Of(true)) if nan_below(op) => Some(Value::Nan),
        (
            "exp" | "exp-normal" | "sigmoid" | "act sigmoid" | "softplus" | "tanh" | "act tanh" | "erf" | "abs"
            | "sqrt" | "rsqrt" | "act relu" | "act silu" | "act gelu-erf" | "act gelu-tanh" | "expm1",
            Sign::Of(below),
        ) => Some(match side(*below)? {
            Sign::Zero(sign) => Value::Finite(num(0.0), Sign::Zero(sign)),
            sign => Value::Finite(term, sign),
        }),
        ("exp" | "exp-normal" | "sigmoid" | "act sigmoid" | "softplus", Sign::Open) => {
            Some(Value::Finite(term, Sign::Of(false)))
        }
        (
            "tanh" | "act tanh" | "erf" | "abs" | "sin" | "cos" | "act relu" | "act silu" | "act gelu-erf"
            | "act gelu-tanh" | "expm1",
            _,
        ) => Some(Value::Finite(term, Sign::Open)),
        ("log", Sign::Of(false)) => Some(Value::Finite(term, Sign::Open)),
        // log(1 + x) is positive for positive x. For x ≤ −1 it is not finite.
        ("log1p", Sign::Of(false)) => Some(Value::Finite(term, Sign::Of(false))),
        _ => None,
    }
}
