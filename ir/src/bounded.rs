//! Numbers with a running error bound: how far from the real result a careful kernel may come out.
//!
//! The bound of a result is the tolerance against which a kernel is judged. It assumes that each operation is rounded
//! to the computing type (f32 for f16 and bf16, which are rounded again when a tensor is stored), that elementary
//! functions are right to the units in the last place that [`Scalar`] states for them, that sums are taken in any
//! order, and that subnormal results may be flushed to zero. The analysis is the usual one of the first order, with
//! the products of errors kept: N. J. Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd ed., §§ 3.1, 4.2.
//!
//! It is the worst case, in which all errors add up: it grows by a factor with each layer of a network. It judges kernels, rules
//! and small graphs; for a whole model, judge it part by part.

use std::{
    cmp::Ordering,
    ops::{Add, Div, Mul, Neg, Sub},
};

use half::{bf16, f16};

use crate::{
    DType, Scalar,
    ops::eval::{ElementFn, Elements, TensorFn, Tensors},
    scalar::Accumulator,
};

/// A real number, and how far from it a kernel's result may lie.
///
/// An infinite bound means that the result cannot be judged: something before it was too near to a jump or to a pole, or
/// overflowed, which it may not have done in another order of operations. NaN and the infinities are exact (bound 0) where
/// every kernel gives them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounded {
    /// The number.
    pub value: f64,
    /// The bound of the absolute error.
    pub err: f64,
    /// Unit roundoff of the type that it is computed in; 0 for the constants of a formula.
    unit: f64,
}

