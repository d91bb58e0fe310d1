//! Operands of anchors. An operand is read in place if its body is one affine load, or if integers select its matrices.
//! Others are evaluated into a dense buffer first. The destinations of results that are stored unchanged are also
//! described here.

use eutectic_backend::{Body, Instr, Load, Store, ValueId, axes::Nest, grouped::Grouped, reach::masks};
use eutectic_ir::{
    DType,
    index::{Index, strides},
};

use super::{
    chosen::{ChosenMatrix, MatrixNumbers},
    map_rows::{Tiles, evaluated},
    slots::Slots,
};
use crate::{
    gemm::matrix::Matrix,
    runtime::thunk::{Thunk, ThunkContext},
    simd::Isa,
};

/// An operand: a matrix for each point of the batch axes.
pub struct Operand {
    slot: usize,
    base: i64,
    /// Strides of batch axes, rows and columns, in elements.
    strides: Vec<i64>,
    size: usize,
    form: OperandForm,
}

/// The way in which the matrices of an operand become available.
enum OperandForm {
    /// The matrices are in memory.
    InPlace,
    /// The matrices are evaluated first.
    Evaluated(Tiles),
    /// They are in memory, at multiples of this number of elements. Integers that are evaluated first select them.
    Chosen(MatrixNumbers, i64),
}

impl Operand {
    /// Compiles an operand for an anchor that accumulates in `acc`.
    ///
    /// # Errors
    /// Returns every reason why the operand cannot be compiled.
    pub fn compile(operand: &Grouped, acc: DType, slots: &mut Slots, isa: Isa) -> Result<Operand, Vec<String>> {
        Operand::in_place(operand, acc, slots).map_or_else(|| whole(operand, acc, slots, isa), Ok)
    }

    /// Returns an operand that is read in place; `None` for other operands.
    pub fn in_place(operand: &Grouped, acc: DType, slots: &Slots) -> Option<Operand> {
        let (slot, base, strides) = in_place(&operand.matrices()?, acc, slots)?;
        Some(Operand { slot, base, strides, size: acc.size(), form: OperandForm::InPlace })
    }

    /// Compiles an operand that only converts elements of a narrower type, which products read in place. Returns the
    /// operand and the narrower type, or `None` for other operands.
    pub fn short(operand: &Grouped, slots: &Slots) -> Option<(Operand, DType)> {
        let mut nest = operand.matrices()?;
        let &result = nest.results.first()?;
        let load = kept(&nest.instrs, result)?;
        let dtype = load.dtype;
        nest.results = vec![nest.instrs.iter().position(|instr| matches!(instr, Instr::Load(of) if of == load))?];
        let (slot, base, strides) = in_place(&nest, dtype, slots)?;
        Some((Operand { slot, base, strides, size: dtype.size(), form: OperandForm::InPlace }, dtype))
    }

    /// Returns the bytes of an element.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the elements from a row to the next, and from a column to the next.
    pub fn steps(&self) -> [i64; 2] {
        [2, 1].map(|from_end| self.strides[self.strides.len() - from_end])
    }

    /// Compiles an operand with strided matrices that integers select. The integers are evaluated first. Returns `None`
    /// for other operands.
    pub fn chosen(operand: &Grouped, acc: DType, slots: &mut Slots, isa: Isa) -> Option<Operand> {
        let nest = operand.matrices()?;
        let batch = nest.domain.len().checked_sub(2)?;
        let body = Body { domain: nest.domain.clone(), instrs: nest.instrs.clone(), ..Body::default() };
        let masks = masks(&body, 0);
        let ChosenMatrix { load, at, number, count, matrix_stride } =
            ChosenMatrix::of(&nest.instrs, *nest.results.first()?, &masks, batch)?;
        let &(dtype, all) = slots.types.get(load.slot)?;
        let range = at.range(&nest.domain);
        let inside = range.start >= 0 && range.end + matrix_stride.checked_mul(count - 1)? <= all as i64;
        let of_number = nest.instrs[number].dtype();
        let integer = matches!(of_number, DType::I32 | DType::I64 | DType::U32);
        if nest.domain.contains(&0) || dtype != acc || load.dtype != acc || !inside || !integer {
            return None;
        }
        let strides = at.affine(nest.domain.len())?;
        let (slot, base) = (load.slot, at.constant);
        let numbers = MatrixNumbers::compile(&nest, batch, (number, count), slots, isa)?;
        Some(Operand { slot, base, strides, size: acc.size(), form: OperandForm::Chosen(numbers, matrix_stride) })
    }

    /// Returns the destination of a body that only stores the result of its anchor, with contiguous columns; `None` for
    /// other bodies.
    pub fn target(body: &Nest, acc: DType, slots: &Slots) -> Option<Operand> {
        let [store] = body.stores.as_slice() else { return None };
        let is_result = store.guards.is_empty() && matches!(body.instrs[store.value], Instr::Anchor { .. });
        let strides = store.at.affine(body.domain.len()).filter(|_| is_result && slots.types[store.slot].0 == acc)?;
        let side_by_side = strides.last() == Some(&1) || body.domain.last() == Some(&1);
        let (slot, base, size) = (store.slot, store.at.constant, acc.size());
        side_by_side.then_some(Operand { slot, base, strides, size, form: OperandForm::InPlace })
    }

