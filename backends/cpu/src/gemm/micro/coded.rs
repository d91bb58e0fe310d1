//! Micro-kernels for panels of codes ([`PanelForm`]): products that decode weights in registers, and the decoding of a
//! range of terms to memory.

use super::{
    block::finish,
    call::MicroCall,
    panel_form::{PANEL, PanelForm},
};
use crate::simd::{
    codes::{CodeTable, CodeVector, Codes},
    vector::Vector,
};

/// The bytes of a cache line.
pub(super) const LINE: usize = 64;
/// The prefetch distance within a panel, in bytes. Panels are read from memory, and without prefetches too few cache
/// lines are in flight.
const AHEAD: usize = 4096;

/// Returns the distance at which a block of a panel prefetches, in bytes, if `panels` panels are read at once. Near the
/// end of a panel, it skips the panels that follow, because they are being read already.
#[inline(always)]
pub(super) fn ahead(start: usize, panel: usize, panels: usize) -> usize {
    if start + AHEAD < panel { AHEAD } else { AHEAD + (panels - 1) * panel }
}

/// A register block of a product whose right operand is in panels of codes.
pub struct CodedCall<T> {
    /// The left operand, the result and the epilogue of the sums. The number of terms and the right operand in it are
    /// not read.
    pub sums: MicroCall<T>,
    /// The first panel.
    pub panel: *const u8,
    /// The layout of each panel. Panels follow each other.
    pub form: PanelForm,
}

/// A range of terms of a panel, to be decoded to memory.
pub struct CodedPart<T> {
    /// The panel.
    pub panel: *const u8,
    /// The layout of the panel.
    pub form: PanelForm,
    /// The first term.
    pub from: usize,
    /// The number of terms.
    pub count: usize,
    /// The destination: the row of the first term.
    pub to: *mut T,
    /// The distance in elements from the row of a term to that of the next.
    pub pitch: usize,
}

/// The scale and the offset of each column of a vector.
#[derive(Clone, Copy)]
pub(super) struct Numbers<V> {
    /// The scales.
    pub scale: V,
    /// The offsets; zeros if the format has none.
    pub offset: V,
}

impl<V: CodeVector> Numbers<V> {
    /// Loads the scales and offsets of vector `j` of a block.
    ///
    /// # Safety
    /// The block must be valid, and the machine must have the instruction set.
    #[inline(always)]
    pub unsafe fn load<const OFFSET: bool>(block: *const u8, j: usize, form: &PanelForm) -> Numbers<V> {
        // SAFETY: passed on from the caller.
        unsafe {
            let load = |at: *const u8| if form.format.half { V::half(at) } else { V::load(at.cast()) };
            let at = block.add(j * V::LANES * form.format.number_bytes());
            let offset = if OFFSET { load(at.add(form.width * form.format.number_bytes())) } else { V::zero() };
            Numbers { scale: load(at), offset }
        }
    }

    /// Decodes a vector of codes. The product with the scale is rounded before the offset is added, because the
    /// separate ops that this replaces round it.
    ///
    /// # Safety
    /// The machine must have the instruction set.
    #[inline(always)]
    unsafe fn decode<const OFFSET: bool>(self, code: V) -> V {
        // SAFETY: passed on from the caller.
        unsafe {
            let scaled = code.mul(self.scale);
            if OFFSET { scaled.add(self.offset) } else { scaled }
        }
    }
}

/// Sums all terms in `ROWS`·`VECTORS` registers, and decodes each weight once for all rows. `VECTORS` is a multiple of
/// [`PANEL`].
///
/// # Safety
/// The left operand, the panels and the result must be valid for `ROWS` rows and the call's columns. The last panel
/// must have at least one of these columns. The machine must have the vectors' instruction set.
#[inline(always)]
pub unsafe fn coded<V: CodeVector, C: Codes, const ROWS: usize, const VECTORS: usize, const OFFSET: bool>(
    call: &CodedCall<f32>,
) {
    let panels = (0..VECTORS / PANEL).map(|panel| call.panel.wrapping_add(panel * call.form.bytes()));
    // SAFETY: passed on from the caller.
    unsafe {
        match C::prefers_integers::<V>() && integral(panels) {
            true => sums::<V, C::OfIntegers, ROWS, VECTORS, OFFSET>(call),
            false => sums::<V, C, ROWS, VECTORS, OFFSET>(call),
        }
    }
}

/// Returns whether the tables of all panels hold integers.
///
/// # Safety
/// The panels must have tables.
#[inline(always)]
unsafe fn integral(mut panels: impl Iterator<Item = *const u8>) -> bool {
    // SAFETY: the caller promises the tables. Panels are aligned as tables.
    panels.all(|panel| unsafe { (*panel.cast::<CodeTable>()).integral })
}

