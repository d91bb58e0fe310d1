//! Packs keys and values for products, and prefetches the operands of the next task.

use std::ops::Range;

use super::{
    Attention, ScratchLayout,
    operands::AttentionOperand,
    runs::{Runs, STRIP},
};
use crate::{
    gemm::{
        blocking::Blocking,
        matrix::{Matrix, PartSize, Stretch},
        product::ProductElement,
        right::Right,
    },
    runtime::thunk::ThunkContext,
    simd::{
        softmax::AttentionElement,
        stream::{LINE, prefetch},
    },
    tile::Tile,
};

impl<T: AttentionElement + ProductElement> Attention<T> {
    /// Returns the keys and values of a block as right operands of products. They are packed if several strips of
    /// queries are multiplied with them. If some keys equal each other, the `others` come first, followed by one of the
    /// equal keys.
    ///
    /// # Safety
    /// The requirements of [`crate::runtime::thunk::Thunk::run`] apply; scratch memory must have the bytes that the
    /// thunk states.
    pub(super) unsafe fn pack(
        &self,
        launch: &ThunkContext<'_>,
        point: &[usize],
        (queries, keys, others): (usize, Stretch, Option<&Runs>),
        scratch: *mut u8,
    ) -> [Right<'static>; 2] {
        let ScratchLayout { evaluated: [_, of_key, of_value], .. } = self.layout;
        // SAFETY: passed on from the caller; `lay_out` made room for these rows and panels.
        let [key, value] = unsafe {
            [(&self.key, self.depth, of_key), (&self.value, self.columns, of_value)].map(|(operand, width, at)| {
                let Some(others) = others else { return operand.matrix::<T>(launch, point, keys, scratch, at) };
                let shared = Stretch::new(keys.first + others.first_outside(), 1);
                operand.matrix::<T>(launch, point, shared, scratch, at + others.len() * width * size_of::<T>());
                operand.runs::<T>(launch, point, (keys, others), width, scratch, at)
            })
        };
        let keys = others.map_or(keys.count, |others| others.len() + 1);
        let key = Matrix { rows: key.columns, columns: key.rows, ..key };
        if queries <= STRIP {
            return [self.key.right(key), self.value.right(value)];
        }
        let pack = |blocking: &Blocking<T>, matrix: Right<'_>, whole: PartSize, place: usize| {
            let [to, products] = [place, self.layout.products].map(|place| scratch.wrapping_add(place));
            for panel in 0..whole.columns.div_ceil(blocking.panel()) {
                // SAFETY: passed on from the caller; `lay_out` made room for these rows and panels.
                unsafe { blocking.pack(matrix, whole, panel, to, products) };
            }
            Right::Packed(to)
        };
        let [of_keys, of_values] = &self.blockings;
        [
            pack(of_keys, self.key.right(key), PartSize { rows: self.depth, columns: keys }, self.layout.keys),
            pack(
                of_values,
                self.value.right(value),
                PartSize { rows: keys, columns: self.columns },
                self.layout.values,
            ),
        ]
    }

    /// Prefetches the operands that the next task reads first: a share of them during each strip of queries. Hardware
    /// prefetchers do not follow strided rows.
    pub(super) fn prefetch(
        &self,
        launch: &ThunkContext<'_>,
        tile: &Tile,
        next: &Tile,
        (strip, of): (&Range<usize>, usize),
    ) {
        let axis = self.batch;
        let share = |n: usize| n * strip.start / of..n * strip.end / of;
        let ask = |operand: &AttentionOperand, rows: Stretch, columns: usize| {
            let (point, share) = (&next.start[..axis], share(rows.count));
            let operand = match operand {
                AttentionOperand::Whole(operand) | AttentionOperand::Short(operand) => operand,
                AttentionOperand::Blocks(blocks) => {
                    return blocks.prefetch(launch.slots, point, rows.first + share.start..rows.first + share.end);
                }
            };
            let matrix = operand.matrix(launch.slots, point, rows.first, 0);
            let size = operand.size();
            for row in share.filter(|_| matrix.columns == 1) {
                let at = matrix.at.wrapping_offset(row as isize * matrix.rows * size as isize);
                (0..columns * size).step_by(LINE).for_each(|byte| prefetch(at.wrapping_add(byte)));
            }
        };
        ask(&self.query, Stretch::new(next.start[axis], next.len[axis]), self.depth);
        if next.start[..axis] != tile.start[..axis] {
            ask(&self.key, Stretch::new(0, self.key_block), self.depth);
            ask(&self.value, Stretch::new(0, self.key_block), self.columns);
        }
    }
}
