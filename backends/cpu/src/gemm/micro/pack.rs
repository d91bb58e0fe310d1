//! Packing: operands of products in the form that micro-kernels read, as packed panels or copied lines.

use super::call::PREFETCH_ROWS;
use crate::simd::vector::{Vector, transpose};

/// A part of a right operand, to be packed: `k` rows of `columns`. (Or of a left one: `k` of its columns.)
pub struct Panel<T> {
    /// Number of rows.
    pub k: usize,
    /// How many columns count; zeros follow.
    pub columns: usize,
    /// The first element.
    pub from: *const T,
    /// From a row to the next.
    pub rows: isize,
    /// From a column to the next.
    pub line: isize,
    /// Where the packed rows go, one after the other.
    pub to: *mut T,
    /// Elements of a packed row: whole vectors.
    pub width: usize,
}

/// Dense lines, to be copied.
pub struct Lines<T> {
    /// How many.
    pub count: usize,
    /// Elements of each.
    pub len: usize,
    /// The first one.
    pub from: *const T,
    /// From a line to the next.
    pub apart: isize,
    /// Where the first one goes.
    pub to: *mut T,
    /// From there to where the next one goes.
    pub pitch: usize,
}

/// Packs a panel: vectors where columns or rows lie side by side, else element by element.
///
/// # Safety
/// The panel's elements must be valid, and there must be room for `k` packed rows; the machine must have the instruction set.
#[inline(always)]
pub unsafe fn pack<V: Vector>(p: &Panel<V::Element>) {
    debug_assert!(p.columns <= p.width && p.width.is_multiple_of(V::LANES), "{} columns in {}", p.columns, p.width);
    let width = p.width;
    // SAFETY: the caller promises the elements and room for `k` packed rows.
    unsafe {
        if p.line == 1 {
            for l in 0..p.k {
                for from in (0..width).step_by(V::LANES) {
                    let columns = p.columns.saturating_sub(from).min(V::LANES);
                    let row = p.from.wrapping_offset(l as isize * p.rows).wrapping_add(from);
                    V::prefetch(row.wrapping_offset(PREFETCH_ROWS * p.rows));
                    let row = if columns == V::LANES { V::load(row) } else { V::load_part(row, columns) };
                    row.store(p.to.add(l * width + from));
                }
            }
            return;
        }
        for from in (0..width).step_by(V::LANES) {
            let columns = p.columns.saturating_sub(from).min(V::LANES);
            let source = p.from.wrapping_offset(from as isize * p.line);
            let to = p.to.add(from);
            for l in (0..p.k).step_by(V::LANES) {
                let terms = V::LANES.min(p.k - l);
                let at = source.wrapping_offset(l as isize * p.rows);
                let mut square = [V::zero(); 16];
                // Whole squares stay in registers: all loops have constant bounds.
                if p.rows == 1 && terms == V::LANES && columns == V::LANES {
                    for (j, v) in square.iter_mut().enumerate().take(V::LANES) {
                        *v = V::load(at.wrapping_offset(j as isize * p.line));
                    }
                    for (i, v) in transpose(square).iter().enumerate().take(V::LANES) {
                        v.store(to.add((l + i) * width));
                    }
                    continue;
                }
                for (j, v) in square.iter_mut().enumerate().take(columns) {
                    let at = at.wrapping_offset(j as isize * p.line);
                    *v = if p.rows == 1 { V::load_part(at, terms) } else { scattered::<V>(at, p.rows, terms) };
                }
                for (i, v) in transpose(square).iter().enumerate().take(terms) {
                    v.store(to.add((l + i) * width));
                }
            }
        }
    }
}

/// Copies lines vector by vector, which takes less than a call for each where they are short.
///
/// # Safety
/// The lines must be valid, and there must be room for as many; the machine must have the instruction set.
#[inline(always)]
pub unsafe fn lines<V: Vector>(l: &Lines<V::Element>) {
    debug_assert!(l.count <= 1 || l.pitch >= l.len, "lines of {} every {}", l.len, l.pitch);
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
        let (from, to) = (l.from.wrapping_offset(r as isize * l.apart), l.to.wrapping_add(r * l.pitch));
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

/// Copies lines element by element: storing a part of a vector takes longer than a few elements.
///
/// # Safety
/// As [`lines`], of lines of `LEN` elements.
#[inline(always)]
unsafe fn short_lines<T: Copy, const LEN: usize>(l: &Lines<T>) {
    for r in 0..l.count {
        let (from, to) = (l.from.wrapping_offset(r as isize * l.apart), l.to.wrapping_add(r * l.pitch));
        for j in 0..LEN {
            // SAFETY: passed on from the caller.
            unsafe { to.add(j).write(from.add(j).read()) };
        }
    }
}

/// Elements `stride` apart, then zeros.
///
/// # Safety
/// `n` elements must be valid, so far apart.
#[inline(always)]
unsafe fn scattered<V: Vector>(at: *const V::Element, stride: isize, n: usize) -> V {
    // SAFETY: passed on from the caller; a vector has at most 16 lanes.
    unsafe {
        let mut lanes = [*at; 16];
        for (i, x) in lanes.iter_mut().enumerate().take(n).skip(1) {
            *x = at.offset(i as isize * stride).read();
        }
        V::load_part(lanes.as_ptr(), n)
    }
}
