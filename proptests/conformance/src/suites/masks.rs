//! Tests attention with masked keys and values that are NaN, infinite or huge. No kernel of a backend may read a hidden
//! key.

use eutectic_backend::{AnchorKernel, AttentionAxes, Body, EmptyRow, Instr, ScoreForm, ValueId};
use eutectic_ir::{DType, Tensor, index::Index};

use crate::suite::{Check, checks};
use crate::{
    device::Device,
    kernels::build::{Build, body, constant, map, push, row_major},
};

pub(super) const CHECKS: &[(&str, Check)] = checks![
    hidden_keys_are_not_read,
    causal_masks_hide_values,
    stored_masks_hide_values,
    the_least_number_replaces_a_score,
    guarded_rows_add_the_bias,
    guarded_rows_are_zeros_where_a_hidden_score_is_nan,
];

/// The extents of an attention: batch, queries, keys, depth, columns.
type Extents = [usize; 5];

/// Few or many queries, one block of keys or several, odd extents, and extents of matrix units.
const CASES: [Extents; 8] = [
    [2, 1, 70, 64, 64],
    [1, 3, 300, 32, 32],
    [3, 40, 40, 64, 64],
    [1, 130, 200, 64, 64],
    [2, 65, 600, 16, 48],
    [1, 5, 9, 3, 7],
    [1, 1, 1, 1, 1],
    [1, 300, 1100, 32, 32],
];

/// The element types of operands; `true` if operands are rounded to `tf32`.
const TYPES: [(DType, bool); 5] =
    [(DType::F32, false), (DType::F64, false), (DType::F16, false), (DType::Bf16, false), (DType::F32, true)];

const GARBAGE: [f64; 4] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 6e4];

/// The garbage in a key and in its value.
#[derive(Clone, Copy)]
struct Garbage {
    /// The number in all elements of the key, if it is garbage.
    key: Option<f64>,
    /// The number in all elements of the value, if it is garbage.
    value: Option<f64>,
}

const NONE: Garbage = Garbage { key: None, value: None };

struct Case {
    extents: Extents,
    dtype: DType,
    is_tf32: bool,
    empty: EmptyRow,
}

impl Case {
    /// Returns an operand of small numbers. `garbage` gives the number that replaces the elements of a row, if any.
    fn operand(&self, build: &mut Build, dims: [usize; 3], garbage: impl Fn(usize, usize) -> Option<f64>) -> Body {
        let [rows, width] = [dims[1], dims[2]];
        let number = |at: usize, small: f64| garbage(at / width / rows, at / width % rows).unwrap_or(small);
        let small: Vec<f64> = (0..dims.iter().product()).map(|_| build.random.below(5) as f64 / 2.0 - 1.0).collect();
        let all: Vec<f64> = small.into_iter().enumerate().map(|(at, small)| number(at, small)).collect();
        let slot = build.tensor(Tensor::from_f64(self.dtype, &[all.len()], all));
        let mut b = body(&dims);
        let x = build.load(&mut b, slot, row_major(&dims));
        let result = if self.is_tf32 { map(&mut b, "tf32", &[x], self.dtype) } else { x };
        b.results = vec![result];
        b
    }

    /// Checks the case under a bias over `[b s t]`.
    fn check(
        &self,
        device: &Device,
        seed: usize,
        garbage: impl Fn(usize, usize) -> Garbage,
        bias: impl Fn(&mut Build, &mut Body) -> ValueId,
    ) {
        let [b, s, t, d, e] = self.extents;
        let mut build = Build::new(seed as u64);
        let query = self.operand(&mut build, [b, s, d], |_, _| None);
        let key = self.operand(&mut build, [b, t, d], |b, t| garbage(b, t).key);
        let value = self.operand(&mut build, [b, t, e], |b, t| garbage(b, t).value);
        let mut of_bias = body(&[b, s, t]);
        let result = bias(&mut build, &mut of_bias);
        of_bias.results = vec![result];
        let mut own = body(&[b, s, e]);
        let y = push(&mut own, Instr::Anchor { dtype: self.dtype });
        build.store(&[b, s, e], self.dtype, y);
        let (axes, scale, softcap) = (AttentionAxes::matrices(1), 0.25, [0.0, 0.0, 5.0][seed % 3]);
        let (bias, empty) = (Some(of_bias), self.empty);
        let anchor = AnchorKernel::attention([query, key, value], bias, axes, ScoreForm { scale, softcap, empty });
        let (kernel, inputs) = build.kernel(anchor, own);
        let loose = if self.dtype.size() == 2 || self.is_tf32 { 2f64.powi(16) } else { 400.0 };
        device.check(&kernel, &inputs, loose);
    }
}

/// Runs a check on each case in each type. The cases use the rules for empty rows in turn.
fn each(rows: &[EmptyRow], check: impl Fn(usize, Case)) {
    let mut number = 0;
    for extents in CASES {
        for (dtype, is_tf32) in TYPES {
            check(number, Case { extents, dtype, is_tf32, empty: rows[number % rows.len()] });
            number += 1;
        }
    }
}

const SELECTING: [EmptyRow; 2] = [EmptyRow::Nan, EmptyRow::Zeros];

/// Returns a load that reads a number for each key.
fn of_keys(build: &mut Build, b: &mut Body, dtype: DType, keys: usize, number: impl Fn(usize) -> f64) -> ValueId {
    let slot = build.tensor(Tensor::from_f64(dtype, &[keys], (0..keys).map(number).collect::<Vec<_>>()));
    build.load(b, slot, Index::coord(2))
}

