//! Packed panels of right operands that are kept as codes of 4 or 8 bits. Each column of a block of terms has a scale
//! and perhaps an offset. Products decode codes in registers. Products of few rows, which are bound by memory
//! bandwidth, thus read only the bytes of these panels.

use half::f16;

use super::{
    matrix::Stretch,
    micro::{
        coded::CodedPart,
        coded_table::{CodedKernel, CodedKernels},
        integer_table::IntegerKernels,
        panel_form::{CodeFormat, CodeKind, CodeOrder, PanelForm},
    },
    product::ProductElement,
};
use crate::{
    runtime::memory::ALIGN,
    simd::{
        Isa,
        codes::{CodeTable, TABLE},
    },
};

/// The layout of coded panels, and the kernels that read them.
pub struct CodedPanels<T: 'static> {
    /// The layout of a panel.
    pub form: PanelForm,
    kernels: PanelKernels<T>,
}

/// The kernels that read panels, by the elements of the left operand.
enum PanelKernels<T: 'static> {
    /// The left operand holds floats.
    Numbers(CodedKernels<T>),
    /// The left operand holds 8-bit integers, with a scale for each block of terms.
    Integers(IntegerKernels<T>),
}

impl<T: ProductElement> CodedPanels<T> {
    /// Returns the panels for weights of `terms` terms, a multiple of the block, at an instruction-set level that the
    /// machine must have. Returns `None` if there are no kernels for the format.
    pub fn new(format: CodeFormat, terms: usize, isa: Isa) -> Option<CodedPanels<T>> {
        let format = format.ordered(isa);
        let kernels = T::coded(isa, format)?;
        let form = PanelForm { width: kernels.width, blocks: terms / format.block, format };
        Some(CodedPanels { form, kernels: PanelKernels::Numbers(kernels) })
    }

    /// Returns the panels for products whose left operand is integers with scales. Returns `None` if there are no
    /// kernels for the format.
    pub fn for_integers(format: CodeFormat, terms: usize, isa: Isa) -> Option<CodedPanels<T>> {
        let format = format.in_words()?;
        let kernels = T::integers(isa, format)?;
        let form = PanelForm { width: kernels.width, blocks: terms / format.block, format };
        Some(CodedPanels { form, kernels: PanelKernels::Integers(kernels) })
    }

    /// Returns the kernels for products with integers, if the panels are made for them.
    pub fn integers(&self) -> Option<&IntegerKernels<T>> {
        if let PanelKernels::Integers(kernels) = &self.kernels { Some(kernels) } else { None }
    }

    /// Returns the kernels that decode weights in registers. Index `rows - 1` has the kernels for `rows` rows, each
    /// with the number of panels that it takes, the most first.
    pub fn rows(&self) -> &'static [&'static [(usize, CodedKernel<T>)]] {
        if let PanelKernels::Numbers(kernels) = &self.kernels { kernels.rows } else { &[] }
    }

    /// Returns the bytes of a matrix of `columns` columns.
    pub fn matrix_bytes(&self, columns: usize) -> usize {
        (columns.div_ceil(self.form.width) * self.form.bytes()).next_multiple_of(ALIGN)
    }

    /// Decodes a range of terms and columns of the packed matrix at `panels` to rows that are `pitch` elements apart.
    /// The range starts with the first column of a panel. The last panel is decoded to its end, even if the range of
    /// columns ends before that.
    ///
    /// # Safety
    /// The matrix must have these terms and columns, and there must be room for the rows.
    pub unsafe fn decode(&self, panels: *const u8, terms: Stretch, columns: Stretch, to: *mut T, pitch: usize) {
        let PanelForm { width, .. } = self.form;
        let PanelKernels::Numbers(kernels) = &self.kernels else {
            unreachable!("products with integers do not decode panels")
        };
        debug_assert!(columns.first.is_multiple_of(width), "column {} within a panel", columns.first);
        for column in (0..columns.count).step_by(width) {
            let panel = panels.wrapping_add((columns.first + column) / width * self.form.bytes());
            let Stretch { first: from, count } = terms;
            let part = CodedPart { panel, form: self.form, from, count, to: to.wrapping_add(column), pitch };
            // SAFETY: passed on from the caller.
            unsafe { (kernels.decode)(&part) };
        }
    }
}

/// Strided numbers, one for each term and column of a block.
pub struct StridedNumbers {
    /// The number at the first term and the first column.
    pub at: *const f32,
    /// For each term of the block, the elements from the first term to it.
    pub terms: Vec<isize>,
    /// The distance in elements from a column to the next.
    pub columns: isize,
}

impl StridedNumbers {
    /// Returns the number at a term and a column.
    ///
    /// # Safety
    /// The block must have the term and the column.
    unsafe fn get(&self, term: usize, column: usize) -> f32 {
        // SAFETY: passed on from the caller.
        unsafe { self.at.offset(self.terms[term] + column as isize * self.columns).read() }
    }
}

