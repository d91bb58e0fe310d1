//! The left operand of a product at work: as it lies, copied or packed.

use super::{Blocked, Rows};
use crate::gemm::{
    left::Left,
    matrix::Matrix,
    micro::pack::{Lines, Panel},
    plan::pitch,
    product::Product,
    segments::{Part, Segments},
};

/// From so many panels on, a left operand whose rows are not dense is packed, and rows that clash in the cache are copied.
const COPIED: usize = 3;

impl<T: Product> Blocked<'_, T> {
    /// All rows of terms `from..from + k`; none if each part of them is brought near right before it is used, which is better unless
    /// they are used `again`, for several groups of panels.
    pub(super) unsafe fn whole(&self, (from, k): (usize, usize), again: bool) -> Option<Part<T>> {
        let parts = self.e.m.div_ceil(self.micro.rows());
        // SAFETY: passed on from the caller.
        unsafe {
            match self.lhs {
                Left::Plain(lhs) if self.is_apart(lhs.columns) && again => {
                    let pack = |part| self.packed(as_it_lies(lhs, from), Rows::new(part, parts, self.e.m), k, part);
                    (0..parts).map(pack).last()
                }
                Left::Plain(lhs) if self.is_apart(lhs.columns) => None,
                Left::Plain(lhs) if !self.clash(lhs) => Some(as_it_lies(lhs, from)),
                _ => again.then(|| self.copy((0, self.e.m), (from, k))),
            }
        }
    }

    /// A part of the rows, brought near: where they lie, or copied, or packed.
    pub(super) unsafe fn near(&self, rows: Rows, (from, k): (usize, usize)) -> Segments<'_, T> {
        // SAFETY: passed on from the caller.
        unsafe {
            let near = match &self.lhs {
                Left::Plain(lhs) => Some(as_it_lies(*lhs, from).into()),
                Left::Parts(source) => source.part((rows.first, rows.count), (from, k)),
            };
            match near {
                Some(Segments { part, starts: [0] }) if self.is_apart(part.terms) => {
                    self.packed(part, rows, k, 0).into()
                }
                Some(near) if !self.is_apart(near.part.terms) && !is_multiple::<T>(near.part.step, 4096) => near,
                _ => self.copy((rows.first, rows.count), (from, k)).into(),
            }
        }
    }

    /// Whether rows pass by so many panels that how they lie counts.
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
    unsafe fn packed(&self, part: Part<T>, rows: Rows, k: usize, place: usize) -> Part<T> {
        let (width, block) = (self.micro.column(), self.micro.column() * k);
        let to = self.left_room(k).wrapping_add(place * block);
        let from = part.at.wrapping_offset(rows.first as isize * part.step);
        let panel = Panel { k, columns: rows.count, from, rows: part.terms, line: part.step, to, width };
        // SAFETY: the caller promises the operand and room for all parts.
        unsafe { (self.micro.pack)(&panel) };
        Part { at: to.wrapping_sub(rows.part * block), terms: width as isize, step: 1, block: block as isize }
    }

    /// Copies of some rows of a left operand, of terms `from..from + k`.
    unsafe fn copy(&self, (row, count): (usize, usize), (from, k): (usize, usize)) -> Part<T> {
        let to = self.left_room(k);
        let pitch = pitch::<T>(k);
        // SAFETY: the caller promises the operand and room for all rows.
        unsafe {
            match self.lhs {
                Left::Parts(source) => source.copy(self.micro, (row, count), (from, k), to, pitch),
                Left::Plain(Matrix { at, rows, .. }) => {
                    let from = at.cast::<T>().wrapping_offset(row as isize * rows).wrapping_add(from);
                    (self.micro.lines)(&Lines { count, len: k, from, apart: rows, to, pitch });
                }
            }
        }
        Part { at: to.wrapping_sub(row * pitch).cast_const(), terms: 1, step: pitch as isize, block: 0 }
    }

    /// Scratch memory of the left operand: behind the packed right one.
    fn left_room(&self, k: usize) -> *mut T {
        self.scratch.wrapping_add(self.plan.right_room(self.e.n, k))
    }
}

/// A left operand, from a term on.
fn as_it_lies<T>(Matrix { at, rows, columns }: Matrix, from: usize) -> Part<T> {
    let at = at.cast::<T>().wrapping_offset(from as isize * columns).cast_const();
    Part { at, terms: columns, step: rows, block: 0 }
}

/// Whether a stride in elements is a multiple of so many bytes.
pub(super) fn is_multiple<T>(stride: isize, bytes: usize) -> bool {
    (stride.unsigned_abs() * size_of::<T>()).is_multiple_of(bytes)
}
