//! Tests products with quantized weights: codes, with a scale and perhaps an offset for each block of terms. The
//! weights are parameters, so that backends may pack them once, or inputs. The reference is the evaluation point by
//! point.

use eutectic_backend::{AnchorKernel, Body, ContractionAxes, Instr, Load, ValueId};
use eutectic_ir::{
    DType, Tensor,
    index::{Atom, Index, flatten},
};

use crate::{
    device::Device,
    kernels::build::{Build, body, constant, map, map_with, push},
    suite::{Check, checks},
};

pub(super) const CHECKS: &[(&str, Check)] = checks![
    few_rows_of_every_kind_of_codes,
    more_rows_than_are_decoded_in_registers,
    every_number_of_columns_up_to_three_panels,
    blocks_of_every_length,
    matrices_of_a_batch,
    numbers_that_are_not_finite,
    integers_of_every_row_count_and_kind_of_codes,
    integers_in_blocks_of_every_length,
    the_least_integer_of_eight_bits,
];

/// A storage format of weights.
#[derive(Clone, Copy, Debug)]
enum Codes {
    /// Codes of 4 bits, two in a byte: (code − 8)·scale. The low bits of bytes hold the first half of a block.
    Nibbles,
    /// Codes of 4 bits: table[code]·scale.
    Table,
    /// Codes of 4 bits without a scale: table[code].
    Unscaled,
    /// Signed bytes: code·scale.
    Signed,
    /// Unsigned bytes: code·scale.
    Unsigned,
    /// Codes of 6 bits, one in a byte: (code − 32)·scale.
    SixBits,
}
use Codes::*;
const CODES: [Codes; 6] = [Nibbles, Table, Unscaled, Signed, Unsigned, SixBits];

/// The ops that apply an offset to scaled codes, if there is one.
const OFFSETS: [Option<&str>; 3] = [None, Some("add"), Some("sub")];

/// The extents of a product with quantized weights. A column has `blocks` blocks of `block` terms.
#[derive(Clone, Copy, Debug)]
struct CodedProduct {
    batch: usize,
    rows: usize,
    columns: usize,
    blocks: usize,
    block: usize,
}

impl CodedProduct {
    /// Returns the domain of the weights: batch, blocks, halves of a block, terms of a half, columns.
    fn domain(self) -> [usize; 5] {
        [self.batch, self.blocks, 2, self.block / 2, self.columns]
    }

    /// Adds a slot of random bytes. They are the `below` least values of the type.
    fn bytes(build: &mut Build, dtype: DType, count: usize, below: usize) -> usize {
        let least = if dtype == DType::I8 { -128 } else { 0 };
        let bytes: Vec<i64> = (0..count).map(|_| build.random.below(below) as i64 + least).collect();
        build.tensor(Tensor::from_i64(dtype, &[count], bytes))
    }

    /// Adds a load of a number for each column of each block. It is stored as `f16` if `half`.
    fn numbers(self, build: &mut Build, b: &mut Body, half: bool) -> ValueId {
        let dtype = if half { DType::F16 } else { DType::F32 };
        let dims = [self.batch, self.columns, self.blocks];
        let slot = build.input(dtype, dims.iter().product());
        let at = flatten(&[Index::coord(0), Index::coord(4), Index::coord(1)], &dims);
        let number = build.load(b, slot, at);
        if half { map_with(b, "cast", &[DType::F32.into()], &[number], DType::F32) } else { number }
    }

    /// Returns the index of a weight's byte in a tensor `[batch columns blocks count]`.
    fn byte(self, within: Index, count: usize) -> Index {
        let at = [Index::coord(0), Index::coord(4), Index::coord(1), within];
        flatten(&at, &[self.batch, self.columns, self.blocks, count])
    }

