//! Copies boxes of elements between strided layouts.

use super::domain::{MAX_RANK, Tile};
use crate::simd::{
    Isa,
    lines::{self, LineCopy},
    transpose::{self, Plane},
};

/// The maximal bytes of a contiguous line that vector loops copy. A longer line is copied by a call of `memcpy`.
const LONGEST: usize = 2048;

/// The target or the source of a copy.
pub struct CopySide {
    /// The first element.
    pub at: *mut u8,
    /// The stride along each axis, in elements.
    pub strides: [isize; MAX_RANK],
}

/// An axis of a copy: its extent, and the strides of target and source in elements.
type Axis = (usize, isize, isize);

/// A copy of boxes of one shape. Its axes are merged if target and source traverse them as one axis.
pub struct BoxCopy {
    axes: [Axis; MAX_RANK],
    rank: usize,
    size: usize,
    isa: Isa,
}

impl BoxCopy {
    /// Prepares copies of boxes with extents `len`, of elements of `size` bytes. `to` and `from` are the strides of target
    /// and source in elements. A source with stride 0 is broadcast; a target with stride 0 keeps one of the elements.
    /// Returns `None` if the box is empty.
    pub fn new(
        to: &[isize; MAX_RANK],
        from: &[isize; MAX_RANK],
        len: &[usize; MAX_RANK],
        size: usize,
        isa: Isa,
    ) -> Option<BoxCopy> {
        let mut axes: [Axis; MAX_RANK] = [(1, 0, 0); MAX_RANK];
        let mut rank = 0_usize;
        for d in 0..MAX_RANK {
            let (len, t, f) = (len[d], to[d], from[d]);
            match len {
                0 => return None,
                1 => continue,
                _ => {}
            }
            match rank.checked_sub(1).map(|r| &mut axes[r]) {
                Some(last) if last.1 == t * len as isize && last.2 == f * len as isize => {
                    *last = (last.0 * len, t, f);
                }
                _ => {
                    axes[rank] = (len, t, f);
                    rank += 1;
                }
            }
        }
        Some(BoxCopy { axes, rank, size, isa })
    }

    /// Copies a box, given its first element in target and source.
    ///
    /// # Safety
    /// Target and source must be valid for the whole box. They may be the same memory with equal strides, and must not
    /// overlap otherwise. The machine must have the instruction set.
    pub unsafe fn run(&self, to: *mut u8, from: *const u8) {
        let (axes, bytes) = (&self.axes[..self.rank], self.size as isize);
        // If target and source are contiguous along different axes, planes of these two axes are transposed.
        let dense_to = axes.iter().position(|a| a.1 == 1 && a.2 != 1);
        let dense_from = axes.iter().position(|a| a.2 == 1 && a.1 != 1);
        // SAFETY: all offsets are within the box.
        unsafe {
            if let (Some(columns), Some(rows)) = (dense_to, dense_from) {
                let mut others = (0..self.rank).filter(|&n| n != columns && n != rows).map(|n| axes[n]);
                let outer: [Axis; MAX_RANK] = std::array::from_fn(|_| others.next().unwrap_or((1, 0, 0)));
                let ((columns, _, stride_from), (rows, stride_to, _)) = (axes[columns], axes[rows]);
                let run = transpose::find(self.size, self.isa);
                each(&outer[..self.rank - 2], bytes, to, from, &mut |to, from| {
                    run(&Plane { to, stride_to, from, stride_from, rows, columns });
                });
                return;
            }
            if let &[ref outer @ .., (count, to_lines, from_lines), (len, 1, 1)] = axes
                && bytes % 4 == 0
                && len * self.size <= LONGEST
            {
                let (run, words) = (lines::copy(self.isa), bytes / 4);
                each(outer, bytes, to, from, &mut |to, from| {
                    let (to_lines, from_lines, len) = (to_lines * words, from_lines * words, len * words as usize);
                    run(&LineCopy { to: to.cast(), to_lines, from: from.cast(), from_lines, len, count });
                });
                return;
            }
            let (inner, outer) = axes.split_last().map_or(((1, 0, 0), [].as_slice()), |(inner, outer)| (*inner, outer));
            match self.size {
                1 => each(outer, bytes, to, from, &mut |to, from| line::<u8>(to, from, inner)),
                2 => each(outer, bytes, to, from, &mut |to, from| line::<u16>(to, from, inner)),
                4 => each(outer, bytes, to, from, &mut |to, from| line::<u32>(to, from, inner)),
                _ => each(outer, bytes, to, from, &mut |to, from| line::<u64>(to, from, inner)),
            }
        }
    }
}

/// Copies one box with the extents of `tile`.
///
/// # Safety
/// As [`BoxCopy::run`].
pub unsafe fn copy(to: &CopySide, from: &CopySide, tile: &Tile, size: usize, isa: Isa) {
    if let Some(box_copy) = BoxCopy::new(&to.strides, &from.strides, &tile.len, size, isa) {
        // SAFETY: the caller keeps this function's contract.
        unsafe { box_copy.run(to.at, from.at.cast_const()) };
    }
}

/// Calls `visit` for each point of some axes, with its addresses in target and source.
///
/// # Safety
/// As [`BoxCopy::run`].
unsafe fn each(axes: &[Axis], bytes: isize, to: *mut u8, from: *const u8, visit: &mut impl FnMut(*mut u8, *const u8)) {
    let at = |axis: &Axis, i: usize| {
        let i = i as isize * bytes;
        (to.wrapping_offset(i * axis.1), from.wrapping_offset(i * axis.2))
    };
    match axes {
        [] => visit(to, from),
        [axis] => (0..axis.0).map(|i| at(axis, i)).for_each(|(to, from)| visit(to, from)),
        // SAFETY: the caller keeps this function's contract.
        [axis, rest @ ..] => {
            (0..axis.0).map(|i| at(axis, i)).for_each(|(to, from)| unsafe { each(rest, bytes, to, from, visit) })
        }
    }
}

/// Copies elements along one axis.
///
/// # Safety
/// As [`BoxCopy::run`].
#[inline(always)]
pub unsafe fn line<T: Copy>(to: *mut u8, from: *const u8, (len, t, f): Axis) {
    // SAFETY: the caller promises the elements of both lines.
    unsafe {
        match (t, f) {
            (1, 1) => dense(to, from, len * size_of::<T>()),
            (1, 0) => std::slice::from_raw_parts_mut(to.cast::<T>(), len).fill(from.cast::<T>().read()),
            _ => {
                let (to, from) = (to.cast::<T>(), from.cast::<T>());
                for i in 0..len as isize {
                    to.offset(i * t).write(from.offset(i * f).read());
                }
            }
        }
    }
}

/// Copies bytes between ranges that are equal or do not overlap. Short ranges are copied by inlined vector loads and
/// stores, because a call of `memcpy` would take longer than the copy.
///
/// # Safety
/// Both ranges must have this number of bytes. They must be equal, or not overlap.
#[inline(always)]
unsafe fn dense(to: *mut u8, from: *const u8, bytes: usize) {
    type Part = [u8; 16];
    const PART: usize = size_of::<Part>();
    // SAFETY: all parts are within the range that the caller guarantees. The last part overlaps the part before.
    unsafe {
        if !(PART..=16 * PART).contains(&bytes) {
            return std::ptr::copy(from, to, bytes);
        }
        let part = |at: usize| to.add(at).cast::<Part>().write_unaligned(from.add(at).cast::<Part>().read_unaligned());
        (0..bytes - PART).step_by(PART).for_each(part);
        part(bytes - PART);
    }
}
