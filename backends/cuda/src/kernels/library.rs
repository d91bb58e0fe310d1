//! Products of strided matrices by the library; what its epilogues lack is a map kernel over the product.

use eutectic_backend::{AnchorKernel, Instr, Kernel, Load, ValueId, axes::Nest};
use eutectic_gpu::{
    device::Shape,
    launch::{Launch, Matrix, Product, Work},
    map,
};
use eutectic_ir::{DType, index::Index};

use crate::dialect::CudaC;

/// What the library may use beside the product.
pub const LIBRARY_BYTES: usize = 32 << 20;
/// Operations a second of generated kernels and of the library, on operands of 16, 32 and 64 bits, measured on an H100.
const RATES: [(usize, f64, f64); 3] = [(2, 2.5e14, 6.2e14), (4, 3.1e13, 5.0e13), (8, 1.0e13, 5.0e13)];

/// The launches, where operands are plain and it is worth it.
pub fn print(
    shape: &Shape,
    kernel: &Kernel,
    extents: [usize; 4],
    [left, right, own]: [&Nest; 3],
) -> Option<Result<Vec<Launch>, Vec<String>>> {
    let least = shape.library?;
    let AnchorKernel::Contraction { lhs, rhs, .. } = &kernel.anchor else { return None };
    let operands = [(left, lhs.results[0]), (right, rhs.results[0])];
    let dtype = left.instrs[operands[0].1].dtype();
    let (_, generated, library) = *RATES.iter().find(|rate| dtype.is_float() && rate.0 == dtype.size())?;
    let [lhs, rhs] = [matrix(kernel, operands[0], dtype)?, matrix(kernel, operands[1], dtype)?];
    let [b, m, n, k] = extents;
    let elements = (b * m * n) as f64;
    let flops = 2.0 * elements * k as f64;
    let direct = stored(kernel, own, dtype);
    let extra = if direct.is_some() { 0.0 } else { 2e-6 + elements * 8.0 / 2.5e12 };
    if flops < least.max(1.0) || least > 0.0 && flops / library + extra > flops / generated {
        return None;
    }
    let sum = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let bytes = b * m * n * sum.size();
    let (result, out, workspace) = match direct {
        Some((result, out)) => (result, out, LIBRARY_BYTES),
        None => {
            let dense = Matrix { slot: kernel.slots.len(), offset: 0, strides: [m * n, n, 1] };
            (sum, dense, bytes.next_multiple_of(256) + LIBRARY_BYTES)
        }
    };
    let product = Product { extents, operands: dtype, result, lhs, rhs, out };
    let mut launches = vec![Launch { work: Work::Product(product), grid: [1; 3], block: 1, shared: 0, workspace }];
    if direct.is_none() {
        let epilogue = Kernel { anchor: AnchorKernel::Map, ..over(kernel, sum) };
        match map::print(&CudaC, shape, &epilogue) {
            Ok(launch) => launches.push(Launch { workspace, ..launch }),
            Err(problems) => return Some(Err(problems)),
        }
    }
    Some(Ok(launches))
}

/// Where a matrix lies that is loaded as it is: neighbours along one of its axes, all else at multiples of 16 bytes.
fn matrix(kernel: &Kernel, (nest, result): (&Nest, ValueId), dtype: DType) -> Option<Matrix> {
    let Instr::Load(load) = &nest.instrs[result] else { return None };
    let is_whole = load.guards.is_empty() && load.dtype == dtype && kernel.slots[load.slot].0 == dtype;
    let at = place(&load.at, load.slot, nest, dtype).filter(|_| is_whole)?;
    let [_, row, column] = at.strides;
    (row == 1 && column >= nest.domain[1] || column == 1 && row >= nest.domain[2]).then_some(at)
}

/// Where the product is stored as it is.
fn stored(kernel: &Kernel, own: &Nest, operands: DType) -> Option<(DType, Matrix)> {
    let [store] = own.stores.as_slice() else { return None };
    let dtype = kernel.slots[store.slot].0;
    let is_product = matches!(own.instrs[store.value], Instr::Anchor { dtype: of } if of == dtype);
    let fits = dtype == operands || dtype == DType::F32 && operands.size() == 2;
    let at = place(&store.at, store.slot, own, dtype).filter(|_| is_product && fits && store.guards.is_empty())?;
    (at.strides[2] == 1 && at.strides[1] >= own.domain[2]).then_some((dtype, at))
}

fn place(map: &Index, slot: usize, nest: &Nest, dtype: DType) -> Option<Matrix> {
    let strides = map.affine(3)?;
    let mut at = Matrix { slot, offset: usize::try_from(map.constant).ok()?, strides: [0; 3] };
    for ((to, stride), &extent) in at.strides.iter_mut().zip(strides).zip(&nest.domain) {
        *to = if extent == 1 { 0 } else { usize::try_from(stride).ok()? };
    }
    // Matrices that repeat a row or a column are none for the library.
    if (1..3).any(|axis| nest.domain[axis] > 1 && at.strides[axis] == 0) {
        return None;
    }
    // An axis of one point has whatever stride suits: that of a dense matrix.
    let [_, rows, columns] = [0, 1, 2].map(|axis| nest.domain[axis]);
    match at.strides {
        [_, 0, 0] => (at.strides[1], at.strides[2]) = (columns, 1),
        [_, 0, 1] => at.strides[1] = columns,
        [_, 1, 0] => at.strides[2] = rows,
        [_, row, 0] if columns == 1 => at.strides = [at.strides[0], row, 1],
        [_, 0, column] if rows == 1 => at.strides = [at.strides[0], 1, column],
        _ => {}
    }
    let aligned = |n: usize| n == 1 || (n * dtype.size()).is_multiple_of(16);
    (at.strides.into_iter().all(aligned) && (at.offset * dtype.size()).is_multiple_of(16)).then_some(at)
}

/// The kernel's own body over the product, which it reads as one more buffer.
fn over(kernel: &Kernel, sum: DType) -> Kernel {
    let mut own = kernel.clone();
    let domain = own.body.domain.clone();
    let at: Vec<Index> = (0..domain.len()).map(Index::coord).collect();
    let flat = eutectic_ir::index::flatten(&at, &domain);
    for instr in &mut own.body.instrs {
        if matches!(instr, Instr::Anchor { .. }) {
            // In registers, all but 64-bit floats are what sums are.
            *instr = Instr::Load(Load { slot: kernel.slots.len(), at: flat.clone(), guards: Vec::new(), dtype: sum });
        }
    }
    own.slots.push((sum, domain.iter().product()));
    own
}