    /// Adds the conversion of codes to `f32`, without scales.
    fn values(self, build: &mut Build, b: &mut Body, codes: Codes) -> ValueId {
        let CodedProduct { batch, columns, blocks, block, .. } = self;
        let all = batch * columns * blocks * block;
        let to = |b: &mut Body, x, dtype: DType| map_with(b, "cast", &[dtype.into()], &[x], dtype);
        let whole = Index::coord(2).times(block as i64 / 2).plus(&Index::coord(3));
        match codes {
            Nibbles | Table | Unscaled => {
                let slot = CodedProduct::bytes(build, DType::U8, all / 2, 256);
                let byte = build.load(b, slot, self.byte(Index::coord(3), block / 2));
                let shift = push(b, Instr::Coordinate { index: Index::coord(2).times(4), dtype: DType::U8 });
                let fifteen = constant(b, 15.0, DType::U8);
                let shifted = map(b, "shift-right", &[byte, shift], DType::U8);
                let code = map(b, "bit-and", &[shifted, fifteen], DType::U8);
                if let Nibbles = codes {
                    let (code, eight) = (to(b, code, DType::F32), constant(b, 8.0, DType::F32));
                    return map(b, "sub", &[code, eight], DType::F32);
                }
                let table = build.input(DType::F32, 16);
                let code = to(b, code, DType::I32);
                let (from_end, check, guards) = (false, 0, Vec::new());
                let within =
                    Instr::Within { arg: code, extent: 16_usize.into(), from_end, check, guards, dtype: DType::I32 };
                let at = Index::atom(Atom::Value(push(b, within)));
                push(b, Instr::Load(Load { slot: table, at, guards: Vec::new(), dtype: DType::F32 }))
            }
            Signed | Unsigned => {
                let dtype = if let Signed = codes { DType::I8 } else { DType::U8 };
                let slot = CodedProduct::bytes(build, dtype, all, 256);
                let byte = build.load(b, slot, self.byte(whole, block));
                to(b, byte, DType::F32)
            }
            SixBits => {
                let slot = CodedProduct::bytes(build, DType::U8, all, 256);
                let byte = build.load(b, slot, self.byte(whole, block));
                let most = constant(b, 63.0, DType::U8);
                let code = map(b, "bit-and", &[byte, most], DType::U8);
                let (code, middle) = (to(b, code, DType::I8), constant(b, 32.0, DType::I8));
                let code = map(b, "sub", &[code, middle], DType::I8);
                to(b, code, DType::F32)
            }
        }
    }

    /// Returns a left operand of 8-bit integers from `least` on, with a scale for each `group` blocks of a row.
    fn integers(self, build: &mut Build, group: usize, least: i64) -> Body {
        let CodedProduct { batch, rows, blocks, block, .. } = self;
        let mut lhs = body(&[batch, rows, blocks / group, group, 2, block / 2]);
        let dims = [batch, rows, blocks / group, group * block];
        let count = dims.iter().product();
        let codes: Vec<i64> = (0..count).map(|_| (build.random.below(256) as i64 - 128).max(least)).collect();
        let slot = build.tensor(Tensor::from_i64(DType::I8, &[count], codes));
        let term = Index::coord(3).times(block as i64).plus(&Index::coord(4).times(block as i64 / 2));
        let at = [Index::coord(0), Index::coord(1), Index::coord(2), term.plus(&Index::coord(5))];
        let code = build.load(&mut lhs, slot, flatten(&at, &dims));
        let code = map_with(&mut lhs, "cast", &[DType::F32.into()], &[code], DType::F32);
        let slot = build.input(DType::F32, batch * rows * (blocks / group));
        let scale = build.load(&mut lhs, slot, flatten(&at[..3], &dims[..3]));
        lhs.results = vec![map(&mut lhs, "mul", &[code, scale], DType::F32)];
        lhs
    }

    /// Returns the right operand: weights from codes, scales and offsets.
    fn weights(self, build: &mut Build, codes: Codes, offset: Option<&str>, half: bool) -> Body {
        let mut rhs = body(&self.domain());
        let mut weight = self.values(build, &mut rhs, codes);
        if !matches!(codes, Unscaled) {
            let scale = self.numbers(build, &mut rhs, half);
            weight = map(&mut rhs, "mul", &[scale, weight], DType::F32);
        }
        if let Some(op) = offset {
            let offset = self.numbers(build, &mut rhs, half);
            weight = map(&mut rhs, op, &[weight, offset], DType::F32);
        }
        rhs.results = vec![weight];
        rhs
    }

