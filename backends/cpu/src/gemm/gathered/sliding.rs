//! Rows that overlap, as windows that slide along lines of an image, copied once.

use super::rows::{Alike, Along, GatheredAxis, GatheredBound, RowMap};
use crate::gemm::{
    matrix::Stretch,
    micro::{pack::Lines, table::Micro},
    product::ProductElement,
};

/// The most rows of a patch, elements of one, and terms of a unit: both stay in the first-level cache beside each other.
const PATCH_ROWS: usize = 16;
pub const PATCH: usize = 4096;
const UNIT: usize = 768;

/// How neighbouring rows share elements, as windows that slide along lines of an image: what a block of them reads in a line is one
/// stretch of memory, of which the channels of a group are only a part at each position. With what is missing at its ends filled in, it is
/// a patch, in which the rows are read where they overlap. It holds no element that these do not read.
pub struct Sliding {
    /// The axis of the terms along which windows slide, if it is not a part of their lines.
    axis: Option<usize>,
    /// Positions of a window, and elements of one: of an axis the lines at its steps, else the elements of a line.
    taps: usize,
    width: usize,
    /// Elements from a position to the next: in the buffer, and in patches.
    apart: i64,
    pitch: i64,
    /// Positions from a row to the next.
    steps: i64,
    /// The most rows of a patch.
    rows: usize,
    /// Lines and terms that are read in one stretch, and elements from the patch of a unit to that of the next.
    lines: usize,
    pub unit: usize,
    pub span: usize,
    /// Where lines begin in patches, from the first one on.
    starts: Vec<isize>,
}

impl Sliding {
    /// For blocks of at most so many rows: patches of more would lie farther apart than they need. None where windows do not overlap enough,
    /// or are too large for the first-level cache.
    pub fn new(of: &RowMap, most: usize) -> Option<Sliding> {
        let inner = of.rows.len().checked_sub(1)?;
        let GatheredAxis { extent, stride } = of.rows[inner];
        if of.step != 1 || stride <= 0 || of.starts.is_empty() {
            return None;
        }
        let slides = |axis: &GatheredAxis| axis.extent > 1 && axis.stride > 0 && stride % axis.stride == 0;
        let axis = of.outer.len().checked_sub(1).filter(|&last| slides(&of.outer[last]));
        let (lines, taps, width, apart) = axis.map_or((1, of.line, 1, 1), |axis| {
            (of.outer[axis].extent, of.outer[axis].extent, of.line, of.outer[axis].stride)
        });
        // What is there of the windows of a block is one stretch, if guards move with them, or are the same for all.
        let moves_along = |guard: &GatheredBound| match guard.along {
            Along::Line(factor, unit) => axis.is_none() && guard.strides[inner] * unit as i64 == factor * stride,
            Along::Outer(on, factor) if Some(on) == axis => guard.strides[inner] * apart == factor * stride,
            Along::Outer(..) | Along::None => guard.strides[inner] == 0,
        };
        // Positions share elements in a patch only if none is missing: a missing position has the fill value alone.
        let guarded = of.guards.iter().any(|guard| matches!(guard.along, Along::Outer(on, _) if Some(on) == axis));
        let pitch = if guarded { width as i64 } else { apart.min(width as i64) };
        let (unit, steps) = (lines * of.line, stride / apart);
        let rows = extent.min(PATCH_ROWS).min(most.max(1));
        let positions = (rows as i64 - 1) * steps + taps as i64;
        let span = usize::try_from((positions - 1) * pitch).ok()? + width;
        if unit > UNIT || span > PATCH || 4 * span > 3 * rows * unit || !of.guards.iter().all(moves_along) {
            return None;
        }
        let in_unit = |n: usize| (n / lines * span) as isize + (n % lines) as isize * pitch as isize;
        let starts = (0..of.starts.len()).map(in_unit).collect();
        Some(Sliding { axis, taps, width, apart, pitch, steps, rows, lines, unit, span, starts })
    }

    /// As `Gathered::alike`, of rows some of whose terms are missing: what they read is copied, once where they overlap; where no element
    /// is, `fill`.
    ///
    /// # Safety
    /// As `Gathered::copy`; there must be room for the terms packed.
    pub unsafe fn patch<T: ProductElement>(
        &self,
        of: &RowMap,
        fill: T,
        micro: &Micro<T>,
        buffer: *const T,
        [rows, terms]: [Stretch; 2],
        to: *mut T,
    ) -> Option<Alike<'_>> {
        let &Sliding { axis, taps, width, apart, pitch, steps, lines, unit, span, ref starts, .. } = self;
        let (inner, first, units) = (of.rows.last()?, terms.first / unit, terms.count / unit);
        let here = rows.count <= self.rows && rows.first % inner.extent + rows.count <= inner.extent;
        let whole = terms.first.is_multiple_of(unit) && terms.count.is_multiple_of(unit) && units > 0;
        if !here || !whole || units * span > micro.column() * terms.count {
            return None;
        }
        let before = steps * (rows.count as i64 - 1);
        let one = of.row(&of.point(rows.first))?;
        let last = of.row(&of.point(rows.first + rows.count - 1))?;
        // Where the first row has its first position, and the last row ends with its last one.
        let (start, end) = match axis {
            Some(axis) => (one.outer[axis].from, before + last.outer[axis].to.min(taps as i64)),
            None => (one.line.from as i64, before + last.line.to as i64),
        };
        let positions = before + taps as i64;
        let (start, end) = (start.clamp(0, positions), end.clamp(0, positions));
        let elements = |positions: i64, apart: i64| (positions - 1) * apart + width as i64;
        for n in 0..units {
            let number = (first + n) * lines;
            let mut left = number;
            let mut there = start < end;
            for (d, axis_of_terms) in of.outer.iter().enumerate().rev() {
                let i = (left % axis_of_terms.extent) as i64;
                left /= axis_of_terms.extent;
                there &= Some(d) == axis || (one.outer[d].from..one.outer[d].to).contains(&i);
            }
            let from = one.at + of.starts[number] as i64 + start * apart;
            there &= from >= 0 && from + elements(end - start, apart) <= of.count as i64;
            let all = elements(positions, pitch) as usize;
            let (first, len) = match there {
                true => ((start * pitch) as usize, elements(end - start, pitch) as usize),
                false => (all, 0),
            };
            let to = to.wrapping_add(n * span);
            let (count, line) = if pitch == apart { (1, len) } else { ((end - start) as usize, width) };
            // SAFETY: the caller promises room; what is copied was checked to lie in the buffer.
            unsafe {
                (0..first).for_each(|at| to.add(at).write(fill));
                if there {
                    let (from, to) = (buffer.offset(from as isize), to.add(first));
                    let (apart, pitch) = (apart as isize, pitch as usize);
                    (micro.lines)(&Lines { count, len: line, from, apart, to, pitch });
                }
                (first + len..all).for_each(|at| to.add(at).write(fill));
            }
        }
        let starts = &starts[first * lines..(first + units) * lines];
        Some(Alike { at: -((first * span) as isize), stride: (steps * pitch) as isize, step: 1, starts })
    }
}
