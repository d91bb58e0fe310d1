//! Executes a tile program on one tile.

mod gather;
mod ids;
mod points;
mod walk;

use eutectic_ir::ops::Ids;

use super::{
    access::{CompiledAccess, TileGuard},
    copy::{self, CopySide, copy},
    domain::{MAX_RANK, Tile},
    program::{Frame, RowPart, TileProgram, TileStep, TileValue, Word},
    region::Region,
    shape::{Stage, TileLayout, TileShape},
};
use crate::simd::{
    prefetch::Prefetch,
    scan::ScanRows,
    stream::{LINE, prefetch},
};
/// A check of the indices in a value.
struct IdCheck<'a> {
    /// The value.
    arg: usize,
    /// The valid indices.
    ids: Ids,
    /// The number of the check in the kernel.
    check: usize,
    /// The check applies only at points where these guards hold.
    guards: &'a [TileGuard],
}

/// The execution of a program on a tile.
struct TileRun<'a> {
    program: &'a TileProgram,
    frame: &'a Frame<'a>,
    tile: &'a Tile,
    shape: &'a TileShape,
    part: RowPart,
}

/// A load at a map that is affine only over runs of points.
struct Gather<'a> {
    /// The buffer.
    slot: usize,
    /// The number of elements of the buffer.
    count: usize,
    /// The index map.
    access: &'a CompiledAccess,
    /// The guards of the load.
    guards: &'a [TileGuard],
}

impl TileProgram {
    /// Evaluates a tile. Its extents must be at most those for which the registers were placed.
    ///
    /// # Safety
    /// Slots and scratch memory must be those that the program was compiled for, and no other thread may access the
    /// scratch memory or the elements that the tile stores.
    pub unsafe fn run(&self, frame: &Frame<'_>, tile: &Tile, part: RowPart) {
        // SAFETY: the caller keeps this function's contract.
        unsafe { self.run_and_prefetch(frame, tile, part, None) }
    }

    /// Returns whether a tile is within the domain.
    fn contains(&self, tile: &Tile) -> bool {
        let within = |(d, &extent): (usize, &usize)| tile.start[d] + tile.len[d] <= extent;
        self.domain.iter().enumerate().all(within)
    }

    /// Evaluates a tile like [`TileProgram::run`], and prefetches the operands of the next tile.
    ///
    /// # Safety
    /// As [`TileProgram::run`].
    pub unsafe fn run_and_prefetch(&self, frame: &Frame<'_>, tile: &Tile, part: RowPart, next: Option<&Tile>) {
        debug_assert!(self.contains(tile), "a tile beyond its domain: {tile:?} of {:?}", self.domain);
        let other;
        let shape = match self.shapes.iter().find(|s| s.is_of(tile)) {
            Some(known) => known,
            None => {
                other = TileShape::new(self, &tile.len);
                &other
            }
        };
        let run = TileRun { program: self, frame, tile, shape, part };
        let mut prefetch = Prefetch::new(shape.lines, shape.each);
        if let Some(next) = next {
            run.prefetch_next(next, &mut prefetch);
        }
        // SAFETY: the caller keeps this function's contract.
        unsafe {
            for stage in &shape.stages[part.pass.map_or(0, |pass| pass + 1)] {
                match stage {
                    Stage::Step(id) => run.step(*id, &prefetch),
                    Stage::Points { ids, vary } => run.points(ids, *vary, &prefetch),
                }
            }
            if run.stores() {
                (0..self.writes.len()).for_each(|w| run.write(w));
                self.scatters.iter().for_each(|s| run.scatter(s));
            }
        }
    }
}

impl TileProgram {
    /// Returns the address of a value after the evaluation of a tile, and its strides in elements.
    ///
    /// # Safety
    /// The last call of [`TileProgram::run`] with this frame must have been for this tile.
    pub unsafe fn result(&self, frame: &Frame<'_>, tile: &Tile, id: usize) -> (*const u8, [isize; MAX_RANK]) {
        // SAFETY: the caller keeps this function's contract.
        let at = unsafe { frame.scratch.cast::<*mut u8>().add(id).read() };
        (at.cast_const(), tile.strides(self.values[id].mask))
    }
}

