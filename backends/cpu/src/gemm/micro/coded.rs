//! Products beside panels of coded weights: w = table[code]·scale + offset, with a scale and an offset for each column of a block of terms.

use super::{
    block::finish,
    call::{MicroCall, PREFETCH_ROWS},
};
use crate::simd::{
    codes::{CodeTable, CodeVector, Codes},
    vector::Vector,
};

/// Vectors side by side in a panel.
pub const PANEL: usize = 2;

/// How codes become numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeKind {
    /// Codes of 4 bits select from a table.
    Nibbles,
    /// Codes are signed integers of 8 bits.
    Signed,
    /// Codes are unsigned integers of 8 bits.
    Unsigned,
}

/// Where a panel has its numbers: a table if there is one, then block after block the scales, the offsets, and the codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PanelForm {
    /// Columns.
    pub width: usize,
    /// Terms of a block, an even number.
    pub block: usize,
    /// Number of blocks.
    pub blocks: usize,
    /// How codes become numbers.
    pub codes: CodeKind,
    /// Whether scales and offsets are 16-bit floats.
    pub half: bool,
    /// Whether there are offsets.
    pub offset: bool,
}

impl PanelForm {
    /// Whether codes have 4 bits, so that there is a table.
    pub fn nibbles(&self) -> bool {
        self.codes == CodeKind::Nibbles
    }

    /// Bytes before the first block.
    pub fn header(&self) -> usize {
        if self.nibbles() { size_of::<CodeTable>() } else { 0 }
    }

    /// Bytes of a number.
    pub fn number(&self) -> usize {
        if self.half { 2 } else { size_of::<f32>() }
    }

    /// Bytes of the scales and offsets of a block.
    pub fn numbers(&self) -> usize {
        self.width * self.number() * (1 + usize::from(self.offset))
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> usize {
        self.numbers() + self.block * self.width / (1 + usize::from(self.nibbles()))
    }

    /// Bytes of a panel: whole lines of a cache, so that tables are aligned.
    pub fn bytes(&self) -> usize {
        (self.header() + self.blocks * self.block_bytes()).next_multiple_of(align_of::<CodeTable>())
    }
}

/// A block of a product beside coded panels.
pub struct CodedCall<T> {
    /// The left operand, and what becomes of the sums; its terms and its right operand are not read.
    pub sums: MicroCall<T>,
    /// The first panel.
    pub panel: *const u8,
    /// The form of each panel; the next one follows.
    pub form: PanelForm,
}

/// A part of a panel, to be decoded.
pub struct CodedPart<T> {
    /// The panel.
    pub panel: *const u8,
    /// Its form.
    pub form: PanelForm,
    /// The first term, and how many there are.
    pub from: usize,
    /// Number of terms.
    pub count: usize,
    /// Where the first decoded row goes.
    pub to: *mut T,
    /// Elements from there to the next row.
    pub pitch: usize,
}

/// The scale and the offset of each column of a vector.
#[derive(Clone, Copy)]
struct Numbers<V> {
    scale: V,
    offset: V,
}

impl<V: CodeVector> Numbers<V> {
    /// Loads those of vector `j` of a block.
    ///
    /// # Safety
    /// The block must be valid, and the machine must have the instruction set.
    #[inline(always)]
    unsafe fn load<const OFFSET: bool>(block: *const u8, j: usize, form: &PanelForm) -> Numbers<V> {
        // SAFETY: passed on from the caller.
        unsafe {
            let load = |at: *const u8| if form.half { V::half(at) } else { V::load(at.cast()) };
            let at = block.add(j * V::LANES * form.number());
            let offset = if OFFSET { load(at.add(form.width * form.number())) } else { V::zero() };
            Numbers { scale: load(at), offset }
        }
    }

