//! Maps and row groups: a tile program over the whole domain.

use eutectic_ir::DType;

use super::{Launch, Thunk};
use crate::{
    axes::{Nest, normalise},
    simd::Isa,
    tile::{self, Frame, Grid, MAX_RANK, Part, TileProgram},
};

/// Below so many evaluated elements, waking another thread takes longer than the work.
const SERIAL: usize = 1 << 14;

/// A compiled map or row group.
pub struct Tiles {
    program: TileProgram,
    /// The tasks.
    grid: Grid,
    /// The parts of a row, if rows are too long to be kept.
    parts: Option<Grid>,
    serial: bool,
}

impl Tiles {
    /// Compiles a nest whose innermost `rows` axes form a row.
    ///
    /// # Errors
    /// Everything that stands in the way.
    pub fn compile(nest: &Nest, rows: usize, slots: &[(DType, usize)], isa: Isa) -> Result<Tiles, Vec<String>> {
        let (nest, rows) = normalise(nest, rows);
        let mut program = tile::compile(&nest, rows, slots, isa)?;
        let mut limit = [1; MAX_RANK];
        limit[..nest.domain.len()].copy_from_slice(&nest.domain);
        let (len, whole) = tile::grid::shape(&program, &limit);
        let all = u8::MAX;
        let (grid, parts) = if whole {
            (Grid::new(&nest.domain, all, &len), None)
        } else {
            (Grid::new(&nest.domain, !program.row, &len), Some(Grid::new(&nest.domain, program.row, &len)))
        };
        let mut largest = *grid.len();
        if let Some(parts) = &parts {
            (0..MAX_RANK).for_each(|d| largest[d] = largest[d].max(parts.len()[d]));
        }
        program.allocate(&largest);
        let elements: usize = nest.domain.iter().product();
        let serial = elements.saturating_mul(program.steps.len()) < SERIAL;
        Ok(Tiles { program, grid, parts, serial })
    }

    /// Whether there is nothing to store.
    fn is_empty(&self) -> bool {
        self.program.domain.iter().enumerate().any(|(d, &n)| n == 0 && self.program.row >> d & 1 == 0)
    }
}

impl Thunk for Tiles {
    unsafe fn run(&self, launch: &Launch<'_>) {
        if self.is_empty() {
            return;
        }
        let task = |n: usize, scratch: *mut u8| {
            let frame = Frame {
                slots: launch.slots,
                scratch,
                anchor: std::ptr::null(),
                direct: !launch.in_place,
                fault: launch.fault,
            };
            let mut tile = self.grid.tile(n);
            let Some(parts) = &self.parts else {
                // SAFETY: the caller gives the buffers; tiles are disjoint.
                return unsafe { self.program.run(&frame, &tile, Part::WHOLE) };
            };
            for pass in 0..self.program.passes.len() {
                for p in 0..parts.count() {
                    let part = parts.tile(p);
                    for d in (0..MAX_RANK).filter(|d| self.program.row >> d & 1 == 1) {
                        (tile.start[d], tile.len[d]) = (part.start[d], part.len[d]);
                    }
                    let part = Part { pass: Some(pass), first: p == 0, last: p + 1 == parts.count() };
                    // SAFETY: as above.
                    unsafe { self.program.run(&frame, &tile, part) };
                }
            }
        };
        launch.workers.for_each(self.grid.count(), self.serial, &task);
    }

    fn scratch(&self) -> usize {
        self.program.scratch
    }

    fn buffers(&self) -> Vec<usize> {
        Vec::new()
    }
}
