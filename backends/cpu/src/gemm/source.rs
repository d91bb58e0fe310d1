//! Left operands that are not strided matrices. The block of rows and terms in use is copied into scratch memory just
//! before it is needed, unless micro-kernels can read it in place.

use super::{
    computed::Evaluated,
    gathered::{Alike, Gathered},
    matrix::Stretch,
    micro::{pack::Lines, table::Micro},
    product::ProductElement,
    segments::{LeftPart, Segments},
};

/// A left operand that is gathered or evaluated, from one of its rows on.
#[derive(Clone, Copy)]
pub enum RowSource<'a> {
    /// The index map of a gathered operand, its buffer, and its first row. Rows are counted over all matrices of the
    /// batch.
    Gathered(&'a Gathered, *const u8, usize),
    /// An operand that a program evaluates block by block.
    Computed(Evaluated<'a>),
}

/// A division of rows into lines along the innermost row axis. Only rows of one line can be read in place together.
pub(super) struct RowLines {
    /// The extent of the innermost row axis.
    pub len: usize,
    /// The number of rows of the first line that come before the operand's first row.
    pub lacking: usize,
}

impl RowSource<'_> {
    /// Returns the lines whose ends blocks of rows should not cross, because rows are read in place. Returns `None` if
    /// rows are fast to copy. Blocks have at most `most` rows.
    pub(super) fn lines_of_rows(&self, most: usize) -> Option<RowLines> {
        match self {
            RowSource::Gathered(gathered, _, first) => {
                gathered.lines_of_rows(most).map(|len| RowLines { len, lacking: first % len })
            }
            RowSource::Computed(_) => None,
        }
    }

    /// Returns the granularity of blocks of terms: their sizes should be multiples of it. Blocks have at most `most`
    /// rows.
    pub(super) fn segment(&self, most: usize) -> usize {
        match self {
            RowSource::Gathered(gathered, ..) => gathered.segment(most),
            RowSource::Computed(_) => 1,
        }
    }

    /// Returns whether a block of rows and terms consists of padding zeros, which have no elements in memory.
    pub(super) fn is_hidden(&self, rows: Stretch, terms: Stretch) -> bool {
        match self {
            RowSource::Gathered(gathered, _, first) => {
                gathered.is_hidden(Stretch::new(first + rows.first, rows.count), terms)
            }
            RowSource::Computed(_) => false,
        }
    }

    /// Returns the position of a block of rows and terms: in the buffer, or evaluated in scratch memory and valid until
    /// the next evaluation. Returns `None` if the block must be copied.
    ///
    /// # Safety
    /// The requirements of [`super::blocking::Blocking::run`] apply. The block may not have more rows than a
    /// micro-kernel.
    pub(super) unsafe fn part<T>(&self, rows: Stretch, terms: Stretch) -> Option<Segments<'_, T>> {
        let part = |at: *const T, step: isize, terms| {
            let at = at.wrapping_offset(-(rows.first as isize * step));
            LeftPart { at, terms, step, block: 0 }
        };
        match self {
            RowSource::Gathered(gathered, buffer, first) => {
                let Alike { at, stride, step, starts } =
                    gathered.alike(Stretch::new(first + rows.first, rows.count), terms)?;
                Some(Segments { part: part(buffer.cast::<T>().wrapping_offset(at), stride, step), starts })
            }
            RowSource::Computed(operand) => {
                // SAFETY: passed on from the caller.
                let (at, step) = unsafe { operand.part(rows, terms) };
                Some(part(at, step, 1).into())
            }
        }
    }

    /// Copies a block of overlapping rows to `to`, with each shared element once, and returns its position there.
    /// Returns `None` if rows do not overlap.
    ///
    /// # Safety
    /// The requirements of [`RowSource::part`] apply, and `to` must have room for the packed terms.
    pub(super) unsafe fn patch<T: ProductElement>(
        &self,
        micro: &Micro<T>,
        rows: Stretch,
        terms: Stretch,
        to: *mut T,
    ) -> Option<Segments<'_, T>> {
        let RowSource::Gathered(gathered, buffer, first) = self else { return None };
        let those = Stretch::new(first + rows.first, rows.count);
        // SAFETY: passed on from the caller.
        let Alike { at, stride, step, starts } = unsafe { gathered.patch(micro, buffer.cast(), those, terms, to)? };
        let at = to.wrapping_offset(at - rows.first as isize * stride).cast_const();
        Some(Segments { part: LeftPart { at, terms: step, step: stride, block: 0 }, starts })
    }

    /// Copies a block of rows and terms to `to`, where rows are `pitch` elements apart.
    ///
    /// # Safety
    /// The requirements of [`super::blocking::Blocking::run`] apply, and `to` must have room for the rows.
    pub unsafe fn copy<T: ProductElement>(
        &self,
        micro: &Micro<T>,
        rows: Stretch,
        terms: Stretch,
        to: *mut T,
        pitch: usize,
    ) {
        // SAFETY: passed on from the caller.
        unsafe {
            match self {
                RowSource::Gathered(gathered, buffer, first) => {
                    let rows = Stretch::new(first + rows.first, rows.count);
                    gathered.copy(micro, buffer.cast::<T>(), rows, terms, to, pitch);
                }
                RowSource::Computed(operand) => operand.parts(rows, terms, |first, count, from, line_stride| {
                    let to = to.wrapping_add(first * pitch);
                    (micro.lines)(&Lines { count, len: terms.count, from, line_stride, to, pitch });
                }),
            }
        }
    }
}
