//! Packed panels of right operands whose elements are 16-bit floats: half the memory, and half of the time where reading it is
//! what takes long.

use eutectic_ir::DType;

use super::micro::table::{Micro, MicroKernel, Shorts, Streams};
use crate::simd::{
    Isa, PointFn,
    convert::{narrow, widen},
    pointwise::PointCall,
    prefetch::Prefetch,
};

/// How such panels are read and written.
pub struct Short<T: 'static> {
    shorts: &'static Shorts<T>,
    /// The fewest rows less one that there are kernels for which pack.
    fewer: usize,
    widen: PointFn,
    narrow: PointFn,
}

impl<T> Short<T> {
    /// For elements of a type; `None` if it is not a 16-bit float, or not held as `T`.
    pub fn new(micro: &Micro<T>, dtype: DType, isa: Isa) -> Option<Short<T>> {
        let shorts = micro.shorts.iter().find(|shorts| shorts.dtype == dtype)?;
        let fewer = micro.rows() - shorts.packing.len();
        Some(Short { shorts, fewer, widen: widen(dtype, isa)?, narrow: narrow(dtype, isa)? })
    }

    /// As [`Micro::streams`].
    pub fn streams(&self) -> Streams<T> {
        self.shorts.streams
    }

    /// Kernels for a number of rows that there are no streams for, which pack panels as `T`s: beside a left operand with strides, and
    /// beside one whose terms lie side by side. `None` where panels are widened before.
    pub fn packing(&self, rows: usize) -> Option<&'static [MicroKernel<T>; 2]> {
        self.shorts.packing.get(rows.checked_sub(self.fewer + 1)?)
    }

    /// Widens `n` elements.
    ///
    /// # Safety
    /// Both places must have as many, and may not overlap.
    pub unsafe fn widen(&self, from: *const u8, to: *mut T, n: usize) {
        // SAFETY: passed on from the caller.
        unsafe { convert(&self.widen, from, to.cast(), n) }
    }

    /// Narrows `n` elements.
    ///
    /// # Safety
    /// As [`Short::widen`].
    pub unsafe fn narrow(&self, from: *const T, to: *mut u8, n: usize) {
        // SAFETY: passed on from the caller.
        unsafe { convert(&self.narrow, from.cast(), to, n) }
    }
}

/// # Safety
/// Both places must have `n` elements of the function's types, and may not overlap.
unsafe fn convert(function: &PointFn, from: *const u8, out: *mut u8, n: usize) {
    let call = PointCall { out, args: [from; 3], scalar: 0, n, k: [0.0; 2], prefetch: &Prefetch::default() };
    // SAFETY: passed on from the caller.
    unsafe { (function.run)(&call) }
}

#[cfg(test)]
mod tests {
    use eutectic_backend::{AnchorKernel, Body, Instr, Kernel, Load, Store};
    use eutectic_ir::index::Index;

    use super::*;
    use crate::{kernels::compile, machine::Machine};

    /// Bytes of the packed right operand of a product [32 k] · [k n], of enough rows to be worth it.
    fn packed([n, k]: [usize; 2], storage: DType, isa: Isa) -> usize {
        const ROWS: usize = 32;
        let at = |columns: usize| Index::coord(0).times(columns as i64).plus(&Index::coord(1));
        let load = |slot, dtype, domain: [usize; 2]| Body {
            domain: domain.to_vec(),
            instrs: vec![Instr::Load(Load { slot, at: at(domain[1]), guards: Vec::new(), dtype })],
            results: vec![0],
            ..Body::default()
        };
        let body = Body { domain: vec![ROWS, n], instrs: vec![Instr::Anchor { dtype: DType::F32 }], ..Body::default() };
        let kernel = Kernel {
            anchor: AnchorKernel::product(load(0, DType::F32, [ROWS, k]), load(1, storage, [k, n])),
            body,
            stores: vec![Store::new(2, at(n), 0)],
            slots: vec![(DType::F32, ROWS * k), (storage, k * n), (DType::F32, ROWS * n)],
        };
        let thunk = compile(&kernel, Machine { isa, threads: 1 }).unwrap_or_else(|e| panic!("{e:?}"));
        thunk.constant().expect("a matrix that is packed").bytes
    }

    #[test]
    fn constants_take_as_much_memory_as_they_did() {
        for isa in [Isa::Portable, Isa::Avx2, Isa::Avx512].into_iter().filter(|&isa| isa <= Isa::detect()) {
            for (storage, size) in [(DType::F32, 4), (DType::F16, 2), (DType::Bf16, 2)] {
                assert_eq!(packed([64, 50], storage, isa), 64 * 50 * size, "{storage} {isa:?}");
            }
        }
    }
}
