//! Arithmetic in rules, for the attributes and constants of right sides.

use eutectic_ir::{
    Attr, DType, Dim, Tensor,
    lang::{
        Bindings,
        typing::{Bound, VarId},
    },
};

/// An expression over numbers, dims and attributes.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// A literal.
    Number(Number),
    /// A dim, an integer attribute or a number variable.
    Slot(VarId),
    /// A function of expressions.
    Call(Function, Vec<Expr>),
    /// `(offset ?y -1)` in a group: the sum of the extents of earlier members along an axis.
    Offset(Box<Expr>),
}

/// For each axis, from the last one outwards, the sum of the extents of earlier members. `None` means that it is
/// known only at run time. Axes without an entry have the sum 0.
pub type Offsets<'o> = &'o [Option<i64>];

/// A number, and whether it is an integer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
}

impl Number {
    /// Returns the number as a float.
    pub fn get(self) -> f64 {
        match self {
            Number::Int(n) => n as f64,
            Number::Float(x) => x,
        }
    }

    /// Returns an integer, or a float with an integral value as an integer.
    pub fn int(self) -> Option<i64> {
        match self {
            Number::Int(n) => Some(n),
            Number::Float(x) if x.fract() == 0.0 && x.abs() < 9e15 => Some(x as i64),
            Number::Float(_) => None,
        }
    }

    /// Reads a literal number.
    pub fn parse(text: &str) -> Option<Number> {
        match text {
            "inf" | "+inf" => return Some(Number::Float(f64::INFINITY)),
            "-inf" => return Some(Number::Float(f64::NEG_INFINITY)),
            "nan" => return Some(Number::Float(f64::NAN)),
            _ => {}
        }
        // A word such as `infinity` stays a word, although Rust would parse it as a float.
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        if !digits.starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        text.parse().map(Number::Int).or_else(|_| text.parse().map(Number::Float)).ok()
    }
}

/// A function: its name, the number of its arguments, and its values on integers, on floats and on symbolic dims. The
/// value on integers is `None` if it is not an integer.
#[derive(Debug)]
pub struct FunctionDef {
    /// The name in rules.
    pub name: &'static str,
    arity: std::ops::RangeInclusive<usize>,
    int: fn(&[i64]) -> Option<i64>,
    float: fn(&[f64]) -> f64,
    dim: Option<fn(&Dim, &Dim) -> Option<Dim>>,
}

/// A function in the table.
pub type Function = &'static FunctionDef;

impl PartialEq for FunctionDef {
    fn eq(&self, other: &FunctionDef) -> bool {
        self.name == other.name
    }
}

const MANY: usize = usize::MAX;

