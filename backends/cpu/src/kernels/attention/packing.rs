//! Packing of keys and values, and prefetching of what the next task reads.

use std::ops::Range;

use super::{Attention, STRIP};
use crate::{
    gemm::{
        blocking::Blocking,
        matrix::{Matrix, PartSize, Stretch},
        product::ProductElement,
        right::Right,
    },
    kernels::operand::Operand,
    runtime::thunk::ThunkContext,
    simd::{
        softmax::AttentionElement,
        stream::{LINE, prefetch},
    },
    tile::Tile,
};

impl<T: AttentionElement + ProductElement> Attention<T> {
    /// Keys and values of a block, packed where several strips of queries are multiplied with them.
    ///
    /// # Safety
    /// As [`crate::runtime::thunk::Thunk::run`]; scratch memory must have the bytes that the thunk states.
    pub(super) unsafe fn pack(
        &self,
        launch: &ThunkContext<'_>,
        tile: &Tile,
        keys: Stretch,
        scratch: *mut u8,
    ) -> [Right<'static>; 2] {
        let point = &tile.start[..self.batch];
        let key = self.key.matrix(launch.slots, point, keys.first, 0);
        let key = Matrix { rows: key.columns, columns: key.rows, ..key };
        let value = self.value.matrix(launch.slots, point, keys.first, 0);
        if tile.len[self.batch] <= STRIP {
            return [key, value].map(Right::Strided);
        }
        let pack = |blocking: &Blocking<T>, matrix: Matrix, whole: PartSize, place: usize| {
            let [to, products] = [place, self.layout.products].map(|place| scratch.wrapping_add(place));
            for panel in 0..whole.columns.div_ceil(blocking.panel()) {
                // SAFETY: passed on from the caller; there is room, see `lay_out`.
                unsafe { blocking.pack(Right::Strided(matrix), whole, panel, to, products) };
            }
            Right::Packed(to)
        };
        let [of_keys, of_values] = &self.blockings;
        [
            pack(of_keys, key, PartSize { rows: self.depth, columns: keys.count }, self.layout.keys),
            pack(of_values, value, PartSize { rows: keys.count, columns: self.columns }, self.layout.values),
        ]
    }

    /// Prefetches what the next task reads first, a share of it with each strip: the hardware does not prefetch strided rows.
    pub(super) fn prefetch(&self, launch: &ThunkContext<'_>, tile: &Tile, next: &Tile, strip: &Range<usize>) {
        let axis = self.batch;
        let ask = |operand: &Operand, rows: Stretch, columns: usize| {
            let matrix = operand.matrix(launch.slots, &next.start[..axis], rows.first, 0);
            let share = |n: usize| (n * rows.count / tile.len[axis]) as isize;
            for row in (share(strip.start)..share(strip.end)).filter(|_| matrix.columns == 1) {
                let at = matrix.at.wrapping_offset(row * matrix.rows * size_of::<T>() as isize);
                (0..columns * size_of::<T>()).step_by(LINE).for_each(|byte| prefetch(at.wrapping_add(byte)));
            }
        };
        ask(&self.query, Stretch::new(next.start[axis], next.len[axis]), self.depth);
        if next.start[..axis] != tile.start[..axis] {
            ask(&self.key, Stretch::new(0, self.key_block), self.depth);
            ask(&self.value, Stretch::new(0, self.key_block), self.columns);
        }
    }
}
