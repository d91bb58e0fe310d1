//! Tests rankings independently of the planner's choices: element types, both orders, rows shorter and longer than the
//! memory of a block, and interleaved rows. The reference is a stable sort.

use std::cmp::Ordering;

use eutectic_backend::{AnchorKernel, Body, Instr, Kernel, Load, Store};
use eutectic_ir::{
    Attrs, DType, Op, Tensor,
    index::{Atom, Index, flatten},
    ops::Reduction,
};

use crate::{
    device::Device,
    kernels::Random,
    suite::{Check, checks},
};

pub(super) const CHECKS: &[(&str, Check)] = checks![
    rows_of_every_type_are_ranked,
    interleaved_rows_are_ranked,
    rows_longer_than_a_block_are_ranked,
    very_long_rows_are_ranked,
    several_rankings_and_reductions_share_a_kernel,
    ranked_rows_are_stored_in_order,
    first_elements_are_stored_in_order,
];

/// Rows to rank.
#[derive(Clone, Copy, Debug)]
struct Rows {
    dtype: DType,
    rows: usize,
    row: usize,
    /// Whether neighbours in a row are `rows` elements from each other.
    is_column: bool,
}

impl Rows {
    /// Returns the index of an element in memory.
    fn at(&self) -> Index {
        let [row, point] = [0, 1].map(Index::coord);
        match self.is_column {
            true => flatten(&[point, row], &[self.row, self.rows]),
            false => flatten(&[row, point], &[self.rows, self.row]),
        }
    }

    fn load(&self) -> Instr {
        Instr::Load(Load { slot: 0, at: self.at(), guards: Vec::new(), dtype: self.dtype })
    }

    /// Returns a kernel of instructions that start with the load of the ranked values. Each store has a new slot of
    /// the given type.
    fn kernel(&self, instrs: Vec<Instr>, stores: Vec<(DType, Store)>) -> Kernel {
        let count = self.rows * self.row;
        let mut slots = vec![(self.dtype, count)];
        slots.extend(stores.iter().map(|(dtype, _)| (*dtype, count)));
        let body = Body { domain: vec![self.rows, self.row], instrs, ..Body::default() };
        Kernel {
            anchor: AnchorKernel::rows(1),
            body,
            stores: stores.into_iter().map(|(_, store)| store).collect(),
            slots,
        }
    }

    /// Returns numbers with many ties, and with the special values of the type.
    fn values(&self, random: &mut Random) -> Vec<f64> {
        let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, f64::NAN];
        let (low, high) = if self.dtype.is_float() { (-9, 9) } else { self.dtype.integers() };
        let number = |random: &mut Random| match random.below(8) {
            0 if self.dtype.is_float() => special[random.below(special.len())],
            // `f64` cannot represent all integers near the ends of the range of 64-bit integers.
            0 => [low.max(-1 << 53), high.min(1 << 53)][random.below(2)] as f64,
            _ => (random.below(19) as f64 - 9.0).max(low as f64),
        };
        (0..self.rows * self.row).map(|_| number(random)).collect()
    }

    /// Returns the elements of a row.
    fn of_row(&self, all: &[f64], row: usize) -> Vec<f64> {
        (0..self.row).map(|point| all[self.place(row, point)]).collect()
    }

    fn place(&self, row: usize, point: usize) -> usize {
        if self.is_column { point * self.rows + row } else { row * self.row + point }
    }
}

fn ranking(arg: usize, most: usize, descending: bool) -> Instr {
    let op = Op::named("ranking").expect("the op exists");
    let attrs: Attrs = [(most as i64).into(), descending.into()].into_iter().collect();
    Instr::Row { op, attrs, args: vec![arg], dtype: DType::I32 }
}

/// Returns the indices of a row's elements in order. NaN is larger than all numbers, and equal elements keep their
/// order.
fn sorted(row: &[f64], descending: bool) -> Vec<usize> {
    let order = |&a: &usize, &b: &usize| -> Ordering {
        let (x, y) = if descending { (row[b], row[a]) } else { (row[a], row[b]) };
        x.is_nan().cmp(&y.is_nan()).then(x.partial_cmp(&y).unwrap_or(Ordering::Equal)).then(a.cmp(&b))
    };
    let mut places: Vec<usize> = (0..row.len()).collect();
    places.sort_by(order);
    places
}

