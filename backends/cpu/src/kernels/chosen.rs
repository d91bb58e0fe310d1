//! Matrices that integers select at run time, such as the weights of a token's experts. They are read in place, or
//! packed before all runs ([`AllMatrices`]).

use eutectic_backend::{
    Body, Contraction, Instr, Kernel, Load, Store, ValueId,
    axes::Nest,
    grouped::Grouped,
    order::needed,
    reach::{AxisSet, masks},
};
use eutectic_ir::{
    DType,
    attr::Number,
    index::{Atom, Index, strides},
};

use super::{
    map_rows::{Tiles, evaluated},
    slots::Slots,
};
use crate::{
    runtime::thunk::{Thunk, ThunkContext},
    simd::{Isa, register::with_integer},
};

/// A load from one of several matrices. An integer, which is constant over the matrix, selects it.
#[derive(Clone, Debug)]
pub struct ChosenMatrix<'a> {
    /// The load of an element of the selected matrix.
    pub load: &'a Load,
    /// The affine index of an element in the first matrix.
    pub at: Index,
    /// The value that selects a matrix: an integer below `count`.
    pub number: ValueId,
    /// The number of matrices.
    pub count: i64,
    /// The distance in elements from a matrix to the next.
    pub matrix_stride: i64,
}

impl<'a> ChosenMatrix<'a> {
    /// Returns the load of a selected matrix that computes `result`; `None` if another instruction does. `masks` are
    /// the axes on which each instruction depends. Each point of the first `batch` axes selects one matrix.
    pub fn of(instrs: &'a [Instr], result: ValueId, masks: &[AxisSet], batch: usize) -> Option<ChosenMatrix<'a>> {
        let Instr::Load(load) = instrs.get(result)? else { return None };
        let mut numbers = load.at.terms.iter().filter_map(|(atom, factor)| match atom {
            Atom::Value(number) => Some((*number, *factor)),
            _ => None,
        });
        let (Some((number, matrix_stride)), None) = (numbers.next(), numbers.next()) else { return None };
        let Instr::Within { extent, guards, .. } = instrs.get(number)? else { return None };
        let count = extent.known().filter(|&count| count > 0)?;
        let mut at = load.at.clone();
        at.terms.retain(|(atom, _)| !matches!(atom, Atom::Value(_)));
        let affine = at.terms.iter().all(|(atom, _)| matches!(atom, Atom::Coord(_)));
        let of_batch = masks.get(number)? >> batch == 0;
        (affine && of_batch && matrix_stride > 0 && guards.is_empty() && load.guards.is_empty())
            .then_some(ChosenMatrix { load, at, number, count, matrix_stride })
    }
}

/// A right operand whose matrices an integer selects, as the operand of all these matrices. Only the integer depends on
/// the batch.
#[derive(Clone, Debug)]
pub struct AllMatrices {
    /// All matrices, with one batch axis, which counts them.
    pub operand: Grouped,
    /// The number of the matrix.
    pub number: ValueId,
    /// The number of matrices.
    pub count: usize,
}

impl AllMatrices {
    /// Returns that of an operand over `[b.. k.. n..]` that is not read in place anyway; `None` for other operands.
    pub fn of(operand: &Grouped) -> Option<AllMatrices> {
        let nest = &operand.nest;
        let is_number = |instr: &Instr| match instr {
            Instr::Within { extent, guards, dtype, .. } => {
                guards.is_empty() && extent.known().is_some() && matches!(dtype, DType::I32 | DType::I64 | DType::U32)
            }
            _ => false,
        };
        // Most operands have none, and this runs for every product that is priced.
        if !nest.instrs.iter().any(is_number) || !matches!(nest.instrs[*nest.results.first()?], Instr::Map { .. }) {
            return None;
        }
        let Nest { domain, lengths, instrs, results, .. } = nest.clone();
        let masks = masks(&Body { domain, lengths, instrs, results }, 0);
        let of_batch = |number: &ValueId| is_number(&nest.instrs[*number]) && masks[*number] >> operand.groups[0] == 0;
        (0..nest.instrs.len()).filter(of_batch).find_map(|number| AllMatrices::chosen_by(operand, number))
    }

