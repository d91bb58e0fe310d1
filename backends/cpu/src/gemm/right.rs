//! The right operand of a product: strided, evaluated as it is packed, or packed before.

use super::{
    blocking::Blocking,
    computed::Evaluated,
    matrix::{Matrix, Stretch},
    micro::pack::{PackKernel, Panel},
    product::ProductElement,
};

/// The right operand of a product.
#[derive(Clone, Copy)]
pub enum Right<'a> {
    /// A strided matrix.
    Strided(Matrix),
    /// A strided matrix of a shorter type: see [`Blocking::takes_short`].
    Short(Matrix),
    /// Evaluated as it is packed.
    Computed(Evaluated<'a>),
    /// The panels that [`Blocking::pack`] makes of the whole operand, from the product's first column on.
    Packed(*const u8),
}

impl Right<'_> {
    /// Packs some terms of some columns of an unpacked operand, into contiguous panels.
    ///
    /// # Safety
    /// The operand must be valid for these terms and columns, and there must be room for whole panels.
    pub unsafe fn pack<T: ProductElement>(&self, blocking: &Blocking<T>, terms: Stretch, columns: Stretch, to: *mut T) {
        let Some(micro) = &blocking.micro else { return };
        let (Stretch { first: from, count: k }, Stretch { first, count: n }) = (terms, columns);
        let width = micro.panel();
        let pack = |(kernel, size): (PackKernel<T>, usize), [term, k_part]: [usize; 2], of: Matrix| {
            for column in (0..n).step_by(width) {
                let from = of.at.wrapping_offset(column as isize * of.columns * size as isize).cast::<T>();
                let to = to.wrapping_add(column * k + term * width);
                let (columns, rows, line) = (width.min(n - column), of.rows, of.columns);
                // SAFETY: passed on from the caller.
                unsafe { kernel(&Panel { k: k_part, columns, from, rows, line, to, width }) };
            }
        };
        let part = |of: Matrix, size: usize| {
            let offset = from as isize * of.rows + first as isize * of.columns;
            Matrix { at: of.at.wrapping_offset(offset * size as isize), ..of }
        };
        let whole = (micro.pack, size_of::<T>());
        match (*self, &blocking.short) {
            (Right::Strided(of), _) => pack(whole, [0, k], part(of, size_of::<T>())),
            (Right::Short(of), Some(short)) => {
                let size = short.dtype().size();
                pack((short.pack(), size), [0, k], part(of, size));
            }
            (Right::Computed(operand), _) => {
                let put = |term, k_part, at: *const T, rows| {
                    pack(whole, [term, k_part], Matrix { at: at.cast_mut().cast(), rows, columns: 1 });
                };
                // SAFETY: as above.
                unsafe { operand.parts(terms, columns, put) };
            }
            (Right::Packed(_), _) => unreachable!("what is packed is packed"),
            (Right::Short(_), None) => unreachable!("the blocking takes no shorter operands"),
        }
    }
}