/// Sums the products with codes of one kind.
///
/// # Safety
/// The requirements of [`coded`] apply. The tables must hold integers if `C` decodes by integers.
#[inline(always)]
unsafe fn sums<V: CodeVector, C: Codes, const ROWS: usize, const VECTORS: usize, const OFFSET: bool>(
    call: &CodedCall<f32>,
) {
    let (c, form) = (&call.sums, &call.form);
    // SAFETY: the caller promises the operands, and that the machine has the instruction set.
    unsafe {
        let mut sums = [[V::zero(); VECTORS]; ROWS];
        let bytes = form.bytes();
        let panel = |j: usize| call.panel.add(j / PANEL * bytes);
        let tables: [C::Table<V>; VECTORS] = std::array::from_fn(|j| C::table::<V>(panel(j).cast()));
        let mut a = c.a;
        let row = form.width * C::BYTES * C::ROWS;
        for block in 0..form.blocks {
            let start = form.block(block);
            let ahead = ahead(start, bytes, VECTORS / PANEL);
            let mut numbers = [Numbers { scale: V::zero(), offset: V::zero() }; VECTORS];
            for (j, numbers) in numbers.iter_mut().enumerate() {
                *numbers = Numbers::load::<OFFSET>(panel(j).add(start), j % PANEL, form);
            }
            let codes = start + form.numbers();
            for group in 0..form.format.block / C::TERMS {
                let column = |j: usize| j % PANEL * V::LANES * C::BYTES;
                let at = |j: usize| panel(j).wrapping_add(codes + group * row + column(j));
                let mut loaded = [C::load::<V>(at(0), form.width, tables[0]); VECTORS];
                for (j, loaded) in loaded.iter_mut().enumerate() {
                    if column(j).is_multiple_of(LINE) {
                        V::prefetch(at(j).wrapping_add(ahead).cast());
                    }
                    *loaded = C::load::<V>(at(j), form.width, tables[j]);
                }
                for term in 0..C::TERMS {
                    let mut weights = [V::zero(); VECTORS];
                    for (j, weights) in weights.iter_mut().enumerate() {
                        *weights = numbers[j].decode::<OFFSET>(C::term::<V>(loaded[j], term, tables[j]));
                    }
                    for (i, sums) in sums.iter_mut().enumerate() {
                        let x = V::splat(*a.offset(i as isize * c.a_rows));
                        for (sum, &weights) in sums.iter_mut().zip(&weights) {
                            *sum = x.mul_add(weights, *sum);
                        }
                    }
                    a = a.wrapping_offset(c.a_columns);
                }
            }
        }
        done::<V, ROWS, VECTORS>(c, sums);
    }
}

/// Applies the epilogue to the sums of panels, and stores them. Some lanes of the last panel may have no columns.
///
/// # Safety
/// The requirements of [`coded`] apply.
#[inline(always)]
pub(super) unsafe fn done<V: Vector, const ROWS: usize, const VECTORS: usize>(
    c: &MicroCall<V::Element>,
    sums: [[V; VECTORS]; ROWS],
) {
    // SAFETY: passed on from the caller.
    unsafe {
        if c.columns == VECTORS * V::LANES {
            finish::<V, ROWS, VECTORS, true>(c, sums);
        } else if c.columns > (VECTORS - 1) * V::LANES {
            finish::<V, ROWS, VECTORS, false>(c, sums);
        } else {
            // The last panel has at most one vector of columns.
            narrow::<V, ROWS, VECTORS>(c, &sums);
        }
    }
}

/// Applies the epilogue to sums whose last vector has no columns, and stores them.
///
/// # Safety
/// The requirements of [`coded`] apply.
#[inline(always)]
unsafe fn narrow<V: Vector, const ROWS: usize, const VECTORS: usize>(
    c: &MicroCall<V::Element>,
    sums: &[[V; VECTORS]; ROWS],
) {
    let mut at = *c;
    for j in 0..VECTORS - 1 {
        at.columns = V::LANES.min(c.columns - j * V::LANES);
        let sums = std::array::from_fn::<_, ROWS, _>(|i| [sums[i][j]]);
        // SAFETY: passed on from the caller. A null pointer stays null.
        unsafe { finish::<V, ROWS, 1, false>(&at, sums) };
        let next = |p: *const V::Element| if p.is_null() { p } else { p.wrapping_add(V::LANES) };
        (at.c, at.bias, at.other) = (at.c.wrapping_add(V::LANES), next(at.bias), next(at.other));
    }
}

/// Decodes a range of terms of a panel to memory.
///
/// # Safety
/// The panel must be valid, and there must be room for the rows; the machine must have the instruction set.
#[inline(always)]
pub unsafe fn decode<V: CodeVector, C: Codes, const OFFSET: bool>(part: &CodedPart<f32>) {
    // SAFETY: passed on from the caller.
    unsafe {
        match C::prefers_integers::<V>() && integral(std::iter::once(part.panel)) {
            true => rows::<V, C::OfIntegers, OFFSET>(part),
            false => rows::<V, C, OFFSET>(part),
        }
    }
}

/// Decodes codes of one kind.
///
/// # Safety
/// The requirements of [`decode`] apply. The table must hold integers if `C` decodes by integers.
#[inline(always)]
unsafe fn rows<V: CodeVector, C: Codes, const OFFSET: bool>(part: &CodedPart<f32>) {
    let form = &part.form;
    let (row, terms) = (form.width * C::BYTES * C::ROWS, form.format.block);
    let (mut term, end, mut to) = (part.from, part.from + part.count, part.to);
    // SAFETY: the caller promises the panel and room for the rows.
    unsafe {
        let table = C::table::<V>(part.panel.cast());
        while term < end {
            let block = part.panel.add(form.block(term / terms));
            let numbers = [0, 1].map(|j| Numbers::<V>::load::<OFFSET>(block, j, form));
            let last = end.min((term / terms + 1) * terms);
            let codes = block.add(form.numbers());
            while term < last {
                let first = term % C::TERMS;
                let group = codes.add(term % terms / C::TERMS * row);
                let count = (C::TERMS - first).min(last - term);
                for (j, numbers) in numbers.iter().enumerate() {
                    let loaded = C::load::<V>(group.add(j * V::LANES * C::BYTES), form.width, table);
                    for n in 0..C::TERMS {
                        if n >= first && n < first + count {
                            let to = to.add((n - first) * part.pitch + j * V::LANES);
                            numbers.decode::<OFFSET>(C::term::<V>(loaded, n, table)).store(to);
                        }
                    }
                }
                (term, to) = (term + count, to.wrapping_add(count * part.pitch));
            }
        }
    }
}
