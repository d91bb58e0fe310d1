//! Points of a batch in the order of the matrices that they choose.

use std::ops::Range;

use crate::{kernels::chosen::MatrixNumbers, tile::MAX_RANK};

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
    pub fn count(&self) -> usize {
        self.groups.len()
    }

    /// Returns the points of a group.
    pub fn group(&self, number: usize) -> &[usize] {
        &self.points[self.groups[number].clone()]
    }
}

/// Returns the coordinates of point `number`.
pub fn coordinates(mut number: usize, extents: &[usize]) -> [usize; MAX_RANK] {
    let mut point = [0; MAX_RANK];
    for (at, extent) in point[..extents.len()].iter_mut().zip(extents).rev() {
        *at = number % extent;
        number /= extent;
    }
    point
}
