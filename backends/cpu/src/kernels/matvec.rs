//! Vector times matrix, bound by the bandwidth at which the matrix is read.

use super::{gemm::Extents, operand::Matrix};
use crate::simd::{
    Isa, Level, per_level,
    reduce::{Sum, reduce_row},
};

/// Columns that are accumulated side by side while rows stream by: they stay in the first-level cache.
const COLUMNS: usize = 1024;
/// Rows of the matrix that are read at once.
const ROWS: usize = 8;

/// Computes the product if one side is a vector and layouts suit; else `false`.
///
/// # Safety
/// As [`super::gemm::Product::product`].
pub unsafe fn try_product(
    isa: Isa,
    e: Extents,
    target: Matrix,
    [lhs, rhs]: [Matrix; 2],
    scale: f32,
    add: bool,
) -> bool {
    if add || (e.m != 1 && e.n != 1) {
        return false;
    }
    // A column vector on the right is a row vector on the left of the transposed product.
    let transposed = |m: Matrix| Matrix { rows: m.columns, columns: m.rows, ..m };
    let (n, vector, matrix, target) =
        if e.m == 1 { (e.n, lhs, rhs, target) } else { (e.m, transposed(rhs), transposed(lhs), transposed(target)) };
    let call = Call { n, k: e.k, x: vector.at.cast(), w: matrix.at.cast(), out: target.at.cast(), scale, line: 0 };
    if vector.columns != 1 || target.columns != 1 {
        return false;
    }
    // SAFETY: passed on from the caller; the layouts were just checked.
    unsafe {
        if matrix.columns == 1 {
            rows(isa)(&Call { line: matrix.rows, ..call });
        } else if matrix.rows == 1 {
            dots(isa)(&Call { line: matrix.columns, ..call });
        } else {
            return false;
        }
    }
    true
}

pub struct Call {
    n: usize,
    k: usize,
    x: *const f32,
    w: *const f32,
    out: *mut f32,
    scale: f32,
    /// From a dense line of the matrix to the next.
    line: isize,
}

per_level! {
    /// The matrix's rows are dense: sums of scaled rows.
    rows<>(call: &Call) = rows_run
}
per_level! {
    /// The matrix's columns are dense: dot products.
    dots<>(call: &Call) = dots_run
}

#[inline(always)]
unsafe fn rows_run<L: Level>(c: &Call) {
    let mut from = 0;
    while from < c.n {
        let width = COLUMNS.min(c.n - from);
        // SAFETY: the caller promises the extents; the output overlaps no operand.
        unsafe {
            let out = std::slice::from_raw_parts_mut(c.out.add(from), width);
            out.fill(0.0);
            let row = |l: usize| std::slice::from_raw_parts(c.w.offset(l as isize * c.line).add(from), width);
            let mut l = 0;
            while l + ROWS <= c.k {
                let x: [f32; ROWS] = std::array::from_fn(|r| *c.x.add(l + r) * c.scale);
                let w: [&[f32]; ROWS] = std::array::from_fn(|r| row(l + r));
                for j in 0..width {
                    let mut sum = out[j];
                    for r in 0..ROWS {
                        sum = L::fma(x[r], w[r][j], sum);
                    }
                    out[j] = sum;
                }
                l += ROWS;
            }
            for l in l..c.k {
                let x = *c.x.add(l) * c.scale;
                for (o, &w) in out.iter_mut().zip(row(l)) {
                    *o = L::fma(x, w, *o);
                }
            }
        }
        from += width;
    }
}

#[inline(always)]
unsafe fn dots_run<L: Level>(c: &Call) {
    const LANES: usize = 64;
    // SAFETY: as above.
    unsafe {
        let x = std::slice::from_raw_parts(c.x, c.k);
        for j in 0..c.n {
            let w = std::slice::from_raw_parts(c.w.offset(j as isize * c.line), c.k);
            let mut acc = [0.0_f32; LANES];
            let (xs, ws) = (x.chunks_exact(LANES), w.chunks_exact(LANES));
            let tail: f32 = xs.remainder().iter().zip(ws.remainder()).map(|(x, w)| x * w).sum();
            for (x, w) in xs.zip(ws) {
                for i in 0..LANES {
                    acc[i] = L::fma(x[i], w[i], acc[i]);
                }
            }
            c.out.add(j).write((reduce_row::<f32, Sum>(&acc) as f32 + tail) * c.scale);
        }
    }
}