    /// Decodes a vector. The product is rounded before the sum, as the ops are that this replaces.
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

/// Sums of all terms, held in `ROWS`·`VECTORS` registers: weights are decoded once for all rows. `VECTORS` is a multiple of [`PANEL`].
///
/// # Safety
/// As the call states: the left operand, the panels and the result must be valid for `ROWS` rows and the call's columns, of which there are
/// more than those of all panels but the last; the machine must have the vectors' instruction set.
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

/// Whether the tables of panels hold integers.
///
/// # Safety
/// The panels must have tables.
#[inline(always)]
unsafe fn integral(mut panels: impl Iterator<Item = *const u8>) -> bool {
    // SAFETY: the caller promises the tables; panels are aligned as these are.
    panels.all(|panel| unsafe { (*panel.cast::<CodeTable>()).integral })
}

/// # Safety
/// As [`coded`]; tables must be of that kind.
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
        let row = form.width * C::ROWS;
        for block in 0..form.blocks {
            let start = form.header() + block * form.block_bytes();
            let mut numbers = [Numbers { scale: V::zero(), offset: V::zero() }; VECTORS];
            for (j, numbers) in numbers.iter_mut().enumerate() {
                *numbers = Numbers::load::<OFFSET>(panel(j).add(start), j % PANEL, form);
            }
            let codes = start + form.numbers();
            for pair in 0..form.block / 2 {
                let mut weights = [[V::zero(); 2]; VECTORS];
                for (j, weights) in weights.iter_mut().enumerate() {
                    let at = panel(j).add(codes + pair * row + j % PANEL * V::LANES);
                    if j % PANEL == 0 {
                        V::prefetch(at.wrapping_add(PREFETCH_ROWS as usize * row).cast());
                    }
                    let (first, second) = C::pair::<V>(at, form.width, tables[j]);
                    *weights = [numbers[j].decode::<OFFSET>(first), numbers[j].decode::<OFFSET>(second)];
                }
                for term in 0..2 {
                    for (i, sums) in sums.iter_mut().enumerate() {
                        let x = V::splat(*a.offset(i as isize * c.a_rows));
                        for (sum, weights) in sums.iter_mut().zip(&weights) {
                            *sum = x.mul_add(weights[term], *sum);
                        }
                    }
                    a = a.wrapping_offset(c.a_columns);
                }
            }
        }
        if c.columns == VECTORS * V::LANES {
            finish::<V, ROWS, VECTORS, true>(c, sums);
        } else if c.columns > (VECTORS - 1) * V::LANES {
            finish::<V, ROWS, VECTORS, false>(c, sums);
        } else {
            // The last panel has no more columns than a vector.
            narrow::<V, ROWS, VECTORS>(c, &sums);
        }
    }
}

/// Finishes sums whose last vector has no columns.
///
/// # Safety
/// As [`coded`].
#[inline(always)]
unsafe fn narrow<V: Vector, const ROWS: usize, const VECTORS: usize>(
    c: &MicroCall<V::Element>,
    sums: &[[V; VECTORS]; ROWS],
) {
    let mut at = *c;
    for j in 0..VECTORS - 1 {
        at.columns = V::LANES.min(c.columns - j * V::LANES);
        let sums = std::array::from_fn::<_, ROWS, _>(|i| [sums[i][j]]);
        // SAFETY: passed on from the caller. Null pointers stay what they are.
        unsafe { finish::<V, ROWS, 1, false>(&at, sums) };
        let next = |p: *const V::Element| if p.is_null() { p } else { p.wrapping_add(V::LANES) };
        (at.c, at.bias, at.other) = (at.c.wrapping_add(V::LANES), next(at.bias), next(at.other));
    }
}

/// Decodes a part of a panel.
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

/// # Safety
/// As [`decode`]; the table must be of that kind.
#[inline(always)]
unsafe fn rows<V: CodeVector, C: Codes, const OFFSET: bool>(part: &CodedPart<f32>) {
    let form = &part.form;
    let row = form.width * C::ROWS;
    let (mut term, end, mut to) = (part.from, part.from + part.count, part.to);
    // SAFETY: the caller promises the panel and room for the rows.
    unsafe {
        let table = C::table::<V>(part.panel.cast());
        while term < end {
            let block = part.panel.add(form.header() + term / form.block * form.block_bytes());
            let numbers = [0, 1].map(|j| Numbers::<V>::load::<OFFSET>(block, j, form));
            let last = end.min((term / form.block + 1) * form.block);
            let codes = block.add(form.numbers());
            while term < last {
                let second = term % 2;
                let pair = term % form.block / 2;
                for (j, numbers) in numbers.iter().enumerate() {
                    let (low, high) = C::pair::<V>(codes.add(pair * row + j * V::LANES), form.width, table);
                    let to = to.add(j * V::LANES);
                    if second == 1 {
                        numbers.decode::<OFFSET>(high).store(to);
                    } else {
                        numbers.decode::<OFFSET>(low).store(to);
                        if term + 1 < last {
                            numbers.decode::<OFFSET>(high).store(to.add(part.pitch));
                        }
                    }
                }
                let terms = if second == 0 && term + 1 < last { 2 } else { 1 };
                (term, to) = (term + terms, to.wrapping_add(terms * part.pitch));
            }
        }
    }
}