    /// Compares a product with its evaluation, within `bound`. First all tensors are inputs, and then the last `fields`
    /// of them are parameters.
    fn compare(self, device: &Device, mut build: Build, [lhs, rhs]: [Body; 2], fields: usize, bound: f64) {
        let dims = [self.batch, self.rows, self.columns];
        let mut b = body(&dims);
        let product = push(&mut b, Instr::Anchor { dtype: DType::F32 });
        build.store(&dims, DType::F32, product);
        let axes = ContractionAxes { batch: 1, rows: 1, columns: 1, depth: lhs.domain.len() - 2 };
        let (kernel, inputs) = build.kernel(AnchorKernel::contraction(lhs, rhs, axes), b);
        for params in [0, fields] {
            device.check_with(&kernel, &inputs, params, bound);
        }
    }

    /// Checks a product with a left operand of [`CodedProduct::integers`].
    fn check_integers(
        self,
        device: &Device,
        codes: Codes,
        (offset, half): (Option<&str>, bool),
        group: usize,
        least: i64,
    ) {
        let CodedProduct { batch, rows, columns, blocks, block } = self;
        let mut build = Build::new((rows * 37 + columns * 5 + blocks) as u64);
        let lhs = self.integers(&mut build, group, least);
        let before = build.inputs.len();
        let rhs = self.weights(&mut build, codes, offset, half);
        // The blocks of the right operand are grouped like those of the left one.
        let mut cut = body(&[batch, blocks / group, group, 2, block / 2, columns]);
        let block_number = Index::coord(1).times(group as i64).plus(&Index::coord(2));
        let to = [Index::coord(0), block_number, Index::coord(3), Index::coord(4), Index::coord(5)];
        cut.instrs = rhs.instrs;
        for map in cut.instrs.iter_mut().flat_map(Instr::maps_mut) {
            *map = map.substitute(&to, &|value| Index::atom(Atom::Value(value)), &cut.domain);
        }
        cut.results = rhs.results;
        let fields = build.inputs.len() - before;
        // This bounds the rounding of the sums: weights are up to 512 and factors up to 256.
        self.compare(device, build, [lhs, cut], fields, 30_000.0 * (blocks * block) as f64);
    }

    /// Checks a product with a left operand of `f32`.
    fn check(self, device: &Device, codes: Codes, offset: Option<&str>, half: bool) {
        let CodedProduct { batch, rows, columns, blocks, block } = self;
        let mut build = Build::new((rows * 31 + columns * 7 + blocks) as u64);
        let mut lhs = body(&[batch, rows, blocks, 2, block / 2]);
        lhs.results = vec![build.dense(&mut lhs, DType::F32)];
        let before = build.inputs.len();
        let rhs = self.weights(&mut build, codes, offset, half);
        let fields = build.inputs.len() - before;
        // This bounds the rounding of the sums: weights are up to 512 and factors up to 2.
        self.compare(device, build, [lhs, rhs], fields, 200.0 * (blocks * block) as f64);
    }
}

fn few_rows_of_every_kind_of_codes(device: &Device) {
    for codes in CODES {
        for (o, offset) in OFFSETS.into_iter().enumerate() {
            for rows in 1..=9 {
                let of = CodedProduct { batch: 1, rows, columns: 70, blocks: 3, block: 32 };
                of.check(device, codes, offset, (rows + o) % 2 == 0);
            }
        }
    }
}

fn more_rows_than_are_decoded_in_registers(device: &Device) {
    for (c, codes) in CODES.into_iter().enumerate() {
        for (rows, columns, blocks) in [(14, 40, 2), (15, 33, 5), (33, 129, 9), (100, 65, 21), (70, 500, 4)] {
            CodedProduct { batch: 1, rows, columns, blocks, block: 32 }.check(
                device,
                codes,
                OFFSETS[c % 3],
                c % 2 == 0,
            );
        }
    }
}

fn every_number_of_columns_up_to_three_panels(device: &Device) {
    for columns in 1..=97 {
        let (codes, offset) = (CODES[columns % 6], OFFSETS[columns / 6 % 3]);
        let rows = [1, 2, 4, 20][columns % 4];
        CodedProduct { batch: 1, rows, columns, blocks: 2, block: 16 }.check(device, codes, offset, columns % 5 == 0);
    }
}

