//! Compiles kernels to thunks, in which every offset, stride and function is resolved.

pub mod attention;
pub mod chosen;
pub mod coded;
pub mod contraction;
pub mod integers;
pub mod lanes;
mod map_rows;
pub mod operand;
pub mod row_blocks;
mod slots;

use eutectic_backend::{
    Attention, Contraction, Kernel, axes::Nest, extents::Lengths, grouped::Grouped, unroll::unrolled,
};

use self::{attention::AttentionParts, contraction::Packing, lanes::form::LaneForm, slots::Slots};
use crate::{machine::Machine, runtime::thunk::Thunk};

/// A schedule of kernels that can be computed in several ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The schedule that kernels of every anchor have. It computes contractions as products of matrices.
    Plain,
    /// A contraction whose right operand's matrices are chosen by integers among constant ones. All of them are packed.
    Chosen,
    /// A schedule of contractions: the lanes of a vector are sums along this axis of the result.
    Lanes(usize),
}

/// Compiles a kernel for runs with these lengths of its varying axes. All thunks of a kernel share one packed form of a
/// constant operand.
///
/// # Errors
/// Returns every reason why the kernel cannot be compiled.
pub fn compile_at(
    kernel: &Kernel,
    lengths: Lengths<'_>,
    way: Way,
    machine: Machine,
) -> Result<Box<dyn Thunk>, Vec<String>> {
    match kernel.varies() {
        true => thunk(&kernel.at(lengths), way, Packing::of(kernel, way == Way::Chosen), machine),
        false => compile(kernel, way, machine),
    }
}

/// Compiles a kernel of fixed extents.
///
/// # Errors
/// Returns every reason why the kernel cannot be compiled.
pub fn compile(kernel: &Kernel, way: Way, machine: Machine) -> Result<Box<dyn Thunk>, Vec<String>> {
    thunk(kernel, way, Packing::Best, machine)
}

fn thunk(kernel: &Kernel, way: Way, packing: Packing, machine: Machine) -> Result<Box<dyn Thunk>, Vec<String>> {
    let ranks = kernel.bodies().into_iter().zip(kernel.layouts()).map(|(body, layout)| {
        let groups = kernel.groups();
        body.domain.len() == layout.iter().map(|&g| groups[g]).sum::<usize>()
    });
    if !ranks.into_iter().all(|fits| fits) {
        return Err(vec![format!(
            "cannot compile `{}` because its operands do not have the axes of its groups",
            kernel.kind()
        )]);
    }
    let unrolled = unrolled(kernel);
    let kernel = unrolled.as_ref().unwrap_or(kernel);
    let mut slots = Slots { types: kernel.slots.clone(), given: kernel.slots.len() };
    let body = Nest::new(&kernel.body, &kernel.stores);
    let isa = machine.isa;
    let accumulator = kernel
        .accumulator()
        .ok_or_else(|| vec![format!("cannot compile `{}` because an operand has no result", kernel.kind())]);
    if kernel.operands().is_empty() {
        let rows = kernel.row_axes().unwrap_or(0);
        return Ok(Box::new(map_rows::Tiles::compile(&body, rows, &slots.types, isa)?));
    }
    if let Some(Contraction { lhs, rhs, axes }) = kernel.contraction() {
        let acc = accumulator?;
        // At some lengths the kernel lacks this form, and some operands cannot be compiled for it. A thunk of the plain
        // schedule replaces it then. It may not pack, because all thunks of a kernel share one packed form, and this
        // form has none.
        let packing = match way {
            Way::Plain | Way::Chosen => packing,
            Way::Lanes(axis) => {
                let form = LaneForm::along(kernel, axis);
                match form.map(|form| lanes::compile(&form, &body, acc, &slots, machine)) {
                    Some(Ok(thunk)) => return Ok(thunk),
                    Some(Err(_)) | None => Packing::Never,
                }
            }
        };
        let lhs = Grouped::operand(lhs, [axes.batch, axes.rows, axes.depth]);
        let rhs = Grouped::operand(rhs, [axes.batch, axes.depth, axes.columns]);
        let body = Grouped { nest: body, groups: [axes.batch, axes.rows, axes.columns] };
        return contraction::compile(lhs, rhs, body, acc, &mut slots, (packing, way == Way::Chosen, machine));
    }
    if let Some(Attention { query, key, value, bias, axes, form }) = kernel.attention() {
        let operands = [
            Grouped::operand(query, [axes.batch, axes.queries, axes.depth]),
            Grouped::operand(key, [axes.batch, axes.keys, axes.depth]),
            Grouped::operand(value, [axes.batch, axes.keys, axes.columns]),
        ];
        let bias = bias.map(|b| Grouped::operand(b, [axes.batch, axes.queries, axes.keys]));
        let body = Grouped { nest: body, groups: [axes.batch, axes.queries, axes.columns] };
        let attention = AttentionParts { operands, bias, body, form };
        return attention::compile(attention, accumulator?, &mut slots, isa);
    }
    Err(vec![format!("cannot compile `{}` because the CPU backend has no kernel for it", kernel.kind())])
}
