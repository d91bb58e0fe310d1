//! Maps and row groups: a tile program over the whole domain.

use eutectic_ir::DType;

use super::{Launch, Thunk};
use crate::{
    axes::{Nest, normalise},
    simd::Isa,
    tile::{self, Frame, Grid, MAX_RANK, Part, Tile, TileProgram},
};

/// Below so many evaluated elements, waking another thread takes longer than the work.
const SERIAL: usize = 1 << 14;

/// Elements of a task, where there are many.
const TASK: usize = 1 << 15;
/// Tasks, where there are enough tiles: the last one to finish is waited for.
const TASKS: usize = 32;

/// A compiled map or row group.
pub struct Tiles {
    program: TileProgram,
    grid: Grid,
    /// Tiles of a task, which follow each other.
    tiles: usize,
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
        let parts_of_row = parts.as_ref().map_or(vec![[1; MAX_RANK]], Grid::extents);
        let both = |len: &[usize; MAX_RANK], part: &[usize; MAX_RANK]| std::array::from_fn(|d| len[d].max(part[d]));
        let extents: Vec<_> =
            grid.extents().iter().flat_map(|len| parts_of_row.iter().map(move |part| both(len, part))).collect();
        program.allocate(&extents);
        let elements: usize = nest.domain.iter().product();
        let serial = elements.saturating_mul(program.steps.len()) < SERIAL;
        let tiles = (grid.count() / TASKS).clamp(1, (TASK / grid.len().iter().product::<usize>().max(1)).max(1));
        Ok(Tiles { program, grid, tiles, parts, serial })
    }

    unsafe fn tile(&self, frame: &Frame<'_>, mut tile: Tile) {
        let Some(parts) = &self.parts else {
            // SAFETY: passed on from the caller.
            return unsafe { self.program.run(frame, &tile, Part::WHOLE) };
        };
        for pass in 0..self.program.passes.len() {
            for p in 0..parts.count() {
                let part = parts.tile(p);
                for d in (0..MAX_RANK).filter(|d| self.program.row >> d & 1 == 1) {
                    (tile.start[d], tile.len[d]) = (part.start[d], part.len[d]);
                }
                let part = Part { pass: Some(pass), first: p == 0, last: p + 1 == parts.count() };
                // SAFETY: as above.
                unsafe { self.program.run(frame, &tile, part) };
            }
        }
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
        let tasks = self.grid.count().div_ceil(self.tiles);
        launch.workers.for_each(tasks, self.serial, &|n, scratch| {
            let frame = Frame {
                slots: launch.slots,
                scratch,
                anchor: std::ptr::null(),
                direct: !launch.in_place,
                fault: launch.fault,
            };
            let first = n * self.tiles;
            let mut tile = self.grid.tile(first);
            for _ in first..(first + self.tiles).min(self.grid.count()) {
                // SAFETY: the caller gives the buffers; tiles are disjoint.
                unsafe { self.tile(&frame, tile) };
                self.grid.next(&mut tile);
            }
        });
    }

    fn scratch(&self) -> usize {
        self.program.scratch
    }

    fn buffers(&self) -> Vec<usize> {
        Vec::new()
    }
}