/// Tests blocks from very short to very long ones. Backends may be unable to pack codes of such blocks with their
/// scales.
fn blocks_of_every_length(device: &Device) {
    for block in [2, 4, 8, 10, 14, 64, 256, 258, 320, 514, 1024] {
        for rows in [1, 3, 40] {
            let of = CodedProduct { batch: 1, rows, columns: 45, blocks: 2, block };
            of.check(device, CODES[(block + rows) % 6], OFFSETS[rows % 3], block % 4 == 0);
        }
        CodedProduct { batch: 1, rows: 2, columns: 45, blocks: 1, block }.check(device, CODES[block % 6], None, true);
    }
}

fn integers_of_every_row_count_and_kind_of_codes(device: &Device) {
    for codes in CODES.into_iter().filter(|codes| !matches!(codes, Unscaled)) {
        for (o, offset) in OFFSETS.into_iter().enumerate() {
            for rows in [1, 2, 3, 5, 6, 7, 13, 40] {
                let of = CodedProduct { batch: 1 + o, rows, columns: 33 + 31 * o, blocks: 4, block: 32 };
                of.check_integers(device, codes, (offset, (rows + o) % 2 == 0), 1 + rows % 2, -127);
            }
        }
    }
}

fn integers_in_blocks_of_every_length(device: &Device) {
    for (n, block) in [8, 12, 16, 24, 32, 64, 256, 10].into_iter().enumerate() {
        for columns in [2, 16, 31, 32, 33, 64, 97] {
            let of = CodedProduct { batch: 1, rows: 1 + columns % 8, columns, blocks: 2, block };
            let codes = [Nibbles, Signed, Unsigned, SixBits, Table][(n + columns) % 5];
            of.check_integers(device, codes, (OFFSETS[n % 3], n % 2 == 0), 2, -127);
        }
    }
}

/// Tests −128 in the left operand. Kernels that multiply magnitudes in 8 bits cannot represent its magnitude.
fn the_least_integer_of_eight_bits(device: &Device) {
    for codes in [Nibbles, Table, Signed, Unsigned] {
        for rows in [1, 4] {
            let of = CodedProduct { batch: 1, rows, columns: 40, blocks: 3, block: 32 };
            of.check_integers(device, codes, (Some("add"), true), 1, -128);
        }
    }
}

fn matrices_of_a_batch(device: &Device) {
    for (c, codes) in CODES.into_iter().enumerate() {
        for rows in [1, 5, 19] {
            let of = CodedProduct { batch: 3, rows, columns: 50, blocks: 2, block: 32 };
            of.check(device, codes, OFFSETS[(c + rows) % 3], c % 2 == 0);
        }
    }
}

/// Tests a scale that is infinite, NaN or −0. It must not change other columns.
fn numbers_that_are_not_finite(device: &Device) {
    for (rows, half) in [(1, true), (3, false), (20, true)] {
        for number in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -0.0] {
            let of = CodedProduct { batch: 1, rows, columns: 5, blocks: 2, block: 8 };
            let mut build = Build::new(rows as u64);
            let mut lhs = body(&[1, rows, 2, 2, 4]);
            lhs.results = vec![build.dense(&mut lhs, DType::F32)];
            let mut rhs = body(&of.domain());
            let value = of.values(&mut build, &mut rhs, Signed);
            let scale = of.numbers(&mut build, &mut rhs, half);
            let scales = build.inputs.last_mut().expect("the scales were added last");
            let mut numbers = scales.to_f64();
            numbers[3] = number;
            *scales = Tensor::from_f64(scales.dtype(), &[numbers.len()], numbers);
            rhs.results = vec![map(&mut rhs, "mul", &[scale, value], DType::F32)];
            let mut b = body(&[1, rows, 5]);
            let product = push(&mut b, Instr::Anchor { dtype: DType::F32 });
            build.store(&[1, rows, 5], DType::F32, product);
            let axes = ContractionAxes { batch: 1, rows: 1, columns: 1, depth: 3 };
            let (kernel, inputs) = build.kernel(AnchorKernel::contraction(lhs, rhs, axes), b);
            for params in [0, 2] {
                device.check_with(&kernel, &inputs, params, 4000.0);
            }
        }
    }
}
