//! Types that contractions accumulate in, and the extents of products.

use super::micro::{
    coded_table::CodedKernels,
    integer::{self, IntegerCall},
    integer_table::IntegerKernels,
    panel_form::CodeFormat,
    table::{Float, Micro, MicroShape},
};
use crate::simd::{Isa, arithmetic::Arithmetic, register::integer_types};

/// The extents of a product of an `m` × `k` matrix with a `k` × `n` matrix.
#[derive(Clone, Copy, Debug)]
pub struct Extents {
    /// The rows of the result.
    pub m: usize,
    /// The columns of the result.
    pub n: usize,
    /// The terms of each sum.
    pub k: usize,
}

/// A type that contractions accumulate in.
pub trait ProductElement: Arithmetic + From<bool> + Send + Sync {
    /// Returns the number of elements per vector of the micro-kernels at an instruction-set level; `None` if there are
    /// none.
    fn lanes(isa: Isa) -> Option<usize> {
        Self::micro(isa, MicroShape::Wide).map(|micro| micro.lanes)
    }

    /// Returns the micro-kernels of an instruction-set level for a shape of products; `None` if the type has none.
    fn micro(isa: Isa, shape: MicroShape) -> Option<Micro<Self>>;

    /// Returns the kernels of an instruction-set level for panels of codes in a format; `None` if the type has none.
    fn coded(_: Isa, _: CodeFormat) -> Option<CodedKernels<Self>> {
        None
    }

    /// Returns the kernels of an instruction-set level for products of integers with panels of codes in a format;
    /// `None` if the type has none.
    fn integers(_: Isa, _: CodeFormat) -> Option<IntegerKernels<Self>> {
        None
    }

    /// Computes one element of a product of integers with panels of codes. Types without such kernels return 0.
    ///
    /// # Safety
    /// The requirements of [`integer::one`] apply.
    unsafe fn integer_sum(_: &IntegerCall<Self>, _row: usize, _column: usize) -> Self {
        Self::default()
    }
}

impl ProductElement for f32 {
    fn micro(isa: Isa, shape: MicroShape) -> Option<Micro<f32>> {
        Some(<f32 as Float>::micro(isa, shape))
    }

    fn coded(isa: Isa, format: CodeFormat) -> Option<CodedKernels<f32>> {
        CodedKernels::of(isa, format)
    }

    fn integers(isa: Isa, format: CodeFormat) -> Option<IntegerKernels<f32>> {
        Some(IntegerKernels::of(isa, format))
    }

    unsafe fn integer_sum(call: &IntegerCall<f32>, row: usize, column: usize) -> f32 {
        // SAFETY: passed on from the caller.
        unsafe { integer::one(call, row, column) }
    }
}

impl ProductElement for f64 {
    fn micro(isa: Isa, shape: MicroShape) -> Option<Micro<f64>> {
        Some(<f64 as Float>::micro(isa, shape))
    }
}

macro_rules! by_loops {
    ($($t:ty),*) => {$(
        impl ProductElement for $t {
            fn micro(_: Isa, _: MicroShape) -> Option<Micro<$t>> {
                None
            }
        }
    )*};
}
integer_types!(by_loops);
