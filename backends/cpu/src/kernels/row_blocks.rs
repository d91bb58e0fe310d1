//! Operands that are evaluated block of rows by block of rows, in the scratch memory of the thread that uses them. No
//! buffer holds them as a whole, whatever maps and functions they use.

use std::ops::Range;

use eutectic_backend::{
    Instr, Load,
    axes::Nest,
    grouped::{COLUMNS, Grouped, ROWS},
};
use eutectic_ir::DType;

use super::slots::Slots;
use crate::{
    gemm::matrix::Matrix,
    simd::{
        Isa,
        stream::{LINE, prefetch},
    },
    tile::{
        self, Frame, MAX_RANK, RowPart, Tile, TileProgram,
        domain::AxisMask,
        program::{TileStep, TileValue},
        region::Region,
        span::{Span, parts},
    },
};

/// Elements that are evaluated at once: they stay in the first-level cache until they are copied to their place.
const PART: usize = 4096;

/// An operand over `[b.. rows.. columns..]`.
pub struct RowBlocks {
    /// The program that computes some of its rows.
    program: TileProgram,
    batch: usize,
    rows: Span,
    columns: Span,
    /// Rows that are evaluated at once.
    part: usize,
}

/// Returns whether evaluating each matrix of an operand separately evaluates no element twice. There is one matrix for
/// each point of the first `batch` axes.
pub fn are_matrices_disjoint(nest: &Nest, batch: usize) -> bool {
    (0..batch).all(|axis| nest.domain[axis] <= 1 || nest.depends_on(axis))
}

/// Returns the axes along which boxes have one point: those of the batch, and the outer ones of the rows, up to those
/// that a guard mentions together with inner ones.
fn single(nest: &Nest, groups: &[usize; 3]) -> AxisMask {
    let (batch, rows) = (groups[0], groups[ROWS]);
    let guards = nest.instrs.iter().flat_map(|instr| match instr {
        Instr::Load(load) => load.guards.iter().collect(),
        Instr::Select { pieces, .. } => pieces.iter().flat_map(|piece| &piece.0).collect(),
        _ => Vec::new(),
    });
    let outer = guards.filter_map(|(index, _)| (batch..batch + rows).rev().filter(|&d| index.mentions(d)).nth(1));
    let end = outer.max().map_or(batch, |axis| axis + 1);
    (0..end).fold(0, |mask, axis| mask | 1 << axis)
}

/// Returns whether an operand of a product, over `batch` axes and `rows`, is computed from at most one load per row.
/// Other operands, such as Winograd tiles, combine several elements, and are evaluated to a buffer. In blocks, the
/// products of ResNet-50 with their transformations took 9 % longer for 14 × 14 tiles, 11 % longer for 4 × 4, and as
/// long for 7 × 7.
pub fn is_view(instrs: &[Instr], domain: &[usize], batch: usize, rows: usize) -> bool {
    let mentions_all = |load: &Load| (batch..batch + rows).all(|d| domain[d] <= 1 || load.at.mentions(d));
    instrs.iter().filter(|instr| matches!(instr, Instr::Load(load) if mentions_all(load))).count() <= 1
}

impl RowBlocks {
    /// Compiles an operand as matrices of type `acc`, in `blocks` of rows. Returns `None` if it is better evaluated as
    /// a whole: its matrices share elements, or maps are affine only after splitting axes.
    pub fn compile(
        operand: &Grouped,
        acc: DType,
        slots: &Slots,
        isa: Isa,
        blocks: impl Iterator<Item = Range<usize>>,
    ) -> Option<RowBlocks> {
        let operand = operand.clone().simple(COLUMNS).simple(ROWS);
        let Grouped { nest, groups } = &operand;
        let batch = groups[0];
        if nest.domain.contains(&0) || nest.divisions() > 0 || !are_matrices_disjoint(nest, batch) {
            return None;
        }
        let [rows, columns] = [ROWS, COLUMNS].map(|g| Span::new(&nest.domain, operand.first(g), groups[g]));
        let single = single(nest, groups);
        let outer = single >> batch;
        let mut program = tile::compile_for(nest, 0, single, &slots.types, isa).ok()?;
        // A value that does not depend on all axes of the matrices is broadcast along the others.
        let result = *program.results.first()?;
        let value = program.values[result].clone();
        let mask = value.mask | rows.mask() | columns.mask();
        if value.dtype != acc {
            return None;
        }
        if mask != value.mask {
            program.steps.push(TileStep::Spread(result));
            program.values.push(TileValue { mask, constant: None, direct: None, ..value });
            program.results[0] = program.steps.len() - 1;
        }
        // As many as fit, in whole lines of the inner axes, and at most one point of the outer axes that have one at a
        // time.
        let mut part = 1;
        let fits = (PART / columns.points()).max(1);
        for (axis, &extent) in operand.extents(ROWS).iter().enumerate().rev().filter(|(axis, _)| outer >> axis & 1 == 0)
        {
            part *= (fits / part).clamp(1, extent);
            if part < operand.extents(ROWS)[axis..].iter().product() {
                break;
            }
        }
        let wide = columns.lens(std::iter::once(0..columns.points()));
        let both = |r: &[usize; MAX_RANK], c: &[usize; MAX_RANK]| std::array::from_fn(|d| r[d].max(c[d]));
        let lens = rows.lens(blocks.flat_map(|block| parts(block, part)));
        program.allocate(&lens.iter().flat_map(|r| wide.iter().map(move |c| both(r, c))).collect::<Vec<_>>());
        Some(RowBlocks { program, batch, rows, columns, part })
    }

