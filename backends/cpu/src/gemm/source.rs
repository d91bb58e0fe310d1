//! Left operands of products that are no matrix in memory: what a product is at is brought near, part by part.

use super::{
    computed::Evaluated,
    gathered::{Alike, Gathered},
    micro::{pack::Lines, table::Micro},
    product::Product,
    segments::{Part, Segments},
};

/// Such an operand, from one of its rows on.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// Read through an index map from a buffer; rows are counted over all matrices.
    Gathered(&'a Gathered, *const u8, usize),
    /// Evaluated.
    Computed(Evaluated<'a>),
}

impl Source<'_> {
    /// Where some rows lie, of some terms: in the buffer, or evaluated until others are; `None` if they have to be copied.
    ///
    /// # Safety
    /// As [`super::plan::Plan::run`]; there may be no more rows than a microkernel has.
    pub(super) unsafe fn part<T>(
        &self,
        (row, count): (usize, usize),
        terms: (usize, usize),
    ) -> Option<Segments<'_, T>> {
        let part = |at: *const T, step: isize, terms| {
            let at = at.wrapping_offset(-(row as isize * step));
            Part { at, terms, step, block: 0 }
        };
        match self {
            Source::Gathered(gathered, buffer, first) => {
                let Alike { at, stride, step, starts } = gathered.alike((first + row, count), terms)?;
                Some(Segments { part: part(buffer.cast::<T>().wrapping_offset(at), stride, step), starts })
            }
            Source::Computed(operand) => {
                // SAFETY: passed on from the caller.
                let (at, step) = unsafe { operand.part((row, count), terms) };
                Some(part(at, step, 1).into())
            }
        }
    }

    /// Copies some terms of some rows, each `pitch` elements after the one before.
    ///
    /// # Safety
    /// As [`super::plan::Plan::run`]; and there must be room for the rows.
    pub unsafe fn copy<T: Product>(
        &self,
        micro: &Micro<T>,
        (row, count): (usize, usize),
        terms: (usize, usize),
        to: *mut T,
        pitch: usize,
    ) {
        // SAFETY: passed on from the caller.
        unsafe {
            match self {
                Source::Gathered(gathered, buffer, first) => {
                    gathered.copy(micro, buffer.cast::<T>(), (first + row, count), terms, to, pitch);
                }
                Source::Computed(operand) => operand.parts((row, count), terms, |first, count, from, apart| {
                    let to = to.wrapping_add(first * pitch);
                    (micro.lines)(&Lines { count, len: terms.1, from, apart, to, pitch });
                }),
            }
        }
    }
}
