//! Products of few rows, which are bound by reading the right operand, and products of few terms, which are bound by
//! writing the result. A kernel takes several panels at once, from their first to their last term.

use super::{Blocked, at, left::is_multiple};
use crate::gemm::{
    blocking::FEW_ROWS,
    coded::CodedPanels,
    kept::KeptPanels,
    left::Left,
    matrix::{Matrix, Stretch},
    micro::{
        call::{MicroCall, PrefetchRows, SumFinish},
        coded::CodedCall,
        matvec::IN_ROW,
        pack::Panel,
        sweep::sweep,
        table::Streams,
    },
    product::{Extents, ProductElement},
    right::Right,
};

/// The maximal number of terms of a product that counts as bound by writing the result.
const TERMS: usize = 48;

/// For products of few terms with more rows than this, the right operand is packed first.
const PACKED: usize = 32;

/// The right operand: packed, or strided with contiguous columns.
struct StreamedPanels {
    at: *const u8,
    /// The distance in elements from a term to the next.
    terms: isize,
    /// The distance in elements from a panel to the next.
    apart: usize,
    /// Bytes of an element.
    size: usize,
}

impl<T: ProductElement> Blocked<'_, T> {
    /// Computes the product if it has few rows or few terms. Returns whether it did.
    ///
    /// # Safety
    /// The requirements of [`crate::gemm::blocking::Blocking::run`] apply.
    pub(super) unsafe fn streams(&self) -> bool {
        let (e, width) = (self.e, self.micro.panel());
        let Left::Strided(lhs) = self.lhs else { return false };
        if let (Right::Packed(at), Some(coded)) = (self.rhs, &self.blocking.coded) {
            let few = e.m <= coded.rows().len();
            if few {
                // SAFETY: passed on from the caller.
                unsafe { self.coded(lhs, at, coded) };
            }
            return few;
        }
        if let (Right::Short(rhs), Some(short)) = (self.rhs, &self.blocking.short) {
            // Kernels load complete vectors, which the columns must fill.
            let whole = rhs.columns == 1 && e.n.is_multiple_of(self.micro.lanes);
            let few = whole && e.m <= FEW_ROWS && !short.streams().is_empty();
            if few {
                // SAFETY: passed on from the caller.
                unsafe { self.short(lhs, rhs, short) };
            }
            return few;
        }
        let cached = self.micro.cut && self.is_cached();
        let few = match self.rhs {
            Right::Packed(_) => self.kernels().len(),
            _ if cached => self.micro.streams.len(),
            _ => self.micro.few.len(),
        };
        if e.k > TERMS && e.m > few {
            return false;
        }
        let rhs = match self.rhs {
            Right::Packed(at) => {
                StreamedPanels { at, terms: width as isize, apart: width * e.k, size: self.blocking.stored() }
            }
            Right::Strided(Matrix { at, rows, columns: 1 }) => {
                StreamedPanels { at: at.cast_const(), terms: rows, apart: width, size: size_of::<T>() }
            }
            Right::Strided(_) | Right::Computed(_) | Right::Short(_) => return false,
        };
        // SAFETY: passed on from the caller.
        unsafe {
            match self.rhs {
                _ if e.k <= TERMS => self.few_terms(lhs, &rhs),
                Right::Packed(_) => self.few_panels(lhs, &rhs, self.kernels()),
                _ if cached => self.few_panels(lhs, &rhs, self.micro.streams),
                _ => self.few_rows(lhs, &rhs),
            }
        }
        true
    }

    /// Returns whether a right operand with contiguous columns is read from caches. Its panels are then read from the
    /// first to the last term, without partial sums in memory. Kernels of more rows hide more latency, and so read
    /// larger operands in this way. Beyond the second-level cache, rows must not be a multiple of a page apart, because
    /// they would fall into the same cache sets.
    fn is_cached(&self) -> bool {
        let Extents { m, n, k } = self.e;
        let apart = matches!(self.rhs, Right::Strided(rhs) if !is_multiple::<T>(rhs.rows, 4096));
        match m {
            _ if self.blocking.fits_l2(n, k) => true,
            _ if m > self.micro.streams.len() => self.blocking.fits_l2(n.div_ceil(2), k),
            _ => m > IN_ROW && apart && !self.blocking.exceeds_caches(n * k),
        }
    }

    /// Multiplies rows with a matrix of a narrower type whose columns are contiguous. Each pass takes as many rows as
    /// there are kernels for.
    ///
    /// # Safety
    /// The requirements of [`Blocked::streams`] apply. The columns must fill vectors, and `short` must have kernels for
    /// few rows.
    unsafe fn short(&self, lhs: Matrix, rhs: Matrix, short: &KeptPanels<T>) {
        debug_assert_eq!(rhs.columns, 1, "columns are not contiguous");
        let kernels = short.streams();
        let panels = StreamedPanels {
            at: rhs.at.cast_const(),
            terms: rhs.rows,
            apart: self.micro.panel(),
            size: short.dtype().size(),
        };
        for first in (0..self.e.m).step_by(kernels.len().max(1)) {
            let e = Extents { m: kernels.len().min(self.e.m - first), ..self.e };
            let [target, lhs] = [self.target, lhs].map(|m| Matrix { at: m.row::<T>(first), ..m });
            let other = at(self.finish.other, first as isize * self.finish.other_rows);
            let part = Blocked { e, target, finish: SumFinish { other, ..self.finish }, ..*self };
            // SAFETY: passed on from the caller.
            unsafe { part.few_panels(lhs, &panels, kernels) };
        }
    }

    /// Multiplies few rows with panels of codes, as many panels at once as there is a kernel for.
    ///
    /// # Safety
    /// The requirements of [`Blocked::streams`] apply.
    unsafe fn coded(&self, lhs: Matrix, panels: *const u8, coded: &CodedPanels<T>) {
        let (e, form) = (self.e, coded.form);
        let kernels = coded.rows()[e.m - 1];
        let whole = StreamedPanels { at: std::ptr::null(), terms: 0, apart: 0, size: 0 };
        let mut first = 0;
        while first < e.n {
            let left = (e.n - first).div_ceil(form.width);
            let Some(&(count, kernel)) = kernels.iter().find(|(count, _)| *count <= left) else { return };
            let columns = (count * form.width).min(e.n - first);
            let sums = MicroCall { columns, ..self.part(lhs, &whole, Stretch::new(0, e.k), first) };
            let panel = panels.wrapping_add(self.blocking.packed_at(first, e.k));
            // SAFETY: passed on from the caller.
            unsafe { kernel(&CodedCall { sums, panel, form }) };
            first += columns;
        }
    }

    /// Computes a product of few terms: one group of panels at a time, with all rows.
    ///
    /// # Safety
    /// The requirements of [`Blocked::streams`] apply.
    unsafe fn few_terms(&self, lhs: Matrix, rhs: &StreamedPanels) {
        let (e, width) = (self.e, self.micro.panel());
        let in_l1 = self.blocking.fits_l1(e.n * e.k);
        let group = if in_l1 { e.n } else { self.blocking.group(e, e.k, true) * width };
        // A strided right operand is packed if many rows read it, unless it stays in the first-level cache anyway.
        let pack = matches!(self.rhs, Right::Strided(_)) && e.m > PACKED && !in_l1;
        for first in (0..e.n).step_by(group.max(1)) {
            let columns = group.min(e.n - first);
            let mut call = MicroCall { columns, ..self.part(lhs, rhs, Stretch::new(0, e.k), first) };
            // SAFETY: passed on from the caller.
            unsafe {
                match (&self.blocking.kept, self.rhs) {
                    (Some(kept), Right::Packed(_)) => self.widen(kept, &mut call),
                    _ if pack => self.pack(&mut call),
                    _ => {}
                }
                sweep(self.micro.strips, &call, e.m);
            }
        }
    }

    /// Widens the packed right operand of a call to scratch memory, and makes the call read it there.
    ///
    /// # Safety
    /// The call's right operand must be packed in the narrower type, and no larger than a group of panels.
    unsafe fn widen(&self, kept: &KeptPanels<T>, call: &mut MicroCall<T>) {
        let elements = call.columns.next_multiple_of(self.micro.panel()) * call.k;
        // SAFETY: the caller of `Blocking::run` promises the operand and room for a group.
        unsafe { kept.widen(call.b.cast(), self.scratch, elements) };
        call.b = self.scratch.cast_const();
    }

    /// Packs the right operand of a call, whose columns are contiguous, and makes the call read the panels.
    fn pack(&self, call: &mut MicroCall<T>) {
        let (k, width) = (call.k, self.micro.panel());
        for first in (0..call.columns).step_by(width) {
            let columns = width.min(call.columns - first);
            let (from, to) = (call.b.wrapping_add(first), self.scratch.wrapping_add(first * k));
            // SAFETY: the caller of `Blocking::run` promises the operand and room for a group.
            unsafe { (self.micro.pack)(&Panel { k, columns, from, rows: call.b_rows, line: 1, to, width }) };
        }
        (call.b, call.b_rows, call.b_panels) = (self.scratch.cast_const(), width as isize, width * k);
    }

    /// Returns the call for a range of terms of all columns from `first` on.
    fn part(&self, lhs: Matrix, rhs: &StreamedPanels, terms: Stretch, first: usize) -> MicroCall<T> {
        let Stretch { first: from, count: k } = terms;
        let finish = self.part_of_terms(from, k);
        let term = rhs.terms * rhs.size as isize;
        let panel = first / self.micro.panel() * rhs.apart * rhs.size;
        let b = rhs.at.wrapping_add(panel).wrapping_offset(from as isize * term).cast::<T>();
        MicroCall {
            k,
            a: lhs.at.cast::<T>().wrapping_offset(from as isize * lhs.columns),
            a_rows: lhs.rows,
            a_columns: lhs.columns,
            b,
            b_rows: rhs.terms,
            b_panels: rhs.apart,
            prefetch: PrefetchRows::rows(b, term),
            packed: self.scratch,
            c: self.target.at.cast::<T>().wrapping_add(first),
            c_rows: self.target.rows,
            columns: self.e.n - first,
            bias: at(finish.bias, first as isize),
            other: at(finish.other, first as isize),
            ..MicroCall::new(finish)
        }
    }

    /// Computes a product of few rows whose right operand has contiguous columns and is read from memory. Each pass
    /// reads complete rows of that operand, or as many columns as the partial sums have room for.
    ///
    /// # Safety
    /// The requirements of [`Blocked::streams`] apply.
    unsafe fn few_rows(&self, lhs: Matrix, rhs: &StreamedPanels) {
        let (e, terms) = (self.e, self.blocking.terms(self.e.k));
        let most = self.blocking.partial_sums(e.m);
        let prefetches = e.m > IN_ROW && (e.m > self.micro.streams.len() || self.blocking.exceeds_caches(e.n * e.k));
        for first in (0..e.n).step_by(most) {
            let columns = most.min(e.n - first);
            for from in (0..e.k).step_by(terms) {
                let terms = Stretch::new(from, terms.min(e.k - from));
                let call = MicroCall { columns, prefetches, ..self.part(lhs, rhs, terms, first) };
                // SAFETY: passed on from the caller.
                unsafe { self.micro.few[e.m - 1](&call) };
            }
        }
    }

    /// Returns the kernels for few rows and a packed right operand.
    fn kernels(&self) -> Streams<T> {
        self.blocking.kept.as_ref().map_or(self.micro.streams, KeptPanels::streams)
    }

    /// Computes a product of few rows whose right operand is packed or cached, as many panels at once as there is a
    /// kernel for.
    ///
    /// # Safety
    /// The requirements of [`Blocked::streams`] apply.
    unsafe fn few_panels(&self, lhs: Matrix, rhs: &StreamedPanels, kernels: Streams<T>) {
        let (e, lanes) = (self.e, self.micro.lanes);
        let kernels = kernels[e.m - 1];
        let terms = self.blocking.terms(e.k);
        let mut first = 0;
        while first < e.n {
            let left = (e.n - first).div_ceil(lanes);
            let Some(&(vectors, kernel)) = kernels.iter().find(|(vectors, _)| *vectors <= left) else { return };
            let columns = (vectors * lanes).min(e.n - first);
            for from in (0..e.k).step_by(terms) {
                let terms = Stretch::new(from, terms.min(e.k - from));
                let call = MicroCall { columns, ..self.part(lhs, rhs, terms, first) };
                // SAFETY: passed on from the caller.
                unsafe { kernel(&call) };
            }
            first += columns;
        }
    }
}
