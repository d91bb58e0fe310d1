//! Products of single rows with chosen matrices, in groups of rows that choose the same one. So a matrix is read once
//! for several rows.

use super::{
    Matmul, frame,
    groups::{RowGroups, coordinates},
};
use crate::{
    gemm::{
        left::Left,
        matrix::{Matrix, Stretch},
        micro::call::SumFinish,
        product::{Extents, ProductElement},
        right::Right,
    },
    runtime::thunk::ThunkContext,
    tile::{MAX_RANK, Tile},
};

impl<T: ProductElement> Matmul<T> {
    /// Returns the extents of the batch.
    pub(super) fn batch_extents(&self) -> &[usize] {
        &self.epilogue.domain[..self.batch]
    }

    /// Returns the number of tasks for these groups.
    pub(super) fn group_tasks(&self, groups: &RowGroups) -> usize {
        groups.count() * self.extents.n.div_ceil(self.tiling.grids[0].len()[self.batch + 1])
    }

    /// Computes some columns of a group. Tasks with the same columns of the same matrix follow each other.
    ///
    /// # Safety
    /// As [`Matmul::task`]; the right operand must be packed, and the product must be one of groups.
    pub(super) unsafe fn group_task(&self, launch: &ThunkContext<'_>, groups: &RowGroups, n: usize, scratch: *mut u8) {
        let (Some((packed, strides)), Some(numbers)) = (self.constant(launch), &self.numbers) else { return };
        let (points, batch) = (groups.group(n % groups.count()), self.batch_extents());
        let width = self.tiling.grids[0].len()[self.batch + 1];
        let column = n / groups.count() * width;
        let extents = Extents { m: points.len(), n: width.min(self.extents.n - column), k: self.extents.k };
        let frame = frame(launch, scratch);
        let matrix = numbers.at(launch.slots, &coordinates(points[0], batch)[..batch.len()]) as usize * strides[0];
        let right = Right::Packed(packed.wrapping_add(matrix + self.blocking.packed_at(column, extents.k)));
        let rows = scratch.wrapping_add(self.lhs_room).cast::<T>();
        let mut left = Matrix { at: rows.cast(), rows: extents.k as isize, columns: 1 };
        for (row, &point) in points.iter().enumerate() {
            let of_batch = coordinates(point, batch);
            // SAFETY: the operand was checked when the kernel was compiled.
            let of = unsafe { self.lhs.at::<T>(&frame, &of_batch[..batch.len()], point, Stretch::new(0, 1), scratch) };
            let Left::Strided(of) = of else { return };
            if points.len() == 1 {
                left = of;
                break;
            }
            for term in 0..extents.k {
                // SAFETY: the row has these terms, and there is room for the rows of a group.
                unsafe {
                    let from = of.at.cast::<T>().offset(term as isize * of.columns);
                    rows.add(row * extents.k + term).write(from.read());
                }
            }
        }
        let mut finish = SumFinish::scaled(T::from(true));
        if let Some((slot, base)) = self.taken.row {
            finish.bias = launch.slots[slot].cast::<T>().wrapping_offset(base as isize + column as isize);
        }
        finish.least = self.taken.relu.then(T::default);
        let product = scratch.wrapping_add(self.registers);
        let target = Matrix { at: product, rows: extents.n as isize, columns: 1 };
        // SAFETY: passed on from the caller; see `scratch` for the room.
        unsafe {
            self.blocking.run(extents, target, (Left::Strided(left), right), finish, scratch.add(self.tile_end));
            for (row, &point) in points.iter().enumerate() {
                let mut tile = Tile { start: coordinates(point, batch), len: [1; MAX_RANK] };
                tile.start[self.batch + 1] = column;
                tile.len[self.batch + 1] = extents.n;
                self.finish(launch, &tile, product.add(row * extents.n * self.size), scratch);
            }
        }
    }
}
