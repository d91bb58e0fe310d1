//! The micro-kernels for panels of codes, by kind of codes and instruction-set level.

#[cfg(target_arch = "x86_64")]
use super::table::{avx2, avx512};
use super::{
    coded::{CodedCall, CodedPart},
    panel_form::{CodeFormat, CodeKind, CodeOrder, PANEL},
    table::portable,
};
use crate::simd::{
    Isa,
    codes::{NibbleWords, Nibbles, Signed, Unsigned},
    vector::{Lanes, Vector},
};

/// A function that computes a register block of a product whose right operand is in panels of codes.
///
/// # Safety
/// The requirements of [`coded`](super::coded::coded) apply.
pub type CodedKernel<T> = unsafe fn(&CodedCall<T>);

/// A function that decodes a range of terms of a panel.
///
/// # Safety
/// The requirements of [`decode`](super::coded::decode) apply.
pub type DecodeKernel<T> = unsafe fn(&CodedPart<T>);

/// The kernels for panels of one format.
pub struct CodedKernels<T: 'static> {
    /// Columns of a panel.
    pub width: usize,
    /// At index `rows - 1`, the kernels for `rows` rows, each with the number of panels that it takes. The last kernel
    /// takes one panel.
    pub rows: &'static [&'static [(usize, CodedKernel<T>)]],
    /// The kernel that decodes panels to memory, for products of more rows.
    pub decode: DecodeKernel<T>,
}

macro_rules! kernels {
    (of $level:ident, $v:ty, $c:ty, $offset:literal, ($($rows:literal: $($panels:literal)*);*)) => {
        CodedKernels {
            width: PANEL * <$v as Vector>::LANES,
            rows: const {
                &[$(
                    &[$(($panels, $level::coded::<$v, $c, $rows, { $panels * PANEL }, $offset> as CodedKernel<f32>)),*]
                ),*]
            },
            decode: $level::decode::<$v, $c, $offset>,
        }
    };
    ($level:ident, $v:ty, $format:expr, $rows:tt) => {
        match ($format.codes, $format.order, $format.offset) {
            (CodeKind::Nibbles, CodeOrder::Pairs, false) => kernels!(of $level, $v, Nibbles, false, $rows),
            (CodeKind::Nibbles, CodeOrder::Pairs, true) => kernels!(of $level, $v, Nibbles, true, $rows),
            (CodeKind::Nibbles, CodeOrder::Words, false) => kernels!(of $level, $v, NibbleWords, false, $rows),
            (CodeKind::Nibbles, CodeOrder::Words, true) => kernels!(of $level, $v, NibbleWords, true, $rows),
            (CodeKind::Signed, _, false) => kernels!(of $level, $v, Signed, false, $rows),
            (CodeKind::Signed, _, true) => kernels!(of $level, $v, Signed, true, $rows),
            (CodeKind::Unsigned, _, false) => kernels!(of $level, $v, Unsigned, false, $rows),
            (CodeKind::Unsigned, _, true) => kernels!(of $level, $v, Unsigned, true, $rows),
        }
    };
}

impl CodedKernels<f32> {
    /// Returns the kernels of an instruction-set level, which the machine must have, for weights of a format. Returns
    /// `None` for 8-bit codes in the order `CodeOrder::Words`, which only products with integers read.
    pub fn of(isa: Isa, format: CodeFormat) -> Option<CodedKernels<f32>> {
        #[cfg(target_arch = "x86_64")]
        use std::arch::x86_64::{__m256, __m512};
        if format.order == CodeOrder::Words && !format.nibbles() {
            return None;
        }
        Some(match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => kernels!(avx512, __m512, format, (1: 2 1; 2: 2 1; 3: 1; 4: 1; 5: 1; 6: 1)),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => kernels!(avx2, __m256, format, (1: 2 1; 2: 1; 3: 1; 4: 1)),
            _ => kernels!(portable, Lanes<f32, 4>, format, (1: 1; 2: 1)),
        })
    }
}
