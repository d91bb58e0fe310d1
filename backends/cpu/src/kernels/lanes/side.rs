//! An operand of a batch-vectorised contraction: read in place, or evaluated over a tile first.

use eutectic_ir::DType;

use super::form::Side;
use crate::{
    kernels::{operand::in_place, slots::Slots},
    runtime::memory::ALIGN,
    simd::{
        Isa,
        phases::{self, Split},
    },
    tile::{self, Frame, MAX_RANK, RowPart, Tile, TileProgram, program::TileStep},
};

/// A compiled operand.
pub struct LaneOperand {
    side: Side,
    source: Source,
    size: usize,
    /// The result of [`LaneOperand::find`] for an operand that is read in place, which is equal for all tiles.
    terms: Option<Vec<isize>>,
    /// The de-interleaving of an operand whose lanes are several elements apart.
    phases: Option<Phases>,
}

/// The de-interleaving of lines: elements with one remainder modulo the stride of the lanes (a phase) become
/// contiguous.
struct Phases {
    /// The byte offsets of the result in scratch memory: its start, and its end.
    at: usize,
    end: usize,
    split: unsafe fn(&Split),
}

enum Source {
    /// Slot, first element, and strides along the operand's axes.
    InPlace(usize, i64, Vec<i64>),
    Evaluated(Box<TileProgram>),
}

/// The position of an operand for a tile.
#[derive(Clone, Copy)]
pub struct LaneTile {
    /// The address of the element for the tile's first point and the first term.
    pub at: *const u8,
    /// Strides of the operand's axes, in elements. The stride of the lanes is that within a phase.
    pub strides: [isize; MAX_RANK],
    /// The distance in elements between the starts of two consecutive phases of the lanes.
    pub plane: isize,
}

impl LaneOperand {
    /// Compiles an operand of elements of type `acc`. `lens` are the extents of the result's tiles.
    ///
    /// # Errors
    /// Returns every reason why the operand cannot be compiled.
    pub fn compile(
        side: &Side,
        terms: &[usize],
        lens: &[[usize; MAX_RANK]],
        acc: DType,
        slots: &Slots,
        isa: Isa,
    ) -> Result<LaneOperand, Vec<String>> {
        let (side, size) = (side.clone(), acc.size());
        let phases = |before: usize| {
            let split = |len: &[usize; MAX_RANK]| {
                let all: Vec<usize> = side.extents(len, terms).collect();
                all.split_last().map_or(0, |(last, rest)| rest.iter().product::<usize>() * side.split(*last))
            };
            let most = lens.iter().map(split).max().unwrap_or(0);
            let at = before.next_multiple_of(ALIGN);
            (side.phases > 1).then(|| Phases { at, end: at + most * size, split: phases::find(size, isa) })
        };
        if side.in_place()
            && let Some((slot, base, strides)) = in_place(&side.nest, acc, slots)
        {
            let phases = phases(0);
            let mut of_terms = vec![0; terms.iter().product()];
            side.terms(strides.iter().map(|&s| s as isize), 0, terms, &mut of_terms);
            let terms = phases.is_none().then_some(of_terms);
            return Ok(LaneOperand { side, source: Source::InPlace(slot, base, strides), size, terms, phases });
        }
        let held = side.nest.results.first().map(|&r| side.nest.instrs[r].dtype().register());
        if held != Some(acc) {
            let held = held.map_or("no type".to_string(), |held| held.to_string());
            return Err(vec![format!(
                "cannot compile an operand of {held} for a kernel that accumulates in {acc}; cast the operand to {acc}"
            )]);
        }
        let mut program = tile::compile(&side.nest, 0, &slots.types, isa)?;
        let extents = |len: &[usize; MAX_RANK]| {
            let mut all = [1; MAX_RANK];
            all.iter_mut().zip(side.extents(len, terms)).for_each(|(to, n)| *to = n);
            all
        };
        let every = (0..side.axes.len()).all(|d| program.values[program.results[0]].mask >> d & 1 == 1);
        if !every {
            return Err(vec![
                "cannot evaluate an operand in tiles because its value is constant along an axis of its index maps"
                    .to_string(),
            ]);
        }
        program.allocate(&lens.iter().map(extents).collect::<Vec<_>>());
        let phases = phases(program.scratch);
        Ok(LaneOperand { side, source: Source::Evaluated(Box::new(program)), size, terms: None, phases })
    }

    /// Returns the bytes of scratch memory that the operand takes.
    pub fn scratch(&self) -> usize {
        match (&self.phases, &self.source) {
            (Some(phases), _) => phases.end,
            (None, Source::InPlace(..)) => 0,
            (None, Source::Evaluated(program)) => program.scratch,
        }
    }

    /// Returns the box of the operand that a tile of the result reads.
    pub fn part(&self, tile: &Tile, terms: &[usize]) -> Tile {
        let mut part = Tile { start: [0; MAX_RANK], len: [1; MAX_RANK] };
        part.len.iter_mut().zip(self.side.extents(&tile.len, terms)).for_each(|(to, n)| *to = n);
        for (to, axis) in part.start.iter_mut().zip(&self.side.axes) {
            *to = axis.point.map_or(0, |(d, step)| step * tile.start[d]);
        }
        part
    }

