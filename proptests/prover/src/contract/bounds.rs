//! Bounds the magnitudes of terms, for the inputs whose range a contract promises.

use std::collections::{BTreeMap, BTreeSet};

use eutectic_ir::{DType, ops::Reduction};

use crate::{
    bind::with,
    bits,
    call::Case,
    lower::{MARK, Truths},
    term::{Kind, Poly, T, Term, Ty, product},
};

/// The base-2 logarithm of the largest number of elements of a tensor.
const ELEMENTS: f64 = 40.0;
/// log₂ of a bound on |ln x| for each positive number x of any float type.
const LOGARITHM: f64 = 11.0;

/// The range of a float type, as base-2 logarithms.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// The largest number.
    pub most: f64,
    /// The least normal number.
    pub least: f64,
    /// The least subnormal number.
    pub step: f64,
    digits: f64,
    /// The largest magnitude of a moderate number. The least one is its reciprocal.
    moderate: f64,
}

impl Range {
    /// Returns the range of a type. A moderate number is at most 2⁴⁰, and at most 2 to a third of the exponent range
    /// (in `f16` 2⁵).
    pub fn of(dtype: DType) -> Range {
        let (least, most) = dtype.normal_range();
        let digits = f64::from(dtype.significand_bits());
        let (least, most) = (least.log2(), most.log2());
        Range { most, least, step: least - digits + 1.0, digits, moderate: ((1.0 - least) / 3.0).floor().min(40.0) }
    }
}

/// The bounds of a term's value, as base-2 logarithms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// The largest magnitude of its negative values. −∞ if it is never negative.
    pub below: f64,
    /// The largest of its positive values. −∞ if it is never positive.
    pub above: f64,
    /// The least magnitude of its nonzero values.
    pub least: f64,
    /// Every value is a multiple of this power of two.
    pub step: f64,
}

const NONE: f64 = f64::NEG_INFINITY;
const ANY: Bound = Bound { below: f64::INFINITY, above: f64::INFINITY, least: NONE, step: NONE };
const ZERO: Bound = Bound { below: NONE, above: NONE, least: f64::INFINITY, step: f64::INFINITY };

impl Bound {
    /// Between 0 and 1.
    const SHARE: Bound = Bound { below: NONE, above: 0.0, least: NONE, step: NONE };
    /// Between −1 and 1.
    const UNIT: Bound = Bound { below: 0.0, ..Bound::SHARE };
    /// 0 or 1.
    const TRUTH: Bound = Bound { below: NONE, above: 0.0, least: 0.0, step: 0.0 };

    fn of(x: f64) -> Bound {
        if x == 0.0 {
            return ZERO;
        }
        if !x.is_finite() {
            return ANY;
        }
        let (size, bits) = (x.abs().log2(), x.abs().to_bits());
        let step = size.floor() - 52.0 + f64::from((bits | 1 << 52).trailing_zeros());
        let [below, above] = if x < 0.0 { [size, NONE] } else { [NONE, size] };
        Bound { below, above, least: size, step }
    }

    /// Returns the largest magnitude.
    pub fn size(self) -> f64 {
        self.below.max(self.above)
    }

    fn negated(self) -> Bound {
        Bound { below: self.above, above: self.below, ..self }
    }

    fn either(self, other: Bound) -> Bound {
        Bound {
            below: self.below.max(other.below),
            above: self.above.max(other.above),
            least: self.least.min(other.least),
            step: self.step.min(other.step),
        }
    }

    fn times(self, other: Bound) -> Bound {
        // `NONE` is log₂ 0, and 0 times anything is 0.
        let of = |a: f64, b: f64| if a == NONE || b == NONE { NONE } else { a + b };
        Bound {
            below: of(self.below, other.above).max(of(self.above, other.below)),
            above: of(self.above, other.above).max(of(self.below, other.below)),
            least: of(self.least, other.least),
            step: of(self.step, other.step),
        }
    }

    fn inverse(self) -> Bound {
        let of = |size: f64| if size == NONE { NONE } else { -self.least };
        Bound { below: of(self.below), above: of(self.above), least: -self.size(), step: NONE }
    }

