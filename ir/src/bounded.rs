//! Numbers with a running error bound: how far a careful kernel's result may be from the exact result.
//!
//! The bound of a result is the tolerance against which a kernel is judged. The bound assumes:
//!
//! - Each operation is rounded to the computing type: f32 for f16 and bf16, and otherwise the type itself. Values of
//!   f16 and bf16 are rounded again when they are stored.
//! - Elementary functions are accurate to the units in the last place that [`Scalar`](crate::Scalar) states for them.
//! - Sums and products are computed in any order.
//! - Subnormal results may be flushed to zero.
//!
//! The analysis is the usual first-order one, but keeps products of errors: N. J. Higham, *Accuracy and Stability of
//! Numerical Algorithms*, 2nd ed., §§ 3.1, 4.2.
//!
//! The bound is a worst case, in which all errors add up, so it grows by a factor with each layer of a network. Use
//! it to judge kernels, rules and small graphs. Judge a whole model part by part.

mod functions;
mod product;
mod softmax;
mod sum;

use std::ops::{Add, Div, Mul, Neg, Sub};

pub use softmax::{hides, hiding};
pub use sum::BoundedSum;

use crate::DType;

/// A real number, with a bound on the error of a kernel's result.
///
/// An infinite bound means that the result cannot be judged. Either an operand was too close to a jump or a pole, or
/// a value overflowed that another order of operations might keep finite. NaN and the infinities are exact (bound 0)
/// if every kernel returns them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounded {
    /// The number.
    pub value: f64,
    /// The bound of the absolute error, infinite if the result cannot be judged.
    pub err: f64,
    /// Unit roundoff of the computing type; 0 for the constants of a formula.
    unit: f64,
    /// The sum of the magnitudes of the terms if the number is a sum, and otherwise 0.
    terms: f64,
}

