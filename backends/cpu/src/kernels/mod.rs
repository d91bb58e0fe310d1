//! Thunks: kernels with every offset, stride and function resolved.

pub mod attention;
pub mod chosen;
pub mod coded;
pub mod contraction;
pub mod lanes;
mod map_rows;
pub mod operand;
pub mod row_blocks;
mod slots;

use eutectic_backend::{
    Attention, Contraction, Kernel, axes::Nest, extents::Lengths, grouped::Grouped, unroll::unrolled,
};

use self::{contraction::Packing, lanes::form::LaneForm, slots::Slots};
use crate::{machine::Machine, runtime::thunk::Thunk};

/// Compiles a kernel for runs of such lengths. All thunks of a kernel take a constant operand in the same packed form.
///
/// # Errors
/// Everything that stands in the way.
pub fn compile_at(kernel: &Kernel, lengths: Lengths<'_>, machine: Machine) -> Result<Box<dyn Thunk>, Vec<String>> {
    match kernel.varies() {
        true => {
            let at = kernel.at(lengths);
            let lanes = LaneForm::of(&kernel.longest()).and_then(|_| LaneForm::as_of(&at));
            thunk(&at, lanes, Packing::of(kernel), machine)
        }
        false => compile(kernel, machine),
    }
}

/// Compiles a kernel of fixed extents.
///
/// # Errors
/// Everything that stands in the way.
pub fn compile(kernel: &Kernel, machine: Machine) -> Result<Box<dyn Thunk>, Vec<String>> {
    thunk(kernel, LaneForm::of(kernel), Packing::Best, machine)
}

/// Compiles a kernel; a contraction in the form that it is given, if that can be.
fn thunk(
    kernel: &Kernel,
    lanes: Option<LaneForm>,
    packing: Packing,
    machine: Machine,
) -> Result<Box<dyn Thunk>, Vec<String>> {
    let ranks = kernel.bodies().into_iter().zip(kernel.layouts()).map(|(body, layout)| {
        let groups = kernel.groups();
        body.domain.len() == layout.iter().map(|&g| groups[g]).sum::<usize>()
    });
    if !ranks.into_iter().all(|fits| fits) {
        return Err(vec![format!("a `{}` whose operands have other axes than its groups", kernel.kind())]);
    }
    let unrolled = unrolled(kernel);
    let kernel = unrolled.as_ref().unwrap_or(kernel);
    let mut slots = Slots { types: kernel.slots.clone(), given: kernel.slots.len() };
    let body = Nest::new(&kernel.body, &kernel.stores);
    let isa = machine.isa;
    let accumulator =
        kernel.accumulator().ok_or_else(|| vec![format!("a `{}` operand without a result", kernel.kind())]);
    if kernel.operands().is_empty() {
        let rows = kernel.row_axes().unwrap_or(0);
        return Ok(Box::new(map_rows::Tiles::compile(&body, rows, &slots.types, isa)?));
    }
    if let Some(Contraction { lhs, rhs, axes }) = kernel.contraction() {
        let acc = accumulator?;
        let by_lanes = lanes.as_ref().and_then(|form| lanes::compile(form, &body, acc, &slots, machine).ok());
        if let Some(thunk) = by_lanes {
            return Ok(thunk);
        }
        // At other lengths it may be in that form, which packs nothing.
        let packing = if lanes.is_some() { Packing::Never } else { packing };
        let lhs = Grouped::operand(lhs, [axes.batch, axes.rows, axes.depth]);
        let rhs = Grouped::operand(rhs, [axes.batch, axes.depth, axes.columns]);
        let body = Grouped { nest: body, groups: [axes.batch, axes.rows, axes.columns] };
        return contraction::compile(lhs, rhs, body, acc, &mut slots, (packing, machine));
    }
    if let Some(Attention { query, key, value, bias, axes, form }) = kernel.attention() {
        let operands = [
            Grouped::operand(query, [axes.batch, axes.queries, axes.depth]),
            Grouped::operand(key, [axes.batch, axes.keys, axes.depth]),
            Grouped::operand(value, [axes.batch, axes.keys, axes.columns]),
        ];
        let bias = bias.map(|b| Grouped::operand(b, [axes.batch, axes.queries, axes.keys]));
        let body = Grouped { nest: body, groups: [axes.batch, axes.queries, axes.columns] };
        return attention::compile(operands, bias, body, form, accumulator?, &mut slots, isa);
    }
    Err(vec![format!("there is no kernel for `{}`", kernel.kind())])
}
