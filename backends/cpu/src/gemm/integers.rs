//! Products of scaled integers with panels of quantized weights, on one thread: y = Σ over blocks of terms of scale·(Σ
//! integer·weight).

use super::{
    coded::CodedPanels,
    matrix::{Matrix, Stretch},
    micro::{
        call::{MicroCall, SumFinish},
        integer::IntegerCall,
        panel_form::{CodeKind, PanelForm},
    },
    product::ProductElement,
};
use crate::simd::codes::CodeTable;

/// Rows of a left operand: 8-bit integers in row-major order, with a scale and a sum of integers for each block of
/// terms.
#[derive(Clone, Copy, Debug)]
pub struct IntegerRows {
    /// The first integer.
    pub codes: *const i8,
    /// The scale of each block.
    pub scales: *const f32,
    /// The sum of the integers of each block.
    pub totals: *const i32,
    /// The least integer of the operand. Some kernels do not take −128.
    pub least: i8,
}

/// A product of [`IntegerRows`] with panels of codes.
pub struct IntegerProduct<'a, T: 'static> {
    /// The panels' layout, and their kernels.
    pub panels: &'a CodedPanels<T>,
    /// The first panel.
    pub at: *const u8,
    /// The left operand.
    pub lhs: IntegerRows,
    /// The destination of the result.
    pub target: Matrix,
    /// The epilogue of the sums.
    pub finish: SumFinish<T>,
}

impl<T: ProductElement> IntegerProduct<'_, T> {
    /// Computes `rows` rows of `columns` columns.
    ///
    /// # Safety
    /// The operands and the target must be valid for these rows and columns. The target's columns must be contiguous,
    /// and it may not overlap an operand.
    pub unsafe fn run(&self, rows: usize, columns: usize) {
        let Some(kernels) = self.panels.integers() else { return };
        let form = &self.panels.form;
        let (most, mut column) = (kernels.rows.len(), 0);
        while column < columns {
            let left = (columns - column).div_ceil(form.width);
            // Kernels for several rows take one panel. The last kernel for one row also does.
            let Some(&(count, _)) = kernels.rows[most.min(rows) - 1].iter().find(|(count, _)| *count <= left) else {
                return;
            };
            let width = (count * form.width).min(columns - column);
            let parts = rows.div_ceil(most);
            for part in 0..parts {
                let first = part * rows / parts;
                let block = Stretch::new(first, (part + 1) * rows / parts - first);
                let call = self.call(block, Stretch::new(column, width));
                let of_rows = kernels.rows[block.count - 1];
                // SAFETY: passed on from the caller.
                unsafe {
                    if self.lhs.least < kernels.least || !is_whole(call.panel, form, count) {
                        self.slow(&call, block.count);
                        continue;
                    }
                    if let Some((_, kernel)) = of_rows.iter().find(|(panels, _)| *panels == count) {
                        kernel(&call);
                    }
                }
            }
            column += width;
        }
    }

    /// Returns the call for a range of rows and a range of columns, which starts with the first column of a panel.
    fn call(&self, rows: Stretch, columns: Stretch) -> IntegerCall<T> {
        let form = self.panels.form;
        let (pitch, row, column) = (form.blocks * form.format.block, rows.first, columns.first);
        let finish = self.finish;
        let further = |p: *const T, by: isize| if p.is_null() { p } else { p.wrapping_offset(by) };
        let sums = MicroCall {
            c: self.target.row::<T>(row).cast::<T>().wrapping_add(column),
            c_rows: self.target.rows,
            columns: columns.count,
            bias: further(finish.bias, column as isize),
            other: further(finish.other, row as isize * finish.other_rows + column as isize),
            ..MicroCall::new(finish)
        };
        IntegerCall {
            sums,
            panel: self.at.wrapping_add(column / form.width * form.bytes()),
            form,
            codes: self.lhs.codes.wrapping_add(row * pitch),
            pitch,
            scales: self.lhs.scales.wrapping_add(row * form.blocks),
            totals: self.lhs.totals.wrapping_add(row * form.blocks),
        }
    }

    /// Computes sums one by one, for operands that kernels do not take: tables whose numbers are no 8-bit integers, and
    /// rows with an integer below the kernels' minimum.
    ///
    /// # Safety
    /// The requirements of [`IntegerProduct::run`] apply.
    unsafe fn slow(&self, call: &IntegerCall<T>, rows: usize) {
        let (c, form) = (&call.sums, call.form);
        for (row, column) in (0..rows).flat_map(|row| (0..c.columns).map(move |column| (row, column))) {
            let panel = call.panel.wrapping_add(column / form.width * form.bytes());
            // SAFETY: passed on from the caller.
            unsafe {
                let mut sum = T::integer_sum(&IntegerCall { panel, ..*call }, row, column % form.width);
                let to = c.c.offset(row as isize * c.c_rows).add(column);
                if let Some(scale) = c.scale {
                    sum = sum.times(scale);
                }
                if c.add {
                    sum = sum.plus(to.read());
                }
                if !c.bias.is_null() {
                    sum = sum.plus(c.bias.add(column).read());
                }
                if !c.other.is_null() {
                    sum = sum.plus(c.other.offset(row as isize * c.other_rows).add(column).read());
                }
                to.write(c.least.filter(|least| sum < *least).unwrap_or(sum));
            }
        }
    }
}

/// Returns whether `count` panels decode to 8-bit integers: their tables hold such integers, or they have none.
///
/// # Safety
/// There must be `count` panels from `panel` on.
unsafe fn is_whole(panel: *const u8, form: &PanelForm, count: usize) -> bool {
    let table = |n: usize| panel.wrapping_add(n * form.bytes()).cast::<CodeTable>();
    // SAFETY: the caller promises the panels. Panels of 4-bit codes begin with a table.
    form.format.codes != CodeKind::Nibbles || (0..count).all(|n| unsafe { (*table(n)).whole })
}
