//! Operands of products that are evaluated part by part, right where they are packed or read: nothing is stored but the part that a
//! product is at.

use eutectic_backend::axes::Nest;
use eutectic_ir::DType;

use super::matrix::{PartSize, Stretch};
use crate::{
    simd::Isa,
    tile::{self, Frame, MAX_RANK, RowPart, Tile, TileProgram},
};

/// An operand over `[b.. rows columns]`.
pub struct ComputedOperand {
    program: TileProgram,
    batch: usize,
    /// Rows that are evaluated at once.
    rows: usize,
}

/// Such an operand at work: a matrix of it, from a row and a column on.
#[derive(Clone, Copy)]
pub struct Evaluated<'a> {
    operand: &'a ComputedOperand,
    frame: &'a Frame<'a>,
    start: [usize; MAX_RANK],
}

impl ComputedOperand {
    /// Compiles an operand whose parts have such rows and columns, the most rows first; `None` if it cannot be, or if parts are better
    /// not evaluated by themselves: where it is the same along an axis, and where maps are not affine unless axes are cut.
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

    /// Bytes of scratch memory that evaluating takes, at the beginning of a frame's.
    pub fn scratch(&self) -> usize {
        self.program.scratch
    }

    /// The matrix at a batch point, from element (`row`, `column`) on.
    pub fn at<'a>(&'a self, frame: &'a Frame<'a>, point: &[usize], row: usize, column: usize) -> Evaluated<'a> {
        let mut start = [0; MAX_RANK];
        start[..self.batch].copy_from_slice(point);
        (start[self.batch], start[self.batch + 1]) = (row, column);
        Evaluated { operand: self, frame, start }
    }
}

impl Evaluated<'_> {
    /// Evaluates some rows and columns: where they are until the next evaluation, and from a row to the next; columns lie side by side.
    ///
    /// # Safety
    /// The frame's slots must be the kernel's and its scratch memory large enough; the part must be one that the operand was compiled for.
    pub unsafe fn part<T>(&self, rows: Stretch, columns: Stretch) -> (*const T, isize) {
        let ComputedOperand { program, batch, .. } = self.operand;
        let mut tile = Tile { start: self.start, len: [1; MAX_RANK] };
        tile.start[*batch] += rows.first;
        tile.start[batch + 1] += columns.first;
        (tile.len[*batch], tile.len[batch + 1]) = (rows.count, columns.count);
        debug_assert!(rows.count <= self.operand.rows, "{} rows at once", rows.count);
        // SAFETY: passed on from the caller.
        unsafe {
            program.run(self.frame, &tile, RowPart::WHOLE);
            let (at, strides) = program.result(self.frame, &tile, program.results[0]);
            (at.cast(), strides[*batch])
        }
    }

    /// As [`Evaluated::part`], of any number of rows: `each` is given the number of the first one of those that are evaluated at once,
    /// how many there are, where they are, and from one to the next.
    ///
    /// # Safety
    /// As [`Evaluated::part`].
    pub unsafe fn parts<T>(
        &self,
        rows: Stretch,
        columns: Stretch,
        mut each: impl FnMut(usize, usize, *const T, isize),
    ) {
        for first in (0..rows.count).step_by(self.operand.rows) {
            let count = self.operand.rows.min(rows.count - first);
            // SAFETY: passed on from the caller.
            let (at, apart) = unsafe { self.part(Stretch::new(rows.first + first, count), columns) };
            each(first, count, at, apart);
        }
    }
}