/// Returns whether a key is masked: every fifth one is, and so are the last ones, as for padding.
fn is_left_out(key: usize, keys: usize) -> bool {
    key % 5 == 1 || key + 3 > keys
}

fn hidden_keys_are_not_read(device: &Device) {
    each(&SELECTING, |seed, case| {
        let keys = case.extents[2];
        let garbage = |b: usize, t: usize| match is_left_out(t, keys) {
            true => Garbage { key: Some(GARBAGE[(t + b) % 4]), value: Some(GARBAGE[(t + seed) % 4]) },
            false => NONE,
        };
        let of = |t: usize| if is_left_out(t, keys) { f64::NEG_INFINITY } else { (t % 3) as f64 / 2.0 };
        case.check(device, seed, garbage, |build, b| of_keys(build, b, case.dtype, keys, of));
    });
}

/// Adds the causal mask where(key ≤ query + (keys − queries), 0, −∞).
fn causal(case: &Case, b: &mut Body) -> ValueId {
    let [_, s, t, ..] = case.extents;
    let (int, dtype) = (DType::I64, case.dtype);
    let query = push(b, Instr::Coordinate { index: Index::coord(1), dtype: int });
    let key = push(b, Instr::Coordinate { index: Index::coord(2), dtype: int });
    let ahead = constant(b, t as f64 - s as f64, int);
    let last = map(b, "add", &[query, ahead], int);
    let seen = map(b, "le", &[key, last], DType::Bool);
    let (zero, hidden) = (constant(b, 0.0, dtype), constant(b, f64::NEG_INFINITY, dtype));
    map(b, "where", &[seen, zero, hidden], dtype)
}

fn causal_masks_hide_values(device: &Device) {
    each(&SELECTING, |seed, case| {
        let keys = case.extents[2];
        // The last queries see these keys, and their results are NaN.
        let garbage = |b: usize, t: usize| match (t + 2 >= keys, (seed + b) % 2) {
            (true, 0) => Garbage { key: Some(f64::NAN), value: Some(f64::NAN) },
            (true, _) => Garbage { key: None, value: Some(f64::NAN) },
            _ => NONE,
        };
        case.check(device, seed, garbage, |_, b| causal(&case, b));
    });
}

fn stored_masks_hide_values(device: &Device) {
    each(&SELECTING, |seed, case| {
        let [_, queries, keys, ..] = case.extents;
        // The first query sees no key. Every third query sees the first key.
        let sees =
            |s: usize, t: usize| s > 0 && if t == 0 { s % 3 == 1 } else { !(s + t).is_multiple_of(4) && t + 2 < keys };
        let garbage = |_: usize, t: usize| match t {
            0 => Garbage { key: None, value: Some(f64::NAN) },
            _ if t + 2 >= keys => Garbage { key: Some(f64::INFINITY), value: Some(f64::INFINITY) },
            _ => NONE,
        };
        case.check(device, seed, garbage, |build, b| {
            let all = (0..queries * keys).map(|at| if sees(at / keys, at % keys) { 0.5 } else { f64::NEG_INFINITY });
            let slot = build.tensor(Tensor::from_f64(case.dtype, &[queries * keys], all.collect::<Vec<_>>()));
            build.load(b, slot, Index::coord(1).times(keys as i64).plus(&Index::coord(2)))
        });
    });
}

fn the_least_number_replaces_a_score(device: &Device) {
    each(&SELECTING, |seed, case| {
        let keys = case.extents[2];
        let low = match case.dtype {
            DType::F64 => f64::MIN,
            DType::F16 => f64::NEG_INFINITY,
            _ => -3e38,
        };
        // With two batches, every key has the least number, so that rows are uniform.
        let is_low = |t: usize| case.extents[0] == 2 || is_left_out(t, keys);
        let garbage = |b: usize, t: usize| match is_low(t) {
            true => Garbage { key: Some(GARBAGE[(t + b) % 4]), value: None },
            false => NONE,
        };
        let of = |t: usize| if is_low(t) { low } else { 0.25 };
        case.check(device, seed, garbage, |build, b| of_keys(build, b, case.dtype, keys, of));
    });
}

fn guarded_rows_add_the_bias(device: &Device) {
    each(&[EmptyRow::Guarded], |seed, case| {
        let keys = case.extents[2];
        // One key of the first batch has scores that are NaN or ±∞. Because the bias is added, a causal mask does not
        // hide them.
        let garbage = |b: usize, t: usize| match (b, t == keys / 2) {
            (0, true) => Garbage { key: Some([f64::NAN, f64::INFINITY][seed % 2]), value: None },
            _ => NONE,
        };
        case.check(device, seed, garbage, |_, b| causal(&case, b));
    });
}

fn guarded_rows_are_zeros_where_a_hidden_score_is_nan(device: &Device) {
    each(&[EmptyRow::Guarded], |seed, case| {
        let [batch, _, keys, ..] = case.extents;
        let garbage = |b: usize, t: usize| match b + 1 == batch && t + 1 == keys && seed % 2 == 0 {
            true => Garbage { key: Some(f64::NAN), value: None },
            false => NONE,
        };
        let of = |t: usize| if is_left_out(t, keys) { f64::NEG_INFINITY } else { 0.0 };
        case.check(device, seed, garbage, |build, b| of_keys(build, b, case.dtype, keys, of));
    });
}