/// The type in which elements of a type are computed.
fn computing(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// What rounding to a type does to numbers of that size: relative, flushed below the normal range.
fn rounding(magnitude: f64, unit: f64, smallest_normal: f64) -> f64 {
    // The reference's own rounding is in it, which matters where the type is f64.
    let relative = (unit + f64::EPSILON / 2.0) * magnitude;
    if magnitude < smallest_normal { relative + magnitude.min(smallest_normal) } else { relative }
}

/// Smallest normal and largest finite number of a computing type.
fn range(unit: f64) -> (f64, f64) {
    if unit > f64::EPSILON {
        (f64::from(f32::MIN_POSITIVE), f64::from(f32::MAX))
    } else {
        (f64::MIN_POSITIVE, f64::MAX)
    }
}

/// Whether a number is rounded to a finite one: it lies within half a unit in the last place of the largest.
fn is_rounded_to_finite(magnitude: f64, unit: f64, largest: f64) -> bool {
    magnitude <= largest * (1.0 + unit / 2.0)
}

/// x·y, where nothing times anything is nothing.
fn times(x: f64, y: f64) -> f64 {
    if x == 0.0 || y == 0.0 { 0.0 } else { x * y }
}

/// Whether the computing type holds the number.
fn representable(x: f64, unit: f64) -> bool {
    unit <= f64::EPSILON || f64::from(x as f32) == x || x.is_nan()
}

/// Whether the result of one correctly rounded operation on exact operands is exact.
fn is_exact(result: f64, unit: f64) -> bool {
    // That the `f64` result was not rounded itself shows where it is short.
    let short = result.abs() < 2_f64.powi(40) && (result * 2_f64.powi(10)).fract() == 0.0;
    if unit > f64::EPSILON { representable(result, unit) } else { short }
}

impl Bounded {
    /// A number of which a bound is known, computed in the computing type of `dtype`.
    pub fn new(value: f64, err: f64, dtype: DType) -> Bounded {
        Bounded { value, err, unit: computing(dtype).unit_roundoff() }
    }

    /// The result of an operation that is right to `roundings` unit roundoffs, with the errors of its operands
    /// propagated already.
    fn computed(value: f64, propagated: f64, unit: f64, roundings: f64) -> Bounded {
        if !value.is_finite() {
            return Bounded { value, err: if propagated.is_finite() { 0.0 } else { f64::INFINITY }, unit };
        }
        if propagated == 0.0 && is_exact(value, unit) && roundings <= 1.0 {
            return Bounded { value, err: 0.0, unit };
        }
        let (smallest, largest) = range(unit);
        let most = value.abs() + propagated;
        let err = propagated + rounding(most, unit * roundings, smallest);
        match roundings <= 1.0 && is_rounded_to_finite(most, unit, largest) {
            true => Bounded { value, err, unit },
            false => Bounded { value, err, unit }.checked(),
        }
    }

    /// Not to be judged where it may overflow, or where the bound itself did.
    fn checked(self) -> Bounded {
        let (_, largest) = range(self.unit);
        let judged = self.value.abs() + self.err <= largest;
        Bounded { err: if judged { self.err } else { f64::INFINITY }, ..self }
    }

    /// The interval in which a kernel's result lies.
    fn ends(self) -> (f64, f64) {
        // An exact infinity has no neighbours.
        if self.err == 0.0 { (self.value, self.value) } else { (self.value - self.err, self.value + self.err) }
    }

    /// Whether every kernel gives NaN.
    fn is_nan(self) -> bool {
        self.value.is_nan() && self.err == 0.0
    }

    fn spans_zero(self) -> bool {
        let (low, high) = self.ends();
        low <= 0.0 && high >= 0.0
    }

    /// Both operands in one type: a constant of a formula is rounded to the type that it meets.
    fn meet(a: Bounded, b: Bounded) -> (Bounded, Bounded, f64) {
        let unit = a.unit.max(b.unit);
        let settle = |x: Bounded| match x.unit < unit && x.err == 0.0 && !representable(x.value, unit) {
            true => Bounded { err: unit * x.value.abs(), unit, ..x },
            false => Bounded { unit, ..x },
        };
        (settle(a), settle(b), unit)
    }

    /// Whether a kernel's result is good; `None` where it cannot be judged.
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
        // What the reference itself lost, as where a large summand absorbs a small one (Knuth's TwoSum).
        let kept = sum - a.value;
        let lost = (a.value - (sum - kept)) + (b.value - kept);
        let lost = if sum.is_finite() { lost.abs() } else { 0.0 };
        Bounded::computed(sum, propagated + lost, unit, 1.0)
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

/// What the reference itself rounds off a product.
fn lost_in_product(a: f64, b: f64) -> f64 {
    let value = a * b;
    if value.is_finite() { a.mul_add(b, -value).abs() } else { 0.0 }
}

/// How far a product is off for factors that are off.
fn product_error(a: Bounded, b: Bounded) -> f64 {
    if a.is_nan() || b.is_nan() {
        return 0.0;
    }
    let known = a.err.is_finite() && b.err.is_finite();
    if (a.value.is_infinite() || b.value.is_infinite()) && known {
        // An infinity stays one, unless the other factor may be a zero or change its sign.
        let open = |x: Bounded| x.err > 0.0 && x.spans_zero();
        return if open(a) || open(b) { f64::INFINITY } else { 0.0 };
    }
    if !known {
        // What may have overflowed is NaN even where it meets a zero.
        return f64::INFINITY;
    }
    if (a.value * b.value).is_infinite() {
        return f64::INFINITY;
    }
    times(a.value.abs(), b.err) + times(b.value.abs(), a.err) + times(a.err, b.err)
}

/// How far a quotient is off for operands that are off.
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
        // Devices divide to within 2.5 units in the last place, or multiply by the reciprocal; but whole results come out whole,
        // and a power of two divides exactly.
        let exponent_only = b.value.is_normal() && b.value.to_bits() << 12 == 0;
        let short = is_exact(value, unit) && (exponent_only || value.fract() == 0.0);
        let whole = propagated == 0.0 && short && (-value).mul_add(b.value, a.value) == 0.0;
        Bounded::computed(value, propagated, unit, if whole { 1.0 } else { 5.0 })
    }
}

impl Scalar for Bounded {
    type Sum = BoundedSum;

    fn exact(x: f64) -> Bounded {
        Bounded { value: x, err: 0.0, unit: 0.0 }
    }

    fn element(x: f64, dtype: DType) -> Bounded {
        Bounded::new(x, 0.0, dtype)
    }

    fn value(self) -> f64 {
        self.value
    }