    /// Bounds a function with the sign of its operand, whose magnitude exceeds neither the operand's nor 2^`most`.
    fn damped(self, most: f64) -> Bound {
        Bound { below: self.below.min(most), above: self.above.min(most), least: NONE, step: NONE }
    }
}

/// The element types and magnitudes of the inputs for which a contract promises the range.
pub struct World<'a> {
    /// The case of the rule.
    pub case: &'a Case,
    /// The element type of each type variable, by its name.
    pub types: BTreeMap<String, DType>,
    /// The largest width in bits of each variable for integer types, by its name.
    pub integers: BTreeMap<String, u32>,
    /// The element type of constants.
    pub main: DType,
    /// Whether all inputs are moderate.
    pub moderate: bool,
    /// The tensors that are moderate in every rule.
    pub constants: BTreeSet<String>,
    /// The tensors that may be masks: their elements may also be −∞ or the most negative number of their type.
    pub masks: BTreeSet<String>,
}

impl World<'_> {
    /// Returns the range of an element type.
    pub fn range(&self, ty: &Ty) -> Range {
        Range::of(ty.dtype.or_else(|| self.types.get(&*ty.name).copied()).unwrap_or(self.main))
    }

    fn sum(&self, a: Bound, b: Bound) -> Bound {
        let digits = Range::of(self.main).digits;
        // A much smaller summand is rounded away.
        let of = |a: f64, b: f64| {
            let (small, large) = (a.min(b), a.max(b));
            if small < large - digits - 1.0 || small == NONE {
                large
            } else {
                large + (small - large).exp2().ln_1p() / std::f64::consts::LN_2
            }
        };
        let same_sign = a.below == NONE && b.below == NONE || a.above == NONE && b.above == NONE;
        Bound {
            below: of(a.below, b.below),
            above: of(a.above, b.above),
            least: if same_sign { a.least.min(b.least) } else { NONE },
            step: a.step.min(b.step),
        }
    }

    fn read(&self, name: &str, ty: &Ty) -> Bound {
        match ty.kind {
            Kind::Bool => return Bound::TRUTH,
            Kind::Int => {
                let bits = ty.dtype.map(DType::bits).or_else(|| self.integers.get(&*ty.name).copied());
                let size = f64::from(bits.unwrap_or(64));
                return Bound { below: if ty.unsigned { NONE } else { size }, above: size, least: 0.0, step: 0.0 };
            }
            Kind::Stored => return ANY,
            Kind::Float => {}
        }
        let range = self.range(ty);
        let moderate = self.moderate || self.constants.contains(name);
        let (size, least) = if moderate { (range.moderate, -range.moderate) } else { (range.most, range.step) };
        let step = if moderate { least - range.digits + 1.0 } else { range.step };
        let positive = self.case.positive.borrow().iter().any(|own| **own == *name);
        let below = if positive { NONE } else { size };
        let below = if self.masks.contains(name) { range.most } else { below };
        Bound { below, above: size, least, step }
    }

    fn number(&self, name: &str) -> Bound {
        let range = Range::of(self.main);
        if self.case.number_is(name, "hides") {
            return Bound { below: f64::INFINITY, above: NONE, least: NONE, step: NONE };
        }
        let size = range.moderate;
        let below = if self.case.number_is(name, "positive") { NONE } else { size };
        Bound { below, above: size, least: -size, step: -size - range.digits + 1.0 }
    }

    /// Returns the bounds of a term's value.
    pub fn bound(&self, term: &T) -> Bound {
        match &**term {
            Term::Num(bits) => Bound::of(f64::from_bits(*bits)),
            Term::Param(name) => self.number(name),
            Term::Index(p) => match p.known() {
                Some(n) => Bound::of(n as f64),
                None => {
                    let below = if self.case.facts.nonneg(p) { NONE } else { ELEMENTS };
                    Bound { below, above: ELEMENTS, least: 0.0, step: 0.0 }
                }
            },
            Term::Read(name, ty, _) => self.read(name, ty),
            Term::If(_, a, b) => self.bound(a).either(self.bound(b)),
            Term::Reduce(how, _, vars, body) => self.reduction(*how, vars, body),
            Term::Apply(_, ty, _) if ty.kind == Kind::Bool => Bound::TRUTH,
            Term::Apply(op, ty, args) => self.function(op, ty, args),
        }
    }

    fn reduction(&self, how: Reduction, vars: &[(u32, Poly)], body: &T) -> Bound {
        if vars.iter().any(|(_, e)| *e == Poly::zero()) {
            return if how == Reduction::Sum { ZERO } else { ANY };
        }
        let of = self.bound(body);
        match how {
            Reduction::Sum if is_weight(self.case, body) => {
                // The largest power of e is 1, so the sum is between 1 and the number of elements.
                Bound { below: NONE, above: ELEMENTS, least: 0.0, step: NONE }
            }
            Reduction::Sum if let Some(value) = weighted(self.case, body) => {
                Bound { least: NONE, step: NONE, ..self.bound(&value) }
            }
            Reduction::Sum => {
                let known: Option<f64> = vars.iter().map(|(_, e)| e.known().map(|n| (n.max(1) as f64).log2())).sum();
                let more = known.filter(|_| !self.case.bounded.get()).unwrap_or(ELEMENTS);
                let least = if of.below == NONE || of.above == NONE { of.least } else { NONE };
                Bound { below: of.below + more, above: of.above + more, least, step: of.step }
            }
            _ if how.def().selects => of,
            _ => ANY,
        }
    }

    fn function(&self, op: &str, ty: &Ty, args: &[T]) -> Bound {
        let is = |name: &str| op.strip_prefix("calc ").unwrap_or(op) == name;
        if is("cast") && ty.kind == Kind::Float {
            return self.bound(&args[0]);
        }
        if op.starts_with(MARK) {
            let (of, range) = (self.bound(&args[0]), self.range(ty));
            // Another part of the proof shows that a marked result stays in range. After rounding to its type, it is a
            // multiple of the least subnormal number, and at most the largest number.
            return Bound {
                below: of.below.min(range.most),
                above: of.above.min(range.most),
                least: of.least.max(range.step),
                step: of.step.max(range.step),
            };
        }
        if op == "round softmax" {
            return Bound::SHARE;
        }
        if op.starts_with("round ") || op.starts_with("empty ") || matches!(op, "tf32" | "store" | "wrap" | "act none")
        {
            return self.bound(&args[0]);
        }
        if is("exp") || op == "exp-normal" {
            return self.power(&args[0]);
        }
        if is("div") || is("/") {
            return self.quotient(&args[0], &args[1]);
        }
        let of: Vec<Bound> = args.iter().map(|a| self.bound(a)).collect();
        match (op.strip_prefix("calc ").unwrap_or(op), of.as_slice()) {
            ("add" | "+", [a, b]) => self.sum(*a, *b),
            ("sub" | "-", [a, b]) => self.sum(*a, b.negated()),
            // A square is not negative.
            ("mul" | "*", [a, b]) if args[0] == args[1] => Bound { below: NONE, ..a.times(*b) },
            ("mul" | "*", [a, b]) => a.times(*b),
            ("neg", [a]) => a.negated(),
            ("abs", [a]) => Bound { below: NONE, above: a.size(), ..*a },
            ("max", [a, b]) => Bound { below: a.below.min(b.below), ..a.either(*b) },
            ("min", [a, b]) => Bound { above: a.above.min(b.above), ..a.either(*b) },
            ("where", [_, a, b]) => a.either(*b),
            ("reciprocal", [a]) => a.inverse(),
            ("sqrt", [a]) => Bound { below: NONE, above: a.above / 2.0, least: a.least / 2.0, step: NONE },
            ("rsqrt", [a]) => Bound { below: NONE, above: -a.least / 2.0, least: -a.above / 2.0, step: NONE },
            ("sigmoid" | "act sigmoid", [_]) => Bound::SHARE,
            ("tanh" | "act tanh" | "erf", [a]) => a.damped(0.1),
            ("sin" | "cos", [_]) => Bound::UNIT,
            ("act relu", [a]) => Bound { below: NONE, ..*a },
            ("act silu" | "act gelu-erf" | "act gelu-tanh", [a]) => {
                Bound { below: a.below.min(0.0), ..a.damped(f64::INFINITY) }
            }
            // log 1 is 0. For the next larger number, 1 + 2^(1 − digits), the logarithm is larger than 2^−digits.
            ("log", [a]) if a.below == NONE && a.least >= 0.0 => {
                Bound { below: NONE, above: LOGARITHM, least: -Range::of(self.main).digits, step: NONE }
            }
            ("log" | "log1p", [_]) => Bound { below: LOGARITHM, above: LOGARITHM, least: NONE, step: NONE },
            _ => ANY,
        }
    }

    /// Bounds eˣ. If x is an element minus the maximum of its row, eˣ is at most 1.
    fn power(&self, of: &T) -> Bound {
        if is_below_its_maximum(self.case, of) {
            return Bound::SHARE;
        }
        let of = self.bound(of);
        let log2 = |size: f64| if size == NONE { 0.0 } else { size.exp2() * std::f64::consts::LOG2_E };
        Bound { below: NONE, above: log2(of.above), least: -log2(of.below), step: NONE }
    }

    /// Bounds a quotient. A sum divided by the number of its terms is a mean, which is at most the largest term.
    fn quotient(&self, a: &T, b: &T) -> Bound {
        if let (Term::Reduce(Reduction::Sum, _, vars, body), Term::Index(n)) = (&**a, &**b)
            && product(vars.iter().map(|(_, e)| e)) == *n
        {
            return Bound { least: NONE, step: NONE, ..self.bound(body) };
        }
        self.bound(a).times(self.bound(b).inverse())
    }
}