const FUNCTIONS: &[FunctionDef] = &[
    FunctionDef {
        name: "+",
        arity: 2..=MANY,
        int: |a| a.iter().try_fold(0_i64, |s, x| s.checked_add(*x)),
        float: |a| a.iter().sum(),
        dim: Some(|a, b| Some(a + b)),
    },
    FunctionDef {
        name: "*",
        arity: 2..=MANY,
        int: |a| a.iter().try_fold(1_i64, |s, x| s.checked_mul(*x)),
        float: |a| a.iter().product(),
        dim: Some(|a, b| Some(a * b)),
    },
    FunctionDef {
        name: "-",
        arity: 2..=2,
        int: |a| a[0].checked_sub(a[1]),
        float: |a| a[0] - a[1],
        dim: Some(|a, b| Some(a - b)),
    },
    FunctionDef {
        name: "/",
        arity: 2..=2,
        int: |a| (a[1] != 0 && a[0].checked_rem(a[1]) == Some(0)).then(|| a[0] / a[1]),
        float: |a| a[0] / a[1],
        dim: Some(Dim::checked_div),
    },
    FunctionDef { name: "min", arity: 2..=2, int: |a| Some(a[0].min(a[1])), float: |a| a[0].min(a[1]), dim: None },
    FunctionDef { name: "max", arity: 2..=2, int: |a| Some(a[0].max(a[1])), float: |a| a[0].max(a[1]), dim: None },
    FunctionDef { name: "neg", arity: 1..=1, int: |a| a[0].checked_neg(), float: |a| -a[0], dim: None },
    FunctionDef { name: "sqrt", arity: 1..=1, int: |_| None, float: |a| a[0].sqrt(), dim: None },
    FunctionDef { name: "rsqrt", arity: 1..=1, int: |_| None, float: |a| 1.0 / a[0].sqrt(), dim: None },
    FunctionDef { name: "reciprocal", arity: 1..=1, int: |_| None, float: |a| 1.0 / a[0], dim: None },
    FunctionDef { name: "exp", arity: 1..=1, int: |_| None, float: |a| a[0].exp(), dim: None },
    FunctionDef { name: "log", arity: 1..=1, int: |_| None, float: |a| a[0].ln(), dim: None },
    FunctionDef { name: "pow", arity: 2..=2, int: |_| None, float: |a| a[0].powf(a[1]), dim: None },
    FunctionDef { name: "floor", arity: 1..=1, int: |a| Some(a[0]), float: |a| a[0].floor(), dim: None },
];

/// Returns the function with a name and a number of arguments.
pub fn function(name: &str, arguments: usize) -> Option<Function> {
    FUNCTIONS.iter().find(|f| f.name == name && f.arity.contains(&arguments))
}

impl Expr {
    /// Returns the value, or `None` if a variable is unbound or the value is a symbolic dim.
    pub fn value(&self, bindings: &Bindings, offsets: Offsets<'_>) -> Option<Number> {
        match self {
            Expr::Number(n) => Some(*n),
            Expr::Offset(axis) => {
                let axis = axis.value(bindings, offsets)?.int()?;
                let from_the_end = usize::try_from(-1 - axis).ok()?;
                offsets.get(from_the_end).copied().unwrap_or(Some(0)).map(Number::Int)
            }
            Expr::Slot(slot) => match bindings.get(*slot)? {
                Bound::Dim(d) => d.known().map(Number::Int),
                Bound::Attr(Attr::Int(n)) => Some(Number::Int(*n)),
                Bound::Attr(Attr::Float(x)) => Some(Number::Float(x.get())),
                _ => None,
            },
            Expr::Call(function, args) => {
                let Some(args) = args.iter().map(|a| a.value(bindings, offsets)).collect::<Option<Vec<_>>>() else {
                    // Symbols in the arguments may cancel, so that the value is a number.
                    return self.dim(bindings)?.known().map(Number::Int);
                };
                let ints: Option<Vec<i64>> =
                    args.iter().map(|n| if let Number::Int(n) = n { Some(*n) } else { None }).collect();
                if let Some(n) = ints.and_then(|ints| (function.int)(&ints)) {
                    return Some(Number::Int(n));
                }
                let floats: Vec<_> = args.iter().map(|n| n.get()).collect();
                Some(Number::Float((function.float)(&floats)))
            }
        }
    }

    /// Returns the value as a dimension, if it is a sum, product or exact quotient of dimensions.
    fn dim(&self, bindings: &Bindings) -> Option<Dim> {
        match self {
            Expr::Slot(slot) => match bindings.get(*slot)? {
                Bound::Dim(dim) => Some(dim.clone()),
                Bound::Attr(Attr::Int(n)) => Some(Dim::Known(*n)),
                _ => None,
            },
            Expr::Call(function, args) => {
                let dims: Vec<_> = args.iter().map(|a| a.dim(bindings)).collect::<Option<_>>()?;
                let apply = function.dim?;
                let (first, rest) = dims.split_first()?;
                rest.iter().try_fold(first.clone(), |a, b| apply(&a, b))
            }
            Expr::Number(n) => n.int().map(Dim::Known),
            Expr::Offset(_) => None,
        }
    }