    /// Returns a box of the operand: in place, or in scratch memory after evaluation or de-interleaving.
    ///
    /// # Safety
    /// The frame must have the kernel's slots and [`LaneOperand::scratch`] bytes of scratch memory. The box must be
    /// that of a tile for which the operand was compiled.
    pub unsafe fn have(&self, frame: &Frame<'_>, part: &Tile) -> LaneTile {
        // SAFETY: passed on from the caller.
        let whole = unsafe { self.whole(frame, part) };
        match &self.phases {
            // SAFETY: the box is valid, and there is scratch memory for its phases.
            Some(phases) => unsafe { self.split(&whole, frame.scratch.add(phases.at), part, phases.split) },
            None => whole,
        }
    }

    /// Returns a box whose lanes are de-interleaved by phase, line by line.
    ///
    /// # Safety
    /// The box must be valid at `from`, and `to` must have room for it.
    unsafe fn split(&self, from: &LaneTile, to: *mut u8, part: &Tile, split: unsafe fn(&Split)) -> LaneTile {
        let (last, size) = (self.side.axes.len() - 1, self.size as isize);
        let (phases, len) = (self.side.phases, part.len[last]);
        let line = self.side.split(len) as isize;
        let mut strides = [0; MAX_RANK];
        strides[last] = 1;
        (0..last).rev().fold(line, |stride, d| {
            strides[d] = stride;
            stride * part.len[d] as isize
        });
        let plane = line / phases as isize;
        // One call splits all lines along the axis before the last one.
        let (outer, lines) = (last.saturating_sub(1), last.checked_sub(1));
        let of_lines = |strides: &[isize; MAX_RANK]| lines.map_or(0, |d| strides[d]);
        let mut at = [0; MAX_RANK];
        loop {
            let offset = |of: &[isize; MAX_RANK]| (0..outer).map(|d| of[d] * at[d] as isize).sum::<isize>() * size;
            let call = Split {
                to: to.wrapping_offset(offset(&strides)),
                to_lines: of_lines(&strides),
                plane,
                from: from.at.wrapping_offset(offset(&from.strides)),
                from_lines: of_lines(&from.strides),
                phases,
                len,
                count: lines.map_or(1, |d| part.len[d]),
            };
            // SAFETY: passed on from the caller.
            unsafe { split(&call) };
            let Some(d) = (0..outer).rev().find(|&d| at[d] + 1 < part.len[d]) else { break };
            at[d] += 1;
            at[d + 1..].fill(0);
        }
        LaneTile { at: to.cast_const(), strides, plane }
    }

    /// Returns a box like [`LaneOperand::have`], without de-interleaving.
    ///
    /// # Safety
    /// The requirements of [`LaneOperand::have`] apply.
    unsafe fn whole(&self, frame: &Frame<'_>, part: &Tile) -> LaneTile {
        match &self.source {
            Source::InPlace(slot, base, strides) => self.lies_at(frame, *slot, *base, strides, part),
            Source::Evaluated(program) if let Some((slot, base, strides)) = self.uncut(program, part) => {
                self.lies_at(frame, slot, base, strides, part)
            }
            Source::Evaluated(program) => {
                // SAFETY: passed on from the caller.
                let (at, strides) = unsafe {
                    program.run(frame, part, RowPart::WHOLE);
                    program.result(frame, part, program.results[0])
                };
                LaneTile { at, strides, plane: 0 }
            }
        }
    }

    /// Returns the slot, first element and strides of an operand that is a padded buffer, if the box needs no padding.
    fn uncut<'a>(&self, program: &'a TileProgram, part: &Tile) -> Option<(usize, i64, &'a [i64])> {
        let last = self.side.axes.len().checked_sub(1)?;
        match &program.steps[program.results[0]] {
            TileStep::Boxed { slot, base, strides, region } if strides[last] == 1 && region.covers(part) => {
                Some((*slot, *base, &strides[..]))
            }
            _ => None,
        }
    }

    fn lies_at(&self, frame: &Frame<'_>, slot: usize, base: i64, of_axes: &[i64], part: &Tile) -> LaneTile {
        let offset = of_axes.iter().zip(&part.start).fold(base, |sum, (s, &i)| sum + s * i as i64);
        let mut strides = [0; MAX_RANK];
        strides.iter_mut().zip(of_axes).for_each(|(to, &s)| *to = s as isize);
        let at = frame.slots[slot].wrapping_offset(offset as isize * self.size as isize);
        LaneTile { at: at.cast_const(), strides, plane: 0 }
    }

    /// Returns the elements from a point to the next along an axis of the result.
    pub fn step(&self, tile: &LaneTile, point: usize) -> isize {
        let of = |(axis, stride): (&super::form::SideAxis, &isize)| match axis.point {
            Some((d, step)) if d == point => stride * step as isize,
            _ => 0,
        };
        self.side.axes.iter().zip(&tile.strides).map(of).sum()
    }

    /// Returns whether the operand has an element for each point along an axis of the result.
    pub fn depends_on(&self, point: usize) -> bool {
        self.side.depends_on(point)
    }

    /// Writes the offset of each term from the first one to `to`, in elements, unless the offsets are equal for all
    /// tiles.
    pub fn find(&self, tile: &LaneTile, terms: &[usize], to: &mut [isize]) {
        if self.terms.is_none() {
            self.side.terms(tile.strides.iter().copied(), tile.plane, terms, to);
        }
    }

    /// Returns the offsets of terms: those that are equal for all tiles, or else those that [`LaneOperand::find`] wrote
    /// to `found`.
    pub fn terms<'a>(&'a self, found: &'a [isize]) -> &'a [isize] {
        self.terms.as_deref().unwrap_or(found)
    }
}
