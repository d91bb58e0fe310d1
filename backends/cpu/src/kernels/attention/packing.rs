//! Packing of keys and values, and prefetching of what the next task reads.

use std::ops::Range;

use super::{Attention, STRIP};
use crate::{
    gemm::{blocking::Blocking, matrix::Matrix, product::Product, right::Right},
    kernels::operand::Operand,
    runtime::thunk::Launch,
    simd::{
        softmax::Rows,
        stream::{LINE, prefetch},
    },
    tile::Tile,
};

impl<T: Rows + Product> Attention<T> {
    /// Keys and values of a block, packed where several strips of queries are multiplied with them.
    ///
    /// # Safety
    /// As [`crate::runtime::thunk::Thunk::run`]; scratch memory must have the bytes that the thunk states.
    pub(super) unsafe fn pack(
        &self,
        launch: &Launch<'_>,
        tile: &Tile,
        (from, keys): (usize, usize),
        scratch: *mut u8,
    ) -> [Right<'static>; 2] {
        let point = &tile.start[..self.batch];
        let key = self.key.matrix(launch.slots, point, from, 0);
        let key = Matrix { rows: key.columns, columns: key.rows, ..key };
        let value = self.value.matrix(launch.slots, point, from, 0);
        if tile.len[self.batch] <= STRIP {
            return [key, value].map(Right::Strided);
        }
        let pack = |blocking: &Blocking<T>, matrix: Matrix, (n, k): (usize, usize), place: usize| {
            let [to, products] = [place, self.layout.products].map(|place| scratch.wrapping_add(place));
            for panel in 0..n.div_ceil(blocking.panel()) {
                // SAFETY: passed on from the caller; there is room, see `lay_out`.
                unsafe { blocking.pack(Right::Strided(matrix), (n, k), panel, to, products) };
            }
            Right::Packed(to)
        };
        let [of_keys, of_values] = &self.blockings;
        [
            pack(of_keys, key, (keys, self.depth), self.layout.keys),
            pack(of_values, value, (self.columns, keys), self.layout.values),
        ]
    }

    /// Prefetches what the next task reads first, a share of it with each strip: the hardware does not prefetch strided rows.
    pub(super) fn prefetch(&self, launch: &Launch<'_>, tile: &Tile, next: &Tile, strip: &Range<usize>) {
        let axis = self.batch;
        let ask = |operand: &Operand, (first, count): (usize, usize), columns: usize| {
            let matrix = operand.matrix(launch.slots, &next.start[..axis], first, 0);
            let share = |n: usize| (n * count / tile.len[axis]) as isize;
            for row in (share(strip.start)..share(strip.end)).filter(|_| matrix.columns == 1) {
                let at = matrix.at.wrapping_offset(row * matrix.rows * size_of::<T>() as isize);
                (0..columns * size_of::<T>()).step_by(LINE).for_each(|byte| prefetch(at.wrapping_add(byte)));
            }
        };
        ask(&self.query, (next.start[axis], next.len[axis]), self.depth);
        if next.start[..axis] != tile.start[..axis] {
            ask(&self.key, (0, self.key_block), self.depth);
            ask(&self.value, (0, self.key_block), self.columns);
        }
    }
}
