//! Tests at every instruction-set level: all orders of codes give the same bits, and products with integers equal
//! products with the numbers that the integers stand for.

use super::*;
use crate::gemm::{
    integers::{IntegerProduct, IntegerRows},
    matrix::Matrix,
    micro::{
        call::{MicroCall, SumFinish},
        coded::CodedCall,
        panel_form::{CodeKind::*, CodeOrder},
    },
};

/// A matrix of codes: a code and its value for each term and column, and a scale and an offset for each block of terms
/// and column.
struct CodedMatrix {
    format: CodeFormat,
    terms: usize,
    columns: usize,
    codes: Vec<f32>,
    values: Vec<f32>,
    scales: Vec<f32>,
    offsets: Vec<f32>,
}

/// Returns a pseudo-random number of 31 bits: SplitMix64 (Steele, Lea and Flood, 2014).
fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (*seed ^ (*seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 33
}

impl CodedMatrix {
    fn new(format: CodeFormat, [terms, columns]: [usize; 2], unit: f32) -> CodedMatrix {
        let mut seed = (terms * 131 + columns) as u64;
        let codes: Vec<f32> = (0..terms * columns)
            .map(|_| match format.codes {
                Nibbles => (random(&mut seed) % 16) as f32,
                Signed => (random(&mut seed) % 256) as f32 - 128.0,
                Unsigned => (random(&mut seed) % 256) as f32,
            })
            .collect();
        let value = |code: &f32| if format.nibbles() { (code * (code - 11.0) - 20.0) * unit } else { *code };
        let values = codes.iter().map(value).collect();
        let numbers = terms / format.block * columns;
        let mut number = || (random(&mut seed) % 1000) as f32 / 1024.0 - 0.4;
        let scales = (0..numbers).map(|_| number()).collect();
        let offsets = (0..numbers).map(|_| number()).collect();
        CodedMatrix { format, terms, columns, codes, values, scales, offsets }
    }

    fn weight(&self, term: usize, column: usize) -> f64 {
        let half = |x: f32| if self.format.half { f16::from_f32(x).to_f64() } else { f64::from(x) };
        let at = term / self.format.block * self.columns + column;
        let offset = if self.format.offset { half(self.offsets[at]) } else { 0.0 };
        f64::from(self.values[term * self.columns + column]) * half(self.scales[at]) + offset
    }

    fn pack(&self, form: PanelForm) -> Vec<CodeTable> {
        let count = self.columns.div_ceil(form.width);
        let lines = count * form.bytes() / align_of::<CodeTable>();
        let mut panels =
            vec![CodeTable::new([0.0; TABLE]); lines * align_of::<CodeTable>() / size_of::<CodeTable>() + 1];
        for panel in 0..count {
            let first = panel * form.width;
            let at = panels.as_mut_ptr().cast::<u8>().wrapping_add(panel * form.bytes());
            // SAFETY: there is room for the panels, and all numbers of a block are valid.
            unsafe {
                let mut writer = PanelWriter::new(form, at, form.width.min(self.columns - first));
                for block in 0..form.blocks {
                    let terms: Vec<isize> = (0..form.format.block).map(|n| (n * self.columns) as isize).collect();
                    let of = |from: &[f32], rows: usize, terms: &[isize]| {
                        let at = from.as_ptr().wrapping_add(rows * self.columns + first);
                        StridedNumbers { at, terms: terms.to_vec(), columns: 1 }
                    };
                    let rows = block * form.format.block;
                    writer.block(
                        block,
                        &BlockNumbers {
                            values: of(&self.values, rows, &terms),
                            codes: form.format.nibbles().then(|| of(&self.codes, rows, &terms)),
                            scales: Some(of(&self.scales, block, &[0])),
                            offsets: form.format.offset.then(|| of(&self.offsets, block, &[0])),
                            subtract: false,
                        },
                    );
                }
                writer.finish();
            }
        }
        panels
    }
}

fn levels() -> impl Iterator<Item = Isa> {
    [Isa::Portable, Isa::Avx2, Isa::Avx512].into_iter().filter(|&isa| isa <= Isa::detect())
}

fn formats(kinds: &[CodeKind]) -> Vec<CodeFormat> {
    let order = CodeOrder::Pairs;
    let of = |codes: CodeKind| {
        [(16, true, false), (32, false, true), (64, true, true)].map(|(block, half, offset)| CodeFormat {
            codes,
            order,
            block,
            half,
            offset,
        })
    };
    kinds.iter().flat_map(|&codes| of(codes)).collect()
}

/// Returns the bits of the sums that each kernel computes, and of the first panel's weights, decoded in several ranges
/// of terms.
fn of_order(matrix: &CodedMatrix, isa: Isa, order: CodeOrder, x: &[f32]) -> Vec<u32> {
    let format = CodeFormat { order, ..matrix.format };
    let kernels = CodedKernels::of(isa, format).expect("4-bit codes have kernels for each order");
    let form = PanelForm { width: kernels.width, blocks: matrix.terms / format.block, format };
    let panels = matrix.pack(form);
    let mut bits = Vec::new();
    for (n, of_rows) in kernels.rows.iter().enumerate() {
        for (count, kernel) in of_rows.iter() {
            let columns = (count * form.width).min(matrix.columns);
            if columns.div_ceil(form.width) < *count {
                continue;
            }
            let mut y = vec![0.0_f32; (n + 1) * columns];
            let sums = MicroCall {
                k: matrix.terms,
                a: x.as_ptr(),
                a_rows: matrix.terms as isize,
                a_columns: 1,
                c: y.as_mut_ptr(),
                c_rows: columns as isize,
                columns,
                ..MicroCall::new(SumFinish::scaled(1.0))
            };
            // SAFETY: the operands and the result have the rows, terms and columns of the call, and the machine has the
            // level.
            unsafe { kernel(&CodedCall { sums, panel: panels.as_ptr().cast(), form }) };
            bits.extend(y.iter().map(|y| y.to_bits()));
        }
    }
    for (from, count) in [(0, matrix.terms), (3, 9), (7, 1), (8, 16), (13, matrix.terms - 13)] {
        let mut rows = vec![0.0_f32; count * form.width];
        let (panel, to) = (panels.as_ptr().cast(), rows.as_mut_ptr());
        // SAFETY: the panel has these terms, and there is room for the rows.
        unsafe { (kernels.decode)(&CodedPart { panel, form, from, count, to, pitch: form.width }) };
        bits.extend(rows.iter().map(|w| w.to_bits()));
    }
    bits
}

#[test]
fn orders_of_codes_give_the_same_bits() {
    for isa in levels() {
        for format in formats(&[Nibbles]) {
            for (columns, unit) in [(1, 1.0), (15, 0.25), (33, 1.0), (64, 0.25), (50, 1.0)] {
                let matrix = CodedMatrix::new(format, [128, columns], unit);
                let x: Vec<f32> = (0..6 * 128).map(|n| (n * 37 % 101) as f32 / 32.0 - 1.5).collect();
                let [pairs, words] =
                    [CodeOrder::Pairs, CodeOrder::Words].map(|order| of_order(&matrix, isa, order, &x));
                assert_eq!(pairs, words, "{isa:?} {format:?}, {columns} columns");
            }
        }
    }
}

/// Multiplies rows of integers with a matrix of codes. Compares each result with a sum in `f64` of the numbers that the
/// integers and the codes stand for.
fn integers_are_right(matrix: &CodedMatrix, isa: Isa, rows: usize, least: i64) {
    let (terms, n) = (matrix.terms, matrix.columns);
    let panels = CodedPanels::<f32>::for_integers(matrix.format, terms, isa).expect("a block is a multiple of a word");
    let packed = matrix.pack(panels.form);
    let (block, blocks, mut seed) = (matrix.format.block, panels.form.blocks, rows as u64);
    let codes: Vec<i8> = (0..rows * terms).map(|_| (random(&mut seed) as i64 % 256 - 128).max(least) as i8).collect();
    let scales: Vec<f32> = (0..rows * blocks).map(|n| (n % 7 + 1) as f32 / 64.0).collect();
    let totals: Vec<i32> = codes.chunks(block).map(|codes| codes.iter().map(|&c| i32::from(c)).sum()).collect();
    let bias: Vec<f32> = (0..n).map(|n| n as f32 / 8.0).collect();
    let mut y = vec![f32::NAN; rows * n];
    let finish = SumFinish { bias: bias.as_ptr(), ..SumFinish::scaled(1.0) };
    let (codes_at, scales_at, totals_at) = (codes.as_ptr(), scales.as_ptr(), totals.as_ptr());
    let product = IntegerProduct {
        panels: &panels,
        at: packed.as_ptr().cast(),
        lhs: IntegerRows { codes: codes_at, scales: scales_at, totals: totals_at, least: *codes.iter().min().unwrap() },
        target: Matrix { at: y.as_mut_ptr().cast(), rows: n as isize, columns: 1 },
        finish,
    };
    // SAFETY: the operands and the target have the rows, terms and columns of the product, and the machine has the
    // level.
    unsafe { product.run(rows, n) };
    for (row, column) in (0..rows).flat_map(|row| (0..n).map(move |column| (row, column))) {
        let (mut want, mut size) = (f64::from(bias[column]), f64::from(bias[column]).abs());
        for term in 0..terms {
            let scale = f64::from(scales[row * blocks + term / block]);
            let x = f64::from(codes[row * terms + term]) * scale;
            want += x * matrix.weight(term, column);
            size += (x * matrix.weight(term, column)).abs() + (x * 512.0 * scale).abs();
        }
        let got = f64::from(y[row * n + column]);
        let what = format!("{isa:?} {:?}, {rows} rows, {n} columns: element {row}, {column}", matrix.format);
        assert!((got - want).abs() <= 1e-6 * size, "{what}: {got} and {want}");
    }
}

#[test]
fn products_with_integers_are_right_at_every_level() {
    for isa in levels() {
        for format in formats(&[Nibbles, Signed, Unsigned]) {
            for (rows, columns) in [(1, 1), (1, 33), (1, 64), (2, 16), (3, 17), (5, 70), (6, 32), (7, 100), (13, 31)] {
                let matrix = CodedMatrix::new(format, [128, columns], 0.25);
                integers_are_right(&matrix, isa, rows, -127);
                let whole = CodedMatrix::new(format, [128, columns], 1.0);
                integers_are_right(&whole, isa, rows, -128);
            }
        }
    }
}
