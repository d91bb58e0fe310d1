//! Provides blocks of a left operand to micro-kernels: at their strides, copied or packed.

use super::{Blocked, rows::RowBlock};
use crate::gemm::{
    blocking::pitch,
    left::Left,
    matrix::{Matrix, Stretch},
    micro::pack::{Lines, Panel},
    product::ProductElement,
    segments::{LeftPart, Segments},
};

/// The number of panels of a product from which on copying the left operand pays. Rows with strided terms are then
/// packed, and rows that evict each other from the cache are copied.
const COPIED: usize = 3;
/// The bytes of a page.
const PAGE: usize = 4096;
/// The entries of the first-level TLB: processors have 64 to 96.
const PAGES: usize = 64;
/// The number of terms that are packed together for all rows, if terms are on different pages. Terms a page apart fall
/// into one cache set, so that this is at most the associativity of the first-level cache.
const TOGETHER: usize = 8;

impl<T: ProductElement> Blocked<'_, T> {
    /// Returns all rows of a block of terms: in place, or packed or copied up front. Returns `None` if packing per
    /// block of rows is cheaper: the rows are neither read `again`, for several groups of panels, nor on many pages.
    ///
    /// # Safety
    /// The requirements of [`crate::gemm::blocking::Blocking::run`] apply.
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
                // Blocks of a source whose rows should not cross lines can usually be read in place.
                Left::Blocks(source) if source.lines_of_rows(self.micro.rows()).is_some() => None,
                _ => again.then(|| self.copy(Stretch::new(0, self.e.m), terms)),
            }
        }
    }

    /// Returns a block of rows and terms of the left operand. It is read in place, at its strides, if that is as fast.
    /// Otherwise it is copied or packed.
    ///
    /// # Safety
    /// The requirements of [`crate::gemm::blocking::Blocking::run`] apply.
    pub(super) unsafe fn block_of_rows(&self, rows: RowBlock, terms: Stretch) -> Segments<'_, T> {
        // SAFETY: passed on from the caller.
        unsafe {
            let strided = match &self.lhs {
                Left::Strided(lhs) => Some(strided(*lhs, terms.first).into()),
                // Rows whose stride is a multiple of a page evict each other from the cache. They are copied to a patch
                // if they overlap.
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

    /// Returns whether rows are read for many panels and are a multiple of a page apart. They then fall into a few sets
    /// of the first-level cache, and evict each other.
    pub(super) fn clash(&self, lhs: Matrix) -> bool {
        self.many_panels() && self.e.m >= self.micro.rows() && lhs.columns == 1 && is_multiple::<T>(lhs.rows, PAGE)
    }

    /// Returns whether terms at a stride of `terms` elements are not contiguous, and are read for many panels.
    fn rereads_strided(&self, terms: isize) -> bool {
        terms != 1 && self.many_panels()
    }

    /// Returns whether the terms are on more pages than the TLB has entries.
    fn on_many_pages(&self, terms: isize) -> bool {
        self.e.k > PAGES && terms.unsigned_abs() * size_of::<T>() >= PAGE
    }

    /// Packs `k` terms of all rows, `TOGETHER` terms at a time. All blocks of rows read a cache line before further
    /// terms evict it, and a page before the TLB evicts its translation.
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

    /// Packs `k` terms of a block of rows, and returns their position. Packed blocks follow each other in scratch
    /// memory; this one is number `place`.
    ///
    /// # Safety
    /// `from` must be valid for these rows and `k` terms.
    unsafe fn packed(&self, from: Segments<'_, T>, rows: RowBlock, k: usize, place: usize) -> LeftPart<T> {
        let Segments { part, starts } = from;
        let (width, block) = (self.micro.column(), self.micro.column() * k);
        let to = self.left_room(k).wrapping_add(place * block);
        let k = k / starts.len();
        for (segment, start) in starts.iter().enumerate() {
            let from = part.at.wrapping_offset(rows.first as isize * part.step + start);
            let to = to.wrapping_add(segment * k * width);
            let panel = Panel { k, columns: rows.count, from, rows: part.terms, line: part.step, to, width };
            // SAFETY: the caller promises the operand, and scratch memory has room for all blocks.
            unsafe { (self.micro.pack)(&panel) };
        }
        LeftPart { at: to.wrapping_sub(rows.part * block), terms: width as isize, step: 1, block: block as isize }
    }

    /// Copies a block of rows and terms of the left operand to scratch memory.
    ///
    /// # Safety
    /// The requirements of [`crate::gemm::blocking::Blocking::run`] apply.
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

    /// Returns the scratch memory of the left operand, which follows that of the packed right operand.
    fn left_room(&self, k: usize) -> *mut T {
        self.scratch.wrapping_add(self.blocking.right_room(self.e.n, k))
    }
}

/// Returns the position of a strided left operand from a term on.
fn strided<T>(Matrix { at, rows, columns }: Matrix, from: usize) -> LeftPart<T> {
    let at = at.cast::<T>().wrapping_offset(from as isize * columns).cast_const();
    LeftPart { at, terms: columns, step: rows, block: 0 }
}

/// Returns whether a stride in elements is a multiple of `bytes` bytes.
pub(super) fn is_multiple<T>(stride: isize, bytes: usize) -> bool {
    (stride.unsigned_abs() * size_of::<T>()).is_multiple_of(bytes)
}
