//! Operands of products that are evaluated part by part, where they are packed or read. Only the current part is
//! stored.

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
    /// Compiles an operand whose parts have these rows and columns, most rows first. Returns `None` if that is
    /// impossible. It also does if evaluating parts does not pay, because the operand is constant along an axis, or
    /// because its maps are affine only after splitting axes.
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

    /// Returns bytes of scratch memory that evaluating takes, at the beginning of a frame's.
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
    /// Evaluates some rows and columns. Returns their position, which is valid until the next evaluation, and the
    /// distance of two rows; columns are contiguous.
    ///
    /// # Safety
    /// The frame's slots must be the kernel's and its scratch memory large enough; the part must be one that the
    /// operand was compiled for.
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

    /// Evaluates like [`Evaluated::part`], for any number of rows. `each` receives, for each group of rows that is
    /// evaluated at once, the number of its first row, its number of rows, their position, and the distance of two
    /// rows.
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
            let (at, row_stride) = unsafe { self.part(Stretch::new(rows.first + first, count), columns) };
            each(first, count, at, row_stride);
        }
    }
}
