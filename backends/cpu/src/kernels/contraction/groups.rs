//! Products of single rows with chosen matrices, in groups of rows that choose the same one. So a matrix is read once
//! for several rows.

use std::ops::Range;

use super::Matmul;
use crate::{
    gemm::{
        left::Left,
        matrix::{Matrix, Stretch},
        micro::call::SumFinish,
        product::{Extents, ProductElement},
        right::Right,
    },
    kernels::chosen::MatrixNumbers,
    runtime::thunk::ThunkContext,
    tile::{MAX_RANK, Tile},
};

/// The points of a batch in the order of their matrices.
pub struct RowGroups {
    /// The points, counted through all axes of the batch.
    points: Vec<usize>,
    /// Ranges of points with the same matrix.
    groups: Vec<Range<usize>>,
}

impl RowGroups {
    /// Groups the points of a batch of these extents, at most `most` of them together.
    pub fn new(numbers: &MatrixNumbers, slots: &[*mut u8], batch: &[usize], most: usize) -> RowGroups {
        let count = batch.iter().product::<usize>();
        let chosen: Vec<i64> = (0..count).map(|n| numbers.at(slots, &coordinates(n, batch)[..batch.len()])).collect();
        let mut points: Vec<usize> = (0..count).collect();
        points.sort_by_key(|&point| chosen[point]);
        let (mut groups, mut first) = (Vec::new(), 0);
        for at in 1..=count {
            if at == count || at - first == most || chosen[points[at]] != chosen[points[first]] {
                groups.push(first..at);
                first = at;
            }
        }
        RowGroups { points, groups }
    }

    /// Returns the number of groups.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Returns the points of a group.
    fn group(&self, number: usize) -> &[usize] {
        &self.points[self.groups[number].clone()]
    }
}

/// Returns the coordinates of point `number`.
fn coordinates(mut number: usize, extents: &[usize]) -> [usize; MAX_RANK] {
    let mut point = [0; MAX_RANK];
    for (at, extent) in point[..extents.len()].iter_mut().zip(extents).rev() {
        *at = number % extent;
        number /= extent;
    }
    point
}

impl<T: ProductElement> Matmul<T> {
    /// Returns the extents of the batch.
    pub(super) fn batch_extents(&self) -> &[usize] {
        &self.epilogue.domain[..self.batch]
    }

    /// Returns the number of tasks for these groups.
    pub(super) fn group_tasks(&self, groups: &RowGroups) -> usize {
        groups.len() * self.extents.n.div_ceil(self.tiling.grids[0].len()[self.batch + 1])
    }

    /// Computes some columns of a group. Tasks with the same columns of the same matrix follow each other.
    ///
    /// # Safety
    /// As [`Matmul::task`]; the right operand must be packed, and the product must be one of groups.
    pub(super) unsafe fn group_task(&self, launch: &ThunkContext<'_>, groups: &RowGroups, n: usize, scratch: *mut u8) {
        let (Some((packed, strides)), Some(numbers)) = (self.constant(launch), &self.numbers) else { return };
        let (points, batch) = (groups.group(n % groups.len()), self.batch_extents());
        let width = self.tiling.grids[0].len()[self.batch + 1];
        let column = n / groups.len() * width;
        let extents = Extents { m: points.len(), n: width.min(self.extents.n - column), k: self.extents.k };
        let frame = super::frame(launch, scratch);
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
