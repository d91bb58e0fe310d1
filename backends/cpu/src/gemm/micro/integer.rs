//! Micro-kernels for products of 8-bit integers with panels of codes. Integer sums over a block of terms are exact;
//! scales and offsets are applied once per block.

use super::{
    call::MicroCall,
    coded::{LINE, Numbers, ahead, done},
    panel_form::{CodeKind, PANEL, PanelForm},
};
use crate::simd::{
    codes::{CodeTable, TABLE, WORD},
    integers::WordVector,
    vector::Vector,
};

/// A block of a product whose left operand is integers with a scale for each block of terms.
pub struct IntegerCall<T> {
    /// The result and the epilogue of the sums. The number of terms and the operands in it are not read.
    pub sums: MicroCall<T>,
    /// The first panel. Its codes are in the order `CodeOrder::Words`.
    pub panel: *const u8,
    /// The layout of each panel. Panels follow each other.
    pub form: PanelForm,
    /// The first integer of the left operand.
    pub codes: *const i8,
    /// The row stride of the left operand, in integers.
    pub pitch: usize,
    /// The scales of the blocks of terms of the left operand, row after row.
    pub scales: *const f32,
    /// The sums of the integers of the blocks, in the order of `scales`.
    pub totals: *const i32,
}

/// An unused table for panels of 8-bit codes, which have none of their own.
const NONE: CodeTable = CodeTable { numbers: [0.0; TABLE], integers: [0; TABLE], integral: true, whole: true };

/// Sums all terms in `ROWS`·`VECTORS` registers. `VECTORS` is a multiple of [`PANEL`].
///
/// # Safety
/// The left operand, the panels and the result must be valid for `ROWS` rows and the call's columns. The last panel
/// must have at least one of these columns. Tables must hold 8-bit integers only, and no integer of the left operand
/// may be less than [`WordVector::LEAST`]. The machine must have the vectors' instruction set.
#[inline(always)]
pub unsafe fn integer<
    W: WordVector,
    const NIBBLES: bool,
    const OFFSET: bool,
    const ROWS: usize,
    const VECTORS: usize,
>(
    call: &IntegerCall<f32>,
) {
    let form = &call.form;
    let (lanes, word) = (W::Floats::LANES, if NIBBLES { 2 * WORD } else { WORD });
    let (bytes, row) = (form.bytes(), form.width * WORD);
    // SAFETY: the caller promises the operands, and that the machine has the instruction set.
    unsafe {
        let panel = |j: usize| call.panel.wrapping_add(j / PANEL * bytes);
        let mut tables = [W::table(&NONE); VECTORS];
        if NIBBLES {
            for (j, table) in tables.iter_mut().enumerate() {
                *table = W::table(&*panel(j).cast());
            }
        }
        let mut sums = [[W::Floats::zero(); VECTORS]; ROWS];
        for block in 0..form.blocks {
            let start = form.block(block);
            let ahead = ahead(start, bytes, VECTORS / PANEL);
            let mut dots = [[W::splat(0); VECTORS]; ROWS];
            for (i, dots) in dots.iter_mut().enumerate() {
                let total = call.totals.add(i * form.blocks + block).read();
                *dots = [W::splat((form.format.zero() - W::EXCESS) * total); VECTORS];
            }
            let codes = start + form.numbers();
            let mut x = call.codes.add(block * form.format.block);
            for group in 0..form.format.block / word {
                let mut weights = [[W::splat(0); 2]; VECTORS];
                for (j, weights) in weights.iter_mut().enumerate() {
                    let at = panel(j).add(codes + group * row + j % PANEL * lanes * WORD);
                    if (j % PANEL * lanes * WORD).is_multiple_of(LINE) {
                        W::Floats::prefetch(at.wrapping_add(ahead).cast());
                    }
                    let words = W::load(at);
                    *weights = if NIBBLES { words.nibbles(tables[j]) } else { [words.bytes(); 2] };
                }
                for half in 0..word / WORD {
                    for (i, dots) in dots.iter_mut().enumerate() {
                        let four = x.add(i * call.pitch).cast::<i32>().read_unaligned();
                        for (dot, weights) in dots.iter_mut().zip(&weights) {
                            *dot = dot.dot(weights[half], four);
                        }
                    }
                    x = x.add(WORD);
                }
            }
            let mut numbers = [Numbers { scale: W::Floats::zero(), offset: W::Floats::zero() }; VECTORS];
            for (j, numbers) in numbers.iter_mut().enumerate() {
                *numbers = Numbers::load::<OFFSET>(panel(j).add(start), j % PANEL, form);
            }
            for (i, (sums, dots)) in sums.iter_mut().zip(&dots).enumerate() {
                let scale = call.scales.add(i * form.blocks + block).read();
                let total = scale * call.totals.add(i * form.blocks + block).read() as f32;
                for ((sum, dot), numbers) in sums.iter_mut().zip(dots).zip(&numbers) {
                    *sum = dot.floats().mul(W::Floats::splat(scale)).mul_add(numbers.scale, *sum);
                    if OFFSET {
                        *sum = W::Floats::splat(total).mul_add(numbers.offset, *sum);
                    }
                }
            }
        }
        done::<W::Floats, ROWS, VECTORS>(&call.sums, sums);
    }
}

/// Computes the sum at row `row` and column `column` of the call's first panel, for any table and any integers.
///
/// # Safety
/// The call's panel must have the column, and its left operand the row.
pub unsafe fn one(call: &IntegerCall<f32>, row: usize, column: usize) -> f32 {
    let form = &call.form;
    let format = form.format;
    let mut sum = 0.0;
    // SAFETY: passed on from the caller.
    unsafe {
        for block in 0..form.blocks {
            let at = call.panel.add(form.block(block));
            let number = |n: usize| match format.half {
                true => at.cast::<half::f16>().add(n).read_unaligned().to_f32(),
                false => at.cast::<f32>().add(n).read_unaligned(),
            };
            let codes = at.add(form.numbers());
            let x = call.codes.add(row * call.pitch + block * format.block);
            let mut of_block = 0.0;
            for term in 0..format.block {
                let (byte, bit) = format.place(term, column, form.width);
                let byte = codes.add(byte).read();
                let weight = match format.codes {
                    CodeKind::Nibbles => (*call.panel.cast::<CodeTable>()).numbers[usize::from(byte >> bit & 15)],
                    CodeKind::Signed | CodeKind::Unsigned => (i32::from(byte.cast_signed()) + format.zero()) as f32,
                };
                of_block += weight * f32::from(x.add(term).read());
            }
            let place = row * form.blocks + block;
            let scale = call.scales.add(place).read();
            sum += of_block * scale * number(column);
            if format.offset {
                sum += scale * call.totals.add(place).read() as f32 * number(form.width + column);
            }
        }
    }
    sum
}
