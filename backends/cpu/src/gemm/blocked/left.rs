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

/// From so many panels on, a left operand whose rows are not dense is packed, and rows that clash in the cache are copied.
const COPIED: usize = 3;

impl<T: ProductElement> Blocked<'_, T> {
    /// Packs or copies all rows of some terms up front, where they are not read at their strides. `None` if doing so block by
    /// block of rows is cheaper, that is unless they are read `again`, for several groups of panels.
    ///
    /// # Safety
    /// As [`crate::gemm::blocking::Blocking::run`].
    pub(super) unsafe fn whole(&self, terms: Stretch, again: bool) -> Option<LeftPart<T>> {
        let Stretch { first: from, count: k } = terms;
        // SAFETY: passed on from the caller.
        unsafe {
            match self.lhs {
                Left::Strided(lhs) if self.is_apart(lhs.columns) && again => {
                    let cut = self.cut();
                    let at = strided(lhs, from);
                    let pack = |part| self.packed(Segments::from(at), cut.block(part), k, part);
                    (0..cut.parts()).map(pack).last()
                }
                Left::Strided(lhs) if self.is_apart(lhs.columns) => None,
                Left::Strided(lhs) if !self.clash(lhs) => Some(strided(lhs, from)),
                // What is copied slowly mostly need not be.
                Left::Blocks(source) if source.lines_of_rows(self.micro.rows()).is_some() => None,
                _ => again.then(|| self.copy(Stretch::new(0, self.e.m), terms)),
            }
        }
    }

    /// A block of rows: at their strides where that is as fast, else copied or packed.
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
                    .filter(|at| self.is_apart(at.part.terms) || !is_multiple::<T>(at.part.step, 4096))
                    .or_else(|| source.patch(self.micro, rows.stretch(), terms, self.left_room(terms.count))),
            };
            match strided {
                Some(at) if self.is_apart(at.part.terms) => self.packed(at, rows, terms.count, 0).into(),
                Some(at) if !is_multiple::<T>(at.part.step, 4096) => at,
                _ => self.copy(rows.stretch(), terms).into(),
            }
        }
    }

    /// Whether rows are multiplied with so many panels that their strides matter.
    fn many_panels(&self) -> bool {
        self.e.n.div_ceil(self.micro.panel()) >= COPIED
    }

    /// Whether rows are read again and again, and have their lines a page apart: they fall into the same few sets of the first-level
    /// cache, where they push each other out.
    pub(super) fn clash(&self, lhs: Matrix) -> bool {
        self.many_panels() && self.e.m >= self.micro.rows() && lhs.columns == 1 && is_multiple::<T>(lhs.rows, 4096)
    }

    /// Whether terms do not lie side by side, and are read again and again.
    fn is_apart(&self, terms: isize) -> bool {
        terms != 1 && self.many_panels()
    }

    /// Packs `k` terms of a part of the rows to a place: where it is, if all parts follow each other from the first place on.
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

    /// Copies of some terms of some rows of a left operand.
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
                Left::Strided(Matrix { at, rows: apart, .. }) => {
                    let from = at.cast::<T>().wrapping_offset(row as isize * apart).wrapping_add(terms.first);
                    (self.micro.lines)(&Lines { count: rows.count, len: k, from, apart, to, pitch });
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

/// Whether a stride in elements is a multiple of so many bytes.
pub(super) fn is_multiple<T>(stride: isize, bytes: usize) -> bool {
    (stride.unsigned_abs() * size_of::<T>()).is_multiple_of(bytes)
}
