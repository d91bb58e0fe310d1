//! Estimates the memory traffic of kernels: the bytes of the distinct elements that they access.

use crate::{
    body::Instr,
    kernel::Kernel,
    reach::{masks, of_place, points, row_mask},
};

/// Returns the bytes of the distinct elements that a kernel reads and writes. This is a lower bound of its traffic with
/// cold caches. The bytes of several loads of one buffer are added, up to the size of the buffer.
pub fn bytes(kernel: &Kernel) -> f64 {
    of_slots(kernel).iter().sum()
}

/// Returns, for each slot, the bytes of its distinct elements that a kernel reads and writes.
pub fn of_slots(kernel: &Kernel) -> Vec<f64> {
    let mut bytes = vec![0.0_f64; kernel.slots.len()];
    let mut touch = |slot: usize, elements: f64| {
        if let (Some(b), Some((dtype, count))) = (bytes.get_mut(slot), kernel.slots.get(slot)) {
            *b = (*b + elements * dtype.size() as f64).min((count * dtype.size()) as f64);
        }
    };
    for body in kernel.bodies() {
        for (instr, mask) in body.instrs.iter().zip(masks(body, row_mask(kernel))) {
            if let Instr::Load(load) = instr {
                touch(load.slot, points(&body.domain, mask));
            }
        }
    }
    for store in &kernel.stores {
        touch(store.slot, points(&kernel.body.domain, of_place(store, &kernel.body)));
    }
    bytes
}