    /// Evaluates the operand or its numbers, if it is not read in place.
    ///
    /// # Safety
    /// The requirements of [`Thunk::run`] apply.
    pub unsafe fn prepare(&self, launch: &ThunkContext<'_>) {
        // SAFETY: passed on from the caller. The buffer that is written is the thunk's own.
        unsafe {
            match &self.form {
                OperandForm::InPlace => {}
                OperandForm::Evaluated(first) => first.run(launch),
                OperandForm::Chosen(numbers, _) => numbers.prepare(launch),
            }
        }
    }

    /// Returns the bytes of scratch memory that [`Operand::prepare`] takes.
    pub fn scratch(&self) -> usize {
        match &self.form {
            OperandForm::InPlace => 0,
            OperandForm::Evaluated(first) => first.scratch(),
            OperandForm::Chosen(numbers, _) => numbers.scratch(),
        }
    }

    /// Returns the matrix at a batch point, from element (`row`, `column`) on.
    pub fn matrix(&self, slots: &[*mut u8], batch: &[usize], row: usize, column: usize) -> Matrix {
        let [of_batch @ .., rows, columns] = self.strides.as_slice() else {
            unreachable!("operands have rows and columns")
        };
        let offset = of_batch.iter().zip(batch).fold(self.base, |sum, (s, &i)| sum + s * i as i64);
        let offset = offset + rows * row as i64 + columns * column as i64;
        let offset = match &self.form {
            OperandForm::Chosen(numbers, matrix) => offset + numbers.at(slots, batch) * matrix,
            OperandForm::InPlace | OperandForm::Evaluated(_) => offset,
        };
        Matrix {
            at: slots[self.slot].wrapping_offset(offset as isize * self.size as isize),
            rows: *rows as isize,
            columns: *columns as isize,
        }
    }
}

/// Returns the strides of a dense tensor.
fn strides_of(domain: &[usize]) -> Vec<i64> {
    strides(domain).into_iter().map(|s| s as i64).collect()
}

/// Returns the buffer, first element and strides of an operand over `[b.. m n]` that is read in place; `None` for other
/// operands.
pub fn in_place(nest: &Nest, acc: DType, slots: &Slots) -> Option<(usize, i64, Vec<i64>)> {
    let Instr::Load(load) = &nest.instrs[*nest.results.first()?] else { return None };
    let &(dtype, count) = slots.types.get(load.slot)?;
    let range = load.at.range(&nest.domain);
    let inside = nest.domain.contains(&0) || (range.start >= 0 && range.end <= count as i64);
    let plain = load.guards.is_empty() && dtype == acc && load.dtype == acc && inside;
    let strides = load.at.affine(nest.domain.len()).filter(|_| plain)?;
    Some((load.slot, load.at.constant, strides))
}

/// Returns the load of an operand whose other ops are lossless conversions. Its packed form may then keep elements of
/// the load's type.
pub fn kept(instrs: &[Instr], result: ValueId) -> Option<&Load> {
    match &instrs[result] {
        Instr::Load(load) => Some(load),
        // Among functions of one number, only conversions change the type of a float. A wider type represents all
        // numbers of a narrower one.
        Instr::Map { args, dtype, .. } => {
            let &[arg] = args.as_slice() else { return None };
            let held = instrs[arg].dtype();
            let loses_nothing = dtype.is_float() && held != *dtype && held.size() < dtype.size();
            kept(instrs, arg).filter(|_| loses_nothing)
        }
        _ => None,
    }
}

/// Compiles an operand that is evaluated as dense matrices. All batches share one copy if the body does not depend on
/// the batch axes. The same holds for rows and for columns, if it depends on none of their axes.
fn whole(operand: &Grouped, acc: DType, slots: &mut Slots, isa: Isa) -> Result<Operand, Vec<String>> {
    let Grouped { nest, groups } = operand;
    let held = nest.results.first().map(|&r| nest.instrs[r].dtype().register());
    if held != Some(acc) {
        let held = held.map_or("no type".to_string(), |held| held.to_string());
        return Err(vec![format!(
            "cannot compile an operand of {held} for a kernel that accumulates in {acc}; cast the operand to {acc}"
        )]);
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
    // The stride of a group is that of its innermost axis.
    let mut inner = dense.into_iter();
    let stride = |(axes, kept): (&std::ops::Range<usize>, &bool)| match kept {
        true => inner.by_ref().take(axes.len()).last().unwrap_or(0),
        false => 0,
    };
    let strides = axes.iter().zip(&kept).map(stride).collect();
    Ok(Operand { slot, base: 0, strides, size: acc.size(), form: OperandForm::Evaluated(first) })
}
