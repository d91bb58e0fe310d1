//! The right operand of a product: as it lies, evaluated part by part, or packed before.

use super::{
    computed::Evaluated,
    micro::{pack::Panel, table::Micro},
    plan::{Extents, Plan, Product},
};
use crate::kernels::operand::Matrix;

/// Elements of a part that is evaluated, and the fewest terms of it: lines of memory may lie along these.
const PART: usize = 4096;
const TERMS: usize = 16;

/// The right operand of a product.
#[derive(Clone, Copy)]
pub enum Right<'a> {
    /// A matrix as it lies.
    Plain(Matrix),
    /// Evaluated as it is packed.
    Computed(Evaluated<'a>),
    /// From the first of the product's columns on, the panels that [`Plan::pack`] makes of all of it.
    Packed(*const u8),
}

impl Right<'_> {
    /// Packs terms `from..from + k` of `n` columns from one on, of an operand that is not packed, in panels that follow each other.
    ///
    /// # Safety
    /// The operand must be valid for these terms and columns, and there must be room for whole panels.
    pub unsafe fn pack<T>(&self, micro: &Micro<T>, (from, k): (usize, usize), (first, n): (usize, usize), to: *mut T) {
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
            Right::Plain(Matrix { at, rows, columns: line }) => {
                let offset = from as isize * rows + first as isize * line;
                pack(0, k, at.cast::<T>().wrapping_offset(offset), rows, line);
            }
            Right::Computed(operand) => {
                // SAFETY: as above.
                unsafe { operand.parts((from, k), (first, n), |term, k, at, rows| pack(term, k, at, rows, 1)) };
            }
            Right::Packed(_) => unreachable!("what is packed is packed"),
        }
    }
}

impl<T: Product> Plan<T> {
    /// Terms and columns of the parts in which right operands are evaluated for `products`, and packed before, the most terms first.
    pub fn right_parts(&self, products: impl Iterator<Item = Extents>) -> Vec<(usize, usize)> {
        let width = self.panel();
        let (mut columns, mut lens) = (Vec::new(), (1, 1));
        for e in products {
            let group = self.group(e, self.terms(e.k), false) * width;
            columns.extend([group.min(e.n), e.n % group, width.min(e.n), e.n % width]);
            lens = (self.terms(e.k), e.k % self.terms(e.k));
        }
        let widest = columns.iter().max().map_or(1, |&n| n.max(1));
        let most = (PART / widest).max(TERMS).min(lens.0);
        let terms = [most, lens.0 % most, lens.1 % most];
        let mut parts: Vec<_> = columns.iter().flat_map(|&n| terms.map(|k| (k, n))).collect();
        parts.retain(|part| part.0 > 0 && part.1 > 0);
        parts.sort_unstable_by(|a, b| b.cmp(a));
        parts.dedup();
        parts
    }
}
