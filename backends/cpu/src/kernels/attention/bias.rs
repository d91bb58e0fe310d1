//! What attention adds to scores.

use std::ops::Range;

use eutectic_ir::DType;

use crate::{
    axes::Nest,
    kernels::slots::Slots,
    runtime::thunk::Launch,
    simd::{Isa, arithmetic::Number},
    tile::{self, Frame, Part, Tile, TileProgram},
};

/// A matrix of queries and keys for each point of the batch axes.
pub struct Bias {
    /// Which computes it. Its registers are still to be placed.
    pub program: TileProgram,
    /// How many queries these hold.
    pub rows: usize,
    /// Whether it is a row for each point, the same for all queries.
    pub is_row: bool,
    batch: usize,
}

impl Bias {
    /// Compiles it, with so many batch axes.
    ///
    /// # Errors
    /// Everything that stands in the way.
    pub fn compile(nest: &Nest, batch: usize, slots: &Slots, isa: Isa) -> Result<Bias, Vec<String>> {
        let program = tile::compile(nest, 0, &slots.types, isa)?;
        let along = |axis: usize| program.values[program.results[0]].mask >> axis & 1 == 1;
        let is_row = !along(batch) && along(batch + 1);
        Ok(Bias { program, rows: 1, is_row, batch })
    }

    /// What it is computed in.
    pub fn dtype(&self) -> DType {
        self.program.values[self.program.results[0]].dtype
    }

    /// Evaluates it for some of a tile's queries, no more than registers hold, and some keys: the first element, and from a
    /// query's to the next, and from a key's.
    ///
    /// # Safety
    /// As [`crate::runtime::thunk::Thunk::run`]; scratch memory must have room for the program's registers.
    pub unsafe fn run(
        &self,
        launch: &Launch<'_>,
        tile: &Tile,
        (queries, keys): (Range<usize>, Range<usize>),
        scratch: *mut u8,
    ) -> (*const u8, [isize; 2]) {
        let frame =
            Frame { slots: launch.slots, scratch, anchor: std::ptr::null(), direct: false, fault: launch.fault };
        let mut part = *tile;
        part.start[self.batch] += queries.start;
        part.len[self.batch] = queries.len();
        (part.start[self.batch + 1], part.len[self.batch + 1]) = (keys.start, keys.len());
        // SAFETY: passed on from the caller; the result is one of the values.
        unsafe {
            self.program.run(&frame, &part, Part::WHOLE);
            let (at, strides) = self.program.result(&frame, &part, self.program.results[0]);
            (at, [strides[self.batch], strides[self.batch + 1]])
        }
    }

    /// Adds it to the scores of some queries and keys, a row by `add`.
    ///
    /// # Safety
    /// As [`Bias::run`]; it must be of the scores' type.
    pub unsafe fn add<T: Number>(
        &self,
        launch: &Launch<'_>,
        tile: &Tile,
        (queries, keys): (Range<usize>, Range<usize>),
        scores: &mut [T],
        add: &dyn Fn(&mut [T], &[T]),
        scratch: *mut u8,
    ) {
        let mut lines = scores.chunks_exact_mut(keys.len());
        for first in queries.clone().step_by(self.rows) {
            let some = first..queries.end.min(first + self.rows);
            // SAFETY: passed on from the caller; the result has a line for each query, or one for all of them.
            unsafe {
                let (at, [apart, step]) = self.run(launch, tile, (some.clone(), keys.clone()), scratch);
                for (r, line) in lines.by_ref().take(some.len()).enumerate() {
                    let at = at.cast::<T>().offset(r as isize * apart);
                    match step {
                        0 => line.iter_mut().for_each(|score| *score = score.plus(*at)),
                        _ => add(line, std::slice::from_raw_parts(at, keys.len())),
                    }
                }
            }
        }
    }
}
