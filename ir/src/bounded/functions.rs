//! Implements the functions of [`Scalar`] on numbers with an error bound.

use std::cmp::Ordering;

use super::{Bounded, BoundedSum, computing, is_rounded_to_finite, product, range, rounding, softmax, times, vanished};
use crate::{
    DType, Scalar,
    ops::eval::{ElementFn, Elements, TensorFn, Tensors},
};

impl Scalar for Bounded {
    type Sum = BoundedSum;

    fn exact(x: f64) -> Bounded {
        Bounded { value: x, err: 0.0, unit: 0.0, terms: 0.0 }
    }

    fn element(x: f64, dtype: DType) -> Bounded {
        Bounded::new(x, 0.0, dtype)
    }

    fn value(self) -> f64 {
        self.value
    }

    fn store(self, dtype: DType) -> Bounded {
        let unit = computing(dtype).unit_roundoff();
        let (smallest, largest) = dtype.normal_range();
        let stored = dtype.rounded(self.value);
        if !self.value.is_finite() || self.err == 0.0 && stored == self.value {
            return Bounded { value: stored, unit, ..self };
        }
        let (mut err, most) = (self.err, self.value.abs() + self.err);
        if err == 0.0 || self.unit < unit {
            err += rounding(self.value.abs() + err, unit, range(unit).0);
        }
        if dtype.unit_roundoff() > unit {
            err += rounding(self.value.abs() + err, dtype.unit_roundoff(), smallest);
        }
        // If no rounding was added here, the value was already checked for overflow where it was computed.
        let finite = err == self.err || is_rounded_to_finite(most, dtype.unit_roundoff(), largest);
        let err = if finite { err } else { f64::INFINITY };
        Bounded { value: self.value, err, unit, terms: 0.0 }
    }

    fn monotone(self, f: fn(f64) -> f64, ulps: f64, absolute: f64) -> Bounded {
        let value = f(self.value);
        let (low, high) = self.ends();
        let propagated = match self.err == 0.0 {
            true => 0.0,
            // The whole interval is outside of the domain, so that every kernel returns NaN.
            false if value.is_nan() && f(low).is_nan() && f(high).is_nan() => 0.0,
            // If the interval contains a pole or the edge of the domain, the difference is infinite or NaN.
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
        Bounded { value, err: if certain { 0.0 } else { f64::INFINITY }, unit: self.unit, terms: 0.0 }
    }

    fn pow(self, exponent: Bounded) -> Bounded {
        let (a, b, unit) = Bounded::meet(self, exponent);
        let value = a.value.powf(b.value);
        let exact = a.err == 0.0 && b.err == 0.0;
        let integral = b.err == 0.0 && b.value.fract() == 0.0;
        // aᵇ = e^(b ln a), so the relative error grows with |b ln a|.
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
        let lost = vanished(value, a.value != 0.0 && a.value.is_finite() && b.value.is_finite());
        Bounded::computed(value, propagated + lost, unit, roundings)
    }

    fn modulo(self, divisor: Bounded) -> Bounded {
        let (a, b, unit) = Bounded::meet(self, divisor);
        let value = a.value.modulo(b.value);
        if a.err == 0.0 && b.err == 0.0 && (value == 0.0 || !value.is_finite()) {
            return Bounded { value, err: 0.0, unit, terms: 0.0 };
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
        Bounded { value, err, unit, terms: 0.0 }
    }

    fn either(self, other: Bounded) -> Bounded {
        let (a, b, unit) = Bounded::meet(self, other);
        let same = a.value == b.value || a.value.is_nan() && b.value.is_nan();
        // The difference between a number and NaN counts as infinite.
        let apart = match (a.value - b.value).abs() {
            _ if same => 0.0,
            apart if apart.is_nan() => f64::INFINITY,
            apart => apart,
        };
        Bounded { value: a.value, err: a.err.max(apart + b.err), unit, terms: 0.0 }
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

    fn product(factors: impl IntoIterator<Item = Bounded>) -> Bounded {
        product::product(factors)
    }

    fn probabilities(row: &[Bounded]) -> Vec<Bounded> {
        softmax::probabilities(row)
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
