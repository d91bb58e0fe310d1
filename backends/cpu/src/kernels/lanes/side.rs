//! An operand of sums side by side: read where it lies, or evaluated over a tile first.

use eutectic_ir::DType;

use super::form::Side;
use crate::{
    kernels::{operand::in_place, slots::Slots},
    simd::{Isa, convert::register},
    tile::{self, Frame, MAX_RANK, RowPart, Tile, TileProgram, program::TileStep},
};

/// A compiled operand.
pub struct LaneOperand {
    side: Side,
    source: Source,
    size: usize,
    /// What [`LaneOperand::find`] says of one that is read in place: it is the same for every tile.
    terms: Option<Vec<isize>>,
}

enum Source {
    /// Slot, first element, and strides along the operand's axes.
    InPlace(usize, i64, Vec<i64>),
    Evaluated(Box<TileProgram>),
}

/// Where an operand lies for a tile.
#[derive(Clone, Copy)]
pub struct LaneTile {
    /// The element of the tile's first point and the first term.
    pub at: *const u8,
    /// Along the operand's axes, in elements.
    pub strides: [isize; MAX_RANK],
}

impl LaneOperand {
    /// Compiles an operand of elements of type `acc` for tiles of the result of such extents.
    ///
    /// # Errors
    /// Everything that stands in the way.
    pub fn compile(
        side: &Side,
        terms: &[usize],
        lens: &[[usize; MAX_RANK]],
        acc: DType,
        slots: &Slots,
        isa: Isa,
    ) -> Result<LaneOperand, Vec<String>> {
        let (side, size) = (side.clone(), acc.size());
        if side.in_place()
            && let Some((slot, base, strides)) = in_place(&side.nest, acc, slots)
        {
            let mut of_terms = vec![0; terms.iter().product()];
            side.terms(strides.iter().map(|&s| s as isize), terms, &mut of_terms);
            return Ok(LaneOperand { side, source: Source::InPlace(slot, base, strides), size, terms: Some(of_terms) });
        }
        let held = side.nest.results.first().map(|&r| register(side.nest.instrs[r].dtype()));
        if held != Some(acc) {
            return Err(vec![format!("an operand of {held:?} for an anchor in {acc}")]);
        }
        let mut program = tile::compile(&side.nest, 0, &slots.types, isa)?;
        let extents = |len: &[usize; MAX_RANK]| {
            let mut all = [1; MAX_RANK];
            all.iter_mut().zip(side.extents(len, terms)).for_each(|(to, n)| *to = n);
            all
        };
        let every = (0..side.axes.len()).all(|d| program.values[program.results[0]].mask >> d & 1 == 1);
        if !every {
            return Err(vec!["an operand that is the same along an axis of its maps".to_string()]);
        }
        program.allocate(&lens.iter().map(extents).collect::<Vec<_>>());
        Ok(LaneOperand { side, source: Source::Evaluated(Box::new(program)), size, terms: None })
    }

    /// Bytes of scratch memory.
    pub fn scratch(&self) -> usize {
        match &self.source {
            Source::InPlace(..) => 0,
            Source::Evaluated(program) => program.scratch,
        }
    }

    /// The part of it that a tile of the result reads.
    pub fn part(&self, tile: &Tile, terms: &[usize]) -> Tile {
        let mut part = Tile { start: [0; MAX_RANK], len: [1; MAX_RANK] };
        part.len.iter_mut().zip(self.side.extents(&tile.len, terms)).for_each(|(to, n)| *to = n);
        for (to, axis) in part.start.iter_mut().zip(&self.side.axes) {
            *to = axis.point.map_or(0, |(d, step)| step * tile.start[d]);
        }
        part
    }

    /// Has a part of it, in scratch memory unless it is read where it lies.
    ///
    /// # Safety
    /// The frame must have the kernel's slots and as much scratch memory as this takes; the part must be one of a tile that the operand was
    /// compiled for.
    pub unsafe fn have(&self, frame: &Frame<'_>, part: &Tile) -> LaneTile {
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
                LaneTile { at, strides }
            }
        }
    }

    /// Slot, first element and strides of an operand that is a padded buffer, of which a part lies in that buffer.
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
        LaneTile { at: at.cast_const(), strides }
    }

    /// From a point to the next along an axis of the result, in elements.
    pub fn step(&self, tile: &LaneTile, point: usize) -> isize {
        let of = |(axis, stride): (&super::form::SideAxis, &isize)| match axis.point {
            Some((d, step)) if d == point => stride * step as isize,
            _ => 0,
        };
        self.side.axes.iter().zip(&tile.strides).map(of).sum()
    }

    /// Whether it has an element for each point along an axis of the result.
    pub fn depends_on(&self, point: usize) -> bool {
        self.side.depends_on(point)
    }

    /// Finds out where each term lies from the first one on, in elements, unless that is known.
    pub fn find(&self, tile: &LaneTile, terms: &[usize], to: &mut [isize]) {
        if self.terms.is_none() {
            self.side.terms(tile.strides.iter().copied(), terms, to);
        }
    }

    /// Where each term lies, of which this was `found`.
    pub fn terms<'a>(&'a self, found: &'a [isize]) -> &'a [isize] {
        self.terms.as_deref().unwrap_or(found)
    }
}
