//! Computes the positions of a gathered operand's rows, and the ranges of their terms at which guards hold.

use crate::tile::MAX_RANK;

/// The index map of a gathered operand. It has a row for each point of the axes `rows`. A row has a term for each point
/// of the axes `outer` and each element of a line.
pub struct RowMap {
    /// The number of elements of the buffer, and the index of the first term of the first row.
    pub count: usize,
    pub base: i64,
    pub rows: Vec<GatheredAxis>,
    pub outer: Vec<GatheredAxis>,
    /// The number of elements of a line, and their stride in the buffer.
    pub line: usize,
    pub step: i64,
    /// The offset of each line from the first one (none if there are too many lines), and the minimal and maximal
    /// offset of a term.
    pub starts: Vec<isize>,
    pub reach: (i64, i64),
    pub guards: Vec<GatheredBound>,
}

/// An axis: its extent, and its stride in elements of the buffer.
#[derive(Clone, Copy)]
pub struct GatheredAxis {
    pub extent: usize,
    pub stride: i64,
}

/// The positions of rows whose terms are all in memory. Terms are in segments (lines of the operand), at equal offsets
/// in all rows.
pub struct Alike<'a> {
    /// The index of the first row's first line, even if the terms begin with a later line.
    pub at: isize,
    /// The distance in elements from a row to the next.
    pub stride: isize,
    /// The distance in elements from a term of a segment to the next.
    pub step: isize,
    /// The offset of each segment from `at`, in elements.
    pub starts: &'a [isize],
}

/// The condition of a guard: constant + Σ strides·(coordinates of the row) + factor·(coordinate along a term axis) is
/// in `from..to`.
pub struct GatheredBound {
    pub constant: i64,
    pub strides: Vec<i64>,
    pub along: Along,
    pub from: i64,
    pub to: i64,
}

/// The term axis on which a guard depends, and its factor.
pub enum Along {
    None,
    Outer(usize, i64),
    /// An axis within a line: its factor, and the elements of the line per step along it.
    Line(i64, usize),
}

/// A range of coordinates, from `from` to before `to`.
#[derive(Clone, Copy, PartialEq)]
pub struct Between<T> {
    pub from: T,
    pub to: T,
}

impl<T: Ord> Between<T> {
    fn and(self, other: Between<T>) -> Between<T> {
        Between { from: self.from.max(other.from), to: self.to.min(other.to) }
    }
}

/// A row: the index of its first element, and the coordinates at which all guards hold, along the outer term axes and
/// within lines.
#[derive(Clone, Copy, PartialEq)]
pub struct GatheredRow {
    pub at: i64,
    pub outer: [Between<i64>; MAX_RANK],
    pub line: Between<usize>,
}

impl RowMap {
    /// Returns the number of points of some axes.
    pub fn points(&self, axes: &[GatheredAxis]) -> usize {
        axes.iter().map(|axis| axis.extent).product()
    }

    /// Returns the coordinates of a row, counted over all matrices of the batch.
    pub fn point(&self, row: usize) -> [usize; MAX_RANK] {
        let (mut point, mut left) = ([0; MAX_RANK], row);
        for (d, axis) in self.rows.iter().enumerate().rev() {
            point[d] = left % axis.extent;
            left /= axis.extent;
        }
        point
    }

    /// Advances the coordinates of a row to those of the next row.
    pub fn advance(&self, point: &mut [usize; MAX_RANK]) {
        for (d, axis) in self.rows.iter().enumerate().rev() {
            point[d] += 1;
            if point[d] < axis.extent {
                return;
            }
            point[d] = 0;
        }
    }

    /// Returns the row at some coordinates; `None` if a guard fails for all of its elements.
    pub fn row(&self, point: &[usize; MAX_RANK]) -> Option<GatheredRow> {
        let at = self.rows.iter().zip(point).fold(self.base, |sum, (axis, &i)| sum + axis.stride * i as i64);
        let mut row = GatheredRow {
            at,
            outer: [Between { from: 0, to: i64::MAX }; MAX_RANK],
            line: Between { from: 0, to: self.line },
        };
        for guard in &self.guards {
            let value = guard.strides.iter().zip(point).fold(guard.constant, |sum, (s, &i)| sum + s * i as i64);
            // A division takes tens of cycles. Windows without dilation have a factor of 1, and need none.
            let up = |n: i64, factor: i64| if factor == 1 { n } else { (n + factor - 1).div_euclid(factor) };
            let within = |factor: i64| {
                let [from, to] = [guard.from, guard.to].map(|end| up(end - value, factor));
                Between { from: from.max(0), to }
            };
            match guard.along {
                Along::None if (guard.from..guard.to).contains(&value) => {}
                Along::None => return None,
                Along::Outer(axis, factor) => {
                    row.outer[axis] = row.outer[axis].and(within(factor));
                }
                Along::Line(factor, unit) => {
                    let steps = within(factor);
                    let elements = |steps: i64| (steps.max(0) as usize).saturating_mul(unit).min(self.line);
                    row.line = row.line.and(Between { from: elements(steps.from), to: elements(steps.to) });
                }
            }
        }
        (row.line.from < row.line.to).then_some(row)
    }

    /// Returns whether the guards of a row hold for line number `line`, as far as they depend on outer term axes.
    pub fn has(&self, row: &GatheredRow, line: usize) -> bool {
        let mut left = line;
        self.outer.iter().zip(&row.outer).rev().all(|(axis, inside)| {
            let here = (left % axis.extent) as i64;
            left /= axis.extent;
            (inside.from..inside.to).contains(&here)
        })
    }

    /// Returns whether a guard holds for all terms of the row at `point`, and of the row `beyond` steps further along
    /// the innermost row axis.
    pub fn is_whole(&self, guard: &GatheredBound, point: &[usize; MAX_RANK], beyond: i64) -> bool {
        let value = guard.strides.iter().zip(point).fold(guard.constant, |sum, (s, &i)| sum + s * i as i64);
        let moved = beyond * guard.strides.last().copied().unwrap_or(0);
        let reach = match guard.along {
            Along::None => 0,
            Along::Outer(axis, factor) => factor * (self.outer[axis].extent as i64 - 1),
            Along::Line(factor, unit) => factor * ((self.line - 1) / unit) as i64,
        };
        guard.from <= value + moved.min(0) && value + moved.max(0) + reach < guard.to
    }
}