/// Returns whether a term is xⱼ − max x.
fn is_below_its_maximum(case: &Case, term: &T) -> bool {
    let plain = unmarked(term);
    let Some([x, most]) = plain.args("sub") else { return false };
    let Term::Reduce(Reduction::Max, _, vars, body) = &**most else { return false };
    let [(v, _)] = vars.as_slice() else { return false };
    let mut places: BTreeSet<Poly> = BTreeSet::new();
    x.visit_indices(&mut |p| {
        places.insert(p.clone());
    });
    let like = |own: &T, p: &Poly| {
        let normal = |t: &T| bits::normal(case, t, &Truths::new()).ok();
        let at = with(&case.facts, body, &BTreeMap::from([(*v, p.clone())])).ok();
        at.is_some_and(|at| at == *own || normal(&at).is_some() && normal(&at) == normal(own))
    };
    places.into_iter().any(|p| like(x, &p))
}

/// Returns whether a term is a softmax weight before the division: a power of e that is at most 1, and is 1 at the
/// maximum of its row.
pub fn is_weight(case: &Case, term: &T) -> bool {
    let plain = unmarked(term);
    let of = plain.args("exp").or_else(|| plain.args("exp-normal"));
    of.is_some_and(|of| is_below_its_maximum(case, &of[0]))
}