    /// Returns the axes of the batch.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Returns the rows' axes.
    pub fn rows(&self) -> &Span {
        &self.rows
    }

    /// Returns a box of batch and rows outside of which all rows of a matrix are equal, if guards show one.
    pub fn varying(&self) -> Option<Region> {
        self.program.varying(self.rows.mask())?.along(!self.columns.mask())
    }

    /// Returns bytes of scratch memory that evaluating takes, at the beginning of a frame's.
    pub fn registers(&self) -> usize {
        self.program.scratch
    }

    /// Returns the elements of `rows` rows.
    pub fn room(&self, rows: usize) -> usize {
        rows * self.columns.points()
    }

    /// Evaluates some rows of the matrix at a batch point, and prefetches the operands of the next ones if `ahead`.
    ///
    /// # Safety
    /// The frame's slots must be the kernel's and its scratch memory large enough. The rows must be within one of the
    /// compiled blocks, and begin with it. There must be [`RowBlocks::room`] for them at `to`, of elements of its type.
    pub unsafe fn matrix<T: Copy>(
        &self,
        frame: &Frame<'_>,
        point: &[usize],
        rows: Range<usize>,
        ahead: bool,
        to: *mut T,
    ) -> Matrix {
        let (width, first) = (self.columns.points(), rows.start);
        let tile = self.tile(point);
        for part in parts(rows.clone(), self.part) {
            if ahead {
                self.prefetch(frame.slots, point, part.end..rows.end.min(part.end + self.part));
            }
            self.rows.boxes(part, tile, &mut |some, part| {
                // SAFETY: registers were placed for boxes of this size, which are dense there; the rest is passed on
                // from the caller.
                unsafe {
                    self.program.run(frame, &part, RowPart::WHOLE);
                    let (at, _) = self.program.result(frame, &part, self.program.results[0]);
                    let to = to.add((some.start - first) * width);
                    to.copy_from_nonoverlapping(at.cast(), some.len() * width);
                }
            });
        }
        Matrix { at: to.cast(), rows: width as isize, columns: 1 }
    }

    /// Returns all columns at a batch point.
    fn tile(&self, point: &[usize]) -> Tile {
        let mut tile = Tile { start: [0; MAX_RANK], len: [1; MAX_RANK] };
        tile.start[..self.batch].copy_from_slice(point);
        self.columns.boxes(0..self.columns.points(), tile, &mut |_, whole| tile = whole);
        tile
    }

    /// Prefetches the lines from which some rows are computed. The hardware does not prefetch lines that are far apart.
    pub fn prefetch(&self, slots: &[*mut u8], point: &[usize], rows: Range<usize>) {
        self.rows.boxes(rows, self.tile(point), &mut |_, part| {
            for (step, value) in self.program.steps.iter().zip(&self.program.values) {
                let (slot, base, strides, part) = match step {
                    TileStep::Affine { slot, base, strides } => (*slot, *base, strides, Some(part)),
                    TileStep::Boxed { slot, base, strides, region } => (*slot, *base, strides, region.part(&part)),
                    _ => continue,
                };
                if let Some(part) = part.filter(|_| value.mask & self.rows.mask() != 0) {
                    let at = slots[slot].wrapping_offset(base as isize * value.dtype.size() as isize);
                    lines(at, value.dtype.size(), strides, &part);
                }
            }
        });
    }
}

/// Prefetches a load's elements of a box, if they are in lines along its innermost axes.
fn lines(at: *const u8, size: usize, strides: &[i64; MAX_RANK], part: &Tile) {
    // Axes with contiguous points form one line. Prefetching lines of a few elements costs more than it saves.
    let (mut outer, mut long) = (MAX_RANK, 1);
    while let Some(d) = outer.checked_sub(1).filter(|&d| part.len[d] == 1 || strides[d] == long) {
        (outer, long) = (d, long * part.len[d] as i64);
    }
    if long == 1 {
        return;
    }
    let bytes = long as usize * size;
    let mut at_axis = [0; MAX_RANK];
    loop {
        let offset = (0..MAX_RANK).map(|d| strides[d] * (part.start[d] + at_axis[d]) as i64).sum::<i64>();
        let line = at.wrapping_offset(offset as isize * size as isize);
        (0..bytes).step_by(LINE).for_each(|byte| prefetch(line.wrapping_add(byte)));
        let Some(d) = (0..outer).rev().find(|&d| at_axis[d] + 1 < part.len[d]) else { return };
        at_axis[d] += 1;
        at_axis[d + 1..outer].fill(0);
    }
}