/// Returns the type in which kernels compute on elements of type `dtype`.
fn computing(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// Returns the error of rounding numbers of this magnitude: a relative error, and all of the magnitude if it may be
/// flushed to zero.
fn rounding(magnitude: f64, unit: f64, smallest_normal: f64) -> f64 {
    // The second term is the rounding error of the reference itself, which matters if the type is f64.
    let relative = (unit + f64::EPSILON / 2.0) * magnitude;
    // A result slightly below the normal range may be flushed as well.
    if magnitude - relative < smallest_normal { relative + magnitude } else { relative }
}

/// Returns the smallest normal and the largest finite number of a computing type.
fn range(unit: f64) -> (f64, f64) {
    if unit > f64::EPSILON {
        (f64::from(f32::MIN_POSITIVE), f64::from(f32::MAX))
    } else {
        (f64::MIN_POSITIVE, f64::MAX)
    }
}

/// Returns whether a number is rounded to a finite one. It may exceed the largest finite number by less than half a
/// unit in the last place.
fn is_rounded_to_finite(magnitude: f64, unit: f64, largest: f64) -> bool {
    magnitude <= largest * (1.0 + unit / 2.0)
}

/// Returns x·y, with 0·∞ = 0.
fn times(x: f64, y: f64) -> f64 {
    if x == 0.0 || y == 0.0 { 0.0 } else { x * y }
}

/// Returns whether the computing type represents the number exactly.
fn representable(x: f64, unit: f64) -> bool {
    unit <= f64::EPSILON || f64::from(x as f32) == x || x.is_nan()
}

/// Returns whether the result of one correctly rounded operation on exact operands is exact.
fn is_exact(result: f64, unit: f64) -> bool {
    // An `f64` result with few significant bits was not rounded.
    let short = result.abs() < 2_f64.powi(40) && (result * 2_f64.powi(10)).fract() == 0.0;
    if unit > f64::EPSILON { representable(result, unit) } else { short }
}

impl Bounded {
    /// Returns a number with a known error bound, computed in the computing type of `dtype`.
    pub fn new(value: f64, err: f64, dtype: DType) -> Bounded {
        Bounded { value, err, unit: computing(dtype).unit_roundoff(), terms: 0.0 }
    }

    /// Returns the result of an operation that is accurate to `roundings` unit roundoffs. `propagated` is the error
    /// that stems from the operands.
    fn computed(value: f64, propagated: f64, unit: f64, roundings: f64) -> Bounded {
        if !value.is_finite() {
            return Bounded { value, err: if propagated.is_finite() { 0.0 } else { f64::INFINITY }, unit, terms: 0.0 };
        }
        let (smallest, largest) = range(unit);
        let is_kept = value == 0.0 || value.abs() >= smallest;
        if propagated == 0.0 && is_kept && is_exact(value, unit) && roundings <= 1.0 {
            return Bounded { value, err: 0.0, unit, terms: 0.0 };
        }
        let most = value.abs() + propagated;
        let err = propagated + rounding(most, unit * roundings, smallest);
        match roundings <= 1.0 && is_rounded_to_finite(most, unit, largest) {
            true => Bounded { value, err, unit, terms: 0.0 },
            false => Bounded { value, err, unit, terms: 0.0 }.checked(),
        }
    }

    /// Gives the result an infinite bound if its value or its error may overflow.
    fn checked(self) -> Bounded {
        let (_, largest) = range(self.unit);
        let judged = self.value.abs() + self.err <= largest;
        Bounded { err: if judged { self.err } else { f64::INFINITY }, ..self }
    }

    /// Returns the interval that contains a kernel's result.
    fn ends(self) -> (f64, f64) {
        // An infinity minus its error would be NaN.
        if self.err == 0.0 { (self.value, self.value) } else { (self.value - self.err, self.value + self.err) }
    }

    /// Returns the sum of the magnitudes of the terms. The only term of a number that is not a sum is the number.
    fn magnitude(self) -> f64 {
        self.terms.max(self.value.abs())
    }

    /// Returns whether every kernel gives NaN.
    fn is_nan(self) -> bool {
        self.value.is_nan() && self.err == 0.0
    }

    fn spans_zero(self) -> bool {
        let (low, high) = self.ends();
        low <= 0.0 && high >= 0.0
    }

    /// Converts both operands to one computing type. A constant of a formula is rounded to the type of the operand.
    fn meet(a: Bounded, b: Bounded) -> (Bounded, Bounded, f64) {
        let unit = a.unit.max(b.unit);
        let settle = |x: Bounded| match x.unit < unit && x.err == 0.0 && !representable(x.value, unit) {
            true => Bounded { err: unit * x.value.abs(), unit, ..x },
            false => Bounded { unit, ..x },
        };
        (settle(a), settle(b), unit)
    }

    /// Returns whether a kernel's result is within the bound, or `None` if it cannot be judged.
    pub fn admits(self, result: f64) -> Option<bool> {
        if self.err.is_infinite() {
            None
        } else if self.value.is_finite() {
            Some((result - self.value).abs() <= self.err)
        } else {
            Some(result == self.value || result.is_nan() && self.value.is_nan())
        }
    }
}

impl Neg for Bounded {
    type Output = Bounded;

    fn neg(self) -> Bounded {
        Bounded { value: -self.value, ..self }
    }
}

impl Add for Bounded {
    type Output = Bounded;

    fn add(self, other: Bounded) -> Bounded {
        let (a, b, unit) = Bounded::meet(self, other);
        let sum = a.value + b.value;
        let propagated = match a.is_nan() || b.is_nan() {
            true => 0.0,
            false if sum.is_infinite() && a.value.is_finite() && b.value.is_finite() => f64::INFINITY,
            false => a.err + b.err,
        };
        // Adds the rounding error of the reference, for example if a large summand absorbs a small one (Knuth's
        // TwoSum).
        let kept = sum - a.value;
        let lost = (a.value - (sum - kept)) + (b.value - kept);
        let lost = if sum.is_finite() { lost.abs() } else { 0.0 };
        let is_chain = a.terms > 0.0 || b.terms > 0.0;
        let terms = a.magnitude() + b.magnitude();
        // Summing three or more terms in another order may round although this order is exact. No order rounds if the
        // sum of magnitudes is exactly representable.
        let reordered = if is_chain && terms.is_finite() && !is_exact(terms, unit) { unit * terms } else { 0.0 };
        Bounded { terms, ..Bounded::computed(sum, propagated + lost + reordered, unit, 1.0) }
    }
}

impl Sub for Bounded {
    type Output = Bounded;

    fn sub(self, other: Bounded) -> Bounded {
        self + -other
    }
}

impl Mul for Bounded {
    type Output = Bounded;

    fn mul(self, other: Bounded) -> Bounded {
        let (a, b, unit) = Bounded::meet(self, other);
        let value = a.value * b.value;
        Bounded::computed(value, product_error(a, b) + lost_in_product(a.value, b.value), unit, 1.0)
    }
}

/// Returns the rounding error of the reference's product.
fn lost_in_product(a: f64, b: f64) -> f64 {
    let value = a * b;
    if value.is_finite() { a.mul_add(b, -value).abs() + vanished(value, a != 0.0 && b != 0.0) } else { 0.0 }
}

/// Returns the error of a computed zero whose exact value is not zero but underflows in the reference's `f64`.
fn vanished(value: f64, exact_is_not_zero: bool) -> f64 {
    if value == 0.0 && exact_is_not_zero { f64::MIN_POSITIVE } else { 0.0 }
}

/// Returns the error of a product that stems from the errors of its factors.
fn product_error(a: Bounded, b: Bounded) -> f64 {
    if a.is_nan() || b.is_nan() {
        return 0.0;
    }
    let known = a.err.is_finite() && b.err.is_finite();
    if (a.value.is_infinite() || b.value.is_infinite()) && known {
        // A product with an infinite factor is infinite, unless the other factor may be zero or change its sign.
        let open = |x: Bounded| x.err > 0.0 && x.spans_zero();
        return if open(a) || open(b) { f64::INFINITY } else { 0.0 };
    }
    if !known {
        // A factor may have overflowed, and ∞ · 0 is NaN.
        return f64::INFINITY;
    }
    if (a.value * b.value).is_infinite() {
        return f64::INFINITY;
    }
    times(a.value.abs(), b.err) + times(b.value.abs(), a.err) + times(a.err, b.err)
}

/// Returns the error of a quotient that stems from the errors of its operands.
fn quotient_error(a: Bounded, b: Bounded) -> f64 {
    let exact_if = |sure: bool| if sure { 0.0 } else { f64::INFINITY };
    if a.is_nan() || b.is_nan() {
        return 0.0;
    }
    if b.spans_zero() {
        return exact_if(b.err == 0.0 && (a.err == 0.0 || !a.spans_zero()));
    }
    if a.value.is_infinite() || b.value.is_infinite() {
        return exact_if(a.err.is_finite());
    }
    if (a.value / b.value).is_infinite() {
        return f64::INFINITY;
    }
    (a.err + times((a.value / b.value).abs(), b.err)) / (b.value.abs() - b.err)
}

impl Div for Bounded {
    type Output = Bounded;

    fn div(self, other: Bounded) -> Bounded {
        let (a, b, unit) = Bounded::meet(self, other);
        let (value, propagated) = (a.value / b.value, quotient_error(a, b));
        // Devices divide to within 2.5 units in the last place, or multiply by the reciprocal. Integer quotients are
        // exact, and so are divisions by a power of two.
        let exponent_only = b.value.is_normal() && b.value.to_bits() << 12 == 0;
        let short = is_exact(value, unit) && (exponent_only || value.fract() == 0.0);
        let whole = propagated == 0.0 && short && (-value).mul_add(b.value, a.value) == 0.0;
        // The reciprocal of a divisor this large is subnormal, and may be flushed to zero.
        let vanishes = b.value.is_finite() && (b.value.abs() + b.err) * range(unit).0 > 1.0;
        let lost = if vanishes { value.abs() } else { 0.0 } + vanished(value, a.value != 0.0 && b.value.is_finite());
        Bounded::computed(value, propagated + lost, unit, if whole { 1.0 } else { 5.0 })
    }
}