    /// Calls `visit` with every variable in the expression.
    pub fn slots(&self, visit: &mut dyn FnMut(VarId)) {
        match self {
            Expr::Slot(slot) => visit(*slot),
            Expr::Call(_, args) => args.iter().for_each(|a| a.slots(visit)),
            Expr::Offset(axis) => axis.slots(visit),
            Expr::Number(_) => {}
        }
    }

    /// Returns the number if the expression is a literal.
    pub fn literal(&self) -> Option<f64> {
        match self {
            Expr::Number(n) => Some(n.get()),
            _ => None,
        }
    }
}

/// Returns whether `x` is within 4 eps of `y`, where eps is twice the unit roundoff of the element type. For a unit
/// roundoff of 0, they must be equal.
pub(crate) fn near(x: f64, y: f64, unit_roundoff: f64) -> bool {
    x == y || (x.is_nan() && y.is_nan()) || (y.is_finite() && (x - y).abs() <= 8.0 * unit_roundoff * y.abs())
}

/// The tolerance for comparing a matched number with a number on the left side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// The numbers must be equal after rounding to the element type.
    Held,
    /// The matched number must be within 4 eps of the required one, rounded to the element type. `eps` is that of the
    /// type, but at most that of `f32`, because models compute their constants in `f32` or wider. With the eps of
    /// 16-bit types, 1/300 would equal 1/301, and 1 in `bf16` would equal 1.03.
    Computed,
    /// The numbers must be within 4 eps of the element type.
    Near,
}

/// A number that a left side requires.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wanted {
    /// The number.
    pub value: f64,
    /// The tolerance.
    pub close: Close,
}

impl Wanted {
    /// Returns whether the matched number `has` is the required one after rounding to the element type, within the
    /// tolerance.
    pub fn is(self, has: f64, dtype: DType) -> bool {
        let eps = dtype.unit_roundoff();
        if !near(has, self.value, eps) || self.close == Close::Near || has.to_bits() == self.value.to_bits() {
            return near(has, self.value, eps);
        }
        let held = |x: f64| Tensor::from_f64(dtype, &[], [x]).to_f64()[0];
        let own = held(self.value);
        if own.to_bits() == has.to_bits() || own.is_nan() && has.is_nan() {
            return true;
        }
        let slack = 8.0 * eps.min(DType::F32.unit_roundoff()) * self.value.abs();
        // If the required number is infinite or NaN, an end of the range is NaN, so that the range is empty.
        self.close == Close::Computed && (held(self.value - slack)..=held(self.value + slack)).contains(&has)
    }
}

#[cfg(test)]
mod tests {
    use eutectic_ir::lang::typing::{Scope, SlotKind};

    use super::*;

    #[test]
    fn integers_stay_integers_where_they_can() {
        let int = |n| Expr::Number(Number::Int(n));
        let call = |name, args: Vec<Expr>| Expr::Call(function(name, args.len()).unwrap(), args);
        let value = |e: Expr| e.value(&Bindings::default(), &[]).unwrap();
        assert_eq!(value(call("/", vec![int(6), int(3)])), Number::Int(2));
        assert_eq!(value(call("/", vec![int(1), int(4)])), Number::Float(0.25));
        assert_eq!(value(call("+", vec![int(i64::MAX), int(1)])).int(), None);
        assert_eq!(value(call("/", vec![int(i64::MIN), int(-1)])).int(), None);
    }

    #[test]
    fn what_is_open_cancels_out() {
        let (mut scope, mut bindings) = (Scope::default(), Bindings::default());
        let n = Dim::between("N", 1, 8);
        let [all, some] = [("X", 36), ("Y", 4)].map(|(name, factor)| {
            let slot = scope.slot(name, SlotKind::Dim).unwrap();
            bindings.bind(slot, Bound::Dim(&n * &Dim::Known(factor))).unwrap();
            slot
        });
        let quotient = |a, b| Expr::Call(function("/", 2).unwrap(), vec![Expr::Slot(a), Expr::Slot(b)]);
        assert_eq!(quotient(all, some).value(&bindings, &[]), Some(Number::Int(9)));
        assert_eq!(quotient(some, all).value(&bindings, &[]), None);
    }

