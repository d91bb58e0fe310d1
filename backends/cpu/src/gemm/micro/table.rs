//! Micro-kernels for each element type and instruction-set level.

use eutectic_ir::DType;
use half::{bf16, f16};

use super::{
    block::{CACHED, PACKS, STREAMS},
    call::MicroCall,
    coded::{CodedCall, CodedPart},
    dots::{DotKernel, Dots},
    pack::{Lines, PackKernel, Panel},
    sweep::Strips,
};
use crate::simd::{
    Isa,
    codes::{CodeVector, Codes},
    stored::Stored,
    vector::{Lanes, Vector},
};

/// A function that computes a register block of a product.
///
/// # Safety
/// The requirements of [`block`](super::block::block) apply: the operands and the result of the call are valid for its
/// rows, columns and terms, and the machine has the level's instructions.
pub type MicroKernel<T> = unsafe fn(&MicroCall<T>);

/// The kernels for few rows and a packed right operand, indexed by the number of rows less one. Each has its number of
/// vectors, and those with the most are first. The last two kernels take one panel, and one vector.
pub type Streams<T> = &'static [&'static [(usize, MicroKernel<T>)]];

/// The kernels for one number of rows.
#[derive(Clone, Copy)]
pub struct Kernels<T: 'static> {
    /// The kernels that do not pack, indexed by the number of vectors less one, up to the width of a panel.
    pub widths: &'static [MicroKernel<T>],
    /// The kernel that takes one panel, and also writes it in packed form.
    pub packing: MicroKernel<T>,
}

/// Kernels for panels whose elements have a narrower type than the accumulator.
pub struct KeptKernels<T: 'static> {
    /// The element type of the panels.
    pub dtype: DType,
    /// Kernels for few rows. Their panels take fewer bytes, so that more of them are read at once.
    pub streams: Streams<T>,
    /// Kernels for more rows that take one panel, widen it, and also write it in packed form. The last entry is for the
    /// maximal number of rows. An entry has a kernel for a strided left operand, and one for a left operand with
    /// contiguous terms.
    pub packing: &'static [[MicroKernel<T>; 2]],
    /// The kernels like [`Micro::dots`], for a matrix of the narrower type.
    pub dots: &'static [DotKernel<T>],
    /// The kernel like [`Micro::pack`], for elements of the narrower type.
    pub pack: PackKernel<T>,
}

/// The kernels of an element type at an instruction-set level.
pub struct Micro<T: 'static> {
    /// Elements of a vector.
    pub lanes: usize,
    /// The number of vectors in a row of a panel.
    vectors: usize,
    /// Whether kernels read no elements beyond the columns of a call; otherwise they read complete vectors.
    pub cut: bool,
    /// Kernels indexed by the number of rows less one.
    pub kernels: &'static [Kernels<T>],
    /// Kernels like `kernels`, for left operands with contiguous terms. There may be none.
    pub dense: &'static [Kernels<T>],
    /// Kernels for few rows and a packed right operand.
    pub streams: Streams<T>,
    /// Kernels for panels whose elements have a narrower type.
    pub kept: &'static [KeptKernels<T>],
    /// Kernels for few rows, indexed by the number of rows less one. They take any number of columns of a right operand
    /// that is not packed.
    pub few: &'static [MicroKernel<T>],
    /// Functions for products of few terms. They take any number of rows and columns.
    pub strips: Strips<T>,
    /// The function that packs a block of an operand.
    pub pack: PackKernel<T>,
    /// The function that copies lines.
    pub lines: unsafe fn(&Lines<T>),
    /// Kernels for dot products of a few vectors with the lines of a matrix, indexed by the number of vectors less one.
    pub dots: &'static [DotKernel<T>],
}

impl<T> Clone for Micro<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Micro<T> {}

impl<T> Micro<T> {
    /// Returns the number of columns of a packed panel.
    pub fn panel(&self) -> usize {
        self.vectors * self.lanes
    }

    /// Returns the number of elements of a packed column of the left operand: the rows of the highest kernel, rounded
    /// up to complete vectors.
    pub fn column(&self) -> usize {
        self.rows().next_multiple_of(self.lanes)
    }