    fn store(self, dtype: DType) -> Bounded {
        let unit = computing(dtype).unit_roundoff();
        let (fits, smallest, largest) = match dtype {
            DType::F16 => (f16::from_f64(self.value).to_f64() == self.value, f64::from(f16::MIN_POSITIVE), 65504.0),
            DType::Bf16 => {
                (bf16::from_f64(self.value).to_f64() == self.value, f64::from(bf16::MIN_POSITIVE), f64::from(bf16::MAX))
            }
            _ => (representable(self.value, unit), range(unit).0, range(unit).1),
        };
        if !self.value.is_finite() || self.err == 0.0 && fits {
            return Bounded { unit, ..self };
        }
        let (mut err, most) = (self.err, self.value.abs() + self.err);
        if err == 0.0 || self.unit < unit {
            err += rounding(self.value.abs() + err, unit, range(unit).0);
        }
        if dtype.unit_roundoff() > unit {
            err += rounding(self.value.abs() + err, dtype.unit_roundoff(), smallest);
        }
        // What is not rounded here was judged where it was computed.
        let finite = err == self.err || is_rounded_to_finite(most, dtype.unit_roundoff(), largest);
        let err = if finite { err } else { f64::INFINITY };
        Bounded { value: self.value, err, unit }
    }

    fn monotone(self, f: fn(f64) -> f64, ulps: f64, absolute: f64) -> Bounded {
        let value = f(self.value);
        let (low, high) = self.ends();
        let propagated = match self.err == 0.0 {
            true => 0.0,
            // All of the interval lies outside of the domain.
            false if value.is_nan() && f(low).is_nan() && f(high).is_nan() => 0.0,
            // A pole or the edge of the domain lies in the interval: the difference is infinite or NaN.
            false => [f(low), f(high)].iter().fold(0.0, |most: f64, end| match (end - value).abs() {
                difference if difference.is_nan() => f64::INFINITY,
                difference => most.max(difference),
            }),
        };
        let propagated = if self.err.is_infinite() { f64::INFINITY } else { propagated };
        let small = if value.is_finite() && value != 0.0 { absolute * self.unit } else { 0.0 };
        Bounded::computed(value, propagated + small, self.unit, 2.0 * ulps)
    }

    fn gentle(self, f: fn(f64) -> f64, ulps: f64, absolute: f64) -> Bounded {
        Bounded::computed(f(self.value), self.err + absolute * self.unit, self.unit, 2.0 * ulps)
    }

    fn step(self, f: impl Fn(f64) -> f64) -> Bounded {
        let (low, high) = self.ends();
        let value = f(self.value);
        let same = f(low) == value && f(high) == value;
        let certain = self.err == 0.0 || self.err.is_finite() && same;
        Bounded { value, err: if certain { 0.0 } else { f64::INFINITY }, unit: self.unit }
    }

    fn pow(self, exponent: Bounded) -> Bounded {
        let (a, b, unit) = Bounded::meet(self, exponent);
        let value = a.value.powf(b.value);
        let exact = a.err == 0.0 && b.err == 0.0;
        let integral = b.err == 0.0 && b.value.fract() == 0.0;
        // By e^(b ln a) the error grows with the exponent's size.
        let logarithm = times(b.value, a.value.abs().ln()).abs();
        let roundings = 8.0 + if logarithm.is_finite() { 4.0 * logarithm } else { 0.0 };
        let propagated = if exact {
            0.0
        } else if a.value > a.err || integral && !(a.spans_zero() && b.value < 0.0) {
            let ((a0, a1), (b0, b1)) = (a.ends(), b.ends());
            let zero = if a.spans_zero() { 0.0 } else { a0 };
            let corners = [(a0, b0), (a0, b1), (a1, b0), (a1, b1), (zero, b0)];
            corners.iter().fold(0.0, |most: f64, (x, y)| most.max((x.powf(*y) - value).abs()))
        } else {
            f64::INFINITY
        };
        Bounded::computed(value, propagated, unit, roundings)
    }

    fn modulo(self, divisor: Bounded) -> Bounded {
        let (a, b, unit) = Bounded::meet(self, divisor);
        let value = a.value.modulo(b.value);
        if a.err == 0.0 && b.err == 0.0 && (value == 0.0 || !value.is_finite()) {
            return Bounded { value, err: 0.0, unit };
        }
        let quotient = a / b;
        let steps = quotient.step(f64::floor);
        let propagated = if steps.err == 0.0 {
            a.err + times(steps.value.abs(), b.err) + unit * times(steps.value.abs(), b.value.abs())
        } else {
            f64::INFINITY
        };
        Bounded::computed(value, propagated, unit, 2.0)
    }