/// The numbers from which a block of terms is packed.
pub struct BlockNumbers {
    /// The decoded codes.
    pub values: StridedNumbers,
    /// The codes, if they have 4 bits.
    pub codes: Option<StridedNumbers>,
    /// The scales; `None` stands for 1.
    pub scales: Option<StridedNumbers>,
    /// The offsets; `None` stands for 0.
    pub offsets: Option<StridedNumbers>,
    /// Whether offsets are subtracted.
    pub subtract: bool,
}

/// Writes the blocks of a panel.
pub struct PanelWriter {
    form: PanelForm,
    panel: *mut u8,
    /// The number of columns of the matrix that the panel has. The other columns of the panel are padding.
    columns: usize,
    table: [f32; TABLE],
}

impl PanelWriter {
    /// Returns a writer of the panel at an address. `columns` is the number of columns of the matrix that the panel
    /// has: its full width, or fewer at the end of the matrix.
    ///
    /// # Safety
    /// There must be room for a panel at the address, which must be aligned as a [`CodeTable`].
    pub unsafe fn new(form: PanelForm, panel: *mut u8, columns: usize) -> PanelWriter {
        PanelWriter { form, panel, columns, table: [0.0; TABLE] }
    }

    /// Writes a block.
    ///
    /// # Safety
    /// The numbers must be valid for all terms and columns of the block.
    pub unsafe fn block(&mut self, number: usize, block: &BlockNumbers) {
        let at = self.panel.wrapping_add(self.form.block(number));
        // SAFETY: passed on from the caller. The caller of `PanelWriter::new` promised room for the panel.
        unsafe {
            self.numbers(at, block);
            self.codes(at.add(self.form.numbers()), block);
        }
    }

    /// Writes the scales and offsets of a block.
    ///
    /// # Safety
    /// The requirements of [`PanelWriter::block`] apply.
    unsafe fn numbers(&self, at: *mut u8, block: &BlockNumbers) {
        let PanelForm { width, format, .. } = self.form;
        let put = |n: usize, x: f32| {
            // SAFETY: the caller promises the room. The writes do not require an aligned address.
            unsafe {
                match format.half {
                    true => at.cast::<f16>().add(n).write_unaligned(f16::from_f32(x)),
                    false => at.cast::<f32>().add(n).write_unaligned(x),
                }
            }
        };
        for column in 0..width {
            let of = |numbers: &Option<StridedNumbers>, none: f32| match numbers {
                // SAFETY: passed on from the caller. Scales and offsets are the same for all terms of a block.
                Some(numbers) if column < self.columns => unsafe { numbers.get(0, column) },
                _ => none,
            };
            put(column, of(&block.scales, 1.0));
            if format.offset {
                let offset = of(&block.offsets, 0.0);
                put(width + column, if block.subtract { -offset } else { offset });
            }
        }
    }

    /// Writes the codes of a block. The numbers that 4-bit codes stand for are entered into the table.
    ///
    /// # Safety
    /// The requirements of [`PanelWriter::block`] apply.
    unsafe fn codes(&mut self, at: *mut u8, block: &BlockNumbers) {
        let PanelForm { width, format, .. } = self.form;
        for (term, column) in (0..format.block).flat_map(|term| (0..width).map(move |column| (term, column))) {
            let code = match column < self.columns {
                // SAFETY: passed on from the caller.
                true => unsafe { self.code(block, term, column) },
                false => 0,
            };
            let (byte, bit) = format.place(term, column, width);
            // SAFETY: passed on from the caller. The low bits of a byte are written before the high ones.
            unsafe {
                match bit {
                    0 => at.add(byte).write(code),
                    bit => *at.add(byte) |= code << bit,
                }
            }
        }
    }

    /// Returns the code of a weight. The number that a 4-bit code stands for is entered into the table.
    ///
    /// # Safety
    /// The requirements of [`PanelWriter::block`] apply.
    unsafe fn code(&mut self, block: &BlockNumbers, term: usize, column: usize) -> u8 {
        // SAFETY: passed on from the caller.
        let [value, code] = unsafe {
            [block.values.get(term, column), block.codes.as_ref().map_or(0.0, |codes| codes.get(term, column))]
        };
        match self.form.format.codes {
            CodeKind::Signed => (value as i8).cast_unsigned(),
            CodeKind::Unsigned if self.form.format.order == CodeOrder::Words => value as u8 ^ 0x80,
            CodeKind::Unsigned => value as u8,
            CodeKind::Nibbles => {
                let code = code as usize % TABLE;
                self.table[code] = value;
                code as u8
            }
        }
    }

    /// Writes the table, if the panel has one.
    pub fn finish(self) {
        if self.form.format.nibbles() {
            // SAFETY: the caller of `PanelWriter::new` promised room for the panel, aligned as a table.
            unsafe { self.panel.cast::<CodeTable>().write(CodeTable::new(self.table)) };
        }
    }
}

#[cfg(test)]
mod tests;
