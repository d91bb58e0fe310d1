//! Packed panels of right operands whose elements keep a type narrower than the accumulator: 16-bit floats, and 8-bit
//! integers. They take half or a quarter of the memory of `f32` panels, and of the time if memory bandwidth limits the
//! product.

use eutectic_ir::DType;

use super::micro::{
    dots::DotKernel,
    pack::PackKernel,
    table::{KeptKernels, Micro, MicroKernel, MicroShape, Streams},
};
use crate::{
    gemm::micro::table::Float,
    simd::{
        Isa, PointFn,
        convert::{cast, narrow, widen},
        pointwise::PointCall,
        prefetch::Prefetch,
    },
};

/// Returns whether products that accumulate in `acc` have kernels for packed panels whose elements have the type
/// `memory`.
pub fn keeps(acc: DType, memory: DType) -> bool {
    acc == DType::F32 && f32::micro(Isa::Portable, MicroShape::Wide).kept.iter().any(|kept| kept.dtype == memory)
}

/// The kernels that read and write panels of a narrower element type.
pub struct KeptPanels<T: 'static> {
    kernels: &'static KeptKernels<T>,
    /// The number of rows below the range of the packing kernels: the first of these computes `fewer + 1` rows.
    fewer: usize,
    widen: PointFn,
    narrow: PointFn,
}

impl<T> KeptPanels<T> {
    /// Returns the kernels for panels whose elements have the type `dtype`; `None` if there are none.
    pub fn new(micro: &Micro<T>, dtype: DType, isa: Isa) -> Option<KeptPanels<T>> {
        let kernels = micro.kept.iter().find(|kept| kept.dtype == dtype)?;
        let fewer = micro.rows() - kernels.packing.len();
        // The register type of an integer is an integer, but products with its panels accumulate in `f32`.
        let held = if dtype.is_float() { dtype.register() } else { DType::F32 };
        let widen = widen(dtype, isa).unwrap_or_else(|| cast(dtype, held, isa));
        let narrow = narrow(dtype, isa).unwrap_or_else(|| cast(held, dtype, isa));
        Some(KeptPanels { kernels, fewer, widen, narrow })
    }

    /// Returns the type of the elements.
    pub fn dtype(&self) -> DType {
        self.kernels.dtype
    }

    /// Returns the kernels for few rows, in the form of [`Micro::streams`].
    pub fn streams(&self) -> Streams<T> {
        self.kernels.streams
    }

    /// Returns the kernels for dot products, in the form of [`Micro::dots`].
    pub fn dots(&self) -> &'static [DotKernel<T>] {
        self.kernels.dots
    }

    /// Returns the kernel that packs elements of the narrower type, like [`Micro::pack`] for elements of type `T`.
    pub fn pack(&self) -> PackKernel<T> {
        self.kernels.pack
    }

    /// Returns the kernels for `rows` rows that also pack the panel as `T` for later rows: one for a strided left
    /// operand, and one for a left operand with contiguous terms. Returns `None` if there are none, so that panels must
    /// be widened before the product.
    pub fn packing(&self, rows: usize) -> Option<&'static [MicroKernel<T>; 2]> {
        self.kernels.packing.get(rows.checked_sub(self.fewer + 1)?)
    }

    /// Widens `n` elements.
    ///
    /// # Safety
    /// Both ranges must have `n` elements, and must not overlap.
    pub unsafe fn widen(&self, from: *const u8, to: *mut T, n: usize) {
        // SAFETY: passed on from the caller.
        unsafe { convert(&self.widen, from, to.cast(), n) }
    }

    /// Narrows `n` elements that the narrower type represents exactly.
    ///
    /// # Safety
    /// The requirements of [`KeptPanels::widen`] apply.
    pub unsafe fn narrow(&self, from: *const T, to: *mut u8, n: usize) {
        // SAFETY: passed on from the caller.
        unsafe { convert(&self.narrow, from.cast(), to, n) }
    }
}

/// Applies a conversion function to `n` elements.
///
/// # Safety
/// Both ranges must have `n` elements of the function's types, and may not overlap.
unsafe fn convert(function: &PointFn, from: *const u8, out: *mut u8, n: usize) {
    let call = PointCall { out, args: [from; 3], scalar: 0, n, k: [0.0; 2], prefetch: &Prefetch::default() };
    // SAFETY: passed on from the caller.
    unsafe { (function.run)(&call) }
}

