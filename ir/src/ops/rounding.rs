//! Finds the results that have equal bits in all kernels, so that they may be computed ahead.

use super::{Class, Op, Writes};
use crate::{
    DType,
    ops::eval::{Data, Value},
};

/// How kernels round the floats that an op gives. Integers and truth values of integers are always the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// The only result is the correctly rounded one.
    Correct,
    /// The same, except for the sign of a zero where an operand is −0.
    OpenZero,
    /// Kernels approximate it, or sum in another order.
    Approximate,
}

impl Op {
    fn rounding(self) -> Rounding {
        match self.def().class {
            Class::View(_) | Class::Project | Class::Update(_, Writes::Apart | Writes::InOrder) => Rounding::Correct,
            _ => self.def().rounding,
        }
    }

    /// Returns whether all kernels give the bits that the reference gives, rounded to the element type of the result.
    /// `zero` says whether an operand has an element −0.
    pub fn is_settled(
        self,
        operands: impl IntoIterator<Item = DType>,
        result: DType,
        zero: impl FnOnce() -> bool,
    ) -> bool {
        let whole = !result.is_float() && operands.into_iter().all(|dtype| !dtype.is_float());
        whole
            || match self.rounding() {
                Rounding::Correct => true,
                Rounding::OpenZero => !zero(),
                Rounding::Approximate => false,
            }
    }
}

impl Value<f64> {
    /// Returns the value with its elements rounded to the element type.
    pub fn rounded(mut self) -> Value<f64> {
        if let Data::Real(x) = &mut self.data {
            x.iter_mut().for_each(|x| *x = self.dtype.rounded(*x));
        }
        self
    }

    /// Returns whether an element is −0.
    pub fn has_negative_zero(&self) -> bool {
        match &self.data {
            Data::Real(x) => x.iter().any(|x| *x == 0.0 && x.is_sign_negative()),
            Data::Int(_) => false,
        }
    }
}
