//! The types of scalars in reference evaluation: `f64`, or another type for real numbers.

use std::{
    cmp::Ordering,
    fmt,
    ops::{Add, Div, Mul, Neg, Sub},
};

use crate::{
    DType, functions,
    ops::eval::{ElementFn, Elements, TensorFn, Tensors},
};

/// A type of scalars for floating-point elements.
///
/// Results are those of real arithmetic, without intermediate rounding to the element type. [`Scalar::store`] marks
/// where a kernel would round, for types with error bounds.
pub trait Scalar:
    Copy
    + fmt::Debug
    + PartialEq
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + 'static
{
    /// The type that sums many terms.
    type Sum: ExactSum<Self>;

    /// Returns a constant of a formula. It is exact, and operations round it to the type of their other operand.
    fn exact(x: f64) -> Self;
    /// Returns an element that is read from a tensor of type `dtype`.
    fn element(x: f64, dtype: DType) -> Self;
    /// Returns the number without its error bound.
    fn value(self) -> f64;
    /// Returns the scalar rounded as if it were stored in a tensor of type `dtype`.
    fn store(self, dtype: DType) -> Self;

    /// Applies a function that is monotone over short intervals. A kernel's result is accurate to `ulps` units in the
    /// last place, plus `absolute` unit roundoffs.
    fn monotone(self, f: fn(f64) -> f64, ulps: f64, absolute: f64) -> Self;
    /// Applies a function whose slope is at most 1 everywhere. `ulps` and `absolute` are as for [`Scalar::monotone`].
    fn gentle(self, f: fn(f64) -> f64, ulps: f64, absolute: f64) -> Self;
    /// Applies a function that is constant except for jumps. The result cannot be judged if the argument may be on
    /// either side of a jump.
    fn step(self, f: impl Fn(f64) -> f64) -> Self;
    /// Returns the power of the number.
    fn pow(self, exponent: Self) -> Self;
    /// Returns a − b·⌊a/b⌋, which has the sign of b.
    fn modulo(self, divisor: Self) -> Self;
    /// Returns the larger number; NaN if one is NaN. Of zeros with different signs, it may return either.
    fn larger(self, other: Self) -> Self;
    /// Returns a number that may be either of the two, because rounding decides between them.
    fn either(self, other: Self) -> Self;
    /// Returns whether a comparison holds, or `None` if rounding decides. `holds` is its result for each order of the
    /// numbers, where `None` means that one is NaN.
    fn judge(self, other: Self, holds: fn(Option<Ordering>) -> bool) -> Option<bool>;
    /// Returns the number if rounding cannot change it.
    fn certain(self) -> Option<f64>;

    /// Returns the function that evaluates one element with this type.
    fn elements(of: &Elements) -> ElementFn<Self>;
    /// Returns the function that evaluates whole tensors with this type.
    fn tensors(of: &Tensors) -> TensorFn<Self>;

    /// Returns eˣ.
    fn exp(self) -> Self {
        self.monotone(f64::exp, 4.0, 0.0)
    }

    /// Returns the natural logarithm.
    fn ln(self) -> Self {
        self.monotone(f64::ln, 4.0, 0.0)
    }

    /// Returns √x.
    fn sqrt(self) -> Self {
        self.monotone(f64::sqrt, 2.0, 0.0)
    }

    /// Returns 1/√x.
    fn rsqrt(self) -> Self {
        self.monotone(|x| 1.0 / x.sqrt(), 3.0, 0.0)
    }

    /// Returns the sine.
    fn sin(self) -> Self {
        self.gentle(f64::sin, 4.0, 2.0)
    }

    /// Returns the cosine.
    fn cos(self) -> Self {
        self.gentle(f64::cos, 4.0, 2.0)
    }

    /// Returns the arc tangent.
    fn atan(self) -> Self {
        self.gentle(f64::atan, 4.0, 0.0)
    }

    /// Returns the hyperbolic tangent.
    fn tanh(self) -> Self {
        self.monotone(f64::tanh, 4.0, 0.0)
    }

    /// Returns the error function.
    fn erf(self) -> Self {
        self.monotone(functions::erf, 4.0, 0.0)
    }

    /// Returns 1/(1 + e⁻ˣ).
    fn sigmoid(self) -> Self {
        self.monotone(functions::sigmoid, 4.0, 0.0)
    }

    /// Returns the number with the error of a kernel that uses another formula, whose result may differ by `ulps`
    /// units in the last place.
    fn plus_ulps(self, ulps: f64) -> Self {
        self.gentle(|x| x, ulps, 0.0)
    }

    /// Returns the smaller number; NaN if one is NaN. Of zeros with different signs, it may return either.
    fn smaller(self, other: Self) -> Self {
        -(-self).larger(-other)
    }

    /// Returns the sum of the terms.
    fn sum(terms: impl IntoIterator<Item = Self>) -> Self {
        let mut sum = Self::Sum::default();
        terms.into_iter().for_each(|x| sum.add(x));
        sum.total()
    }

    /// Returns the product of the factors.
    fn product(factors: impl IntoIterator<Item = Self>) -> Self {
        factors.into_iter().fold(Self::exact(1.0), Self::mul)
    }

    /// Returns the probabilities of a row of scores: eˣ⁻ᵐ / Σ eˣ⁻ᵐ, where m is the largest score.
    fn probabilities(row: &[Self]) -> Vec<Self> {
        crate::ops::probabilities(row)
    }
}