#[cfg(test)]
mod tests {
    use eutectic_backend::{AnchorKernel, Body, Instr, Kernel, Load, Store};
    use eutectic_ir::{Attr, Op, index::Index};

    use super::*;
    use crate::{
        kernels::{Way, compile},
        machine::Machine,
    };

    const TYPES: [(DType, usize); 5] =
        [(DType::F32, 4), (DType::F16, 2), (DType::Bf16, 2), (DType::I8, 1), (DType::U8, 1)];

    fn levels() -> impl Iterator<Item = Isa> {
        [Isa::Portable, Isa::Avx2, Isa::Avx512].into_iter().filter(|&isa| isa <= Isa::detect())
    }

    /// Returns the bytes of the packed right operand of a product `[rows k]` · `[k n]`. If `along_sums`, the operand is
    /// contiguous along the terms, otherwise along the columns.
    fn packed([rows, n, k]: [usize; 3], along_sums: bool, storage: DType, isa: Isa) -> usize {
        let at =
            |steps: [usize; 2]| Index::coord(0).times(steps[0] as i64).plus(&Index::coord(1).times(steps[1] as i64));
        let load = |slot, dtype: DType, domain: [usize; 2], steps: [usize; 2]| {
            let mut instrs = vec![Instr::Load(Load { slot, at: at(steps), guards: Vec::new(), dtype })];
            if dtype != DType::F32 {
                let (op, attrs) = (Op::named("cast").unwrap(), [Attr::DType(DType::F32)].into_iter().collect());
                instrs.push(Instr::Map { op, attrs, args: vec![0], dtype: DType::F32 });
            }
            let results = vec![instrs.len() - 1];
            Body { domain: domain.to_vec(), instrs, results, ..Body::default() }
        };
        let body = Body { domain: vec![rows, n], instrs: vec![Instr::Anchor { dtype: DType::F32 }], ..Body::default() };
        let rhs = load(1, storage, [k, n], if along_sums { [1, k] } else { [n, 1] });
        let kernel = Kernel {
            anchor: AnchorKernel::product(load(0, DType::F32, [rows, k], [k, 1]), rhs),
            body,
            stores: vec![Store::new(2, at([n, 1]), 0)],
            slots: vec![(DType::F32, rows * k), (storage, k * n), (DType::F32, rows * n)],
        };
        let thunk =
            compile(&kernel, Way::Plain, Machine { isa, ..Machine::default() }).unwrap_or_else(|e| panic!("{e:?}"));
        thunk.constant().expect("the right operand is packed").bytes
    }

    #[test]
    fn constants_take_as_much_memory_as_they_did() {
        for isa in levels() {
            for (storage, size) in TYPES {
                for (rows, along_sums) in [(1, false), (1, true), (4, true), (8, false), (32, false), (32, true)] {
                    let bytes = packed([rows, 64, 512], along_sums, storage, isa);
                    assert_eq!(bytes, 64 * 512 * size, "{rows} rows, {storage} {isa:?}, along sums: {along_sums}");
                }
            }
        }
    }

    #[test]
    fn narrowed_elements_are_what_they_were() {
        for isa in levels() {
            let micro = f32::micro(isa, MicroShape::Narrow);
            for (dtype, _) in TYPES.into_iter().filter(|(_, size)| *size < 4) {
                let panels =
                    KeptPanels::new(&micro, dtype, isa).expect("panels can have elements of each narrower type");
                // Integers that each of these types represents, in an order other than that of their bit patterns.
                let least = if dtype == DType::I8 { -128.0 } else { 0.0 };
                let numbers: Vec<f32> = (0..256).map(|i| (i * 7 % 256) as f32 + least).collect();
                for n in [0, 1, 15, 64, 255, 256] {
                    // Elements of four bytes have room for narrower ones, and at least their alignment.
                    let (mut short, mut wide) = (vec![0_u32; n], vec![-1.0_f32; n]);
                    // SAFETY: the ranges have `n` elements, and the machine has the level.
                    unsafe {
                        panels.narrow(numbers.as_ptr(), short.as_mut_ptr().cast(), n);
                        panels.widen(short.as_ptr().cast(), wide.as_mut_ptr(), n);
                    }
                    assert_eq!(wide, numbers[..n], "{dtype} {isa:?}");
                }
            }
        }
    }
}
