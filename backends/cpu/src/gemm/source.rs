//! Left operands that are not strided matrices. The block of rows and terms in use is copied into scratch just before
//! it is needed, unless it can be read in segments.

use super::{
    computed::Evaluated,
    gathered::{Alike, Gathered},
    matrix::Stretch,
    micro::{pack::Lines, table::Micro},
    product::ProductElement,
    segments::{LeftPart, Segments},
};

/// Such an operand, from one of its rows on.
#[derive(Clone, Copy)]
pub enum RowSource<'a> {
    /// Read through an index map from a buffer; rows are numbered over all matrices.
    Gathered(&'a Gathered, *const u8, usize),
    /// Evaluated.
    Computed(Evaluated<'a>),
}

/// Lines of rows that are read in place.
pub(super) struct RowLines {
    /// Rows of a line.
    pub len: usize,
    /// The number of rows that the first line lacks.
    pub lacking: usize,
}

impl RowSource<'_> {
    /// Returns the lines at whose ends blocks of rows should end, because rows are read in place line by line. Returns
    /// `None` if rows are fast to copy. Blocks have at most `most` rows.
    pub(super) fn lines_of_rows(&self, most: usize) -> Option<RowLines> {
        match self {
            RowSource::Gathered(gathered, _, first) => {
                gathered.lines_of_rows(most).map(|len| RowLines { len, lacking: first % len })
            }
            RowSource::Computed(_) => None,
        }
    }

    /// Returns the number that blocks of terms should be a multiple of.
    pub(super) fn segment(&self, most: usize) -> usize {
        match self {
            RowSource::Gathered(gathered, ..) => gathered.segment(most),
            RowSource::Computed(_) => 1,
        }
    }

    /// Returns whether some rows are zero in all of some terms, without elements in memory.
    pub(super) fn is_hidden(&self, rows: Stretch, terms: Stretch) -> bool {
        match self {
            RowSource::Gathered(gathered, _, first) => {
                gathered.is_hidden(Stretch::new(first + rows.first, rows.count), terms)
            }
            RowSource::Computed(_) => false,
        }
    }

    /// Returns the position of some terms of some rows: in the buffer, or evaluated and valid until the next
    /// evaluation. Returns `None` if they must be copied.
    ///
    /// # Safety
    /// As [`super::blocking::Blocking::run`]; there may be no more rows than a micro-kernel has.
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

    /// Works like [`RowSource::part`] for rows that must be copied, with overlapping elements once; `None` if rows do
    /// not overlap.
    ///
    /// # Safety
    /// As [`RowSource::part`], and there must be room for the packed terms.
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

    /// Copies some terms of some rows, `pitch` elements apart in the target.
    ///
    /// # Safety
    /// As [`super::blocking::Blocking::run`]; and there must be room for the rows.
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