/// Returns the rank of each element: the number of elements that come before it in its row, at most `most`.
fn ranks(rows: &Rows, values: &[f64], most: usize, descending: bool) -> Vec<f64> {
    let mut ranks = vec![0.0; values.len()];
    for row in 0..rows.rows {
        for (rank, point) in sorted(&rows.of_row(values, row), descending).into_iter().enumerate() {
            ranks[rows.place(row, point)] = rank.min(most) as f64;
        }
    }
    ranks
}

/// Runs a kernel, and compares its results.
fn gives(device: &Device, kernel: &Kernel, input: Tensor, wanted: &[Vec<f64>]) {
    let Some(results) = device.run(kernel, &[input]) else { return };
    let results = results.unwrap_or_else(|e| panic!("{e}\n{kernel:#?}"));
    for (n, (got, want)) in results.iter().zip(wanted).enumerate() {
        let differs = |(got, want): (&f64, &f64)| got != want && !(got.is_nan() && want.is_nan());
        if let Some(at) = got.to_f64().iter().zip(want).position(differs) {
            panic!("result {n}, element {at} is {}, not {}: {kernel:#?}", got.to_f64()[at], want[at]);
        }
    }
    device.judge();
}

fn rank(device: &Device, rows: &Rows, most: usize, descending: bool) {
    let values = rows.values(&mut Random((rows.rows * 31 + rows.row) as u64));
    let kernel =
        rows.kernel(vec![rows.load(), ranking(0, most, descending)], vec![(DType::I32, Store::new(1, rows.at(), 1))]);
    let input = Tensor::from_f64(rows.dtype, &[values.len()], values.iter().copied());
    gives(device, &kernel, input, &[ranks(rows, &values, most, descending)]);
}

const TYPES: [DType; 9] =
    [DType::F32, DType::F16, DType::Bf16, DType::F64, DType::I8, DType::U8, DType::I32, DType::U32, DType::I64];

fn rows_of_every_type_are_ranked(device: &Device) {
    for dtype in TYPES {
        for ([rows, row], most) in [([70, 6], 2), ([5, 33], 33), ([2, 700], 700)] {
            for descending in [false, true] {
                rank(device, &Rows { dtype, rows, row, is_column: false }, most, descending);
            }
        }
    }
    for ([rows, row], most) in [
        ([1, 1], 1),
        ([3, 2], 0),
        ([300, 64], 64),
        ([9, 1024], 10),
        ([2, 1736], 1736),
        ([2, 1737], 1737),
        ([0, 4], 4),
        ([3, 0], 0),
    ] {
        rank(device, &Rows { dtype: DType::F32, rows, row, is_column: false }, most, rows % 2 == 0);
    }
}

fn interleaved_rows_are_ranked(device: &Device) {
    for [rows, row] in [[2, 3], [64, 19], [33, 260], [130, 1100], [256, 8], [1000, 2]] {
        for dtype in [DType::F32, DType::F16, DType::I64] {
            rank(device, &Rows { dtype, rows, row, is_column: true }, row, rows % 2 == 0);
        }
    }
}

/// Ranks rows of a power-of-two number of parts, of one element more, or of an odd number of parts. The ranking is
/// full, or limited to the first 50.
fn rows_longer_than_a_block_are_ranked(device: &Device) {
    for (dtype, [rows, row], is_column) in [
        (DType::F32, [1, 8192], false),
        (DType::F32, [3, 6145], false),
        (DType::F16, [2, 7001], false),
        (DType::F32, [3, 9000], true),
        (DType::U8, [1, 20_481], false),
        (DType::I64, [1, 5000], false),
        (DType::F64, [2, 12_289], false),
    ] {
        for (descending, most) in [(false, row), (true, 50)] {
            rank(device, &Rows { dtype, rows, row, is_column }, most, descending);
        }
    }
}

/// Ranks rows that GPUs sort by digits: rows of whole tiles, rows whose last tile has one element, and rows whose
/// elements are stored in order.
fn very_long_rows_are_ranked(device: &Device) {
    for (dtype, [rows, row], is_column, most) in [
        (DType::F32, [2, 528_385], false, 528_385),
        (DType::I32, [1, 532_480], false, 270_000),
        (DType::F16, [2, 530_001], true, 530_001),
    ] {
        for descending in [false, true] {
            rank(device, &Rows { dtype, rows, row, is_column }, most, descending);
        }
    }
    store_first(device, &Rows { dtype: DType::F32, rows: 1, row: 540_000, is_column: false }, 540_000, true);
}