/// Returns whether a term is the sum of softmax weights before the division ([`is_weight`]).
pub fn is_sum_of_weights(case: &Case, term: &T) -> bool {
    matches!(&*unmarked(term), Term::Reduce(Reduction::Sum, _, _, body) if is_weight(case, body))
}

/// Returns whether a term is a softmax weight, before or after the division. Contracts let a small weight become 0.
pub fn is_share(case: &Case, term: &T) -> bool {
    let plain = unmarked(term);
    is_weight(case, &plain)
        || plain.args("div").is_some_and(|of| is_weight(case, &of[0]) && is_sum_of_weights(case, &of[1]))
}

/// If a term is a product with a softmax weight, returns the other factor.
fn weighted(case: &Case, body: &T) -> Option<T> {
    let [a, b] = body.args("mul")? else { return None };
    [(a, b), (b, a)].into_iter().find(|(weight, _)| is_share(case, weight)).map(|(_, value)| value.clone())
}

/// Returns a term without marks and roundings.
pub fn unmarked(term: &T) -> T {
    match &**term {
        Term::Apply(op, _, args) if op.starts_with(MARK) || op.starts_with("round ") => unmarked(&args[0]),
        Term::Apply(op, ty, args) => T::new(Term::Apply(op.clone(), ty.clone(), args.iter().map(unmarked).collect())),
        Term::Reduce(how, ty, vars, body) => T::new(Term::Reduce(*how, ty.clone(), vars.clone(), unmarked(body))),
        Term::If(conditions, a, b) => T::new(Term::If(conditions.clone(), unmarked(a), unmarked(b))),
        _ => term.clone(),
    }
}
