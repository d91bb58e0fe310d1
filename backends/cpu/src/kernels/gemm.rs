//! One matrix product on one thread, for each type that contractions accumulate in.

use gemm::Parallelism;

use super::{matvec, operand::Matrix};
use crate::simd::{Isa, arithmetic::Number};

/// A type that contractions accumulate in.
pub trait Product: Number + Send + Sync {
    /// target = scale·(lhs·rhs), or target + that.
    ///
    /// # Safety
    /// The matrices must be valid for these extents; the target overlaps neither operand.
    unsafe fn product(isa: Isa, extents: Extents, target: Matrix, operands: [Matrix; 2], scale: Self, add: bool);
}

/// Rows and columns of the target, and the length of the sums.
#[derive(Clone, Copy, Debug)]
pub struct Extents {
    /// Rows.
    pub m: usize,
    /// Columns.
    pub n: usize,
    /// Summed over.
    pub k: usize,
}

macro_rules! through_gemm {
    ($t:ty, $vector:expr) => {
        impl Product for $t {
            unsafe fn product(isa: Isa, e: Extents, target: Matrix, operands: [Matrix; 2], scale: $t, add: bool) {
                let [lhs, rhs] = operands;
                if e.k == 0 {
                    // SAFETY: passed on from the caller.
                    return unsafe { plain::<$t>(e, target, operands, scale, add) };
                }
                // SAFETY: passed on from the caller.
                unsafe {
                    if $vector(isa, e, target, operands, scale, add) {
                        return;
                    }
                    gemm::gemm(
                        e.m,
                        e.n,
                        e.k,
                        target.at.cast::<$t>(),
                        target.columns,
                        target.rows,
                        add,
                        lhs.at.cast::<$t>(),
                        lhs.columns,
                        lhs.rows,
                        rhs.at.cast::<$t>(),
                        rhs.columns,
                        rhs.rows,
                        if add { 1.0 } else { 0.0 },
                        scale,
                        false,
                        false,
                        false,
                        Parallelism::None,
                    );
                }
            }
        }
    };
}
through_gemm!(f32, matvec::try_product);
through_gemm!(f64, |_, _, _, _, _, _| false);

macro_rules! through_loop {
    ($($t:ty),*) => {$(
        impl Product for $t {
            unsafe fn product(_: Isa, e: Extents, target: Matrix, operands: [Matrix; 2], scale: $t, add: bool) {
                // SAFETY: passed on from the caller.
                unsafe { plain(e, target, operands, scale, add) }
            }
        }
    )*};
}
through_loop!(i8, u8, i32, i64, u32);

unsafe fn plain<T: Number>(e: Extents, target: Matrix, [lhs, rhs]: [Matrix; 2], scale: T, add: bool) {
    // SAFETY: passed on from the caller.
    unsafe {
        for i in 0..e.m as isize {
            for j in 0..e.n as isize {
                let mut sum = T::default();
                for l in 0..e.k as isize {
                    let a = lhs.at.cast::<T>().offset(i * lhs.rows + l * lhs.columns).read();
                    let b = rhs.at.cast::<T>().offset(l * rhs.rows + j * rhs.columns).read();
                    sum = sum.plus(a.times(b));
                }
                let to = target.at.cast::<T>().offset(i * target.rows + j * target.columns);
                let sum = sum.times(scale);
                to.write(if add { to.read().plus(sum) } else { sum });
            }
        }
    }
}
