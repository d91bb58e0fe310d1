//! Operands of products that are evaluated block by block, just before a block is packed or read. Only the current
//! block is stored.

use eutectic_backend::axes::Nest;
use eutectic_ir::DType;

use super::matrix::{PartSize, Stretch};
use crate::{
    simd::Isa,
    tile::{self, Frame, MAX_RANK, RowPart, Tile, TileProgram},
};

/// A compiled operand over `[b.. rows columns]`: a matrix for each point of the batch axes.
pub struct ComputedOperand {
    program: TileProgram,
    batch: usize,
    /// The maximal number of rows that are evaluated at once.
    rows: usize,
}

/// A matrix of a [`ComputedOperand`] with the buffers of a run, from a row and a column on.
#[derive(Clone, Copy)]
pub struct Evaluated<'a> {
    operand: &'a ComputedOperand,
    frame: &'a Frame<'a>,
    start: [usize; MAX_RANK],
}

impl ComputedOperand {
    /// Compiles an operand for blocks of these sizes, most rows first. Returns `None` if it cannot be compiled, or if
    /// evaluating blocks does not pay. It does not pay if the operand is constant along an axis, or if its maps are
    /// affine only after splitting axes.
    pub fn compile(nest: &Nest, slots: &[(DType, usize)], isa: Isa, parts: &[PartSize]) -> Option<ComputedOperand> {
        let (batch, all) = (nest.domain.len().checked_sub(2)?, 0..nest.domain.len());
        if nest.domain.contains(&0) || nest.divisions() > 0 || !all.clone().all(|axis| nest.depends_on(axis)) {
            return None;
        }
        let mut program = tile::compile(nest, 0, slots, isa).ok()?;
        let mask = program.values[*program.results.first()?].mask;
        if !all.into_iter().all(|axis| mask >> axis & 1 == 1) {
            return None;
        }
        let extents = |&PartSize { rows, columns }: &PartSize| {
            let mut len = [1; MAX_RANK];
            (len[batch], len[batch + 1]) = (rows, columns);
            len
        };
        program.allocate(&parts.iter().map(extents).collect::<Vec<_>>());
        Some(ComputedOperand { program, batch, rows: parts.first()?.rows })
    }

    /// Returns the bytes of scratch memory that evaluating takes, at the start of a frame's scratch memory.
    pub fn scratch(&self) -> usize {
        self.program.scratch
    }

    /// Returns the matrix at a batch point, from element (`row`, `column`) on.
    pub fn at<'a>(&'a self, frame: &'a Frame<'a>, point: &[usize], row: usize, column: usize) -> Evaluated<'a> {
        let mut start = [0; MAX_RANK];
        start[..self.batch].copy_from_slice(point);
        (start[self.batch], start[self.batch + 1]) = (row, column);
        Evaluated { operand: self, frame, start }
    }
}

impl Evaluated<'_> {
    /// Evaluates a block of rows and columns. Returns its address, which is valid until the next evaluation, and the
    /// elements from a row to the next. Columns are contiguous.
    ///
    /// # Safety
    /// The frame must have the kernel's slots and enough scratch memory. The size of the block must be one that the
    /// operand was compiled for.
    pub unsafe fn part<T>(&self, rows: Stretch, columns: Stretch) -> (*const T, isize) {
        let ComputedOperand { program, batch, .. } = self.operand;
        let mut tile = Tile { start: self.start, len: [1; MAX_RANK] };
        tile.start[*batch] += rows.first;
        tile.start[batch + 1] += columns.first;
        (tile.len[*batch], tile.len[batch + 1]) = (rows.count, columns.count);
        debug_assert!(rows.count <= self.operand.rows, "a block of {} rows is too high", rows.count);
        // SAFETY: passed on from the caller.
        unsafe {
            program.run(self.frame, &tile, RowPart::WHOLE);
            let (at, strides) = program.result(self.frame, &tile, program.results[0]);
            (at.cast(), strides[*batch])
        }
    }

    /// Evaluates any number of rows in blocks, like [`Evaluated::part`]. After each block, it calls `each` with four
    /// values: the block's first row (from 0), its number of rows, its address, and the elements from a row to the
    /// next.
    ///
    /// # Safety
    /// The requirements of [`Evaluated::part`] apply, for any number of rows.
    pub unsafe fn parts<T>(
        &self,
        rows: Stretch,
        columns: Stretch,
        mut each: impl FnMut(usize, usize, *const T, isize),
    ) {
        for first in (0..rows.count).step_by(self.operand.rows) {
            let count = self.operand.rows.min(rows.count - first);
            // SAFETY: passed on from the caller.
            let (at, row_stride) = unsafe { self.part(Stretch::new(rows.first + first, count), columns) };
            each(first, count, at, row_stride);
        }
    }
}
