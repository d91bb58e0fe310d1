//! Vector times a matrix whose rows are dense, bound by the bandwidth at which the matrix is read.

use super::{gemm::Extents, operand::Matrix};
use crate::simd::{Isa, Level, per_level};

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
    if vector.columns != 1 || target.columns != 1 || matrix.columns != 1 {
        return false;
    }
    // SAFETY: passed on from the caller; the layouts were just checked.
    unsafe {
        rows(isa)(&Call { line: matrix.rows, ..call });
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
