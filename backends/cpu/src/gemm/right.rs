//! The right operand of a product: a strided matrix, an operand that is evaluated while it is packed, or packed panels.

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
    /// A strided matrix whose elements have a narrower type than the accumulator ([`Blocking::takes_short`]).
    Short(Matrix),
    /// An operand that is evaluated block by block while it is packed.
    Computed(Evaluated<'a>),
    /// The panels that [`Blocking::pack`] made of all terms. The pointer is at the panel of the product's first column.
    Packed(*const u8),
}

impl Right<'_> {
    /// Packs a range of terms and columns of an unpacked operand into contiguous panels.
    ///
    /// # Safety
    /// The operand must be valid for these terms and columns. `to` must have room for complete panels: zeros fill up
    /// the last one.
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
                // SAFETY: passed on from the caller.
                unsafe { operand.parts(terms, columns, put) };
            }
            (Right::Packed(_), _) => unreachable!("packed operands are not packed again"),
            (Right::Short(_), None) => unreachable!("operands of a narrower type need `Blocking::takes_short`"),
        }
    }
}
