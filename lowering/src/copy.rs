//! The kernel that copies a buffer.

use eutectic_backend::{AnchorKernel, Body, Instr, Kernel, Load, Store};
use eutectic_ir::{DType, index::Index};

/// Copies so many elements.
pub fn copy(dtype: DType, count: usize) -> Kernel {
    let load = Load { slot: 0, at: Index::coord(0), guards: Vec::new(), dtype };
    Kernel {
        anchor: AnchorKernel::Map,
        body: Body { domain: vec![count], instrs: vec![Instr::Load(load)], results: Vec::new() },
        stores: vec![Store { slot: 1, at: Index::coord(0), guards: Vec::new(), value: 0 }],
        slots: vec![(dtype, count); 2],
    }
}
