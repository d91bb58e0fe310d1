//! Finds results that have the same bits in all kernels, so that they may be computed in advance.

use super::{Class, Op, Writes};
use crate::{
    DType,
    ops::eval::{Data, Value},
};

/// The rounding of an op's floating results in kernels. Results that are computed from integers and truth values are
/// always exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// All kernels return the correctly rounded result.
    Correct,
    /// All kernels return the correctly rounded result, but the sign of a zero may differ if an operand is −0.
    OpenZero,
    /// Kernels approximate the result, or sum in different orders.
    Approximate,
}

impl Op {
    fn rounding(self) -> Rounding {
        match self.def().class {
            Class::View(_) | Class::Project | Class::Update(_, Writes::Apart | Writes::InOrder) => Rounding::Correct,
            _ => self.def().rounding,
        }
    }

    /// Returns whether all kernels return the bits of the reference's result, rounded to the element type `result`.
    /// `zero` returns whether an operand has an element −0.
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
