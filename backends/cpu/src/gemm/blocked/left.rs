//! The left operand of a product at work: read at its strides, copied or packed.

use super::{Blocked, rows::RowBlock};
use crate::gemm::{
    blocking::pitch,
    left::Left,
    matrix::{Matrix, Stretch},
    micro::pack::{Lines, Panel},
    product::ProductElement,
    segments::{LeftPart, Segments},
};

/// The number of panels from which on a left operand without dense rows is packed, and rows that conflict in the cache
/// are copied.
const COPIED: usize = 3;
/// Bytes of a page of memory, and entries of a translation buffer of the first level: processors have 64 to 96.
const PAGE: usize = 4096;
const PAGES: usize = 64;
/// The number of terms that are packed together for all rows, if they are on many pages. It is at most the
/// associativity of the first-level cache.
const TOGETHER: usize = 8;

impl<T: ProductElement> Blocked<'_, T> {
    /// Packs or copies all rows of some terms up front, if they are not read in place. `None` if packing per block of
    /// rows is cheaper: the rows are neither read `again`, for several groups of panels, nor on many pages.
    ///
    /// # Safety
    /// As [`crate::gemm::blocking::Blocking::run`].
    pub(super) unsafe fn whole(&self, terms: Stretch, again: bool) -> Option<LeftPart<T>> {
        let Stretch { first: from, count: k } = terms;
        // SAFETY: passed on from the caller.
        unsafe {
            match self.lhs {
                Left::Strided(lhs)
                    if self.rereads_strided(lhs.columns) && (again || self.on_many_pages(lhs.columns)) =>
                {
                    Some(self.packed_rows(strided(lhs, from), k))
                }
                Left::Strided(lhs) if self.rereads_strided(lhs.columns) => None,
                Left::Strided(lhs) if !self.clash(lhs) => Some(strided(lhs, from)),
                // Operands that are slow to copy can usually be read in place.
                Left::Blocks(source) if source.lines_of_rows(self.micro.rows()).is_some() => None,
                _ => again.then(|| self.copy(Stretch::new(0, self.e.m), terms)),
            }
        }
    }

    /// Returns a block of rows: at their strides where that is as fast, else copied or packed.
    ///
    /// # Safety
    /// As [`crate::gemm::blocking::Blocking::run`].
    pub(super) unsafe fn block_of_rows(&self, rows: RowBlock, terms: Stretch) -> Segments<'_, T> {
        // SAFETY: passed on from the caller.
        unsafe {
            let strided = match &self.lhs {
                Left::Strided(lhs) => Some(strided(*lhs, terms.first).into()),
                // Rows that clash in the cache are read from a patch of these, if there can be one.
                Left::Blocks(source) => source
                    .part(rows.stretch(), terms)
                    .filter(|at| self.rereads_strided(at.part.terms) || !is_multiple::<T>(at.part.step, PAGE))
                    .or_else(|| source.patch(self.micro, rows.stretch(), terms, self.left_room(terms.count))),
            };
            match strided {
                Some(at) if self.rereads_strided(at.part.terms) => self.packed(at, rows, terms.count, 0).into(),
                Some(at) if !is_multiple::<T>(at.part.step, PAGE) => at,
                _ => self.copy(rows.stretch(), terms).into(),
            }
        }
    }

    /// Returns whether rows are multiplied with enough panels that their strides matter.
    fn many_panels(&self) -> bool {
        self.e.n.div_ceil(self.micro.panel()) >= COPIED
    }

    /// Returns whether rows are read repeatedly and have strides of a page. They then conflict in a few sets of the
    /// first-level cache, and evict each other.
    pub(super) fn clash(&self, lhs: Matrix) -> bool {
        self.many_panels() && self.e.m >= self.micro.rows() && lhs.columns == 1 && is_multiple::<T>(lhs.rows, PAGE)
    }

    /// Returns whether terms are not contiguous, and are read again and again.
    fn rereads_strided(&self, terms: isize) -> bool {
        terms != 1 && self.many_panels()
    }

    /// Returns whether the terms are on more pages than the TLB has entries.
    fn on_many_pages(&self, terms: isize) -> bool {
        self.e.k > PAGES && terms.unsigned_abs() * size_of::<T>() >= PAGE
    }

    /// Packs `k` terms of all rows, a few terms at a time. Each cache line is read for all blocks of rows before other
    /// terms evict it, and each page before its translation is evicted.
    ///
    /// # Safety
    /// The operand must be valid for all rows and `k` terms.
    unsafe fn packed_rows(&self, from: LeftPart<T>, k: usize) -> LeftPart<T> {
        let (cut, to) = (self.cut(), self.left_room(k));
        let (width, block) = (self.micro.column(), self.micro.column() * k);
        for first in (0..k).step_by(TOGETHER) {
            for part in 0..cut.parts() {
                let rows = cut.block(part);
                let at = from.at.wrapping_offset(rows.first as isize * from.step + first as isize * from.terms);
                let to = to.wrapping_add(part * block + first * width);
                let k = TOGETHER.min(k - first);
                let panel = Panel { k, columns: rows.count, from: at, rows: from.terms, line: from.step, to, width };
                // SAFETY: the caller promises the operand, and scratch memory has room for all blocks.
                unsafe { (self.micro.pack)(&panel) };
            }
        }
        LeftPart { at: to, terms: width as isize, step: 1, block: block as isize }
    }

    /// Packs `k` terms of a part of the rows, and returns their position. All parts are contiguous from the first
    /// position on.
    ///
    /// # Safety
    /// The part must be valid for these rows and `k` terms.
    unsafe fn packed(&self, from: Segments<'_, T>, rows: RowBlock, k: usize, place: usize) -> LeftPart<T> {
        let Segments { part, starts } = from;
        let (width, block) = (self.micro.column(), self.micro.column() * k);
        let to = self.left_room(k).wrapping_add(place * block);
        let k = k / starts.len();
        for (segment, start) in starts.iter().enumerate() {
            let from = part.at.wrapping_offset(rows.first as isize * part.step + start);
            let to = to.wrapping_add(segment * k * width);
            let panel = Panel { k, columns: rows.count, from, rows: part.terms, line: part.step, to, width };
            // SAFETY: the caller promises the operand and room for all parts.
            unsafe { (self.micro.pack)(&panel) };
        }
        LeftPart { at: to.wrapping_sub(rows.part * block), terms: width as isize, step: 1, block: block as isize }
    }

    /// Copies some terms of some rows of a left operand.
    ///
    /// # Safety
    /// As [`crate::gemm::blocking::Blocking::run`].
    unsafe fn copy(&self, rows: Stretch, terms: Stretch) -> LeftPart<T> {
        let (row, k) = (rows.first, terms.count);
        let to = self.left_room(k);
        let pitch = pitch::<T>(k);
        // SAFETY: the caller promises the operand and room for all rows.
        unsafe {
            match self.lhs {
                Left::Blocks(source) => source.copy(self.micro, rows, terms, to, pitch),
                Left::Strided(Matrix { at, rows: line_stride, .. }) => {
                    let from = at.cast::<T>().wrapping_offset(row as isize * line_stride).wrapping_add(terms.first);
                    (self.micro.lines)(&Lines { count: rows.count, len: k, from, line_stride, to, pitch });
                }
            }
        }
        LeftPart { at: to.wrapping_sub(row * pitch).cast_const(), terms: 1, step: pitch as isize, block: 0 }
    }

    /// Scratch memory of the left operand: behind the packed right one.
    fn left_room(&self, k: usize) -> *mut T {
        self.scratch.wrapping_add(self.blocking.right_room(self.e.n, k))
    }
}

/// A left operand, from a term on.
fn strided<T>(Matrix { at, rows, columns }: Matrix, from: usize) -> LeftPart<T> {
    let at = at.cast::<T>().wrapping_offset(from as isize * columns).cast_const();
    LeftPart { at, terms: columns, step: rows, block: 0 }
}

/// Returns whether a stride in elements is a multiple of `bytes` bytes.
pub(super) fn is_multiple<T>(stride: isize, bytes: usize) -> bool {
    (stride.unsigned_abs() * size_of::<T>()).is_multiple_of(bytes)
}
