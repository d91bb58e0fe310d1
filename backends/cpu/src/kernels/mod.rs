//! Thunks: kernels with every offset, stride and function resolved.

mod attention;
mod contraction;
mod map_rows;
mod operand;
mod slots;

use eutectic_backend::{AnchorKernel, Kernel, unroll::unrolled};

use self::slots::Slots;
use crate::{axes::Nest, machine::Machine, runtime::thunk::Thunk};

/// Compiles a kernel.
///
/// # Errors
/// Everything that stands in the way.
pub fn compile(kernel: &Kernel, machine: Machine) -> Result<Box<dyn Thunk>, Vec<String>> {
    let unrolled = unrolled(kernel);
    let kernel = unrolled.as_ref().unwrap_or(kernel);
    let mut slots = Slots { types: kernel.slots.clone(), given: kernel.slots.len() };
    let body = Nest::new(&kernel.body, &kernel.stores);
    let isa = machine.isa;
    match &kernel.anchor {
        AnchorKernel::Map => Ok(Box::new(map_rows::Tiles::compile(&body, 0, &slots.types, isa)?)),
        AnchorKernel::Rows { axes } => Ok(Box::new(map_rows::Tiles::compile(&body, *axes, &slots.types, isa)?)),
        AnchorKernel::Contraction { lhs, rhs } => {
            contraction::compile(&Nest::new(lhs, &[]), &Nest::new(rhs, &[]), &body, &mut slots, machine)
        }
        AnchorKernel::Attention { query, key, value, bias, scale, softcap, empty } => {
            let operands = [query, key, value].map(|b| Nest::new(b, &[]));
            let form = attention::Form { scale: scale.get(), softcap: softcap.get(), empty: *empty };
            attention::compile(operands, bias.as_ref().map(|b| Nest::new(b, &[])), &body, form, &mut slots, isa)
        }
    }
}