/// Computes in one kernel: ranks, ranks of these ranks, ranks of differences from the largest element, and the sums of
/// the latter.
fn several_rankings_and_reductions_share_a_kernel(device: &Device) {
    for [rows, row] in [[7, 40], [2, 900], [2, 7000]] {
        let rows = Rows { dtype: DType::F32, rows, row, is_column: false };
        let values: Vec<f64> =
            rows.values(&mut Random(7)).into_iter().map(|x| if x.is_finite() { x } else { 3.0 }).collect();
        let map = |name: &str, args: &[usize], dtype| Instr::Map {
            op: Op::named(name).expect("the op exists"),
            attrs: Attrs::default(),
            args: args.to_vec(),
            dtype,
        };
        let instrs = vec![
            rows.load(),
            ranking(0, row, false),
            ranking(1, row, true),
            Instr::reduce(Reduction::Max, 0, DType::F32),
            map("sub", &[0, 3], DType::F32),
            ranking(4, 5, true),
            Instr::reduce(Reduction::Sum, 5, DType::I32),
        ];
        let of_row = Index::coord(0);
        let stores = vec![
            (DType::I32, Store::new(1, rows.at(), 1)),
            (DType::I32, Store::new(2, rows.at(), 2)),
            (DType::I32, Store::new(3, rows.at(), 5)),
            (DType::I32, Store::new(4, of_row, 6)),
        ];
        let up = ranks(&rows, &values, row, false);
        let of_up = ranks(&rows, &up, row, true);
        let first = ranks(&rows, &values, 5, true);
        let sums = (0..rows.rows).map(|n| rows.of_row(&first, n).iter().sum()).collect();
        let mut kernel = rows.kernel(instrs, stores);
        kernel.slots[4].1 = rows.rows;
        let input = Tensor::from_f64(rows.dtype, &[values.len()], values.iter().copied());
        gives(device, &kernel, input, &[up, of_up, first, sums]);
    }
}

/// Stores all elements and their indices in the order of ranks.
fn ranked_rows_are_stored_in_order(device: &Device) {
    for (rows, row) in [(5, 33), (2, 1500), (1, 6200)] {
        for descending in [false, true] {
            store_first(device, &Rows { dtype: DType::F32, rows, row, is_column: false }, row, descending);
        }
    }
}

/// Stores the first elements and their indices. Rows are many and short, fit into the memory of a block, or are longer.
/// One case stores all elements but one.
fn first_elements_are_stored_in_order(device: &Device) {
    for (dtype, [rows, row], most) in [
        (DType::F32, [300, 64], 2),
        (DType::F32, [9, 129], 8),
        (DType::F16, [5, 777], 50),
        (DType::I64, [3, 1024], 1),
        (DType::F32, [2, 1000], 999),
        (DType::U8, [3, 5000], 300),
        (DType::F32, [2, 12_345], 40),
        (DType::F64, [1, 40_000], 100),
        (DType::Bf16, [1, 130_000], 64),
    ] {
        for is_column in [false, true] {
            store_first(device, &Rows { dtype, rows, row, is_column }, most, rows % 2 == 0);
        }
    }
}

/// Stores the first `most` elements of rows and their indices in order, and compares them with those of a sort.
fn store_first(device: &Device, rows: &Rows, most: usize, descending: bool) {
    let values = rows.values(&mut Random(11));
    let place = Instr::Coordinate { index: Index::coord(1), dtype: DType::I32 };
    let instrs = vec![rows.load(), ranking(0, most, descending), place];
    let rank = Index::atom(Atom::Value(1));
    let to = flatten(&[Index::coord(0), rank.clone()], &[rows.rows, most]);
    let store =
        |slot, value| Store { guards: vec![(rank.clone(), 0..most as i64)], ..Store::new(slot, to.clone(), value) };
    let mut kernel = rows.kernel(instrs, vec![(rows.dtype, store(1, 0)), (DType::I32, store(2, 2))]);
    kernel.slots[1..].iter_mut().for_each(|slot| slot.1 = rows.rows * most);
    let input = Tensor::from_f64(rows.dtype, &[values.len()], values.iter().copied());
    let (mut in_order, mut places) = (Vec::new(), Vec::new());
    for n in 0..rows.rows {
        let of_row = rows.of_row(&values, n);
        let order = sorted(&of_row, descending);
        in_order.extend(order[..most].iter().map(|&point| of_row[point]));
        places.extend(order[..most].iter().map(|&point| point as f64));
    }
    gives(device, &kernel, input, &[in_order, places]);
}
