//! The right operand of a product: strided, evaluated as it is packed, or packed before.

use super::{
    computed::Evaluated,
    matrix::{Matrix, Stretch},
    micro::{pack::Panel, table::Micro},
};

/// The right operand of a product.
#[derive(Clone, Copy)]
pub enum Right<'a> {
    /// A strided matrix.
    Strided(Matrix),
    /// A strided matrix of the type that panels are kept in, for few rows: see [`super::blocking::Blocking::takes_short`].
    Short(Matrix),
    /// Evaluated as it is packed.
    Computed(Evaluated<'a>),
    /// From the first of the product's columns on, the panels that [`super::blocking::Blocking::pack`] makes of all of it.
    Packed(*const u8),
}

impl Right<'_> {
    /// Packs some terms of some columns of an operand that is not packed, in panels that follow each other.
    ///
    /// # Safety
    /// The operand must be valid for these terms and columns, and there must be room for whole panels.
    pub unsafe fn pack<T>(&self, micro: &Micro<T>, terms: Stretch, columns: Stretch, to: *mut T) {
        let (Stretch { first: from, count: k }, Stretch { first, count: n }) = (terms, columns);
        let width = micro.panel();
        let pack = |term: usize, k_part: usize, at: *const T, rows: isize, line: isize| {
            for column in (0..n).step_by(width) {
                let (columns, from) = (width.min(n - column), at.wrapping_offset(column as isize * line));
                let to = to.wrapping_add(column * k + term * width);
                // SAFETY: passed on from the caller.
                unsafe { (micro.pack)(&Panel { k: k_part, columns, from, rows, line, to, width }) };
            }
        };
        match *self {
            Right::Strided(Matrix { at, rows, columns: line }) => {
                let offset = from as isize * rows + first as isize * line;
                pack(0, k, at.cast::<T>().wrapping_offset(offset), rows, line);
            }
            Right::Computed(operand) => {
                // SAFETY: as above.
                unsafe { operand.parts(terms, columns, |term, k, at, rows| pack(term, k, at, rows, 1)) };
            }
            Right::Packed(_) => unreachable!("what is packed is packed"),
            Right::Short(_) => unreachable!("the kernels for few rows do not pack"),
        }
    }
}