    /// Returns the operand of all matrices, if everything but a number is independent of the batch.
    fn chosen_by(operand: &Grouped, number: ValueId) -> Option<AllMatrices> {
        let Instr::Within { extent, .. } = &operand.nest.instrs[number] else { return None };
        let count = usize::try_from(extent.known()?).ok().filter(|&count| count > 0)?;
        let [batch, terms, columns] = operand.groups;
        let mut nest = operand.nest.repeated(0, count);
        let coords: Vec<Index> = (0..nest.domain.len()).map(Index::coord).collect();
        let value = |id: ValueId| if id == number { Index::coord(0) } else { Index::atom(Atom::Value(id)) };
        for map in nest.instrs.iter_mut().flat_map(Instr::maps_mut) {
            *map = map.substitute(&coords, &value, &nest.domain);
        }
        let needed = needed(&nest.instrs, nest.results.iter().copied());
        if needed[number] {
            return None;
        }
        for instr in nest.instrs.iter_mut().zip(&needed).filter(|(_, needed)| !**needed).map(|(instr, _)| instr) {
            *instr = Instr::Constant { value: Number::from(0.0), dtype: instr.dtype() };
        }
        for axis in (1..=batch).rev() {
            if nest.depends_on(axis) {
                return None;
            }
            nest = nest.without(axis);
        }
        Some(AllMatrices { operand: Grouped { nest, groups: [1, terms, columns] }, number, count })
    }

    /// Returns that of the right operand of a kernel, if its matrices are constant: `constants` are the constant slots,
    /// or `None` if each may be.
    pub fn of_kernel(kernel: &Kernel, constants: Option<&[usize]>) -> Option<AllMatrices> {
        let Contraction { rhs, axes, .. } = kernel.contraction()?;
        let columns: usize = kernel.body.domain.get(axes.batch + axes.rows..)?.iter().product();
        let all = AllMatrices::of(&Grouped::operand(rhs, [axes.batch, axes.depth, axes.columns]))?;
        let mut slots = all.operand.nest.slots().into_iter();
        let are_constant = slots.all(|slot| constants.is_none_or(|constants| constants.contains(&slot)));
        (columns > 1 && are_constant && kernel.accumulator() == Some(DType::F32)).then_some(all)
    }
}

/// The numbers of the matrices at all points of a batch, which are evaluated before a product.
pub struct MatrixNumbers {
    first: Tiles,
    slot: usize,
    dtype: DType,
    /// Along the axes of the batch, in elements.
    strides: Vec<i64>,
    count: i64,
}

impl MatrixNumbers {
    /// Compiles a number of a nest whose first `batch` axes are those of the batch. `None` if there is no kernel for it.
    pub fn compile(
        nest: &Nest,
        batch: usize,
        (number, count): (ValueId, i64),
        slots: &mut Slots,
        isa: Isa,
    ) -> Option<MatrixNumbers> {
        let Nest { domain, lengths, instrs, results, .. } = nest.clone();
        let kept = masks(&Body { domain, lengths, instrs, results }, 0)[number];
        let dtype = nest.instrs[number].dtype();
        let mut numbers = Nest { results: Vec::new(), ..nest.clone() };
        for axis in (0..nest.domain.len()).rev().filter(|axis| kept >> axis & 1 == 0) {
            numbers = numbers.without(axis);
        }
        let slot = slots.add(dtype, numbers.domain.iter().product());
        let dense: Vec<i64> = strides(&numbers.domain).into_iter().map(|s| s as i64).collect();
        let at = dense.iter().enumerate().fold(Index::default(), |at, (d, &s)| at.plus(&Index::coord(d).times(s)));
        numbers.stores = vec![Store::new(slot, at, number)];
        let first = evaluated(numbers, slots, isa).ok()?;
        let mut dense = dense.into_iter();
        let strides =
            (0..batch).map(|axis| if kept >> axis & 1 == 1 { dense.next().unwrap_or(0) } else { 0 }).collect();
        Some(MatrixNumbers { first, slot, dtype, strides, count })
    }

    /// Evaluates the numbers.
    ///
    /// # Safety
    /// As [`Thunk::run`].
    pub unsafe fn prepare(&self, launch: &ThunkContext<'_>) {
        // SAFETY: passed on from the caller. The buffer that is written is the thunk's own.
        unsafe { self.first.run(launch) };
    }

    /// Returns bytes of scratch memory that preparing takes.
    pub fn scratch(&self) -> usize {
        self.first.scratch()
    }

    /// Returns the number of the matrix at a batch point.
    pub fn at(&self, slots: &[*mut u8], batch: &[usize]) -> i64 {
        let at = self.strides.iter().zip(batch).map(|(s, &i)| s * i as i64).sum::<i64>() as isize;
        let from = slots[self.slot].cast_const();
        // SAFETY: the numbers were evaluated before, one for each point of the batch on whose axes they depend.
        let number = unsafe { with_integer!(self.dtype, Int => i64::from(from.cast::<Int>().offset(at).read())) };
        // An invalid integer was reported when it was evaluated. It is clamped nevertheless, for memory safety.
        number.clamp(0, self.count - 1)
    }
}
