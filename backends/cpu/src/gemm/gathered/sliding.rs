//! Copies overlapping rows, such as windows that slide along the lines of an image, with each shared element once.

use super::rows::{Alike, Along, GatheredAxis, GatheredBound, RowMap};
use crate::gemm::{
    matrix::Stretch,
    micro::{pack::Lines, table::Micro},
    product::ProductElement,
};

/// The maximal number of rows of a patch ([`Sliding`]).
const PATCH_ROWS: usize = 16;
/// The maximal number of elements of a patch ([`Sliding`]). A patch and the terms of a unit fit into the first-level
/// cache together.
pub const PATCH: usize = 4096;
/// The maximal number of terms of a unit ([`Sliding`]).
const UNIT: usize = 768;

/// Describes rows that are windows sliding along the lines of an image, so that neighbouring rows share elements. A
/// unit consists of the terms that a row reads from one image line. For a unit, a block of rows reads one contiguous
/// range of positions. A patch is the copy of this range, with the fill value for positions outside of the image, and
/// the rows overlap in it. In a grouped convolution, it has the channels of one group only.
pub struct Sliding {
    /// The outer term axis along which windows slide; `None` if they slide within a line of terms.
    axis: Option<usize>,
    /// The number of positions of a window, and the elements per position. Along an outer axis, a position is a line of
    /// terms; within a line, it is one element.
    taps: usize,
    width: usize,
    /// The distance in elements from a position to the next: in the buffer, and in patches.
    position_stride: i64,
    pitch: i64,
    /// The number of positions from a row to the next, which is the stride of a convolution.
    steps: i64,
    /// The maximal number of rows of a patch.
    rows: usize,
    /// The number of lines and of terms of a unit, and the elements from its patch to that of the next unit.
    lines: usize,
    pub unit: usize,
    pub span: usize,
    /// The offset of each line of terms in the patches from the first line.
    starts: Vec<isize>,
}

impl Sliding {
    /// Returns the description for blocks of at most `most` rows; patches for more rows would be unnecessarily large.
    /// Returns `None` if windows overlap too little, or a patch would be too large for the first-level cache.
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
        // Each guard must move along with the windows, or be equal for all rows of a block. Otherwise a block does not
        // read one contiguous range.
        let moves_along = |guard: &GatheredBound| match guard.along {
            Along::Line(factor, unit) => axis.is_none() && guard.strides[inner] * unit as i64 == factor * stride,
            Along::Outer(on, factor) if Some(on) == axis => guard.strides[inner] * position_stride == factor * stride,
            Along::Outer(..) | Along::None => guard.strides[inner] == 0,
        };
        // Positions may share elements in a patch only if no guard excludes one: an excluded position has the fill
        // value in all of its elements.
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

    /// Copies the patches of a block of rows and terms to `to`, with `fill` for missing elements. Returns the positions
    /// of the rows there, or `None` if there is no patch for the block.
    ///
    /// # Safety
    /// The requirements of `Gathered::copy` apply, and `to` must have room for the packed terms.
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
        // The range of positions that are in the buffer, from the first one of the first row to the last one of the
        // last row.
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
