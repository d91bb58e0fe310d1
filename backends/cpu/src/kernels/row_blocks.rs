//! Operands that tasks evaluate one block of rows at a time, in the scratch memory of their thread. No buffer holds a
//! complete operand, whatever maps and functions it uses.

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

/// The maximal number of elements that are evaluated at once. They stay in the first-level cache until they are copied
/// to the block.
const PART: usize = 4096;

/// A compiled operand over `[b.. rows.. columns..]`, which is evaluated in blocks of rows.
pub struct RowBlocks {
    /// The program that computes a part of the operand: a tile of its rows.
    program: TileProgram,
    batch: usize,
    rows: Span,
    columns: Span,
    /// The maximal number of rows that are evaluated at once.
    part: usize,
}

/// Returns whether evaluating each matrix of an operand separately evaluates no element twice. There is one matrix for
/// each point of the first `batch` axes.
pub fn are_matrices_disjoint(nest: &Nest, batch: usize) -> bool {
    (0..batch).all(|axis| nest.domain[axis] <= 1 || nest.depends_on(axis))
}

/// Returns the axes along which evaluated boxes have one point. They are the batch axes, and the outer row axes of
/// guards: if a guard depends on several row axes, all axes up to its second-innermost one.
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
/// Other operands, such as Winograd tiles, combine several elements, and are evaluated to a buffer. In ResNet-50,
/// evaluating such transformations in blocks made products slower: by 9 % for images of 14 × 14 tiles, by 11 % for 4 ×
/// 4 tiles, and not at all for 7 × 7 tiles.
pub fn is_view(instrs: &[Instr], domain: &[usize], batch: usize, rows: usize) -> bool {
    let mentions_all = |load: &Load| (batch..batch + rows).all(|d| domain[d] <= 1 || load.at.mentions(d));
    instrs.iter().filter(|instr| matches!(instr, Instr::Load(load) if mentions_all(load))).count() <= 1
}

impl RowBlocks {
    /// Compiles an operand as matrices of type `acc`, in `blocks` of rows. Returns `None` if evaluating it to a buffer
    /// is better: its matrices share elements, or maps are affine only after splitting axes.
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
        // `part` is the number of rows that fit, in complete lines of the inner axes. The axes of `single` have one
        // point.
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

    /// Returns the number of batch axes.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Returns the axes of the rows.
    pub fn rows(&self) -> &Span {
        &self.rows
    }

    /// Returns a box along the batch axes and the axes of the rows. All rows of a matrix that are not in it are equal.
    /// Returns `None` if guards show no such box.
    pub fn varying(&self) -> Option<Region> {
        self.program.varying(self.rows.mask())?.along(!self.columns.mask())
    }

    /// Returns the bytes of scratch memory that evaluating takes, at the start of a frame's scratch memory.
    pub fn registers(&self) -> usize {
        self.program.scratch
    }

    /// Returns the number of elements of `rows` rows.
    pub fn room(&self, rows: usize) -> usize {
        rows * self.columns.points()
    }

    /// Evaluates some rows of the matrix at a batch point. If `ahead`, it prefetches the operands of the next rows
    /// meanwhile.
    ///
    /// # Safety
    /// The frame must have the kernel's slots and enough scratch memory. The rows must be within one of the compiled
    /// blocks, and begin with it. `to` must have [`RowBlocks::room`] elements of the operand's type.
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

    /// Returns a tile with all columns at a batch point.
    fn tile(&self, point: &[usize]) -> Tile {
        let mut tile = Tile { start: [0; MAX_RANK], len: [1; MAX_RANK] };
        tile.start[..self.batch].copy_from_slice(point);
        self.columns.boxes(0..self.columns.points(), tile, &mut |_, whole| tile = whole);
        tile
    }

    /// Prefetches the memory from which some rows are computed. Hardware prefetchers do not follow rows that are far
    /// from each other.
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

/// Prefetches the elements of a load in a box, if they are in contiguous lines along its innermost axes.
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
