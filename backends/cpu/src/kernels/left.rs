//! The left operand of a product at work: as it lies, copied or packed.

use super::{
    blocked::{Blocked, Rows},
    gemm::{Left, Product, pitch},
    operand::Matrix,
    pack::{Interleaved, Lines, Panel},
};

/// From so many panels on, a left operand whose rows are not dense is packed, and rows that clash in the cache are copied.
const COPIED: usize = 3;
/// From so many panels on, dense rows are packed too.
const PACKED: usize = 3;

/// The operand's part of some terms.
#[derive(Clone, Copy)]
pub(super) struct Part<T> {
    pub at: *const T,
    /// Along the terms.
    pub terms: isize,
    /// Along the target's rows, within a block.
    pub step: isize,
    /// From a packed block to the next; 0 where rows are not packed.
    pub block: isize,
}

impl<T> Part<T> {
    /// Whether rows are packed as [`Interleaved`] says.
    pub fn is_interleaved(&self) -> bool {
        self.block > 0 && self.terms == 1
    }
}

/// A part of the operand, whose terms lie in segments of one length.
#[derive(Clone, Copy)]
pub(super) struct Segments<'a, T> {
    pub part: Part<T>,
    /// Where they begin.
    pub starts: &'a [isize],
}

impl<T> From<Part<T>> for Segments<'_, T> {
    fn from(part: Part<T>) -> Self {
        Segments { part, starts: &[0] }
    }
}

impl<T: Product> Blocked<'_, T> {
    /// All rows of terms `from..from + k`; none if each part of them is brought near right before it is used, which is better unless
    /// they are used `again`, for several groups of panels.
    pub(super) unsafe fn whole(&self, (from, k): (usize, usize), again: bool) -> Option<Part<T>> {
        let parts = self.e.m.div_ceil(self.micro.rows());
        // SAFETY: passed on from the caller.
        unsafe {
            match self.lhs {
                _ if self.packs() && again => {
                    let packed = (0..parts).map(|part| self.packed(Rows::new(part, parts, self.e.m), (from, k), part));
                    packed.last()
                }
                _ if self.packs() => None,
                Left::Plain(lhs) if !self.clash(lhs) => Some(as_it_lies(lhs, from)),
                _ => again.then(|| self.copy((0, self.e.m), (from, k))),
            }
        }
    }

    /// A part of the rows, brought near.
    pub(super) unsafe fn near(&self, rows: Rows, terms: (usize, usize)) -> Segments<'_, T> {
        // SAFETY: passed on from the caller.
        unsafe { if self.packs() { self.packed(rows, terms, 0).into() } else { self.rows(rows, terms) } }
    }

    /// Whether the left operand is read again and again, and has its lines a page apart: they fall into the same few sets of the
    /// first-level cache, where they push each other out.
    pub(super) fn clash(&self, lhs: Matrix) -> bool {
        let again = self.e.n.div_ceil(self.micro.panel()) >= COPIED && self.e.m >= self.micro.rows();
        again && lhs.columns == 1 && is_multiple::<T>(lhs.rows, 4096)
    }

    /// Whether the left operand is packed: where it would be read with bad strides again and again, and where instructions that are
    /// saved are more than what packing takes.
    fn packs(&self) -> bool {
        let panels = self.e.n.div_ceil(self.micro.panel());
        match self.lhs {
            Left::Plain(lhs) if lhs.columns != 1 => panels >= COPIED,
            _ => panels >= PACKED && !self.micro.interleaved.is_empty(),
        }
    }

    /// Packs a part of the rows to a place: where it is, if all parts follow each other from the first place on.
    unsafe fn packed(&self, rows: Rows, (from, k): (usize, usize), place: usize) -> Part<T> {
        let (lanes, column, block) = (self.micro.lanes, self.micro.column(), self.micro.left(k));
        let to = self.left_room(k).wrapping_add(place * block);
        let first = to.wrapping_sub(rows.part * block);
        // SAFETY: the caller promises the operand and room for all parts.
        unsafe {
            let mut source = self.rows(rows, (from, k));
            // Segments are packed one after the other where they are whole vectors.
            let vectors = source.part.terms == 1 && (k / source.starts.len()).is_multiple_of(lanes);
            if source.starts != [0] && !vectors {
                source = self.copy((rows.first, rows.count), (from, k)).into();
            }
            let Segments { part: Part { at, terms, step, .. }, starts } = source;
            let (k, at) = (k / starts.len(), at.wrapping_offset(rows.first as isize * step));
            if terms != 1 {
                let panel = Panel { k, columns: rows.count, from: at, rows: terms, line: step, to, width: column };
                (self.micro.pack)(&panel);
                return Part { at: first, terms: column as isize, step: 1, block: block as isize };
            }
            for (n, start) in starts.iter().enumerate() {
                let (from, to) = (at.wrapping_offset(*start), to.wrapping_add(n * k * rows.count));
                (self.micro.interleave)(&Interleaved { rows: rows.count, k, from, apart: step, to });
            }
            Part { at: first, terms: 1, step: lanes as isize, block: block as isize }
        }
    }

    /// A part of the rows: where they lie, or copied.
    unsafe fn rows(&self, rows: Rows, terms: (usize, usize)) -> Segments<'_, T> {
        // SAFETY: passed on from the caller.
        unsafe {
            match &self.lhs {
                Left::Plain(lhs) if !self.clash(*lhs) || self.packs() => as_it_lies(*lhs, terms.0).into(),
                Left::Plain(_) => self.copy((rows.first, rows.count), terms).into(),
                Left::Parts(source) => {
                    let part = source.part((rows.first, rows.count), terms);
                    let near = part.filter(|near| self.packs() || !is_multiple::<T>(near.part.step, 4096));
                    near.unwrap_or_else(|| self.copy((rows.first, rows.count), terms).into())
                }
            }
        }
    }

    /// Copies of some rows of a left operand, of terms `from..from + k`.
    unsafe fn copy(&self, (row, count): (usize, usize), (from, k): (usize, usize)) -> Part<T> {
        let packed = if self.packs() { self.e.m.div_ceil(self.micro.rows()) * self.micro.left(k) } else { 0 };
        let to = self.left_room(k).wrapping_add(packed);
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
