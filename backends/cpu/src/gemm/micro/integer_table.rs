//! The micro-kernels for products of integers with panels of codes, by kind of codes and instruction set.

use super::{
    integer::IntegerCall,
    panel_form::{CodeFormat, PANEL},
};
#[cfg(target_arch = "x86_64")]
use crate::simd::integers::{Vnni, Words256};
use crate::simd::{
    Isa,
    integers::{WordVector, Words},
    vector::Vector,
};

/// A function that computes a register block of a product.
///
/// # Safety
/// The requirements of [`integer`](super::integer::integer) apply.
pub type IntegerKernel<T> = unsafe fn(&IntegerCall<T>);

/// The kernels for panels of one format.
pub struct IntegerKernels<T: 'static> {
    /// Columns of a panel.
    pub width: usize,
    /// At index `rows - 1`, the kernels for `rows` rows, each with the number of panels that it takes. The last kernel
    /// takes one panel.
    pub rows: &'static [&'static [(usize, IntegerKernel<T>)]],
    /// The least integer that the kernels multiply.
    pub least: i8,
}

macro_rules! level {
    ($(#[$attribute:meta])* $name:ident) => {
        mod $name {
            use super::{IntegerCall, WordVector};

            /// Computes a register block of a product.
            ///
            /// # Safety
            /// The requirements of the body apply, and the machine must have the level's instructions.
            $(#[$attribute])*
            pub unsafe fn integer<
                W: WordVector,
                const NIBBLES: bool,
                const OFFSET: bool,
                const ROWS: usize,
                const VECTORS: usize,
            >(
                call: &IntegerCall<f32>,
            ) {
                // SAFETY: the caller keeps the contract of the body.
                unsafe { crate::gemm::micro::integer::integer::<W, NIBBLES, OFFSET, ROWS, VECTORS>(call) }
            }
        }
    };
}
level!(portable);
#[cfg(target_arch = "x86_64")]
level!(
    #[target_feature(enable = "avx2,fma,f16c")]
    avx2
);
#[cfg(target_arch = "x86_64")]
level!(
    #[target_feature(enable = "avx512vnni,avx512f,avx512vl,avx512bw,avx512dq,avx2,fma,f16c")]
    vnni
);

macro_rules! kernels {
    (of $level:ident, $w:ty, $nibbles:literal, $offset:literal, ($($rows:literal: $($panels:literal)*);*)) => {
        IntegerKernels {
            width: PANEL * <<$w as WordVector>::Floats as Vector>::LANES,
            rows: const {
                &[$(
                    &[$((
                        $panels,
                        $level::integer::<$w, $nibbles, $offset, $rows, { $panels * PANEL }> as IntegerKernel<f32>,
                    )),*]
                ),*]
            },
            least: <$w as WordVector>::LEAST,
        }
    };
    ($level:ident, $w:ty, $format:expr, $rows:tt) => {
        match ($format.nibbles(), $format.offset) {
            (false, false) => kernels!(of $level, $w, false, false, $rows),
            (false, true) => kernels!(of $level, $w, false, true, $rows),
            (true, false) => kernels!(of $level, $w, true, false, $rows),
            (true, true) => kernels!(of $level, $w, true, true, $rows),
        }
    };
}

/// Returns whether the machine has AVX-512 VNNI, whose instructions multiply bytes and add four products to a 32-bit
/// sum.
#[cfg(target_arch = "x86_64")]
fn has_vnni() -> bool {
    is_x86_feature_detected!("avx512vnni")
}

impl IntegerKernels<f32> {
    /// Returns the kernels of an instruction-set level, which the machine must have, for weights of a format.
    pub fn of(isa: Isa, format: CodeFormat) -> IntegerKernels<f32> {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 if has_vnni() => kernels!(vnni, Vnni, format, (1: 2 1; 2: 1; 3: 1; 4: 1; 5: 1; 6: 1)),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 | Isa::Avx2 => kernels!(avx2, Words256, format, (1: 2 1; 2: 1)),
            _ => kernels!(portable, Words<4>, format, (1: 1; 2: 1)),
        }
    }
}
