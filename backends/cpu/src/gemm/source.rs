//! Left operands that are not strided matrices. The block of rows and terms in use is copied into scratch just before it is needed,
//! where it cannot be read in segments.

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
    /// Read through an index map from a buffer; rows are counted over all matrices.
    Gathered(&'a Gathered, *const u8, usize),
    /// Evaluated.
    Computed(Evaluated<'a>),
}

impl RowSource<'_> {
    /// Where rows should be cut because they can be read in place up to there: into lines of so many, of the first of which so many were left
    /// out. Of rows whose terms are copied fast, as of long lines, anywhere.
    /// Blocks have at most so many.
    pub(super) fn lines_of_rows(&self, most: usize) -> Option<(usize, usize)> {
        match self {
            RowSource::Gathered(gathered, _, first) => gathered.lines_of_rows(most).map(|line| (line, first % line)),
            RowSource::Computed(_) => None,
        }
    }

    /// Of how many terms blocks of terms should be multiples.
    pub(super) fn segment(&self, most: usize) -> usize {
        match self {
            RowSource::Gathered(gathered, ..) => gathered.segment(most),
            RowSource::Computed(_) => 1,
        }
    }

    /// Whether all of some terms of some rows are zeros that are nowhere in memory.
    pub(super) fn is_hidden(&self, rows: Stretch, terms: Stretch) -> bool {
        match self {
            RowSource::Gathered(gathered, _, first) => {
                gathered.is_hidden(Stretch::new(first + rows.first, rows.count), terms)
            }
            RowSource::Computed(_) => false,
        }
    }

    /// Where some rows lie, of some terms: in the buffer, or evaluated until others are; `None` if they have to be copied.
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

    /// As [`RowSource::part`], of rows that have to be copied: once where they overlap; `None` if they do not.
    ///
    /// # Safety
    /// As [`RowSource::part`], and there must be room for the terms packed.
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

    /// Copies some terms of some rows, each `pitch` elements after the one before.
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
                RowSource::Computed(operand) => operand.parts(rows, terms, |first, count, from, apart| {
                    let to = to.wrapping_add(first * pitch);
                    (micro.lines)(&Lines { count, len: terms.count, from, apart, to, pitch });
                }),
            }
        }
    }
}
