//! Computes maps and row groups (reductions, scans and rankings of rows) by a tile program over the whole domain.

use eutectic_backend::axes::{Nest, normalise};
use eutectic_ir::DType;

use super::slots::Slots;
use crate::{
    machine::Caches,
    runtime::thunk::{Thunk, ThunkContext},
    simd::{Isa, stream},
    tile::{self, Frame, Grid, MAX_RANK, RowPart, Tile, TileProgram, domain::AxisMask},
};

/// The number of evaluated elements below which waking another thread takes longer than the work.
const SERIAL: usize = 1 << 14;

/// The maximal number of elements of a task. Each task ends with a fence, which waits for its streaming stores; a long
/// task makes that wait a small part of its time.
const TASK: usize = 1 << 18;
/// The minimal number of tasks, if there are enough tiles. With many tasks, threads wait only a short time for the last
/// one.
const TASKS: usize = 32;

/// The minimal traffic, in bytes, of a kernel that uses streaming stores. Smaller results are better left in the
/// second-level cache, for the kernel that reads them.
const STREAMS: usize = 8 << 20;
/// The minimal traffic of a kernel that uses streaming stores, as a multiple of the second-level cache.
const STREAMS_OF_CACHE: usize = 4;

/// A compiled map or row group.
pub struct Tiles {
    program: TileProgram,
    grid: Grid,
    /// The number of consecutive tiles of a task.
    tiles: usize,
    /// The division of a row, if rows are too long for registers. For programs whose points may write to one element,
    /// the division of the axes of these points.
    parts: Option<Grid>,
    /// The axes that `parts` divides.
    inner: AxisMask,
    serial: bool,
}

impl Tiles {
    /// Compiles a nest whose innermost `rows` axes form a row.
    ///
    /// # Errors
    /// Returns every reason why the nest cannot be compiled.
    pub fn compile(nest: &Nest, rows: usize, slots: &[(DType, usize)], isa: Isa) -> Result<Tiles, Vec<String>> {
        let (nest, row) = tile::scan_order(nest, rows, slots);
        let nest = &*nest;
        let mut program = tile::compile_for(nest, row, 0, slots, isa)?;
        let mut limit = [1; MAX_RANK];
        limit[..nest.domain.len()].copy_from_slice(&nest.domain);
        let caches = Caches::detect();
        let traffic = program.traffic(slots);
        program.beyond_l2 = traffic >= caches.l2;
        program.streams = (traffic >= STREAMS.max(STREAMS_OF_CACHE * caches.l2)).then(|| stream::copy(isa));
        let (mut len, whole) = tile::grid::shape(&program, &limit, caches.l1);
        let all = u8::MAX;
        let inner = program.row | program.together;
        let (grid, parts) = if whole && program.together == 0 {
            (Grid::cut(&nest.domain, all, &len, &program.worthy_places(&len)), None)
        } else {
            // Tiles that must run in row-major order have one point along each axis of that order but the last one.
            let last = program.in_order.checked_ilog2().unwrap_or(0) as usize;
            (0..last).filter(|d| program.in_order >> d & 1 == 1).for_each(|d| len[d] = 1);
            (Grid::new(&nest.domain, !inner, &len), Some(Grid::new(&nest.domain, inner, &len)))
        };
        let parts_of_row = parts.as_ref().map_or(vec![[1; MAX_RANK]], Grid::extents);
        let both = |len: &[usize; MAX_RANK], part: &[usize; MAX_RANK]| std::array::from_fn(|d| len[d].max(part[d]));
        let extents: Vec<_> =
            grid.extents().iter().flat_map(|len| parts_of_row.iter().map(move |part| both(len, part))).collect();
        program.allocate(&extents);
        let elements: usize = nest.domain.iter().product();
        let serial = elements.saturating_mul(program.steps.len()) < SERIAL;
        let tiles = (grid.count() / TASKS).clamp(1, (TASK / grid.len().iter().product::<usize>().max(1)).max(1));
        Ok(Tiles { program, grid, tiles, parts, inner, serial })
    }

    /// Computes a tile, and prefetches the `next` one, if any.
    ///
    /// # Safety
    /// The requirements of [`Thunk::run`] apply; the frame must have the program's scratch memory.
    unsafe fn tile(&self, frame: &Frame<'_>, tile: &Tile, next: Option<&Tile>) {
        let Some(parts) = &self.parts else {
            // SAFETY: passed on from the caller.
            return unsafe { self.program.run_and_prefetch(frame, tile, RowPart::WHOLE, next) };
        };
        let part_of_tile = |n: usize| {
            let (mut tile, part) = (*tile, parts.tile(n));
            for d in (0..MAX_RANK).filter(|d| self.inner >> d & 1 == 1) {
                (tile.start[d], tile.len[d]) = (part.start[d], part.len[d]);
            }
            tile
        };
        let reverse = self.program.is_reverse() == Some(true);
        let number = |n: usize| if reverse { parts.count() - 1 - n } else { n };
        for pass in 0..self.program.passes.len() {
            for n in 0..parts.count() {
                let part = RowPart { pass: Some(pass), first: n == 0, last: n + 1 == parts.count() };
                let next = (!part.last).then(|| part_of_tile(number(n + 1)));
                // SAFETY: passed on from the caller.
                unsafe { self.program.run_and_prefetch(frame, &part_of_tile(number(n)), part, next.as_ref()) };
            }
        }
    }

    /// Returns whether the result has no elements.
    fn is_empty(&self) -> bool {
        self.program.domain.iter().enumerate().any(|(d, &n)| n == 0 && self.program.row >> d & 1 == 0)
    }
}

impl Thunk for Tiles {
    fn name(&self) -> &'static str {
        "tiles"
    }

    unsafe fn run(&self, launch: &ThunkContext<'_>) {
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
            let tiles = n * self.tiles..((n + 1) * self.tiles).min(self.grid.count());
            let mut tile = self.grid.tile(tiles.start);
            for n in tiles.clone() {
                let mut next = tile;
                self.grid.next(&mut next);
                // SAFETY: the caller gives the buffers; tiles are disjoint.
                unsafe { self.tile(&frame, &tile, (n + 1 < tiles.end).then_some(&next)) };
                tile = next;
            }
            if self.program.streams.is_some() {
                stream::fence();
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

/// Compiles the stored value of a nest.
pub fn evaluated(nest: Nest, slots: &Slots, isa: Isa) -> Result<Tiles, Vec<String>> {
    let mut rank = [nest.domain.len()];
    let mut alone = [nest];
    normalise(&mut alone, &[&[0]], &mut rank);
    Tiles::compile(&alone[0], 0, &slots.types, isa)
}
