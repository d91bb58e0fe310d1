//! Computes one product on one thread, and packs right operands before it.

use super::{
    blocked::Blocked,
    blocking::{Blocking, FEW_ROWS},
    left::Left,
    matrix::{Matrix, PartSize, Stretch},
    micro::{
        call::SumFinish,
        dots::{DotKernel, Dots},
    },
    product::{Extents, ProductElement},
    right::Right,
};
use crate::simd::arithmetic::Arithmetic;

impl<T: ProductElement> Blocking<T> {
    /// Packs panel `number` of a right operand of `whole.rows` terms and `whole.columns` columns. The packed matrix is
    /// at `to`.
    ///
    /// # Safety
    /// The operand must be valid for these extents, and `to` must have room for [`Blocking::packed`] bytes. The
    /// requirements of [`Blocking::run`] on scratch memory apply.
    pub unsafe fn pack(&self, rhs: Right, whole: PartSize, number: usize, to: *mut u8, scratch: *mut u8) {
        let Some(micro) = &self.micro else { return };
        let PartSize { rows: k, columns: n } = whole;
        let (width, terms) = (micro.panel(), self.terms(k));
        let (size, scratch) = (width * self.stored(), scratch.cast::<T>());
        let first = number * width;
        debug_assert!(first < n, "panel {number} of {n} columns");
        for from in (0..k).step_by(terms) {
            let k_part = terms.min(k - from);
            let to = to.wrapping_add(number * k * size + from * size);
            let place = if self.kept.is_some() { scratch } else { to.cast() };
            // SAFETY: passed on from the caller; scratch memory has room for a panel of this number of terms.
            unsafe {
                let columns = Stretch::new(first, width.min(n - first));
                rhs.pack(self, Stretch::new(from, k_part), columns, place);
                if let Some(kept) = &self.kept {
                    kept.narrow(place, to, k_part * width);
                }
            }
        }
    }

    /// Computes products of a few vectors with a matrix, as dot products of contiguous vectors. Returns `None`, and
    /// computes nothing, if the vectors or the matrix are not contiguous along the terms.
    ///
    /// # Safety
    /// The requirements of [`Blocking::run`] apply.
    unsafe fn vector(
        &self,
        e: Extents,
        target: Matrix,
        (lhs, right): (Left, Right),
        finish: SumFinish<T>,
        scratch: *mut T,
    ) -> Option<()> {
        let (Left::Strided(lhs), Some(micro)) = (lhs, &self.micro) else { return None };
        let SumFinish { scale, add, .. } = finish;
        let (rhs, kernels) = match right {
            Right::Strided(rhs) if self.vectors || self.dots => (rhs, micro.dots),
            Right::Short(rhs) => (rhs, self.short.as_ref()?.dots()),
            _ => return None,
        };
        let few = if self.dots && !kernels.is_empty() { FEW_ROWS } else { kernels.len().min(1) };
        let is_short = matches!(right, Right::Short(_));
        let turned = |m: Matrix| Matrix { rows: m.columns, columns: m.rows, ..m };
        let (e, target, lhs, rhs) = match e {
            Extents { m, .. } if m <= few && lhs.columns == 1 && rhs.rows == 1 => (e, target, lhs, rhs),
            // Kernels take elements of the narrower type on the right side only.
            _ if is_short => return None,
            Extents { n: 1, m, k } if lhs.columns == 1 && rhs.rows == 1 => {
                (Extents { m: 1, n: m, k }, turned(target), turned(rhs), turned(lhs))
            }
            // A column on the right is a row on the left of the transposed product.
            Extents { n: 1, m, k } if lhs.rows == 1 && target.rows == 1 => {
                let [target, lhs, rhs] = [target, rhs, lhs].map(turned);
                let finish = SumFinish { bias: std::ptr::null(), ..finish };
                let (e, rhs) = (Extents { m: 1, n: m, k }, Right::Strided(rhs));
                // SAFETY: passed on from the caller.
                unsafe { Blocked { blocking: self, micro, e, target, lhs: lhs.into(), rhs, finish, scratch }.run() };
                return Some(());
            }
            _ => return None,
        };
        // SAFETY: passed on from the caller.
        unsafe { products(e, target, [lhs, rhs], (scale, add), kernels) };
        Some(())
    }

