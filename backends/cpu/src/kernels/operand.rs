//! Operands of anchors: read in place where their body is one affine load, or matrices that numbers choose, else evaluated into a dense
//! buffer first. And where results go that are stored as they are.

use eutectic_backend::{
    Body, Instr, Load, Store, ValueId,
    axes::{Nest, normalise},
    grouped::Grouped,
    reach::masks,
};
use eutectic_ir::{
    DType,
    index::{Index, strides},
};

use super::{chosen::ChosenMatrix, map_rows::Tiles, slots::Slots};
use crate::{
    gemm::matrix::Matrix,
    runtime::thunk::{Thunk, ThunkContext},
    simd::{Isa, register::with_integer},
};

/// A matrix per point of the batch axes.
pub struct Operand {
    slot: usize,
    base: i64,
    /// Strides of batch axes, rows and columns, in elements.
    strides: Vec<i64>,
    size: usize,
    form: OperandForm,
}

/// How its matrices come to be where they are read.
enum OperandForm {
    /// They are there.
    InPlace,
    /// They are evaluated first.
    Evaluated(Tiles),
    /// They are there, but which of them are read is a matter of numbers, which are evaluated first.
    Chosen(Tiles, Numbers),
}

/// Numbers that choose matrices.
struct Numbers {
    slot: usize,
    dtype: DType,
    /// Along the axes of the batch, in elements.
    strides: Vec<i64>,
    count: i64,
    /// Elements from a matrix to the next.
    apart: i64,
}

impl Operand {
    /// Compiles an operand for an anchor that accumulates in `acc`.
    ///
    /// # Errors
    /// Everything that stands in the way.
    pub fn compile(operand: &Grouped, acc: DType, slots: &mut Slots, isa: Isa) -> Result<Operand, Vec<String>> {
        Operand::in_place(operand, acc, slots).map_or_else(|| whole(operand, acc, slots, isa), Ok)
    }

    /// An operand that is read where it lies; `None` for another.
    pub fn in_place(operand: &Grouped, acc: DType, slots: &Slots) -> Option<Operand> {
        let (slot, base, strides) = in_place(&operand.matrices()?, acc, slots)?;
        Some(Operand { slot, base, strides, size: acc.size(), form: OperandForm::InPlace })
    }

    /// An operand that is no more than conversions of elements of a shorter type, which are read where they lie; `None` for another.
    pub fn short(operand: &Grouped, slots: &Slots) -> Option<(Operand, DType)> {
        let mut nest = operand.matrices()?;
        let &result = nest.results.first()?;
        let load = kept(&nest.instrs, result)?;
        let dtype = load.dtype;
        nest.results = vec![nest.instrs.iter().position(|instr| matches!(instr, Instr::Load(of) if of == load))?];
        let (slot, base, strides) = in_place(&nest, dtype, slots)?;
        Some((Operand { slot, base, strides, size: dtype.size(), form: OperandForm::InPlace }, dtype))
    }

    /// Returns the elements from a row to the next, and from a column to the next.
    pub fn steps(&self) -> [i64; 2] {
        [2, 1].map(|from_end| self.strides[self.strides.len() - from_end])
    }

