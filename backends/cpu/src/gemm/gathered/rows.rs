//! Computes the positions of a gathered operand's rows, and which of their terms exist.

use crate::tile::MAX_RANK;

/// A row for each point of `rows`, and in it a term for each point of `outer` and of the line.
pub struct RowMap {
    /// Elements of the buffer, and the first row's first.
    pub count: usize,
    pub base: i64,
    pub rows: Vec<GatheredAxis>,
    pub outer: Vec<GatheredAxis>,
    /// Elements of a line, and from one to the next in the buffer.
    pub line: usize,
    pub step: i64,
    /// The starts of lines relative to the first one, and the minimal and maximal offset of a term.
    pub starts: Vec<isize>,
    pub reach: (i64, i64),
    pub guards: Vec<GatheredBound>,
}

/// An axis: its extent, and elements of the buffer from a coordinate to the next.
#[derive(Clone, Copy)]
pub struct GatheredAxis {
    pub extent: usize,
    pub stride: i64,
}

/// Rows that can be read in place, because all of their terms exist: segments of terms at equal offsets in all rows.
pub struct Alike<'a> {
    /// The first element of the first row's terms, had they begun at the first line.
    pub at: isize,
    /// The distance of two rows.
    pub stride: isize,
    /// The distance of two terms of a segment.
    pub step: isize,
    /// The starts of segments.
    pub starts: &'a [isize],
}

/// The condition of a guard for a given row: constant + Σ strides·row + factor·(coordinate along an axis of the terms)
/// is in `from..to`.
pub struct GatheredBound {
    pub constant: i64,
    pub strides: Vec<i64>,
    pub along: Along,
    pub from: i64,
    pub to: i64,
}

/// The axis of the terms on which a guard depends, and its factor.
pub enum Along {
    None,
    Outer(usize, i64),
    /// A part of the line, with a number of elements per step.
    Line(i64, usize),
}

/// Coordinates from one to before another.
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

/// The position of a row: its first element, and which of its terms exist.
#[derive(Clone, Copy, PartialEq)]
pub struct GatheredRow {
    pub at: i64,
    pub outer: [Between<i64>; MAX_RANK],
    pub line: Between<usize>,
}

impl RowMap {
    /// Returns how many points some axes have.
    pub fn points(&self, axes: &[GatheredAxis]) -> usize {
        axes.iter().map(|axis| axis.extent).product()
    }

    /// Returns the point of a row, counted over all matrices.
    pub fn point(&self, row: usize) -> [usize; MAX_RANK] {
        let (mut point, mut left) = ([0; MAX_RANK], row);
        for (d, axis) in self.rows.iter().enumerate().rev() {
            point[d] = left % axis.extent;
            left /= axis.extent;
        }
        point
    }

    /// Moves to the next row.
    pub fn advance(&self, point: &mut [usize; MAX_RANK]) {
        for (d, axis) in self.rows.iter().enumerate().rev() {
            point[d] += 1;
            if point[d] < axis.extent {
                return;
            }
            point[d] = 0;
        }
    }

    /// Returns the position of a row; `None` if none of its elements exists.
    pub fn row(&self, point: &[usize; MAX_RANK]) -> Option<GatheredRow> {
        let at = self.rows.iter().zip(point).fold(self.base, |sum, (axis, &i)| sum + axis.stride * i as i64);
        let mut row = GatheredRow {
            at,
            outer: [Between { from: 0, to: i64::MAX }; MAX_RANK],
            line: Between { from: 0, to: self.line },
        };
        for guard in &self.guards {
            let value = guard.strides.iter().zip(point).fold(guard.constant, |sum, (s, &i)| sum + s * i as i64);
            // Divisions take long, and most windows are dense.
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

    /// Returns whether a row has a line.
    pub fn has(&self, row: &GatheredRow, line: usize) -> bool {
        let mut left = line;
        self.outer.iter().zip(&row.outer).rev().all(|(axis, inside)| {
            let here = (left % axis.extent) as i64;
            left /= axis.extent;
            (inside.from..inside.to).contains(&here)
        })
    }

    /// Returns whether a guard holds for all terms of a row and of the row at distance `beyond`.
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
