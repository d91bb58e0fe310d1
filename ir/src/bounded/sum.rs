//! Sums with a running error bound.

use super::{Bounded, lost_in_product, product_error, range};
use crate::scalar::ExactSum;

/// The sum of many terms, with a bound that covers every order of summation.
#[derive(Clone, Copy, Debug)]
pub struct BoundedSum {
    value: f64,
    err: f64,
    /// The sum of the magnitudes of the finite terms, errors included.
    magnitude: f64,
    /// The smallest magnitude of a term that is not 0.
    least: f64,
    unit: f64,
    terms: f64,
    products: bool,
    whole: bool,
}

impl Default for BoundedSum {
    fn default() -> BoundedSum {
        BoundedSum {
            value: 0.0,
            err: 0.0,
            magnitude: 0.0,
            least: f64::INFINITY,
            unit: 0.0,
            terms: 0.0,
            products: false,
            whole: true,
        }
    }
}

impl ExactSum<Bounded> for BoundedSum {
    fn add(&mut self, x: Bounded) {
        self.value += x.value;
        self.err += x.err;
        if x.value.is_finite() {
            self.magnitude += x.value.abs() + x.err;
        }
        if x.value != 0.0 {
            self.least = self.least.min((x.value.abs() - x.err).max(0.0));
        }
        self.unit = self.unit.max(x.unit);
        self.terms += 1.0;
        self.whole &= x.value.fract() == 0.0;
    }

    fn add_product(&mut self, a: Bounded, b: Bounded) {
        let err = product_error(a, b) + lost_in_product(a.value, b.value);
        let value = a.value * b.value;
        self.products = true;
        self.add(Bounded { value, err, unit: a.unit.max(b.unit), terms: 0.0 });
    }

    fn scale(&mut self, factor: Bounded) {
        // A kernel may multiply each term by the factor before it adds the term.
        let before = Bounded { value: self.value, err: self.err, unit: factor.unit, terms: 0.0 };
        self.err = product_error(before, factor) + lost_in_product(self.value, factor.value);
        self.value *= factor.value;
        // If a kernel combines parts of a row, an infinite factor gives infinities of both signs.
        if !factor.value.is_nan() {
            self.magnitude *= factor.value.abs() + factor.err;
        }
        if self.least.is_finite() {
            self.least *= (factor.value.abs() - factor.err).max(0.0);
        }
        self.unit = self.unit.max(factor.unit);
        self.terms += 1.0;
        self.products = true;
        self.whole &= factor.value.fract() == 0.0;
    }

    fn total(self) -> Bounded {
        let (smallest, largest) = range(self.unit);
        // Some order adds all terms of one sign first. Their sum may overflow although the total does not, and an
        // infinity of the other sign then gives NaN.
        if !self.value.is_nan() && self.magnitude > largest {
            return Bounded { value: self.value, err: f64::INFINITY, unit: self.unit, terms: 0.0 };
        }
        // Small integers add up without rounding.
        let exact = self.err == 0.0 && self.whole && self.magnitude * self.unit <= 1.0;
        let roundings = self.terms - f64::from(u8::from(!self.products));
        if exact || !self.value.is_finite() || roundings <= 0.0 {
            return Bounded::computed(self.value, self.err, self.unit, 1.0);
        }
        let order = roundings * (self.unit + f64::EPSILON / 2.0) * self.magnitude;
        // A product may be subnormal. The difference of two terms may be too, if the last place of one is subnormal.
        let lost = self.terms + if self.products { self.terms } else { 0.0 };
        let flushed = if self.least * self.unit < smallest { smallest * lost } else { 0.0 };
        Bounded {
            value: self.value,
            err: self.err + order * (1.0 + roundings * self.unit) + flushed,
            unit: self.unit,
            terms: 0.0,
        }
        .checked()
    }
}