    /// An operand whose matrices lie by strides, but where each begins is a matter of numbers that are evaluated first; `None` for another.
    pub fn chosen(operand: &Grouped, acc: DType, slots: &mut Slots, isa: Isa) -> Option<Operand> {
        let nest = operand.matrices()?;
        let batch = nest.domain.len().checked_sub(2)?;
        let body = Body { domain: nest.domain.clone(), instrs: nest.instrs.clone(), ..Body::default() };
        let masks = masks(&body, 0);
        let ChosenMatrix { load, at, number, count, apart } =
            ChosenMatrix::of(&nest.instrs, *nest.results.first()?, &masks, batch)?;
        let &(dtype, all) = slots.types.get(load.slot)?;
        let range = at.range(&nest.domain);
        let inside = range.start >= 0 && range.end + apart.checked_mul(count - 1)? <= all as i64;
        let of_number = nest.instrs[number].dtype();
        let integer = matches!(of_number, DType::I32 | DType::I64 | DType::U32);
        if nest.domain.contains(&0) || dtype != acc || load.dtype != acc || !inside || !integer {
            return None;
        }
        let strides = at.affine(nest.domain.len())?;
        let (slot, base, kept) = (load.slot, at.constant, masks[number]);
        let mut numbers = Nest { results: Vec::new(), ..nest.clone() };
        for axis in (0..nest.domain.len()).rev().filter(|axis| kept >> axis & 1 == 0) {
            numbers = numbers.without(axis);
        }
        let of_numbers = slots.add(of_number, numbers.domain.iter().product());
        let dense = strides_of(&numbers.domain);
        let at = dense.iter().enumerate().fold(Index::default(), |at, (d, &s)| at.plus(&Index::coord(d).times(s)));
        numbers.stores = vec![Store::new(of_numbers, at, number)];
        let first = evaluated(numbers, slots, isa).ok()?;
        let mut dense = dense.into_iter();
        let along = (0..batch).map(|axis| if kept >> axis & 1 == 1 { dense.next().unwrap_or(0) } else { 0 }).collect();
        let numbers = Numbers { slot: of_numbers, dtype: of_number, strides: along, count, apart };
        Some(Operand { slot, base, strides, size: acc.size(), form: OperandForm::Chosen(first, numbers) })
    }

    /// Where a body stores the result of its anchor, if it does nothing else and columns lie side by side there.
    pub fn target(body: &Nest, acc: DType, slots: &Slots) -> Option<Operand> {
        let [store] = body.stores.as_slice() else { return None };
        let is_result = store.guards.is_empty() && matches!(body.instrs[store.value], Instr::Anchor { .. });
        let strides = store.at.affine(body.domain.len()).filter(|_| is_result && slots.types[store.slot].0 == acc)?;
        let side_by_side = strides.last() == Some(&1) || body.domain.last() == Some(&1);
        let (slot, base, size) = (store.slot, store.at.constant, acc.size());
        side_by_side.then_some(Operand { slot, base, strides, size, form: OperandForm::InPlace })
    }

    /// What comes before it is used.
    fn first(&self) -> Option<&Tiles> {
        match &self.form {
            OperandForm::InPlace => None,
            OperandForm::Evaluated(first) | OperandForm::Chosen(first, _) => Some(first),
        }
    }

    /// Evaluates the operand or its numbers, if it is not read in place.
    ///
    /// # Safety
    /// As [`Thunk::run`].
    pub unsafe fn prepare(&self, launch: &ThunkContext<'_>) {
        if let Some(first) = self.first() {
            // SAFETY: passed on. The buffer that is written is the thunk's own.
            unsafe { first.run(launch) };
        }
    }

    /// Bytes of scratch memory that preparing takes.
    pub fn scratch(&self) -> usize {
        self.first().map_or(0, Thunk::scratch)
    }

    /// The matrix at a batch point, from element (`row`, `column`) on.
    pub fn matrix(&self, slots: &[*mut u8], batch: &[usize], row: usize, column: usize) -> Matrix {
        let [of_batch @ .., rows, columns] = self.strides.as_slice() else {
            unreachable!("operands have rows and columns")
        };
        let offset = of_batch.iter().zip(batch).fold(self.base, |sum, (s, &i)| sum + s * i as i64);
        let offset = offset + rows * row as i64 + columns * column as i64;
        let offset = match &self.form {
            OperandForm::Chosen(_, numbers) => offset + numbers.offset(slots, batch),
            OperandForm::InPlace | OperandForm::Evaluated(_) => offset,
        };
        Matrix {
            at: slots[self.slot].wrapping_offset(offset as isize * self.size as isize),
            rows: *rows as isize,
            columns: *columns as isize,
        }
    }
}

impl Numbers {
    /// Where the matrix at a point of the batch begins, from the first matrix on, in elements.
    fn offset(&self, slots: &[*mut u8], batch: &[usize]) -> i64 {
        let at = self.strides.iter().zip(batch).map(|(s, &i)| s * i as i64).sum::<i64>() as isize;
        let from = slots[self.slot].cast_const();
        // SAFETY: the numbers were evaluated before, one for each point of the batch on whose axes they depend.
        let number = unsafe { with_integer!(self.dtype, Int => i64::from(from.cast::<Int>().offset(at).read())) };
        // One that is none of these was reported when it was evaluated; memory is at stake all the same.
        number.clamp(0, self.count - 1) * self.apart
    }
}