    /// Returns the number of rows of the highest kernel (MR).
    pub fn rows(&self) -> usize {
        self.kernels.len()
    }
}

/// Defines the kernels at an instruction-set level: functions with the level's target features that inline a generic
/// body. The requirements of the body apply, and the machine must have the level's instructions.
macro_rules! level {
    ($(#[$attribute:meta])* $name:ident) => {
        pub(super) mod $name {
            use super::{CodeVector, CodedCall, CodedPart, Codes, Dots, Lines, MicroCall, Panel, Stored, Vector};

            /// Computes a register block of a product.
            ///
            /// # Safety
            /// The requirements of [`level`] apply.
            $(#[$attribute])*
            pub unsafe fn block<
                V: Vector,
                B: Stored<V>,
                const ROWS: usize,
                const VECTORS: usize,
                const PANEL: usize,
                const READS: u8,
                const DENSE: bool,
                const CUT: bool,
            >(
                call: &MicroCall<V::Element>,
            ) {
                // SAFETY: the caller keeps the contract of the body.
                unsafe { crate::gemm::micro::block::block::<V, B, ROWS, VECTORS, PANEL, READS, DENSE, CUT>(call) }
            }

            /// Computes a product of few rows.
            ///
            /// # Safety
            /// The requirements of [`level`] apply.
            $(#[$attribute])*
            pub unsafe fn few<V: Vector, const M: usize, const AT_ONCE: usize, const WIDE: usize>(
                call: &MicroCall<V::Element>,
            ) {
                // SAFETY: the caller keeps the contract of the body.
                unsafe { crate::gemm::micro::matvec::few::<V, M, AT_ONCE, WIDE>(call) }
            }

            /// Computes a strip of products of few terms.
            ///
            /// # Safety
            /// The requirements of [`level`] apply.
            $(#[$attribute])*
            pub unsafe fn strip<V: Vector, const ROWS: usize, const WIDE: usize, const PANEL: usize>(
                call: &MicroCall<V::Element>,
                row: usize,
            ) {
                // SAFETY: the caller keeps the contract of the body.
                unsafe { crate::gemm::micro::sweep::strip::<V, ROWS, WIDE, PANEL>(call, row) }
            }

            /// Packs a block of an operand.
            ///
            /// # Safety
            /// The requirements of [`level`] apply.
            $(#[$attribute])*
            pub unsafe fn pack<V: Vector, S: Stored<V>>(panel: &Panel<V::Element>) {
                // SAFETY: the caller keeps the contract of the body.
                unsafe { crate::gemm::micro::pack::pack::<V, S>(panel) }
            }

            /// Copies lines.
            ///
            /// # Safety
            /// The requirements of [`level`] apply.
            $(#[$attribute])*
            pub unsafe fn lines<V: Vector>(lines: &Lines<V::Element>) {
                // SAFETY: the caller keeps the contract of the body.
                unsafe { crate::gemm::micro::pack::lines::<V>(lines) }
            }

            /// Computes a register block of a product whose right operand is in panels of codes.
            ///
            /// # Safety
            /// The requirements of [`level`] apply.
            $(#[$attribute])*
            pub unsafe fn coded<V: CodeVector, C: Codes, const ROWS: usize, const VECTORS: usize, const OFFSET: bool>(
                call: &CodedCall<f32>,
            ) {
                // SAFETY: the caller keeps the contract of the body.
                unsafe { crate::gemm::micro::coded::coded::<V, C, ROWS, VECTORS, OFFSET>(call) }
            }

            /// Decodes a range of terms of a panel of codes.
            ///
            /// # Safety
            /// The requirements of [`level`] apply.
            $(#[$attribute])*
            pub unsafe fn decode<V: CodeVector, C: Codes, const OFFSET: bool>(part: &CodedPart<f32>) {
                // SAFETY: the caller keeps the contract of the body.
                unsafe { crate::gemm::micro::coded::decode::<V, C, OFFSET>(part) }
            }

            /// Computes dot products.
            ///
            /// # Safety
            /// The requirements of [`level`] apply.
            $(#[$attribute])*
            pub unsafe fn dots<V: Vector, S: Stored<V>, const ROWS: usize>(dots: &Dots<V::Element>) {
                // SAFETY: the caller keeps the contract of the body.
                unsafe { crate::gemm::micro::dots::dots::<V, S, ROWS>(dots) }
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
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma,f16c")]
    avx512
);

macro_rules! micro {
    (rows $level:ident, $v:ty, $t:ty, $rows:literal, $panel:literal, ($($widths:literal)*), $dense:literal, $cut:literal) => {
        Kernels {
            widths: const { &[$($level::block::<$v, $t, $rows, $widths, $panel, CACHED, $dense, $cut> as MicroKernel<$t>),*] },
            packing: $level::block::<$v, $t, $rows, $panel, $panel, PACKS, $dense, $cut> as MicroKernel<$t>,
        }
    };
    (packing $level:ident, $v:ty, $t:ty, $b:ty, $panel:literal, ($($rows:literal)*)) => {
        const {
            &[$([
                $level::block::<$v, $b, $rows, $panel, $panel, PACKS, false, false> as MicroKernel<$t>,
                $level::block::<$v, $b, $rows, $panel, $panel, PACKS, true, false> as MicroKernel<$t>,
            ]),*]
        }
    };
    (streams $level:ident, $v:ty, $t:ty, $b:ty, $panel:literal, $cut:literal, ($($few:literal: $($vectors:literal)*);*)) => {
        const {
            &[$(
                &[$(($vectors, $level::block::<$v, $b, $few, $vectors, $panel, STREAMS, false, $cut> as MicroKernel<$t>)),*]
            ),*]
        }
    };
    (dots $level:ident, $v:ty, $t:ty, $b:ty, ($($dots:literal)*)) => {
        const { &[$($level::dots::<$v, $b, $dots> as DotKernel<$t>),*] }
    };
    ($level:ident, $v:ty, $t:ty, ($($dtype:ident $b:ty),*), rows $($rows:literal)* cut $cut:literal, dense $($dense:literal)*, panel $panel:literal $widths:tt, streams $streams:tt short $short:tt, more $more:tt, few ($($m:literal: $at_once:literal by $vectors:literal);*), sweep $($high:literal)* by $wide:literal, dots $dots:tt short $short_dots:tt) => {
        Micro {
            lanes: <$v as Vector>::LANES,
            vectors: $panel,
            cut: $cut,
            kernels: const { &[$(micro!(rows $level, $v, $t, $rows, $panel, $widths, false, $cut)),*] },
            dense: const { &[$(micro!(rows $level, $v, $t, $dense, $panel, $widths, true, $cut)),*] },
            streams: micro!(streams $level, $v, $t, $t, $panel, $cut, $streams),
            kept: const {
                &[$(KeptKernels {
                    dtype: DType::$dtype,
                    streams: micro!(streams $level, $v, $t, $b, $panel, false, $short),
                    packing: micro!(packing $level, $v, $t, $b, $panel, $more),
                    dots: micro!(dots $level, $v, $t, $b, $short_dots),
                    pack: $level::pack::<$v, $b>,
                }),*]
            },
            few: const { &[$($level::few::<$v, $m, $at_once, $vectors> as MicroKernel<$t>),*] },
            strips: const { &[$($level::strip::<$v, $high, $wide, $panel> as unsafe fn(&MicroCall<$t>, usize)),*] },
            pack: $level::pack::<$v, $t>,
            lines: $level::lines::<$v>,
            dots: micro!(dots $level, $v, $t, $t, $dots),
        }
    };
}

/// An element type with micro-kernels.
///
/// A block's sums fill the registers, except for a row of the right operand and an element of the left one. Wider
/// blocks load fewer registers per multiply-add. With AVX-512, 6 rows of 4 vectors take 10 loads for 24 multiply-adds,
/// and 14 rows of 2 vectors take 16 loads for 28. The higher block takes a fourth longer if another thread runs on the
/// same core. Narrow products cannot fill 4 vectors. Kernels for very few rows read each panel once, in several strided
/// streams.
pub trait Float: Copy + 'static {
    /// Returns the kernels of an instruction-set level, which the machine must have, for a shape of products.
    fn micro(isa: Isa, shape: MicroShape) -> Micro<Self>;
}

/// The shape of a product, by which its micro-kernels are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MicroShape {
    /// Products of few rows or few columns.
    Narrow,
    /// Products of more rows and more columns.
    Wide,
}

/// A product is narrow if it has at most this many rows, or at most [`FEW_VECTORS`] vectors of columns.
const FEW_ROWS: usize = 14;
const FEW_VECTORS: usize = 2;

impl MicroShape {
    /// Returns the shape for a product of `m` by `n` elements, with `lanes` elements per vector.
    pub fn of(m: usize, n: usize, lanes: usize) -> MicroShape {
        if m <= FEW_ROWS || n <= FEW_VECTORS * lanes { MicroShape::Narrow } else { MicroShape::Wide }
    }
}

macro_rules! float {
    ($t:ty, $wide:ident, $middle:ident, $lanes:literal, $kept:tt) => {
        impl Float for $t {
            fn micro(isa: Isa, shape: MicroShape) -> Micro<$t> {
                #[cfg(target_arch = "x86_64")]
                use std::arch::x86_64::{$middle, $wide};
                match isa {
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx512 if shape == MicroShape::Wide => {
                        micro!(avx512, $wide, $t, $kept, rows 1 2 3 4 5 6 cut false, dense 1 2 3 4 5 6, panel 4 (1 2 3 4), streams () short (), more (4 5 6), few (1: 8 by 4; 2: 8 by 2; 3: 8 by 2; 4: 6 by 1; 5: 5 by 1; 6: 4 by 1; 7: 3 by 1; 8: 3 by 1), sweep 1 2 3 4 5 6 by 4, dots (1 2 3 4) short ())
                    }
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx512 => {
                        micro!(avx512, $wide, $t, $kept, rows 1 2 3 4 5 6 7 8 9 10 11 12 13 14 cut true, dense, panel 2 (1 2), streams (1: 8 4 2 1; 2: 8 4 2 1; 3: 8 4 2 1; 4: 6 4 2 1; 5: 4 2 1; 6: 4 2 1) short (1: 16 8 4 2 1; 2: 8 4 2 1; 3: 8 4 2 1; 4: 6 4 2 1; 5: 4 2 1; 6: 4 2 1), more (7 8 9 10 11 12 13 14), few (1: 8 by 4; 2: 8 by 2; 3: 8 by 2; 4: 6 by 1; 5: 5 by 1; 6: 4 by 1; 7: 3 by 1; 8: 3 by 1), sweep 1 2 3 4 5 6 by 4, dots (1 2 3 4) short (1 2 3 4))
                    }
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx2 => {
                        micro!(avx2, $middle, $t, $kept, rows 1 2 3 4 5 6 cut false, dense 1 2 3 4 5 6, panel 2 (1 2), streams (1: 8 4 2 1; 2: 6 4 2 1) short (1: 8 4 2 1; 2: 6 4 2 1), more (3 4 5 6), few (1: 8 by 2; 2: 4 by 1; 3: 4 by 1; 4: 2 by 1), sweep 1 2 3 4 by 2, dots (1 2 3 4) short (1 2 3 4))
                    }
                    _ => {
                        micro!(portable, Lanes<$t, $lanes>, $t, $kept, rows 1 2 3 4 cut false, dense 1 2 3 4, panel 2 (1 2), streams () short (), more (), few (1: 8 by 2; 2: 4 by 1; 3: 4 by 1; 4: 2 by 1), sweep 1 2 3 4 by 2, dots (1 2) short ())
                    }
                }
            }
        }
    };
}
float!(f32, __m512, __m256, 4, (F16 f16, Bf16 bf16, I8 i8, U8 u8));
float!(f64, __m512d, __m256d, 2, ());
