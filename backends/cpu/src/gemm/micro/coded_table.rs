//! The micro-kernels for coded panels, by kind of codes and instruction-set level.

#[cfg(target_arch = "x86_64")]
use super::table::{avx2, avx512};
use super::{
    coded::{Added, Centred, CodedCall, CodedPart, Fused, Scaled},
    panel_form::{CodeKind, Decoding, PANEL},
    table::portable,
};
use crate::simd::{
    Isa,
    codes::{Nibbles, Planes, Signed, Unsigned},
    vector::{Lanes, Vector},
};

/// Computes a block whose right operand is in coded panels.
///
/// # Safety
/// That of [`coded`](super::coded::coded).
pub type CodedKernel<T> = unsafe fn(&CodedCall<T>);

/// Decodes a part of a panel.
///
/// # Safety
/// That of [`decode`](super::coded::decode).
pub type DecodeKernel<T> = unsafe fn(&CodedPart<T>);

/// The kernels for one kind of panels.
pub struct CodedKernels<T: 'static> {
    /// Columns of a panel.
    pub width: usize,
    /// At index `rows - 1`, the kernels for that number of rows, each with the number of panels that it takes. The last one takes one panel.
    pub rows: &'static [&'static [(usize, CodedKernel<T>)]],
    /// Decodes panels for products of more rows.
    pub decode: DecodeKernel<T>,
}

macro_rules! kernels {
    (of $level:ident, $v:ty, $c:ty, $d:ty, ($($rows:literal: $($panels:literal)*);*)) => {
        CodedKernels {
            width: PANEL * <$v as Vector>::LANES,
            rows: const {
                &[$(
                    &[$(($panels, $level::coded::<$v, $c, $d, $rows, { $panels * PANEL }> as CodedKernel<f32>)),*]
                ),*]
            },
            decode: $level::decode::<$v, $c, $d>,
        }
    };
    ($level:ident, $v:ty, $codes:expr, $decoding:expr, $rows:tt, others $others:tt) => {
        match ($codes, $decoding) {
            (CodeKind::Nibbles, Decoding::Scaled) => kernels!(some $level, $v, Nibbles, Scaled, $rows),
            (CodeKind::Nibbles, Decoding::Fused) => kernels!(some $level, $v, Nibbles, Fused, $rows),
            (CodeKind::Nibbles, Decoding::Added) => kernels!(some $level, $v, Nibbles, Added, $others),
            (CodeKind::Nibbles, Decoding::Centred) => kernels!(some $level, $v, Nibbles, Centred, $rows),
            (CodeKind::Signed, Decoding::Scaled) => kernels!(some $level, $v, Signed, Scaled, $rows),
            (CodeKind::Signed, Decoding::Added) => kernels!(some $level, $v, Signed, Added, $others),
            (CodeKind::Signed, Decoding::Centred) => kernels!(some $level, $v, Signed, Centred, $others),
            (CodeKind::Unsigned, Decoding::Scaled) => kernels!(some $level, $v, Unsigned, Scaled, $others),
            (CodeKind::Unsigned, Decoding::Added) => kernels!(some $level, $v, Unsigned, Added, $others),
            (CodeKind::Unsigned, Decoding::Centred) => kernels!(some $level, $v, Unsigned, Centred, $others),
            (CodeKind::Bits2, Decoding::Fused) => kernels!(some $level, $v, Planes<2, 0>, Fused, $others),
            (CodeKind::Bits2, Decoding::Centred) => kernels!(some $level, $v, Planes<2, 0>, Centred, $others),
            (CodeKind::Bits3, Decoding::Fused) => kernels!(some $level, $v, Planes<2, 1>, Fused, $others),
            (CodeKind::Bits5, Decoding::Fused) => kernels!(some $level, $v, Planes<4, 1>, Fused, $others),
            (CodeKind::Bits6, Decoding::Fused) => kernels!(some $level, $v, Planes<4, 2>, Fused, $others),
            _ => None,
        }
    };
    (some $level:ident, $v:ty, $c:ty, $d:ty, $rows:tt) => {
        Some(kernels!(of $level, $v, $c, $d, $rows))
    };
}

impl CodedKernels<f32> {
    /// Returns the kernels of a level, which the machine must have, for a kind of codes and what becomes of these, if there are any.
    pub fn of(isa: Isa, codes: CodeKind, decoding: Decoding) -> Option<CodedKernels<f32>> {
        #[cfg(target_arch = "x86_64")]
        use std::arch::x86_64::{__m256, __m512};
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => {
                kernels!(avx512, __m512, codes, decoding, (1: 2 1; 2: 2 1; 3: 1; 4: 1; 5: 1; 6: 1), others (1: 2 1; 2: 1; 3: 1))
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => kernels!(avx2, __m256, codes, decoding, (1: 2 1; 2: 1; 3: 1; 4: 1), others (1: 2 1; 2: 1)),
            _ => kernels!(portable, Lanes<f32, 4>, codes, decoding, (1: 1; 2: 1), others (1: 1)),
        }
    }
}