    #[test]
    fn literals_are_not_words() {
        assert_eq!(Number::parse("-inf"), Some(Number::Float(f64::NEG_INFINITY)));
        assert_eq!(Number::parse("infinity"), None);
        assert_eq!(Number::parse("-"), None);
        assert_eq!(Number::parse("1e-5"), Some(Number::Float(1e-5)));
    }

    #[test]
    fn a_number_is_another_only_where_it_says_near() {
        let wanted = |close| Wanted { value: 1.0, close };
        assert!(wanted(Close::Near).is(1.0078125, DType::Bf16));
        assert!([Close::Held, Close::Computed].iter().all(|close| !wanted(*close).is(1.0078125, DType::Bf16)));
        let root = Wanted { value: std::f64::consts::FRAC_1_SQRT_2, close: Close::Held };
        assert!(root.is(f64::from(std::f32::consts::FRAC_1_SQRT_2), DType::F32));
        assert!(!root.is(f64::from(std::f32::consts::FRAC_1_SQRT_2), DType::F64));
        let low = Wanted { value: -1e9, close: Close::Held };
        assert!(!low.is(f64::NEG_INFINITY, DType::F16), "f16 does not hold it");
        let zero = Wanted { value: 0.0, close: Close::Held };
        assert!(zero.is(0.0, DType::F32) && !zero.is(-0.0, DType::F32));
        assert!(Wanted { value: f64::NAN, close: Close::Held }.is(f64::NAN, DType::F16));
    }

    #[test]
    fn a_computed_number_is_rounded_once_more_and_no_other() {
        let held = |x: f64, dtype| Tensor::from_f64(dtype, &[], [x]).to_f64()[0];
        let third = |n: f64| Wanted { value: 1.0 / n, close: Close::Computed };
        for dtype in [DType::F16, DType::Bf16, DType::F32, DType::F64] {
            for n in 1..2000 {
                let n = f64::from(n);
                // A number counts as equal if it is rounded to `f32`, or if it differs by a few eps of `f32`.
                for off in [0.0, 3.0, -3.0] {
                    let computed = (1.0 / n) * (1.0 + off * 2.0 * dtype.unit_roundoff().min(2_f64.powi(-24)));
                    assert!(third(n).is(held(computed, dtype), dtype), "1/{n} in {dtype}");
                }
                // The number of the next extent differs, unless both round to the same value of the element type.
                let beside = held(1.0 / (n + 1.0), dtype);
                assert!(!third(n).is(beside, dtype) || beside == held(1.0 / n, dtype), "1/{n} in {dtype}");
            }
        }
        let low = Wanted { value: f64::NEG_INFINITY, close: Close::Computed };
        assert!(low.is(f64::NEG_INFINITY, DType::F16) && !low.is(-65504.0, DType::F16));
        let zero = Wanted { value: 0.0, close: Close::Computed };
        assert!(zero.is(-0.0, DType::F32) && !zero.is(f64::from(f32::from_bits(1)), DType::F32));
    }

    #[test]
    fn near_is_relative() {
        let eps = DType::F32.unit_roundoff();
        assert!(near(f64::from(std::f32::consts::FRAC_1_SQRT_2), std::f64::consts::FRAC_1_SQRT_2, eps));
        assert!(!near(0.7072, std::f64::consts::FRAC_1_SQRT_2, eps));
        assert!(near(f64::NEG_INFINITY, f64::NEG_INFINITY, eps) && !near(1e-30, 0.0, eps));
    }
}