    fn larger(self, other: Bounded) -> Bounded {
        let (a, b, unit) = Bounded::meet(self, other);
        let value = a.value.larger(b.value);
        let err = match (a.ends(), b.ends()) {
            _ if value.is_nan() || a.err.is_infinite() || b.err.is_infinite() => a.err.max(b.err),
            ((low, _), (_, high)) if low > high => a.err,
            ((_, high), (low, _)) if low > high => b.err,
            _ => a.err.max(b.err),
        };
        Bounded { value, err, unit }
    }

    fn either(self, other: Bounded) -> Bounded {
        let (a, b, unit) = Bounded::meet(self, other);
        let same = a.value == b.value || a.value.is_nan() && b.value.is_nan();
        // A number is as far from NaN as can be.
        let apart = match (a.value - b.value).abs() {
            _ if same => 0.0,
            apart if apart.is_nan() => f64::INFINITY,
            apart => apart,
        };
        Bounded { value: a.value, err: a.err.max(apart + b.err), unit }
    }

    fn judge(self, other: Bounded, holds: fn(Option<Ordering>) -> bool) -> Option<bool> {
        if self.err.is_infinite() || other.err.is_infinite() {
            return None;
        }
        let (a, b, _) = Bounded::meet(self, other);
        let answer = holds(a.value.partial_cmp(&b.value));
        if a.value.is_nan() || b.value.is_nan() || a.err == 0.0 && b.err == 0.0 {
            return Some(answer);
        }
        let ((a_low, a_high), (b_low, b_high)) = (a.ends(), b.ends());
        let orders = [
            (a_low < b_high).then_some(Ordering::Less),
            (a_low <= b_high && b_low <= a_high).then_some(Ordering::Equal),
            (a_high > b_low).then_some(Ordering::Greater),
        ];
        orders.into_iter().flatten().all(|order| holds(Some(order)) == answer).then_some(answer)
    }

    fn certain(self) -> Option<f64> {
        (self.err == 0.0).then_some(self.value)
    }

    fn elements(of: &Elements) -> ElementFn<Bounded> {
        of.bounded
    }

    fn tensors(of: &Tensors) -> TensorFn<Bounded> {
        of.bounded
    }
}

/// The sum of many terms, in whatever order a kernel takes them.
#[derive(Clone, Copy, Debug)]
pub struct BoundedSum {
    value: f64,
    err: f64,
    magnitude: f64,
    unit: f64,
    terms: f64,
    products: bool,
    whole: bool,
    finite: bool,
}

impl Default for BoundedSum {
    fn default() -> BoundedSum {
        let (whole, finite) = (true, true);
        BoundedSum { value: 0.0, err: 0.0, magnitude: 0.0, unit: 0.0, terms: 0.0, products: false, whole, finite }
    }
}

impl Accumulator<Bounded> for BoundedSum {
    fn add(&mut self, x: Bounded) {
        self.value += x.value;
        self.err += x.err;
        self.magnitude += x.value.abs() + x.err;
        self.unit = self.unit.max(x.unit);
        self.terms += 1.0;
        self.whole &= x.value.fract() == 0.0;
        self.finite &= x.value.is_finite();
    }

    fn add_product(&mut self, a: Bounded, b: Bounded) {
        let err = product_error(a, b) + lost_in_product(a.value, b.value);
        let value = a.value * b.value;
        self.products = true;
        self.add(Bounded { value, err, unit: a.unit.max(b.unit) });
    }

    fn total(self) -> Bounded {
        let (smallest, largest) = range(self.unit);
        // In some order all terms of one sign come first: they may overflow though the total does not.
        if self.finite && self.magnitude > largest {
            return Bounded { value: self.value, err: f64::INFINITY, unit: self.unit };
        }
        // Small integers add up without rounding.
        let exact = self.err == 0.0 && self.whole && self.magnitude * self.unit <= 1.0;
        let roundings = self.terms - f64::from(u8::from(!self.products));
        if exact || !self.value.is_finite() || roundings <= 0.0 {
            return Bounded::computed(self.value, self.err, self.unit, 1.0);
        }
        let order = roundings * (self.unit + f64::EPSILON / 2.0) * self.magnitude;
        let flushed = if self.magnitude < smallest * self.terms { smallest * self.terms } else { 0.0 };
        Bounded { value: self.value, err: self.err + order * (1.0 + roundings * self.unit) + flushed, unit: self.unit }
            .checked()
    }
}
