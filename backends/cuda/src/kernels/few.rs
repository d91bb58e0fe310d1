//! Products of few rows by multiply-adds. They are memory-bound: they take as long as reading the right operand.
//! Operands and epilogue may be any expressions.

use eutectic_backend::axes::FEW;
use eutectic_gpu::launch::Launch;

use super::{
    parts::epilogue,
    product::{LAUNCH, Printed, ProductProblem, ProductWay},
};
use crate::dialect::{BlockShape, entry_with};

const THREADS: usize = 256;
/// Columns per block if neighbouring columns are contiguous, each with the fraction of the read rate that it reaches.
const ABREAST: [(usize, f64); 4] = [(128, 0.8), (64, 0.9), (32, 1.0), (16, 0.7)];
/// Columns per block if neighbouring terms are contiguous, each with its fraction of the read rate. The first list is
/// for 16-bit elements. The second one is for wider elements; a thread reads half as many of them at once.
const ALONG: [[(usize, f64); 4]; 2] =
    [[(16, 0.74), (8, 0.89), (4, 1.0), (2, 0.96)], [(16, 0.8), (8, 1.0), (4, 0.97), (2, 0.85)]];
/// Columns per block for operands that threads decode, each with its fraction of the read and decode rates. Elements of
/// these operands are narrower in memory than in the product. More columns take more registers and leave fewer warps.
/// These fractions, [`ELEMENTS`] and [`DECODING`] were measured on an H200 with 4096x4096 and 14336x4096 elements of i8
/// with a scale per column.
const DECODED: [(usize, f64); 4] = [(16, 0.5), (8, 0.8), (4, 1.0), (2, 0.99)];
/// Elements per second that all processors decode and multiply.
const ELEMENTS: f64 = 2.6e12;
/// Threads of a block that decodes operands. With them, it is 1.15 times as fast as with [`THREADS`].
const DECODING: usize = 128;
/// Bytes per second from memory. The right operand of few rows is usually weights, which no earlier kernel has left in
/// the cache.
const READ: f64 = 4.2e12;
/// The factor on the read rate for 16-bit columns, which have half as many contiguous bytes.
const HALF: f64 = 0.92;
/// The fraction of a column's time that each further row adds. It applies if several columns share the terms of a row.
const ROW: f64 = 0.15;
/// Multiply-adds per second of one processor.
const RATE: f64 = 1.2e11;
/// Seconds per split of the depth, if there are several.
const PART: f64 = 0.12e-6;
/// Additional seconds of a kernel, before its first terms and after its last ones.
const ENDS: f64 = 0.9e-6;
/// Seconds per read of a right operand that is not a strided matrix. Fitted to a depthwise convolution of 1,152
/// channels on an H200.
const GATHERED: f64 = 4e-11;

/// Returns a schedule for each number of columns per block and each number of splits of the depth.
pub fn ways<'a>(problem: &'a ProductProblem<'a>) -> Vec<ProductWay<'a>> {
    let [b, m, n, k] = problem.extents;
    if m > FEW || problem.extents.contains(&0) {
        return Vec::new();
    }
    let Ok(operands) = problem.operands() else { return Vec::new() };
    let [_, right] = &operands;
    let processors = problem.shape.processors;
    let elements = (b * n * k) as f64;
    let gathered = elements * problem.gathered()[1] * GATHERED;
    let bytes = elements * problem.right_width() as f64;
    let is_decoded = problem.right_width() < problem.size();
    let rates = match right.is_along {
        true if is_decoded => DECODED,
        true => ALONG[usize::from(problem.size() > 2)],
        false => ABREAST,
    };
    let threads = if is_decoded && right.is_along { DECODING } else { THREADS };
    let mut ways = Vec::new();
    for (columns, rate) in rates {
        if !right.is_along && columns < right.lanes || right.is_along && m * columns > 64 {
            continue;
        }
        for splits in problem.splits(threads) {
            let blocks = b * n.div_ceil(columns) * splits;
            let full = (blocks as f64 / processors as f64).min(1.0);
            let own = (b * m * n * k) as f64 / (RATE * processors as f64);
            let rows = if right.is_along { 1.0 + ROW * (m - 1) as f64 / columns as f64 } else { 1.0 };
            let rate = if !right.is_along && problem.size() == 2 { HALF * rate } else { rate };
            let decoding = if is_decoded { elements * rows / (rate * ELEMENTS) } else { 0.0 };
            let reading = (bytes * rows / (rate * READ)).max(decoding);
            // A thread computes `deep` terms per iteration, and waits for memory in each of its `turns` iterations.
            let abreast = if right.is_along { 1 } else { columns / right.lanes };
            let deep = if right.is_along { right.lanes } else { terms(m) };
            let turns = (k.div_ceil(splits) as f64 / (threads / abreast * deep) as f64).ceil();
            let busy = reading.max(own) / full + turns * 0.05e-6 + gathered;
            ways.push(ProductWay {
                name: format!("few, {columns} columns in {splits}"),
                seconds: LAUNCH + ENDS + busy + problem.adding(splits) + (splits - 1) as f64 * PART,
                print: Box::new(move || print(problem, threads, columns, splits)),
            });
        }
    }
    ways
}

/// Returns the number of terms that a thread takes at once. More rows leave fewer registers.
fn terms(rows: usize) -> usize {
    if rows > 4 { 4 } else { 8 }
}

fn print(problem: &ProductProblem, threads: usize, columns: usize, splits: usize) -> Printed {
    let operands = problem.operands()?;
    let [b, m, n, _] = problem.extents;
    let sum = problem.sum;
    let (epilogue, lanes) = epilogue(&problem.own, &problem.kernel.slots, columns.min(8), sum, "m")?;
    let head = problem.head(&operands, &epilogue, &[include_str!("../text/few.cu")]);
    let [_, right] = &operands;
    let abreast = if right.is_along { 1 } else { columns / right.lanes };
    let sums = m * if right.is_along { columns } else { abreast.min(32) * right.lanes };
    let terms = terms(m);
    let call = format!("multiply_few<{sum}, {columns}, {terms}, {threads}, {splits}, {lanes}>(slots);");
    let grid = [n.div_ceil(columns), splits, b.min(65535)];
    let text = head.clone() + &entry_with(BlockShape { threads, resident: 1 }, "", "", &call);
    let product = Launch { shared: threads / 32 * sums * problem.bytes, ..Launch::new(text, grid, threads) };
    Ok(problem.launches(product, &head, splits, lanes))
}
