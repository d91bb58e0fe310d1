//! Products of few rows, which are bound by reading the right operand, and of few terms, which are bound by writing the result: several
//! panels at once, from their first to their last term.

use super::{
    blocked::{Blocked, at},
    gemm::{Left, Product, Right},
    micro::{Ahead, Call},
    operand::Matrix,
    pack::Panel,
};

/// Products with no more terms are bound by writing the result.
const TERMS: usize = 48;

/// Of products of few terms with more rows, the right operand is packed first.
const PACKED: usize = 32;

/// The right operand: packed, or as it lies, with dense rows.
struct Panels<T> {
    at: *const T,
    /// From a term to the next.
    terms: isize,
    /// From a panel to the next.
    apart: usize,
    /// Columns up to which whole vectors can be read.
    whole: usize,
}

impl<T: Product> Blocked<'_, T> {
    /// Computes the product if it is of such a kind.
    ///
    /// # Safety
    /// As [`super::gemm::Plan::run`].
    pub(super) unsafe fn streams(&self) -> bool {
        let (e, width, lanes) = (self.e, self.micro.panel(), self.micro.lanes);
        let Left::Plain(lhs) = self.lhs else { return false };
        if e.k > TERMS && e.m > self.micro.streams.len() {
            return false;
        }
        let rhs = match self.rhs {
            Right::Packed(at) => Panels { at: at.cast::<T>(), terms: width as isize, apart: width * e.k, whole: e.n },
            Right::Plain(Matrix { at, rows, columns: 1 }) => {
                let whole = if (e.n % width).is_multiple_of(lanes) { e.n } else { e.n - e.n % width };
                Panels { at: at.cast::<T>().cast_const(), terms: rows, apart: width, whole }
            }
            Right::Plain(_) => return false,
        };
        // SAFETY: passed on from the caller.
        unsafe { if e.k <= TERMS { self.few_terms(lhs, &rhs) } else { self.few_rows(lhs, &rhs) } }
        true
    }

    /// A group of panels at a time, past which all rows go.
    unsafe fn few_terms(&self, lhs: Matrix, rhs: &Panels<T>) {
        let (e, width) = (self.e, self.micro.panel());
        let finish = self.finish;
        let group = self.plan.group(e, e.k, true) * width;
        // Rows that lie apart are packed for many rows of the target, unless they stay in the nearest cache anyway.
        let pack = matches!(self.rhs, Right::Plain(_)) && e.m > PACKED && !self.plan.is_nearest(e.n * e.k);
        for first in (0..e.n).step_by(group.max(1)) {
            let column = first as isize;
            let columns = group.min(e.n - first);
            let mut rhs = Panels { at: rhs.at.wrapping_add(first / width * rhs.apart), ..*rhs };
            if pack {
                rhs = self.pack(columns, &rhs);
            }
            let call = Call {
                k: e.k,
                a: lhs.at.cast(),
                a_rows: lhs.rows,
                a_columns: lhs.columns,
                b: rhs.at,
                b_rows: rhs.terms,
                b_panels: rhs.apart,
                c: self.target.at.cast::<T>().wrapping_add(first),
                c_rows: self.target.rows,
                columns,
                bias: at(finish.bias, column),
                other: at(finish.other, column),
                ..Call::new(finish)
            };
            // SAFETY: passed on from the caller.
            unsafe { (self.micro.sweep)(&call, e.m) };
        }
    }

    /// Packs so many columns of dense rows.
    fn pack(&self, columns: usize, rhs: &Panels<T>) -> Panels<T> {
        let (k, width) = (self.e.k, self.micro.panel());
        for first in (0..columns).step_by(width) {
            let columns = width.min(columns - first);
            let (from, to) = (rhs.at.wrapping_add(first), self.scratch.wrapping_add(first * k));
            // SAFETY: the caller of `Plan::run` promises the operand and room for a group.
            unsafe { (self.micro.pack)(&Panel { k, columns, from, rows: rhs.terms, line: 1, to, width }) };
        }
        Panels { at: self.scratch, terms: width as isize, apart: width * k, whole: columns }
    }

    /// As many panels at once as there is a kernel for, from their first to their last term.
    unsafe fn few_rows(&self, lhs: Matrix, rhs: &Panels<T>) {
        let (e, width) = (self.e, self.micro.panel());
        let kernels = self.micro.streams[e.m - 1];
        let terms = self.plan.terms(e.k);
        let mut first = 0;
        while first < e.n {
            let whole = rhs.whole.saturating_sub(first) / width;
            let several = kernels.iter().find(|(panels, _)| *panels <= whole);
            let columns = several.map_or((e.n - first).min(width), |(panels, _)| panels * width);
            let kernel = several.map_or(self.micro.kernels[e.m - 1][usize::from(columns > self.micro.lanes)], |s| s.1);
            for from in (0..e.k).step_by(terms) {
                let k = terms.min(e.k - from);
                let finish = self.part_of_terms(from, k);
                let mut b = rhs.at.wrapping_add(first / width * rhs.apart).wrapping_offset(from as isize * rhs.terms);
                let mut b_rows = rhs.terms;
                if first >= rhs.whole {
                    let panel = Panel { k, columns, from: b, rows: b_rows, line: 1, to: self.scratch, width };
                    // SAFETY: passed on from the caller.
                    unsafe { (self.micro.pack)(&panel) };
                    (b, b_rows) = (self.scratch, width as isize);
                }
                let call = Call {
                    k,
                    a: lhs.at.cast::<T>().wrapping_offset(from as isize * lhs.columns),
                    a_rows: lhs.rows,
                    a_columns: lhs.columns,
                    b,
                    b_rows,
                    b_panels: rhs.apart,
                    ahead: Ahead::rows(b, b_rows),
                    c: self.target.at.cast::<T>().wrapping_add(first),
                    c_rows: self.target.rows,
                    columns,
                    bias: at(finish.bias, first as isize),
                    other: at(finish.other, first as isize),
                    ..Call::new(finish)
                };
                // SAFETY: passed on from the caller.
                unsafe { kernel(&call) };
            }
            first += columns;
        }
    }
}
