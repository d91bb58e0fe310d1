//! Queries, keys and values: read in place, evaluated before the kernel begins, or evaluated by the tasks that use
//! them.

use std::ops::Range;

use eutectic_backend::grouped::Grouped;
use eutectic_ir::DType;

use super::runs::Runs;
use crate::{
    gemm::{
        blocking::Blocking,
        matrix::{Matrix, Stretch},
        product::ProductElement,
        right::Right,
    },
    kernels::{operand::Operand, row_blocks::RowBlocks, slots::Slots},
    runtime::thunk::ThunkContext,
    simd::Isa,
    tile::Frame,
};

/// Queries, keys or values.
pub enum AttentionOperand {
    /// Read in place, or evaluated before the kernel begins.
    Whole(Box<Operand>),
    /// Read in place, in a narrower type than the accumulator.
    Short(Box<Operand>),
    /// Elements that each task evaluates for its own use.
    Blocks(Box<RowBlocks>),
}

impl AttentionOperand {
    /// Compiles queries, keys or values. `blocks` are their blocks of rows if one task reads each block; tasks may then
    /// evaluate them.
    ///
    /// # Errors
    /// Returns every reason why the operand cannot be compiled.
    pub fn compile(
        operand: &Grouped,
        acc: DType,
        slots: &mut Slots,
        isa: Isa,
        blocks: Option<&[Range<usize>]>,
    ) -> Result<AttentionOperand, Vec<String>> {
        if let Some(in_place) = Operand::in_place(operand, acc, slots) {
            return Ok(AttentionOperand::Whole(Box::new(in_place)));
        }
        match blocks.and_then(|blocks| RowBlocks::compile(operand, acc, slots, isa, blocks.iter().cloned())) {
            Some(blocks) => Ok(AttentionOperand::Blocks(Box::new(blocks))),
            None => Operand::compile(operand, acc, slots, isa).map(|whole| AttentionOperand::Whole(Box::new(whole))),
        }
    }

    /// Compiles keys or values that products read in place, in a narrower type than `blocking` accumulates in. Returns
    /// `None` if they must be converted.
    pub fn short<T: ProductElement>(
        operand: &Grouped,
        slots: &Slots,
        isa: Isa,
        blocking: &mut Blocking<T>,
    ) -> Option<AttentionOperand> {
        let (short, dtype) = Operand::short(operand, slots)?;
        let takes = short.steps()[1] == 1 && blocking.takes_short(dtype, isa);
        takes.then(|| AttentionOperand::Short(Box::new(short)))
    }

    /// Returns the operand, unless it is evaluated in tasks.
    pub fn whole(&self) -> Option<&Operand> {
        match self {
            AttentionOperand::Whole(operand) | AttentionOperand::Short(operand) => Some(operand),
            AttentionOperand::Blocks(_) => None,
        }
    }

    /// Returns a matrix of the operand as the right operand of a product.
    pub fn right(&self, matrix: Matrix) -> Right<'static> {
        match self {
            AttentionOperand::Short(_) => Right::Short(matrix),
            AttentionOperand::Whole(_) | AttentionOperand::Blocks(_) => Right::Strided(matrix),
        }
    }

    /// Returns the bytes of scratch memory that evaluating a block takes, at the start of a frame's scratch memory.
    pub fn registers(&self) -> usize {
        match self {
            AttentionOperand::Whole(_) | AttentionOperand::Short(_) => 0,
            AttentionOperand::Blocks(blocks) => blocks.registers(),
        }
    }

    /// Returns the elements of a block of `rows` rows that a task evaluates; 0 if tasks do not evaluate the operand.
    pub fn room(&self, rows: usize) -> usize {
        match self {
            AttentionOperand::Whole(_) | AttentionOperand::Short(_) => 0,
            AttentionOperand::Blocks(blocks) => blocks.room(rows),
        }
    }

    /// Returns some rows at a batch point. Evaluated rows are written to `place`.
    ///
    /// # Safety
    /// The requirements of [`crate::runtime::thunk::Thunk::run`] apply. Scratch memory must have room for the
    /// registers, and at `place` for the rows. The rows must be one of the compiled blocks.
    pub unsafe fn matrix<T: Copy>(
        &self,
        launch: &ThunkContext<'_>,
        point: &[usize],
        rows: Stretch,
        scratch: *mut u8,
        place: usize,
    ) -> Matrix {
        match self {
            AttentionOperand::Whole(operand) | AttentionOperand::Short(operand) => {
                operand.matrix(launch.slots, point, rows.first, 0)
            }
            AttentionOperand::Blocks(blocks) => {
                let (slots, fault) = (launch.slots, launch.fault);
                let frame = Frame { slots, scratch, anchor: std::ptr::null(), direct: false, fault };
                // SAFETY: passed on from the caller.
                unsafe {
                    let to = scratch.add(place).cast::<T>();
                    blocks.matrix(&frame, point, rows.first..rows.first + rows.count, false, to)
                }
            }
        }
    }

    /// Returns the rows of a block that are in `runs`, `width` elements each. Rows that are not contiguous, or are
    /// evaluated, are written to `place`.
    ///
    /// # Safety
    /// The requirements of [`AttentionOperand::matrix`] apply, with room for the whole block.
    pub unsafe fn runs<T: Copy>(
        &self,
        launch: &ThunkContext<'_>,
        point: &[usize],
        (block, runs): (Stretch, &Runs),
        width: usize,
        scratch: *mut u8,
        place: usize,
    ) -> Matrix {
        let rows = |run: &Range<usize>| Stretch::new(block.first + run.start, run.len());
        // SAFETY: passed on from the caller. Registers have room for a block, and so for a part of it.
        unsafe {
            if let Some(run) = runs.as_one() {
                return self.matrix::<T>(launch, point, rows(&run), scratch, place);
            }
            let to = scratch.add(place).cast::<T>();
            for (first, run) in runs.iter() {
                let at = place + first * width * size_of::<T>();
                let from = self.matrix::<T>(launch, point, rows(&run), scratch, at);
                let to = to.add(first * width);
                if from.at.cast() == to {
                    continue;
                }
                for (row, column) in (0..run.len()).flat_map(|row| (0..width).map(move |column| (row, column))) {
                    let from = from.at.cast::<T>().offset(row as isize * from.rows + column as isize * from.columns);
                    to.add(row * width + column).write(*from);
                }
            }
            Matrix { at: to.cast(), rows: width as isize, columns: 1 }
        }
    }
}
