//! Packed panels of right operands that are kept as codes: 4 or 8 bits for a weight, with a scale and perhaps an offset for each column of a
//! block of terms. Products decode them in registers, so that products of few rows read no more than these bytes.

use half::f16;

use super::{
    matrix::Stretch,
    micro::{
        coded::{CodeKind, CodedPart, PanelForm},
        coded_table::{CodedKernel, CodedKernels},
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

/// How such panels are laid out and read.
pub struct CodedPanels<T: 'static> {
    /// The form of a panel.
    pub form: PanelForm,
    kernels: CodedKernels<T>,
}

/// The numbers of a block of terms, each with the elements from a term to the next, and from a column to the next.
pub struct BlockNumbers {
    /// What codes are decoded to.
    pub values: StridedNumbers,
    /// The codes, where they have 4 bits.
    pub codes: Option<StridedNumbers>,
    /// Scales, or 1 everywhere.
    pub scales: Option<StridedNumbers>,
    /// Offsets, or 0 everywhere.
    pub offsets: Option<StridedNumbers>,
    /// Whether offsets are subtracted.
    pub subtract: bool,
}

/// Numbers of terms and columns.
pub struct StridedNumbers {
    /// The number of the first column of the first term.
    pub at: *const f32,
    /// From each term of the block to the first one.
    pub terms: Vec<isize>,
    /// From a column to the next.
    pub columns: isize,
}

impl StridedNumbers {
    /// # Safety
    /// There must be such a number.
    unsafe fn get(&self, term: usize, column: usize) -> f32 {
        // SAFETY: passed on from the caller.
        unsafe { self.at.offset(self.terms[term] + column as isize * self.columns).read() }
    }
}

/// How codes are kept: all that [`CodedPanels`] are made of but the machine's vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeFormat {
    /// How codes become numbers.
    pub codes: CodeKind,
    /// Terms of a block.
    pub block: usize,
    /// Whether scales and offsets are 16-bit floats.
    pub half: bool,
    /// Whether there are offsets.
    pub offset: bool,
}

impl CodeFormat {
    /// Bytes of a weight, with its share of the numbers of its block.
    pub fn bytes(&self) -> f64 {
        let number = if self.half { 2.0 } else { 4.0 };
        let numbers = number * if self.offset { 2.0 } else { 1.0 };
        numbers / self.block as f64 + if self.codes == CodeKind::Nibbles { 0.5 } else { 1.0 }
    }
}

impl<T: ProductElement> CodedPanels<T> {
    /// For weights of `terms`, whole blocks, at a level that the machine must have; `None` if there are no kernels for them.
    pub fn new(format: CodeFormat, terms: usize, isa: Isa) -> Option<CodedPanels<T>> {
        let CodeFormat { codes, block, half, offset } = format;
        let kernels = T::coded(isa, codes, offset)?;
        let form = PanelForm { width: kernels.width, block, blocks: terms / block, codes, half, offset };
        Some(CodedPanels { form, kernels })
    }

    /// Returns the most rows that kernels decode weights for in registers.
    pub fn rows(&self) -> usize {
        self.kernels.rows.len()
    }

    /// Returns the kernels for a number of rows, up to that: of how many panels each is, the most first.
    pub fn kernels(&self, rows: usize) -> &'static [(usize, CodedKernel<T>)] {
        self.kernels.rows[rows - 1]
    }

    /// Decodes some terms of some columns of the matrix at `panels`, to rows of `pitch` elements. The first column is that of a panel, and
    /// whole panels are decoded.
    ///
    /// # Safety
    /// The matrix must have these terms and columns, and there must be room for the rows.
    pub unsafe fn decode(&self, panels: *const u8, terms: Stretch, columns: Stretch, to: *mut T, pitch: usize) {
        let PanelForm { width, .. } = self.form;
        debug_assert!(columns.first.is_multiple_of(width), "column {} within a panel", columns.first);
        for column in (0..columns.count).step_by(width) {
            let panel = panels.wrapping_add((columns.first + column) / width * self.form.bytes());
            let Stretch { first: from, count } = terms;
            let part = CodedPart { panel, form: self.form, from, count, to: to.wrapping_add(column), pitch };
            // SAFETY: passed on from the caller.
            unsafe { (self.kernels.decode)(&part) };
        }
    }
}

impl PanelForm {
    /// Returns the bytes of a matrix of so many columns.
    pub fn matrix_bytes(&self, columns: usize) -> usize {
        (columns.div_ceil(self.width) * self.bytes()).next_multiple_of(ALIGN)
    }

    /// Writes a block of a panel; `columns` of it count. Enters the numbers that its codes select into the table.
    ///
    /// # Safety
    /// The numbers must be there; `panel` must have room for a panel.
    pub unsafe fn pack(
        &self,
        numbers: &BlockNumbers,
        table: &mut [f32; TABLE],
        block: usize,
        columns: usize,
        panel: *mut u8,
    ) {
        let form = self;
        let start = panel.wrapping_add(form.header() + block * form.block_bytes());
        let codes = start.wrapping_add(form.numbers());
        let put = |at: *mut u8, n: usize, x: f32| {
            // SAFETY: the caller promises the room; numbers need not be aligned to their size.
            unsafe {
                match form.half {
                    true => at.cast::<f16>().add(n).write_unaligned(f16::from_f32(x)),
                    false => at.cast::<f32>().add(n).write_unaligned(x),
                }
            }
        };
        // SAFETY: passed on from the caller.
        unsafe {
            for column in 0..form.width {
                let inside = column < columns;
                let number = |of: &Option<StridedNumbers>, otherwise: f32| match of {
                    Some(numbers) if inside => numbers.get(0, column),
                    _ => otherwise,
                };
                put(start, column, if inside { number(&numbers.scales, 1.0) } else { 0.0 });
                if form.offset {
                    let offset = number(&numbers.offsets, 0.0);
                    put(start, form.width + column, if numbers.subtract { -offset } else { offset });
                }
            }
            for term in 0..form.block {
                for column in 0..form.width {
                    let value = if column < columns { numbers.values.get(term, column) } else { 0.0 };
                    let byte = match form.codes {
                        CodeKind::Signed => (value as i8).cast_unsigned(),
                        CodeKind::Unsigned => value as u8,
                        CodeKind::Nibbles => {
                            let code = match &numbers.codes {
                                Some(codes) if column < columns => codes.get(term, column) as usize % TABLE,
                                _ => 0,
                            };
                            if column < columns {
                                table[code] = value;
                            }
                            code as u8
                        }
                    };
                    match form.nibbles() {
                        false => codes.add(term * form.width + column).write(byte),
                        true if term % 2 == 0 => codes.add(term / 2 * form.width + column).write(byte),
                        true => {
                            let at = codes.add(term / 2 * form.width + column);
                            at.write(at.read() | byte << 4);
                        }
                    }
                }
            }
        }
    }

    /// Writes the table of a panel, if it has one.
    ///
    /// # Safety
    /// `panel` must have room for a panel, aligned as panels are.
    pub unsafe fn finish(&self, table: [f32; TABLE], panel: *mut u8) {
        if self.nibbles() {
            // SAFETY: the caller promises the room.
            unsafe { panel.cast::<CodeTable>().write(CodeTable::new(table)) };
        }
    }
}
