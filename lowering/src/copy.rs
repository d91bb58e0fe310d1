//! The kernels that copy a buffer.

use eutectic_backend::{AnchorKernel, Body, Instr, Kernel, Load, Store};
use eutectic_ir::{
    DType, Dim, Shape, Type,
    index::{Index, flatten},
};

/// Copies what there is of a tensor.
pub fn copy(ty: &Type) -> Kernel {
    let (dtype, count) = (ty.dtype().unwrap_or(DType::F32), ty.count());
    let flat = || [Dim::from(count)].into_iter().collect();
    let shape: Shape =
        ty.as_tensor().map(|(_, shape)| shape).filter(|shape| shape.varies()).cloned().unwrap_or_else(flat);
    let domain = shape.capacity().unwrap_or_default();
    let at = flatten(&(0..domain.len()).map(Index::coord).collect::<Vec<_>>(), &domain);
    let lengths = shape.iter().cloned().enumerate().filter(|(_, dim)| dim.varies()).collect();
    let load = Load { slot: 0, at: at.clone(), guards: Vec::new(), dtype };
    let mut kernel = Kernel {
        anchor: AnchorKernel::Map,
        body: Body { domain, lengths, instrs: vec![Instr::Load(load)], ..Body::default() },
        stores: vec![Store { slot: 1, at, guards: Vec::new(), value: 0 }],
        slots: vec![(dtype, count); 2],
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
        anchor: AnchorKernel::Map,
        body: Body { domain, instrs: vec![Instr::Load(load)], ..Body::default() },
        stores: vec![Store { slot: 1, at: at(to), guards: Vec::new(), value: 0 }],
        slots: [from, to].map(|stride| (dtype, rows * stride)).to_vec(),
    };
    kernel.normalise();
    kernel
}
