//! Builds the kernels that copy or fill a buffer.

use eutectic_backend::{AnchorKernel, Body, Instr, Kernel, Load, Slot, Store};
use eutectic_ir::{
    DType, Dim, Shape, Type,
    index::{Index, flatten},
    ops::Writes,
};

/// Returns a kernel that copies a tensor. An extent that varies is copied up to its length in the run.
pub fn copy(ty: &Type) -> Kernel {
    written(ty, |at, dtype| Instr::Load(Load { slot: 0, at, guards: Vec::new(), dtype }), 1)
}

/// Returns a kernel that fills a tensor with a number. An extent that varies is filled up to its length in the run.
pub fn fill(ty: &Type, value: f64) -> Kernel {
    written(ty, |_, dtype| Instr::Constant { value: value.into(), dtype }, 0)
}

/// Returns a kernel that writes an instruction's value to each element of the tensor in the buffer `slot`.
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

/// Returns a kernel that copies rows of `count` elements. Rows start `from` elements apart in the source and `to`
/// elements apart in the target.
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

/// Returns the slot that a store copies in whole and in order, or `None` if the store computes something else. A
/// reshape is such a copy.
pub fn copied(kernel: &Kernel, store: usize) -> Option<Slot> {
    let Store { slot, at, guards, value, writes } = &kernel.stores[store];
    let Instr::Load(load) = kernel.body.instrs.get(*value)? else { return None };
    let is_whole = kernel.slots[load.slot] == kernel.slots[*slot] && kernel.body.lengths.is_empty();
    let is_same = load.at == *at && load.guards.is_empty() && guards.is_empty() && *writes == Writes::Apart;
    (is_whole && is_same).then_some(load.slot)
}

/// Returns a kernel without one of its stores. The numbers of slots above the store's slot decrease by one.
pub fn without_store(kernel: &Kernel, store: usize) -> Kernel {
    let mut kernel = kernel.clone();
    let slot = kernel.stores.remove(store).slot;
    kernel.slots.remove(slot);
    kernel.stores.iter_mut().filter(|store| store.slot > slot).for_each(|store| store.slot -= 1);
    kernel.normalise();
    kernel
}