/// The strides of a dense tensor.
fn strides_of(domain: &[usize]) -> Vec<i64> {
    strides(domain).into_iter().map(|s| s as i64).collect()
}

/// Compiles what a nest stores.
fn evaluated(nest: Nest, slots: &Slots, isa: Isa) -> Result<Tiles, Vec<String>> {
    let mut rank = [nest.domain.len()];
    let mut alone = [nest];
    normalise(&mut alone, &[&[0]], &mut rank);
    Tiles::compile(&alone[0], 0, &slots.types, isa)
}

/// The buffer, first element and strides of an operand over `[b.. m n]` that is read where it lies; `None` for another.
pub fn in_place(nest: &Nest, acc: DType, slots: &Slots) -> Option<(usize, i64, Vec<i64>)> {
    let Instr::Load(load) = &nest.instrs[*nest.results.first()?] else { return None };
    let &(dtype, count) = slots.types.get(load.slot)?;
    let range = load.at.range(&nest.domain);
    let inside = nest.domain.contains(&0) || (range.start >= 0 && range.end <= count as i64);
    let plain = load.guards.is_empty() && dtype == acc && load.dtype == acc && inside;
    let strides = load.at.affine(nest.domain.len()).filter(|_| plain)?;
    Some((load.slot, load.at.constant, strides))
}

/// Returns the load of an operand that is no more than conversions of it, none of which loses anything: a packed form may keep the elements
/// in the type of the load.
pub fn kept(instrs: &[Instr], result: ValueId) -> Option<&Load> {
    match &instrs[result] {
        Instr::Load(load) => Some(load),
        // Of all functions of one number, conversions alone give another type of float. A longer one has all numbers of a shorter type.
        Instr::Map { args, dtype, .. } => {
            let &[arg] = args.as_slice() else { return None };
            let held = instrs[arg].dtype();
            let loses_nothing = dtype.is_float() && held != *dtype && held.size() < dtype.size();
            kept(instrs, arg).filter(|_| loses_nothing)
        }
        _ => None,
    }
}

/// Evaluated as dense matrices. Along axes of the batch on which the body does not depend, one copy serves all; so for rows and
/// columns, if it depends on none of their axes.
fn whole(operand: &Grouped, acc: DType, slots: &mut Slots, isa: Isa) -> Result<Operand, Vec<String>> {
    let Grouped { nest, groups } = operand;
    let held = nest.results.first().map(|&r| nest.instrs[r].dtype().register());
    if held != Some(acc) {
        return Err(vec![format!("an operand of {held:?} for an anchor in {acc}")]);
    }
    let [batch, rows, columns] = *groups;
    let axes = [
        (0..batch).map(|axis| axis..axis + 1).collect(),
        vec![batch..batch + rows, batch + rows..batch + rows + columns],
    ];
    let axes: Vec<_> = axes.concat();
    let kept: Vec<bool> = axes.iter().map(|axes| axes.clone().any(|axis| nest.depends_on(axis))).collect();
    let mut reduced = nest.clone();
    for axis in axes.iter().zip(&kept).rev().filter(|(_, kept)| !**kept).flat_map(|(axes, _)| axes.clone().rev()) {
        reduced = reduced.without(axis);
    }
    let dense = strides_of(&reduced.domain);
    let at = dense.iter().enumerate().fold(Index::default(), |sum, (d, &s)| sum.plus(&Index::coord(d).times(s)));
    let slot = slots.add(acc, reduced.domain.iter().product());
    reduced.stores = vec![Store::new(slot, at, reduced.results[0])];
    let first = evaluated(reduced, slots, isa)?;
    // The innermost axis of a group is what the group's points are apart by.
    let mut inner = dense.into_iter();
    let stride = |(axes, kept): (&std::ops::Range<usize>, &bool)| match kept {
        true => inner.by_ref().take(axes.len()).last().unwrap_or(0),
        false => 0,
    };
    let strides = axes.iter().zip(&kept).map(stride).collect();
    Ok(Operand { slot, base: 0, strides, size: acc.size(), form: OperandForm::Evaluated(first) })
}
