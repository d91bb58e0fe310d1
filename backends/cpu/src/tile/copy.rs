//! Copies of boxes between strided layouts.

use super::{MAX_RANK, Tile};

/// A side of a copy: its first element, and its strides in elements.
pub struct Side {
    /// The first element.
    pub at: *mut u8,
    /// Along each axis.
    pub strides: [isize; MAX_RANK],
}

/// Copies a box of elements of `size` bytes. Either side may have stride 0 along an axis: the source is broadcast; of the
/// target only one element counts.
///
/// # Safety
/// Both sides must be valid for the whole box; they may be the same place with the same strides, but not overlap otherwise.
pub unsafe fn copy(to: &Side, from: &Side, tile: &Tile, size: usize) {
    if (0..MAX_RANK).any(|d| tile.len[d] == 0) {
        return;
    }
    let mut axes = [(1_usize, 0_isize, 0_isize); MAX_RANK];
    let mut rank = 0_usize;
    for d in 0..MAX_RANK {
        let (len, t, f) = (tile.len[d], to.strides[d], from.strides[d]);
        if len == 1 {
            continue;
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
    let inner = axes[rank.max(1) - 1];
    let outer = &axes[..rank.max(1) - 1];
    let mut point = [0_usize; MAX_RANK];
    let (mut t, mut f) = (to.at, from.at.cast_const());
    let bytes = size as isize;
    loop {
        // SAFETY: the offsets stay within the box.
        unsafe {
            match size {
                1 => line::<u8>(t, f, inner),
                2 => line::<u16>(t, f, inner),
                4 => line::<u32>(t, f, inner),
                _ => line::<u64>(t, f, inner),
            }
        }
        let mut d = outer.len();
        loop {
            if d == 0 {
                return;
            }
            d -= 1;
            point[d] += 1;
            t = t.wrapping_offset(outer[d].1 * bytes);
            f = f.wrapping_offset(outer[d].2 * bytes);
            if point[d] < outer[d].0 {
                break;
            }
            point[d] = 0;
            t = t.wrapping_offset(-outer[d].1 * outer[d].0 as isize * bytes);
            f = f.wrapping_offset(-outer[d].2 * outer[d].0 as isize * bytes);
        }
    }
}

unsafe fn line<T: Copy>(to: *mut u8, from: *const u8, (len, t, f): (usize, isize, isize)) {
    let (to, from) = (to.cast::<T>(), from.cast::<T>());
    // SAFETY: the caller promises both lines.
    unsafe {
        match (t, f) {
            (1, 1) => std::ptr::copy(from, to, len),
            (1, 0) => std::slice::from_raw_parts_mut(to, len).fill(from.read()),
            _ => {
                for i in 0..len as isize {
                    to.offset(i * t).write(from.offset(i * f).read());
                }
            }
        }
    }
}
