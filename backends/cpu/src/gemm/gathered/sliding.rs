//! Rows that overlap, as windows that slide along lines of an image, copied once.

use super::rows::{Alike, Along, GatheredAxis, GatheredBound, RowMap};
use crate::gemm::{
    matrix::Stretch,
    micro::{pack::Lines, table::Micro},
    product::ProductElement,
};

/// The maximal rows and elements of a patch, and terms of a unit. Patch and unit fit into the first-level cache
/// together.
const PATCH_ROWS: usize = 16;
pub const PATCH: usize = 4096;
const UNIT: usize = 768;

/// Describes rows that are windows sliding along the lines of an image, and so share elements. A block of rows reads a
/// contiguous range of each line, in which a group's channels may be a part of each position. With missing elements at
/// its ends filled in, the range is a patch, in which the rows overlap. A patch has only elements that its rows read.
pub struct Sliding {
    /// The axis of the terms along which windows slide, if it is not a part of their lines.
    axis: Option<usize>,
    /// Positions of a window, and elements of one: of an axis the lines at its steps, else the elements of a line.
    taps: usize,
    width: usize,
    /// Elements from a position to the next: in the buffer, and in patches.
    position_stride: i64,
    pitch: i64,
    /// Positions from a row to the next.
    steps: i64,
    /// The most rows of a patch.
    rows: usize,
    /// Lines and terms that are read in one stretch, and elements from the patch of a unit to that of the next.
    lines: usize,
    pub unit: usize,
    pub span: usize,
    /// The starts of lines in patches, relative to the first one.
    starts: Vec<isize>,
}

impl Sliding {
    /// Returns the description for blocks of at most `most` rows; patches for more rows would be unnecessarily large.
    /// Returns `None` if windows overlap too little, or exceed the first-level cache.
    pub fn new(of: &RowMap, most: usize) -> Option<Sliding> {
        let inner = of.rows.len().checked_sub(1)?;
        let GatheredAxis { extent, stride } = of.rows[inner];
        if of.step != 1 || stride <= 0 || of.starts.is_empty() {
            return None;
        }
        let slides = |axis: &GatheredAxis| axis.extent > 1 && axis.stride > 0 && stride % axis.stride == 0;
        let axis = of.outer.len().checked_sub(1).filter(|&last| slides(&of.outer[last]));
        let (lines, taps, width, position_stride) = axis.map_or((1, of.line, 1, 1), |axis| {
            (of.outer[axis].extent, of.outer[axis].extent, of.line, of.outer[axis].stride)
        });
        // A block reads one contiguous range if each guard either moves with the windows, or is equal for all of them.
        let moves_along = |guard: &GatheredBound| match guard.along {
            Along::Line(factor, unit) => axis.is_none() && guard.strides[inner] * unit as i64 == factor * stride,
            Along::Outer(on, factor) if Some(on) == axis => guard.strides[inner] * position_stride == factor * stride,
            Along::Outer(..) | Along::None => guard.strides[inner] == 0,
        };
        // Positions share elements in a patch only if none is missing: a missing position has the fill value only.
        let guarded = of.guards.iter().any(|guard| matches!(guard.along, Along::Outer(on, _) if Some(on) == axis));
        let pitch = if guarded { width as i64 } else { position_stride.min(width as i64) };
        let (unit, steps) = (lines * of.line, stride / position_stride);
        let rows = extent.min(PATCH_ROWS).min(most.max(1));
        let positions = (rows as i64 - 1) * steps + taps as i64;
        let span = usize::try_from((positions - 1) * pitch).ok()? + width;
        if unit > UNIT || span > PATCH || 4 * span > 3 * rows * unit || !of.guards.iter().all(moves_along) {
            return None;
        }
        let in_unit = |n: usize| (n / lines * span) as isize + (n % lines) as isize * pitch as isize;
        let starts = (0..of.starts.len()).map(in_unit).collect();
        Some(Sliding { axis, taps, width, position_stride, pitch, steps, rows, lines, unit, span, starts })
    }

    /// Works like `Gathered::alike` for rows that lack terms: their elements are copied, overlapping ones once, and
    /// missing ones are set to `fill`.
    ///
    /// # Safety
    /// As `Gathered::copy`; there must be room for the packed terms.
    pub unsafe fn patch<T: ProductElement>(
        &self,
        of: &RowMap,
        fill: T,
        micro: &Micro<T>,
        buffer: *const T,
        [rows, terms]: [Stretch; 2],
        to: *mut T,
    ) -> Option<Alike<'_>> {
        let &Sliding { axis, taps, width, position_stride, pitch, steps, lines, unit, span, ref starts, .. } = self;
        let (inner, first, units) = (of.rows.last()?, terms.first / unit, terms.count / unit);
        let here = rows.count <= self.rows && rows.first % inner.extent + rows.count <= inner.extent;
        let whole = terms.first.is_multiple_of(unit) && terms.count.is_multiple_of(unit) && units > 0;
        if !here || !whole || units * span > micro.column() * terms.count {
            return None;
        }
        let before = steps * (rows.count as i64 - 1);
        let one = of.row(&of.point(rows.first))?;
        let last = of.row(&of.point(rows.first + rows.count - 1))?;
        // From the first position of the first row to the last position of the last row.
        let (start, end) = match axis {
            Some(axis) => (one.outer[axis].from, before + last.outer[axis].to.min(taps as i64)),
            None => (one.line.from as i64, before + last.line.to as i64),
        };
        let positions = before + taps as i64;
        let (start, end) = (start.clamp(0, positions), end.clamp(0, positions));
        let elements = |positions: i64, position_stride: i64| (positions - 1) * position_stride + width as i64;
        for n in 0..units {
            let number = (first + n) * lines;
            let mut left = number;
            let mut there = start < end;
            for (d, axis_of_terms) in of.outer.iter().enumerate().rev() {
                let i = (left % axis_of_terms.extent) as i64;
                left /= axis_of_terms.extent;
                there &= Some(d) == axis || (one.outer[d].from..one.outer[d].to).contains(&i);
            }
            let from = one.at + of.starts[number] as i64 + start * position_stride;
            there &= from >= 0 && from + elements(end - start, position_stride) <= of.count as i64;
            let all = elements(positions, pitch) as usize;
            let (first, len) = match there {
                true => ((start * pitch) as usize, elements(end - start, pitch) as usize),
                false => (all, 0),
            };
            let to = to.wrapping_add(n * span);
            let (count, line) = if pitch == position_stride { (1, len) } else { ((end - start) as usize, width) };
            // SAFETY: the caller promises room; the copied elements were checked to be within the buffer.
            unsafe {
                (0..first).for_each(|at| to.add(at).write(fill));
                if there {
                    let (from, to) = (buffer.offset(from as isize), to.add(first));
                    let (position_stride, pitch) = (position_stride as isize, pitch as usize);
                    (micro.lines)(&Lines { count, len: line, from, line_stride: position_stride, to, pitch });
                }
                (first + len..all).for_each(|at| to.add(at).write(fill));
            }
        }
        let starts = &starts[first * lines..(first + units) * lines];
        Some(Alike { at: -((first * span) as isize), stride: (steps * pitch) as isize, step: 1, starts })
    }
}