/// A sum of terms and products, which kernels may compute in any order.
pub trait ExactSum<S>: Copy + Default {
    /// Adds a term.
    fn add(&mut self, x: S);
    /// Adds a product.
    fn add_product(&mut self, a: S, b: S);
    /// Multiplies the sum by a factor. A kernel may instead multiply each term.
    fn scale(&mut self, factor: S);
    /// Returns the sum.
    fn total(self) -> S;
}

impl ExactSum<f64> for f64 {
    fn add(&mut self, x: f64) {
        *self += x;
    }

    fn add_product(&mut self, a: f64, b: f64) {
        *self += a * b;
    }

    fn scale(&mut self, factor: f64) {
        *self *= factor;
    }

    fn total(self) -> f64 {
        self
    }
}

impl Scalar for f64 {
    type Sum = f64;

    fn exact(x: f64) -> f64 {
        x
    }

    fn element(x: f64, _: DType) -> f64 {
        x
    }

    fn value(self) -> f64 {
        self
    }

    fn store(self, _: DType) -> f64 {
        self
    }

    fn monotone(self, f: fn(f64) -> f64, _: f64, _: f64) -> f64 {
        f(self)
    }

    fn gentle(self, f: fn(f64) -> f64, _: f64, _: f64) -> f64 {
        f(self)
    }

    fn step(self, f: impl Fn(f64) -> f64) -> f64 {
        f(self)
    }

    fn pow(self, exponent: f64) -> f64 {
        self.powf(exponent)
    }

    fn modulo(self, divisor: f64) -> f64 {
        let rest = self % divisor;
        if rest == 0.0 {
            rest.copysign(divisor)
        } else if (rest < 0.0) != (divisor < 0.0) {
            rest + divisor
        } else {
            rest
        }
    }

    fn larger(self, other: f64) -> f64 {
        if self.is_nan() || other.is_nan() {
            f64::NAN
        } else if self == other {
            // `f64::max` may return either of two zeros. The reference must return the same zero on every machine.
            if self.is_sign_negative() { other } else { self }
        } else {
            self.max(other)
        }
    }

    fn either(self, _: f64) -> f64 {
        self
    }

    fn judge(self, other: f64, holds: fn(Option<Ordering>) -> bool) -> Option<bool> {
        Some(holds(self.partial_cmp(&other)))
    }

    fn certain(self) -> Option<f64> {
        Some(self)
    }

    fn elements(of: &Elements) -> ElementFn<f64> {
        of.exact
    }

    fn tensors(of: &Tensors) -> TensorFn<f64> {
        of.exact
    }
}
