//! Copies rows of a gathered operand line by line, with the fill value where a guard fails.

use std::ops::Range;

use super::rows::{GatheredRow, RowMap};
use crate::{
    gemm::{
        matrix::Stretch,
        micro::{pack::Lines, table::Micro},
    },
    tile::MAX_RANK,
};

/// A gathered operand whose rows are copied.
pub struct RowCopy<'a, T: 'static> {
    pub map: &'a RowMap,
    pub micro: &'a Micro<T>,
    /// The operand's buffer.
    pub buffer: *const T,
    /// The value of elements at which a guard fails.
    pub fill: T,
}

/// The destination of rows that have one stride and equal guards.
struct Target<T> {
    to: *mut T,
    /// The distance in elements from a target row to the next.
    pitch: usize,
    rows: usize,
    /// The distance in elements from a source row to the next.
    stride: i64,
}

impl<T: Copy + 'static> RowCopy<'_, T> {
    /// Copies a block of rows and terms to rows that are `pitch` elements apart. Neighbouring rows with one stride and
    /// equal guards are copied together.
    ///
    /// # Safety
    /// The buffer must be of the size that the map states, and there must be room for the rows.
    pub unsafe fn rows(&self, rows: Stretch, terms: Stretch, to: *mut T, pitch: usize) {
        let map = self.map;
        debug_assert!(rows.first + rows.count <= map.points(&map.rows), "rows beyond the operand");
        debug_assert!(terms.first + terms.count <= map.points(&map.outer) * map.line, "terms beyond the operand");
        let mut point = map.point(rows.first);
        let stride = map.rows.last().map_or(0, |axis| axis.stride);
        let (mut done, mut row) = (0, map.row(&point));
        while done < rows.count {
            let (mut alike, mut next) = (1, None);
            while done + alike < rows.count {
                map.advance(&mut point);
                next = map.row(&point);
                if next != row.map(|row| GatheredRow { at: row.at + stride * alike as i64, ..row }) {
                    break;
                }
                alike += 1;
            }
            let target = Target { to: to.wrapping_add(done * pitch), pitch, rows: alike, stride };
            // SAFETY: target rows are `pitch` elements apart; the other requirements are passed on from the caller.
            unsafe {
                match row {
                    Some(row) => self.terms(&row, terms, &target),
                    None => target.fill(0..terms.count, self.fill),
                }
            }
            (done, row) = (done + alike, next);
        }
    }

    /// Copies a range of terms of rows that have the stride and the guards of the first one, `row`.
    ///
    /// # Safety
    /// The requirements of [`RowCopy::rows`] apply.
    unsafe fn terms(&self, row: &GatheredRow, terms: Stretch, target: &Target<T>) {
        let map = self.map;
        let mut skip = terms.first % map.line;
        let mut outer = [0; MAX_RANK];
        let mut left = terms.first / map.line;
        for (axis, i) in map.outer.iter().zip(&mut outer).rev() {
            *i = left % axis.extent;
            left /= axis.extent;
        }
        let mut done = 0;
        while done < terms.count {
            let len = (map.line - skip).min(terms.count - done);
            let (start, end) = (row.line.from.clamp(skip, skip + len), row.line.to.clamp(skip, skip + len));
            let (mut at, mut there) = (row.at + map.step * start as i64, start < end);
            for ((axis, &i), inside) in map.outer.iter().zip(&outer).zip(row.outer) {
                there &= (inside.from..inside.to).contains(&(i as i64));
                at += axis.stride * i as i64;
            }
            let reach = [map.step * (end as i64 - start as i64 - 1), target.stride * (target.rows as i64 - 1)];
            let least: i64 = reach.iter().map(|r| r.min(&0)).sum();
            let most: i64 = reach.iter().map(|r| r.max(&0)).sum();
            // SAFETY: the first and the last element of all lines are checked to be in the buffer; the caller
            // guarantees room for the terms.
            unsafe {
                if there && at + least >= 0 && at + most < map.count as i64 {
                    target.fill(done..done + start - skip, self.fill);
                    target.fill(done + end - skip..done + len, self.fill);
                    self.lines(self.buffer.add(at as usize), end - start, done + start - skip, target);
                } else {
                    target.fill(done..done + len, self.fill);
                }
            }
            (done, skip) = (done + len, 0);
            for (axis, i) in map.outer.iter().zip(&mut outer).rev() {
                *i += 1;
                if *i < axis.extent {
                    break;
                }
                *i = 0;
            }
        }
    }

    /// Copies `len` elements of a line of each row to the target's terms from `first` on.
    ///
    /// # Safety
    /// All lines must be in the buffer, and the target must have room for these terms.
    unsafe fn lines(&self, from: *const T, len: usize, first: usize, target: &Target<T>) {
        let (to, step, stride) = (target.to.wrapping_add(first), self.map.step as isize, target.stride as isize);
        // SAFETY: passed on from the caller.
        unsafe {
            if step == 1 {
                let call = Lines { count: target.rows, len, from, line_stride: stride, to, pitch: target.pitch };
                return (self.micro.lines)(&call);
            }
            let copy = |r: usize, j: usize| {
                to.add(r * target.pitch + j).write(from.offset(stride * r as isize + step * j as isize).read());
            };
            // The inner loop is over the axis with the smaller stride, which reads more elements of each cache line in
            // turn.
            if step.abs() > stride.abs() {
                (0..len).for_each(|j| (0..target.rows).for_each(|r| copy(r, j)));
            } else {
                (0..target.rows).for_each(|r| (0..len).for_each(|j| copy(r, j)));
            }
        }
    }
}

impl<T: Copy> Target<T> {
    /// Fills a range of terms of all rows with one number.
    ///
    /// # Safety
    /// The target must have room for these terms of all rows.
    unsafe fn fill(&self, terms: Range<usize>, with: T) {
        for r in 0..self.rows {
            // SAFETY: the caller promises room for the terms.
            terms.clone().for_each(|l| unsafe { self.to.add(r * self.pitch + l).write(with) });
        }
    }
}
