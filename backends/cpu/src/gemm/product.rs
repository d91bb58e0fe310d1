//! Types that contractions accumulate in, and the extents of products.

use super::micro::{
    coded_table::CodedKernels,
    panel_form::CodeKind,
    table::{Float, Micro, MicroShape},
};
use crate::simd::{Isa, arithmetic::Arithmetic, register::integer_types};

/// Rows and columns of the target, and the length of the sums.
#[derive(Clone, Copy, Debug)]
pub struct Extents {
    /// Rows.
    pub m: usize,
    /// Columns.
    pub n: usize,
    /// Summed over.
    pub k: usize,
}

/// A type that contractions accumulate in.
pub trait ProductElement: Arithmetic + From<bool> + Send + Sync {
    /// Elements of a vector of micro-kernels; `None` where there are none.
    fn lanes(isa: Isa) -> Option<usize> {
        Self::micro(isa, MicroShape::Wide).map(|micro| micro.lanes)
    }

    /// The micro-kernels of a level.
    fn micro(isa: Isa, shape: MicroShape) -> Option<Micro<Self>>;

    /// Returns the kernels of a level for panels of a kind of codes, with offsets or without; `None` if the type has none.
    fn coded(_: Isa, _: CodeKind, _offset: bool) -> Option<CodedKernels<Self>> {
        None
    }
}

impl ProductElement for f32 {
    fn micro(isa: Isa, shape: MicroShape) -> Option<Micro<f32>> {
        Some(<f32 as Float>::micro(isa, shape))
    }

    fn coded(isa: Isa, codes: CodeKind, offset: bool) -> Option<CodedKernels<f32>> {
        Some(CodedKernels::of(isa, codes, offset))
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
