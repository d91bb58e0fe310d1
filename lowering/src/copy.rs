//! The kernels that copy a buffer, or fill one.

use eutectic_backend::{AnchorKernel, Body, Instr, Kernel, Load, Store};
use eutectic_ir::{
    DType, Dim, Shape, Type,
    index::{Index, flatten},
};

/// Copies what there is of a tensor.
pub fn copy(ty: &Type) -> Kernel {
    written(ty, |at, dtype| Instr::Load(Load { slot: 0, at, guards: Vec::new(), dtype }), 1)
}

/// Writes a number to each element that there is of a tensor.
pub fn fill(ty: &Type, value: f64) -> Kernel {
    written(ty, |_, dtype| Instr::Constant { value: value.into(), dtype }, 0)
}

/// Writes an instruction's value to each element that there is of a tensor, in the buffer `slot`.
fn written(ty: &Type, value: impl FnOnce(Index, DType) -> Instr, slot: usize) -> Kernel {
    let (dtype, count) = (ty.dtype().unwrap_or(DType::F32), ty.count());
    let flat = || [Dim::from(count)].into_iter().collect();
    let shape: Shape =
        ty.as_tensor().map(|(_, shape)| shape).filter(|shape| shape.varies()).cloned().unwrap_or_else(flat);
    let domain = shape.capacity().unwrap_or_default();
    let at = flatten(&(0..domain.len()).map(Index::coord).collect::<Vec<_>>(), &domain);
    let lengths = shape.iter().cloned().enumerate().filter(|(_, dim)| dim.varies()).collect();
    let instrs = vec![value(at.clone(), dtype)];
    let mut kernel = Kernel {
        anchor: AnchorKernel::map(),
        body: Body { domain, lengths, instrs, ..Body::default() },
        stores: vec![Store::new(slot, at, 0)],
        slots: vec![(dtype, count); slot + 1],
    };
    if shape.varies() {
        kernel.normalise();
    }
    kernel
}

/// Copies rows of `count` elements that start `from` elements apart to where they start `to` elements apart.
pub fn copy_rows(dtype: DType, [rows, count]: [usize; 2], [from, to]: [usize; 2]) -> Kernel {
    let at = |stride: usize| flatten(&[Index::coord(0), Index::coord(1)], &[rows, stride]);
    let load = Load { slot: 0, at: at(from), guards: Vec::new(), dtype };
    let domain = [rows, count].into_iter().collect();
    let mut kernel = Kernel {
        anchor: AnchorKernel::map(),
        body: Body { domain, instrs: vec![Instr::Load(load)], ..Body::default() },
        stores: vec![Store::new(1, at(to), 0)],
        slots: [from, to].map(|stride| (dtype, rows * stride)).to_vec(),
    };
    kernel.normalise();
    kernel
}
