//! Copies operands of products into the form that micro-kernels read: packed panels, or contiguous lines.

use super::call::PREFETCH_ROWS;
use crate::simd::{
    stored::Stored,
    vector::{Vector, transpose},
};

/// A block of an operand to pack: `k` rows of `columns` columns of a right operand. A block of a left operand is
/// described as its transpose.
pub struct Panel<T> {
    /// The number of rows, which are terms.
    pub k: usize,
    /// The number of columns. Zeros fill up the packed rows.
    pub columns: usize,
    /// The first element. Some kernels read elements of another type than `T`; strides count elements of that type.
    pub from: *const T,
    /// The distance in elements from a row to the next.
    pub rows: isize,
    /// The distance in elements from a column to the next.
    pub line: isize,
    /// The destination of the packed rows, which are contiguous.
    pub to: *mut T,
    /// The elements of a packed row, a multiple of the vector's length.
    pub width: usize,
}

/// Packs a panel.
///
/// # Safety
/// The requirements of [`pack`] apply.
pub type PackKernel<T> = unsafe fn(&Panel<T>);

/// Lines to copy: contiguous ranges of elements, at a constant distance from each other.
pub struct Lines<T> {
    /// The number of lines.
    pub count: usize,
    /// The elements of a line.
    pub len: usize,
    /// The first element of the first line.
    pub from: *const T,
    /// The distance in elements from a line to the next.
    pub line_stride: isize,
    /// The destination of the first line.
    pub to: *mut T,
    /// The distance in elements from a target line to the next.
    pub pitch: usize,
}

/// Packs a panel of elements of type `S`: vector by vector if rows or columns are contiguous, otherwise element by
/// element.
///
/// # Safety
/// The panel's elements must be valid, and there must be room for `k` packed rows; the machine must have the
/// instruction set.
#[inline(always)]
pub unsafe fn pack<V: Vector, S: Stored<V>>(p: &Panel<V::Element>) {
    debug_assert!(
        p.columns <= p.width && p.width.is_multiple_of(V::LANES),
        "{} columns in packed rows of {} elements",
        p.columns,
        p.width
    );
    let (width, from) = (p.width, p.from.cast::<S>());
    // SAFETY: the caller promises the elements and room for `k` packed rows.
    unsafe {
        if p.line == 1 {
            for l in 0..p.k {
                for first in (0..width).step_by(V::LANES) {
                    let columns = p.columns.saturating_sub(first).min(V::LANES);
                    let row = from.wrapping_offset(l as isize * p.rows).wrapping_add(first);
                    V::prefetch(row.wrapping_offset(PREFETCH_ROWS * p.rows).cast());
                    let row = if columns == V::LANES { S::load(row) } else { S::load_part(row, columns) };
                    row.store(p.to.add(l * width + first));
                }
            }
            return;
        }
        for first in (0..width).step_by(V::LANES) {
            let columns = p.columns.saturating_sub(first).min(V::LANES);
            let source = from.wrapping_offset(first as isize * p.line);
            let to = p.to.add(first);
            for l in (0..p.k).step_by(V::LANES) {
                let terms = V::LANES.min(p.k - l);
                let at = source.wrapping_offset(l as isize * p.rows);
                let mut square = [V::zero(); 16];
                // A complete square (as many rows as lanes) stays in registers, because all of its loops have constant
                // bounds.
                if p.rows == 1 && terms == V::LANES && columns == V::LANES {
                    for (j, v) in square.iter_mut().enumerate().take(V::LANES) {
                        *v = S::load(at.wrapping_offset(j as isize * p.line));
                    }
                    for (i, v) in transpose(square).iter().enumerate().take(V::LANES) {
                        v.store(to.add((l + i) * width));
                    }
                    continue;
                }
                for (j, v) in square.iter_mut().enumerate().take(columns) {
                    let at = at.wrapping_offset(j as isize * p.line);
                    *v = if p.rows == 1 { S::load_part(at, terms) } else { scattered::<V, S>(at, p.rows, terms) };
                }
                for (i, v) in transpose(square).iter().enumerate().take(terms) {
                    v.store(to.add((l + i) * width));
                }
            }
        }
    }
}

/// Copies lines vector by vector, which is faster than a library call per line if lines are short.
///
/// # Safety
/// The lines must be valid, and the target must have room for them; the machine must have the instruction set.
#[inline(always)]
pub unsafe fn lines<V: Vector>(l: &Lines<V::Element>) {
    debug_assert!(
        l.count <= 1 || l.pitch >= l.len,
        "target lines of {} elements overlap at a pitch of {}",
        l.len,
        l.pitch
    );
    // SAFETY: passed on from the caller.
    unsafe {
        match l.len {
            1 => return short_lines::<_, 1>(l),
            2 => return short_lines::<_, 2>(l),
            3 => return short_lines::<_, 3>(l),
            4 => return short_lines::<_, 4>(l),
            5 => return short_lines::<_, 5>(l),
            7 => return short_lines::<_, 7>(l),
            _ => {}
        }
    }
    let whole = l.len / V::LANES * V::LANES;
    for r in 0..l.count {
        let (from, to) = (l.from.wrapping_offset(r as isize * l.line_stride), l.to.wrapping_add(r * l.pitch));
        // SAFETY: the caller promises the elements and room for them.
        unsafe {
            for j in (0..whole).step_by(V::LANES) {
                V::load(from.add(j)).store(to.add(j));
            }
            if whole < l.len {
                V::load_part(from.add(whole), l.len - whole).store_part(to.add(whole), l.len - whole);
            }
        }
    }
}

/// Copies lines of `LEN` elements one by one: storing a partial vector takes longer than storing a few elements.
///
/// # Safety
/// The requirements of [`lines`] apply, for lines of `LEN` elements.
#[inline(always)]
unsafe fn short_lines<T: Copy, const LEN: usize>(l: &Lines<T>) {
    for r in 0..l.count {
        let (from, to) = (l.from.wrapping_offset(r as isize * l.line_stride), l.to.wrapping_add(r * l.pitch));
        for j in 0..LEN {
            // SAFETY: passed on from the caller.
            unsafe { to.add(j).write(from.add(j).read()) };
        }
    }
}

/// Returns a vector of `n` elements that are `stride` apart; its other lanes are zero.
///
/// # Safety
/// `n` elements must be valid at this stride.
#[inline(always)]
unsafe fn scattered<V: Vector, S: Stored<V>>(at: *const S, stride: isize, n: usize) -> V {
    // SAFETY: passed on from the caller; a vector has at most 16 lanes.
    unsafe {
        let mut lanes = [*at; 16];
        for (i, x) in lanes.iter_mut().enumerate().take(n).skip(1) {
            *x = at.offset(i as isize * stride).read();
        }
        S::load_part(lanes.as_ptr(), n)
    }
}
