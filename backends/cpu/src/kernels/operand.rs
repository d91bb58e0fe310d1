//! Operands of anchors: read in place where their body is one affine load, else evaluated into a dense buffer first. And where results
//! go that are stored as they are.

use eutectic_backend::{Instr, Store};
use eutectic_ir::{
    DType,
    index::{Index, strides},
};

use super::{map_rows::Tiles, slots::Slots};
use crate::{
    axes::Nest,
    gemm::matrix::Matrix,
    runtime::thunk::{Launch, Thunk},
    simd::{Isa, convert::register},
};

/// A matrix per point of the batch axes.
pub struct Operand {
    slot: usize,
    base: i64,
    /// Strides of batch axes, rows and columns, in elements.
    strides: Vec<i64>,
    size: usize,
    pack: Option<Tiles>,
}

impl Operand {
    /// Compiles an operand for an anchor that accumulates in `acc`.
    ///
    /// # Errors
    /// Everything that stands in the way.
    pub fn compile(nest: &Nest, acc: DType, slots: &mut Slots, isa: Isa) -> Result<Operand, Vec<String>> {
        match in_place(nest, acc, slots) {
            Some((slot, base, strides)) => Ok(Operand { slot, base, strides, size: acc.size(), pack: None }),
            None => packed(nest, acc, slots, isa),
        }
    }

    /// Where a body stores the result of its anchor, if it does nothing else and columns lie side by side there.
    pub fn target(body: &Nest, acc: DType, slots: &Slots) -> Option<Operand> {
        let [store] = body.stores.as_slice() else { return None };
        let is_result = matches!(body.instrs[store.value], Instr::Anchor { .. });
        let strides = store.at.affine(body.domain.len()).filter(|_| is_result && slots.types[store.slot].0 == acc)?;
        let side_by_side = strides.last() == Some(&1) || body.domain.last() == Some(&1);
        let (slot, base, size) = (store.slot, store.at.constant, acc.size());
        side_by_side.then_some(Operand { slot, base, strides, size, pack: None })
    }

    /// Evaluates the operand, if it is not read in place.
    ///
    /// # Safety
    /// As [`Thunk::run`].
    pub unsafe fn prepare(&self, launch: &Launch<'_>) {
        if let Some(pack) = &self.pack {
            // SAFETY: passed on. The buffer that is written is the thunk's own.
            unsafe { pack.run(launch) };
        }
    }

    /// Bytes of scratch memory that preparing takes.
    pub fn scratch(&self) -> usize {
        self.pack.as_ref().map_or(0, Thunk::scratch)
    }

    /// The matrix at a batch point, from element (`row`, `column`) on.
    pub fn matrix(&self, slots: &[*mut u8], batch: &[usize], row: usize, column: usize) -> Matrix {
        let [of_batch @ .., rows, columns] = self.strides.as_slice() else {
            unreachable!("operands have rows and columns")
        };
        let offset = of_batch.iter().zip(batch).fold(self.base, |sum, (s, &i)| sum + s * i as i64);
        let offset = offset + rows * row as i64 + columns * column as i64;
        Matrix {
            at: slots[self.slot].wrapping_offset(offset as isize * self.size as isize),
            rows: *rows as isize,
            columns: *columns as isize,
        }
    }
}

/// The buffer, first element and strides of an operand that is read where it lies; `None` for another.
pub fn in_place(nest: &Nest, acc: DType, slots: &Slots) -> Option<(usize, i64, Vec<i64>)> {
    let Instr::Load(load) = &nest.instrs[*nest.results.first()?] else { return None };
    let &(dtype, count) = slots.types.get(load.slot)?;
    let range = load.at.range(&nest.domain);
    let inside = nest.domain.contains(&0) || (range.start >= 0 && range.end <= count as i64);
    let plain = load.guards.is_empty() && dtype == acc && load.dtype == acc && inside;
    let strides = load.at.affine(nest.domain.len()).filter(|_| plain)?;
    Some((load.slot, load.at.constant, strides))
}

/// The type of an operand's elements in memory, where they are loaded, and converted at most to what registers hold anyway.
pub fn stored(nest: &Nest) -> Option<DType> {
    let mut value = *nest.results.first()?;
    loop {
        match &nest.instrs[value] {
            Instr::Load(load) => return Some(load.dtype),
            // Of all functions of one float, conversions alone give another type of float.
            Instr::Map { args, dtype, .. } => {
                let &[arg] = args.as_slice() else { return None };
                let held = nest.instrs[arg].dtype();
                if !held.is_float() || held == *dtype || register(held) != *dtype {
                    return None;
                }
                value = arg;
            }
            _ => return None,
        }
    }
}

/// Along axes on which the body does not depend, one copy serves all.
fn packed(nest: &Nest, acc: DType, slots: &mut Slots, isa: Isa) -> Result<Operand, Vec<String>> {
    let held = nest.results.first().map(|&r| register(nest.instrs[r].dtype()));
    if held != Some(acc) {
        return Err(vec![format!("an operand of {held:?} for an anchor in {acc}")]);
    }
    let rank = nest.domain.len();
    let kept: Vec<_> = (0..rank).filter(|&axis| nest.depends_on(axis)).collect();
    let mut reduced = nest.clone();
    for axis in (0..rank).rev().filter(|axis| !kept.contains(axis)) {
        reduced = reduced.without(axis);
    }
    let dense = strides(&reduced.domain);
    let at = dense.iter().enumerate().fold(Index::default(), |sum, (d, &s)| sum.plus(&Index::coord(d).times(s as i64)));
    let slot = slots.add(acc, reduced.domain.iter().product());
    reduced.stores = vec![Store { slot, at, guards: Vec::new(), value: reduced.results[0] }];
    let pack = Tiles::compile(&reduced, 0, &slots.types, isa)?;
    let mut all = vec![0; rank];
    kept.iter().zip(dense).for_each(|(&axis, s)| all[axis] = s as i64);
    Ok(Operand { slot, base: 0, strides: all, size: acc.size(), pack: Some(pack) })
}