    /// Computes target = scale·(lhs·rhs) + bias + other, bounded below by `least`. If `finish.add`, the old contents of
    /// the target are added as well. The terms of a sum are added in one order, whatever tile of a larger product this
    /// is.
    ///
    /// # Safety
    /// The matrices must be valid for these extents. The target overlaps neither operand, and its columns are
    /// contiguous unless there is one. Scratch memory must be [`Blocking::scratch`] bytes, aligned to [`ALIGN`].
    pub unsafe fn run(
        &self,
        e: Extents,
        target: Matrix,
        (lhs, rhs): (Left, Right),
        finish: SumFinish<T>,
        scratch: *mut u8,
    ) {
        debug_assert!(
            target.columns == 1 || e.n <= 1 || e.m <= 1 || self.micro.is_none(),
            "columns of the target are not contiguous"
        );
        // SAFETY: passed on from the caller.
        unsafe {
            if self.vector(e, target, (lhs, rhs), finish, scratch.cast()).is_some() {
                return add_bias(e, target, finish.bias);
            }
            match (&self.micro, lhs, rhs) {
                (Some(micro), ..) => {
                    Blocked { blocking: self, micro, e, target, lhs, rhs, finish, scratch: scratch.cast() }.run();
                }
                (None, Left::Strided(lhs), Right::Strided(rhs)) => {
                    plain(e, target, [lhs, rhs], finish);
                    add_bias(e, target, finish.bias);
                }
                (None, ..) => unreachable!("without micro-kernels, operands are strided"),
            }
        }
    }
}

/// Computes the dot products of the rows of a matrix with the columns of another matrix. Both are contiguous along the
/// terms.
///
/// # Safety
/// The matrices must be valid for these extents, and the machine must have the kernels' level.
unsafe fn products<T: ProductElement>(
    e: Extents,
    target: Matrix,
    [lhs, rhs]: [Matrix; 2],
    (scale, add): (T, bool),
    kernels: &[DotKernel<T>],
) {
    let most = kernels.len().max(1);
    for first in (0..e.m).step_by(most) {
        let rows = most.min(e.m - first);
        let dots = Dots {
            n: e.n,
            k: e.k,
            x: lhs.row::<T>(first).cast::<T>().cast_const(),
            x_rows: lhs.rows,
            w: rhs.at.cast::<T>().cast_const(),
            line: rhs.columns,
            out: target.row::<T>(first).cast(),
            out_rows: target.rows,
            step: target.columns,
            scale,
            add,
        };
        // SAFETY: passed on from the caller.
        unsafe { kernels[rows - 1](&dots) };
    }
}

/// Computes a product by plain loops, for types and machines without micro-kernels.
///
/// # Safety
/// The matrices must be valid for these extents.
unsafe fn plain<T: Arithmetic>(e: Extents, target: Matrix, [lhs, rhs]: [Matrix; 2], finish: SumFinish<T>) {
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
                let sum = sum.times(finish.scale);
                to.write(if finish.add { to.read().plus(sum) } else { sum });
            }
        }
    }
}

/// Adds a row to each row of the target, unless `bias` is null.
///
/// # Safety
/// The target must be valid for these extents, and `bias`, unless it is null, for as many columns.
unsafe fn add_bias<T: Arithmetic>(e: Extents, target: Matrix, bias: *const T) {
    if bias.is_null() {
        return;
    }
    for i in 0..e.m as isize {
        for j in 0..e.n {
            // SAFETY: passed on from the caller of `Blocking::run`.
            unsafe {
                let to = target.at.cast::<T>().offset(i * target.rows + j as isize * target.columns);
                to.write(to.read().plus(*bias.add(j)));
            }
        }
    }
}