impl TileRun<'_> {
    /// Adds the memory that the next tile reads in place to the prefetched streams. Also prefetches the first cache
    /// line of a streaming store if the store starts within the line. Such a line is read and merged, and a miss would
    /// delay all later stores.
    fn prefetch_next(&self, next: &Tile, streams: &mut Prefetch) {
        if self.program.streams.is_some() {
            for write in &self.program.writes {
                let size = self.program.values[write.value].dtype.size();
                let at = self.offset(next, write.base, &write.strides) * size as isize;
                let at = self.frame.slots[write.slot].wrapping_offset(at);
                if !at.addr().is_multiple_of(LINE) {
                    prefetch(at);
                }
            }
        }
        for &id in &self.shape.loads {
            if let TileStep::Affine { slot, base, strides } | TileStep::Boxed { slot, base, strides, .. } =
                &self.program.steps[id]
            {
                let size = self.program.values[id].dtype.size();
                let [now, then] = [self.tile, next].map(|tile| self.offset(tile, *base, strides) * size as isize);
                if now != then {
                    streams.add(self.frame.slots[*slot].wrapping_offset(then), self.shape.steps[id].n * size);
                }
            }
        }
    }

    /// Returns whether this execution stores results: it is the last pass over a row, or the only one.
    fn stores(&self) -> bool {
        self.part.pass.is_none_or(|pass| pass + 1 == self.program.passes.len())
    }

    /// Returns the address of a value.
    ///
    /// # Safety
    /// The value's step must have been executed.
    unsafe fn at(&self, id: usize) -> *mut u8 {
        // SAFETY: the table of pointers is at the start of the scratch memory.
        unsafe { self.frame.scratch.cast::<*mut u8>().add(id).read() }
    }

    /// Returns the address of a value's register.
    fn register(&self, id: usize) -> *mut u8 {
        self.frame.scratch.wrapping_add(self.program.values[id].offset)
    }

    /// Returns the strides of a value that is read in place, in lines of a buffer; `None` for other values.
    fn lines(&self, id: usize) -> Option<[isize; MAX_RANK]> {
        let load = self.shape.steps[id].lines?;
        // SAFETY: callers ask only for values whose steps were executed.
        let [at, of_load] = unsafe { [self.at(id), self.at(load)] };
        let strides = self.program.load(load).filter(|_| at == of_load && at != self.register(load))?;
        Some(strides.map(|s| s as isize))
    }

    /// Returns the strides of a value in elements, whether it is in a register or in lines of a buffer.
    fn strides(&self, id: usize) -> [isize; MAX_RANK] {
        self.lines(id).unwrap_or_else(|| self.tile.strides(self.program.values[id].mask))
    }

    /// Sets the address of a value.
    ///
    /// # Safety
    /// The address must be valid for reading the tile's elements until the last step that uses the value.
    unsafe fn point_to(&self, id: usize, at: *mut u8) {
        // SAFETY: the table of pointers is at the start of the scratch memory.
        unsafe { self.frame.scratch.cast::<*mut u8>().add(id).write(at) }
    }

    /// Executes a step.
    ///
    /// # Safety
    /// As [`TileProgram::run`]. All steps before must have been executed.
    unsafe fn step(&self, id: usize, prefetch: &Prefetch) {
        let (value, walk) = (&self.program.values[id], &self.shape.steps[id]);
        // SAFETY: all registers are within the scratch memory.
        let register = unsafe { self.frame.scratch.add(value.offset) };
        // SAFETY: the compilation of the program checked the memory that each step accesses.
        unsafe {
            match &self.program.steps[id] {
                TileStep::Ready => {
                    if let Some(word) = value.constant {
                        register.cast::<Word>().write(word);
                    }
                    self.point_to(id, register);
                }
                TileStep::Anchor => self.point_to(id, self.frame.anchor.cast_mut()),
                // Selections copy the elements of this load from its buffer, so the load itself copies nothing.
                TileStep::Affine { .. } if value.in_pieces && walk.place == TileLayout::Copied => {
                    self.point_to(id, register);
                }
                TileStep::Boxed { region, .. }
                    if value.in_pieces && (walk.place == TileLayout::Copied || !region.covers(self.tile)) =>
                {
                    self.point_to(id, register);
                }
                TileStep::Affine { slot, base, strides } => self.load(id, *slot, *base, strides, register),
                TileStep::Boxed { slot, base, strides, region } if region.covers(self.tile) => {
                    self.load(id, *slot, *base, strides, register);
                }
                TileStep::Boxed { slot, base, strides, region } => {
                    let size = value.dtype.size();
                    register.write_bytes(0, self.tile.count(value.mask) * size);
                    if let Some(part) = region.part(self.tile) {
                        let at =
                            self.frame.slots[*slot].wrapping_offset(self.offset(&part, *base, strides) * size as isize);
                        self.put(value, register, &part, &CopySide { at, strides: strides.map(|s| s as isize) });
                    }
                    self.point_to(id, register);
                }
                TileStep::Walk { slot, count, access, guards, boxes, lines } => {
                    let gather = Gather { slot: *slot, count: *count, access, guards };
                    match (*boxes, lines, value.dtype.size()) {
                        (Some(axes), ..) => self.boxes(&gather, axes, value, register),
                        (None, None, size) => self.walk(&gather, value.mask, size, register),
                        (None, Some(lines), 1) => self.gather::<u8>(&gather, lines, value.mask, register),
                        (None, Some(lines), 2) => self.gather::<u16>(&gather, lines, value.mask, register.cast()),
                        (None, Some(lines), 4) => self.gather::<u32>(&gather, lines, value.mask, register.cast()),
                        (None, Some(lines), _) => self.gather::<u64>(&gather, lines, value.mask, register.cast()),
                    }
                    self.point_to(id, register);
                }
                TileStep::Within { arg, ids, check, guards } => {
                    let check = IdCheck { arg: *arg, ids: *ids, check: *check, guards };
                    self.check(&check, value.mask, register);
                    self.point_to(id, register);
                }
                TileStep::Coordinate(access) => {
                    self.coordinate(access, value.mask, register.cast());
                    self.point_to(id, register);
                }
                TileStep::Point { .. } => self.points(&[id], true, prefetch),
                TileStep::Spread(arg) => {
                    self.put(value, register, self.tile, &self.side(*arg, self.tile));
                    self.point_to(id, register);
                }
                TileStep::Reduce { arg, accumulate, finish, offset } => {
                    let (rows, n) = (walk.rows, walk.n);
                    let (from, size) = (self.at(*arg), self.program.values[*arg].dtype.size());
                    let acc = self.frame.scratch.add(*offset);
                    for r in 0..rows {
                        accumulate(from.add(r * n * size), n, acc.add(r * 8), self.part.first);
                        prefetch.issue();
                    }
                    if self.part.last {
                        (0..rows).for_each(|r| finish(acc.add(r * 8), register.add(r * value.dtype.size())));
                    }
                    self.point_to(id, register);
                }
                TileStep::Ranking { arg, most, rank: (rank, _), offset } => {
                    let (from, size) = (self.at(*arg), self.program.values[*arg].dtype.size());
                    let (keys, n) = (self.frame.scratch.add(*offset), walk.n);
                    for r in 0..walk.rows {
                        rank(from.add(r * n * size), n, *most, keys, register.cast::<i32>().add(r * n));
                    }
                    self.point_to(id, register);
                }
                TileStep::Scan { args, function, order, offset } => {
                    function(&ScanRows {
                        args: [0, args.len() - 1].map(|n| self.at(args[n]).cast_const()),
                        out: register,
                        rows: walk.rows,
                        lanes: walk.lanes,
                        count: walk.n,
                        states: self.frame.scratch.add(*offset),
                        first: self.part.first,
                        order: *order,
                    });
                    self.point_to(id, register);
                }
                TileStep::Pieces { pieces, fill, disjoint } => {
                    let fill = (fill, *disjoint);
                    let at = self.piece_together(pieces, fill, value, register, walk.lines.is_some());
                    self.point_to(id, at);
                }
                TileStep::Select { pieces, fill } => {
                    self.select(pieces, fill, value.mask, value.dtype.size(), register);
                    self.point_to(id, register);
                }
            }
        }
    }

    /// Executes a load whose guards hold in the whole tile: reads it in place, or copies it into the register.
    ///
    /// # Safety
    /// As [`TileProgram::run`].
    unsafe fn load(&self, id: usize, slot: usize, base: i64, strides: &[i64; MAX_RANK], register: *mut u8) {
        let value = &self.program.values[id];
        let from = self.source(slot, base, strides, value.dtype.size());
        // SAFETY: the compilation checked that the map is within the buffer.
        unsafe {
            if self.shape.steps[id].place != TileLayout::Copied {
                return self.point_to(id, from);
            }
            self.put(value, register, self.tile, &CopySide { at: from, strides: strides.map(|s| s as isize) });
            self.point_to(id, register);
        }
    }

    /// Copies a part of the tile into the register of a value.
    ///
    /// # Safety
    /// The register must be that of the value. The part must be within the tile, and valid in the source.
    unsafe fn put(&self, value: &TileValue, register: *mut u8, part: &Tile, from: &CopySide) {
        let (mut along, size) = (*part, value.dtype.size());
        (0..MAX_RANK).filter(|d| value.mask >> d & 1 == 0).for_each(|d| along.len[d] = 1);
        let strides = self.tile.strides(value.mask);
        let at = register.wrapping_offset(self.place(&strides, &part.start) * size as isize);
        // SAFETY: the register has room for the tile, and the caller promises the source.
        unsafe { copy(&CopySide { at, strides }, from, &along, size, self.program.isa) };
    }

    /// Returns the memory of a value as the source of a copy, from the first point of a part of the tile on.
    ///
    /// # Safety
    /// The value's step must have been executed.
    unsafe fn side(&self, id: usize, part: &Tile) -> CopySide {
        let strides = self.strides(id);
        let offset = self.place(&strides, &part.start) * self.program.values[id].dtype.size() as isize;
        // SAFETY: the caller keeps this function's contract.
        CopySide { at: unsafe { self.at(id) }.wrapping_offset(offset), strides }
    }

    /// Returns the memory of a selection's piece as the source of a copy, from the first point of a part of the tile
    /// on. A load that only selections use is copied directly from its buffer.
    ///
    /// # Safety
    /// The value's step must have been executed. If the value is a load, its guards must hold in the part.
    unsafe fn piece(&self, id: usize, part: &Tile) -> CopySide {
        let value = &self.program.values[id];
        match &self.program.steps[id] {
            TileStep::Affine { slot, base, strides } | TileStep::Boxed { slot, base, strides, .. }
                if value.in_pieces =>
            {
                let offset = self.offset(part, *base, strides) * value.dtype.size() as isize;
                let at = self.frame.slots[*slot].wrapping_offset(offset);
                CopySide { at, strides: strides.map(|s| s as isize) }
            }
            // SAFETY: the caller keeps this function's contract.
            _ => unsafe { self.side(id, part) },
        }
    }

    /// Computes a selection whose pieces apply in boxes, with the fill value outside of all boxes. `disjoint` says
    /// whether the boxes are disjoint. Returns the address of the value: its register, or a piece that covers the tile.
    ///
    /// # Safety
    /// As [`TileProgram::run`]. The pieces' steps must have been executed.
    unsafe fn piece_together(
        &self,
        pieces: &[(Region, usize)],
        (fill, disjoint): (&Word, bool),
        value: &TileValue,
        register: *mut u8,
        may_be_in_lines: bool,
    ) -> *mut u8 {
        // SAFETY: the caller promises that the pieces were computed.
        unsafe {
            let all = pieces.iter().position(|(region, _)| region.covers(self.tile));
            let is_there = |id: usize| !self.program.values[id].in_pieces || self.at(id) != self.register(id);
            let as_it_is = |id: usize| {
                is_there(id)
                    && self.program.values[id].mask == value.mask
                    && (may_be_in_lines || self.lines(id).is_none())
            };
            // The covering piece is the value if no earlier piece applies: it is the first, or pieces are disjoint.
            let covering = all.filter(|&n| n == 0 || disjoint);
            match all {
                _ if covering.is_some_and(|n| as_it_is(pieces[n].1)) => return self.at(pieces[all.unwrap_or(0)].1),
                Some(n) => self.put(value, register, self.tile, &self.piece(pieces[n].1, self.tile)),
                None => {
                    let of_pieces = || {
                        let parts = pieces.iter().filter_map(|(region, _)| region.part(self.tile));
                        parts.map(|part| part.count(value.mask)).sum::<usize>()
                    };
                    let n = self.tile.count(value.mask);
                    if !disjoint || of_pieces() < n {
                        line(register, fill.at(), 0, n, value.dtype.size());
                    }
                }
            }
            // Copies the pieces in reverse order, so that an earlier piece overwrites later ones.
            for (region, id) in pieces[..all.unwrap_or(pieces.len())].iter().rev() {
                if let Some(part) = region.part(self.tile) {
                    self.put(value, register, &part, &self.piece(*id, &part));
                }
            }
        }
        register
    }

    /// Returns the value of an affine map at the first point of a tile: an index in elements.
    fn offset(&self, tile: &Tile, base: i64, strides: &[i64; MAX_RANK]) -> isize {
        let rank = self.program.domain.len();
        strides[..rank].iter().zip(&tile.start).fold(base, |sum, (stride, &at)| sum + stride * at as i64) as isize
    }

    /// Returns the address of a load's element for the tile's first point. For an empty tile, it may be outside of the
    /// buffer.
    fn source(&self, slot: usize, base: i64, strides: &[i64; MAX_RANK], size: usize) -> *mut u8 {
        self.frame.slots[slot].wrapping_offset(self.offset(self.tile, base, strides) * size as isize)
    }

    /// Returns the address to which a write stores the tile's first point.
    fn target(&self, write: usize) -> *mut u8 {
        let write = &self.program.writes[write];
        let size = self.program.values[write.value].dtype.size();
        self.frame.slots[write.slot].wrapping_offset(self.offset(self.tile, write.base, &write.strides) * size as isize)
    }

    /// Executes a write: copies a value to its buffer, unless it was computed there or stored in strips.
    ///
    /// # Safety
    /// As [`TileProgram::run`]. The value's step must have been executed.
    unsafe fn write(&self, number: usize) {
        let (write, to) = (&self.program.writes[number], self.target(number));
        let value = &self.program.values[write.value];
        let size = value.dtype.size();
        // SAFETY: the compilation checked that the map is within the buffer.
        unsafe {
            let from = self.at(write.value);
            if from == to {
                return;
            }
            if self.past(write.value).is_some_and(|past| past.1 == number) {
                return;
            }
            let region = write.region.as_ref();
            let Some(mut tile) = region.map_or(Some(*self.tile), |region| region.part(self.tile)) else { return };
            for d in (0..MAX_RANK).filter(|d| value.mask >> d & 1 == 0 && write.strides[*d] == 0) {
                tile.len[d] = 1;
            }
            let (strides, own) = (write.strides.map(|s| s as isize), self.strides(write.value));
            let first = |strides: &[isize; MAX_RANK]| self.place(strides, &tile.start) * size as isize;
            let to = CopySide { at: to.wrapping_offset(first(&strides)), strides };
            let from = CopySide { at: from.wrapping_offset(first(&own)), strides: own };
            copy(&to, &from, &tile, size, self.program.isa);
        }
    }

    /// Returns the offset of a point from the tile's first point, in elements, in memory with these strides.
    fn place(&self, strides: &[isize; MAX_RANK], point: &[usize; MAX_RANK]) -> isize {
        (0..MAX_RANK).map(|d| strides[d] * (point[d] - self.tile.start[d]) as isize).sum()
    }
}

/// Copies `n` elements with distance `stride` to a contiguous range.
///
/// # Safety
/// Both ranges must be valid for `n` elements, and must not overlap.
unsafe fn line(to: *mut u8, from: *const u8, stride: isize, n: usize, size: usize) {
    // SAFETY: the caller promises the elements of both ranges.
    unsafe {
        match size {
            1 => copy::line::<u8>(to, from, (n, 1, stride)),
            2 => copy::line::<u16>(to, from, (n, 1, stride)),
            4 => copy::line::<u32>(to, from, (n, 1, stride)),
            _ => copy::line::<u64>(to, from, (n, 1, stride)),
        }
    }
}
