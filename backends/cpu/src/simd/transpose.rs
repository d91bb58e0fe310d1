//! Copies of planes whose source is contiguous along one axis and whose target is contiguous along the other. Squares
//! of a plane are transposed in registers.

use super::{
    level::Isa,
    vector::{Lanes, Square, Vector, transpose},
};

/// A plane to copy. Element (r, c) is at r + c·`stride_from` in the source, and at r·`stride_to` + c in the target.
pub struct Plane {
    /// The first element of the target.
    pub to: *mut u8,
    /// The distance of neighbouring rows in the target, in elements.
    pub stride_to: isize,
    /// The first element of the source.
    pub from: *const u8,
    /// The distance of neighbouring columns in the source, in elements.
    pub stride_from: isize,
    /// The number of rows. The source is contiguous along this axis.
    pub rows: usize,
    /// The number of columns. The target is contiguous along this axis.
    pub columns: usize,
}

/// A function that copies a plane. All elements of source and target must be valid.
pub type Transpose = unsafe fn(&Plane);

/// Returns the function for elements of `size` bytes.
pub fn find(size: usize, isa: Isa) -> Transpose {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__m256, __m256d, __m512, __m512d};
        /// Transposes a plane with the instructions of AVX-512.
        ///
        /// # Safety
        /// As [`run`].
        #[target_feature(enable = "avx512f")]
        unsafe fn avx512<V: Vector>(plane: &Plane) {
            // SAFETY: the caller keeps this function's contract.
            unsafe { run::<V>(plane) }
        }
        /// Transposes a plane with the instructions of AVX2.
        ///
        /// # Safety
        /// As [`run`].
        #[target_feature(enable = "avx2,fma")]
        unsafe fn avx2<V: Vector>(plane: &Plane) {
            // SAFETY: the caller keeps this function's contract.
            unsafe { run::<V>(plane) }
        }
        match (size, isa) {
            (4, Isa::Avx512) => return avx512::<__m512>,
            (8, Isa::Avx512) => return avx512::<__m512d>,
            (4, Isa::Avx2) => return avx2::<__m256>,
            (8, Isa::Avx2) => return avx2::<__m256d>,
            _ => {}
        }
    }
    let _ = isa;
    match size {
        1 => one_by_one::<u8>,
        2 => one_by_one::<u16>,
        4 => run::<Lanes<f32, 4>>,
        _ => run::<Lanes<f64, 2>>,
    }
}

/// Transposes a plane in squares with vectors. Elements are only moved, so vectors of floats serve for all types of
/// their size.
///
/// # Safety
/// All elements of source and target must be valid, and the machine must have the instruction set.
#[inline(always)]
unsafe fn run<V: Vector>(p: &Plane) {
    let (to, from) = (p.to.cast::<V::Element>(), p.from.cast::<V::Element>());
    // SAFETY: the caller keeps this function's contract.
    unsafe {
        match (p.columns, p.rows) {
            (2, _) if p.stride_to == 2 => return interleave::<V::Element, 2>(p),
            (3, _) if p.stride_to == 3 => return interleave::<V::Element, 3>(p),
            (4, _) if p.stride_to == 4 => return interleave::<V::Element, 4>(p),
            _ => {}
        }
    }
    for r in (0..p.rows).step_by(V::LANES) {
        let rows = V::LANES.min(p.rows - r);
        for c in (0..p.columns).step_by(V::LANES) {
            let columns = V::LANES.min(p.columns - c);
            let to = to.wrapping_offset(r as isize * p.stride_to + c as isize);
            let from = from.wrapping_offset(c as isize * p.stride_from + r as isize);
            let line = |i: usize| from.wrapping_offset(i as isize * p.stride_from);
            let target = |i: usize| to.wrapping_offset(i as isize * p.stride_to);
            // SAFETY: the caller promises the plane that contains this block.
            unsafe {
                let mut square: Square<V> = [V::zero(); 16];
                if rows == V::LANES && columns == V::LANES {
                    (0..V::LANES).for_each(|i| square[i] = V::load(line(i)));
                    let square = transpose(square);
                    (0..V::LANES).for_each(|i| square[i].store(target(i)));
                } else {
                    (0..columns).for_each(|i| square[i] = V::load_part(line(i), rows));
                    let square = transpose(square);
                    (0..rows).for_each(|i| square[i].store_part(target(i), columns));
                }
            }
        }
    }
}

/// Interleaves a few lines, such as the colours of an image, for which squares would be mostly empty. `COLUMNS` is a
/// constant, so that the compiler vectorises the interleaving.
///
/// # Safety
/// All elements of source and target must be valid. The plane must have `COLUMNS` columns, and neighbouring rows of its
/// target must be contiguous.
#[inline(always)]
unsafe fn interleave<T: Copy, const COLUMNS: usize>(p: &Plane) {
    let from = p.from.cast::<T>();
    // SAFETY: the caller promises the plane.
    unsafe {
        let mut lines = [[].as_slice(); COLUMNS];
        for (c, line) in lines.iter_mut().enumerate() {
            *line = std::slice::from_raw_parts(from.offset(c as isize * p.stride_from), p.rows);
        }
        let target = std::slice::from_raw_parts_mut(p.to.cast::<[T; COLUMNS]>(), p.rows);
        for (r, to) in target.iter_mut().enumerate() {
            for (to, line) in to.iter_mut().zip(&lines) {
                *to = *line.get_unchecked(r);
            }
        }
    }
}

/// Transposes a plane element by element, in squares that fit into the first-level cache.
///
/// # Safety
/// All elements of source and target must be valid.
unsafe fn one_by_one<T: Copy>(p: &Plane) {
    const SQUARE: usize = 32;
    let (to, from) = (p.to.cast::<T>(), p.from.cast::<T>());
    for r in (0..p.rows).step_by(SQUARE) {
        for c in (0..p.columns).step_by(SQUARE) {
            for (r, c) in (r..p.rows.min(r + SQUARE)).flat_map(|r| (c..p.columns.min(c + SQUARE)).map(move |c| (r, c)))
            {
                let (r, c) = (r as isize, c as isize);
                // SAFETY: the caller promises the plane.
                unsafe { to.offset(r * p.stride_to + c).write(from.offset(c * p.stride_from + r).read()) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Copy + Default + PartialEq + std::fmt::Debug>(of: impl Fn(usize) -> T) {
        let levels = [Isa::Portable, Isa::Avx2, Isa::Avx512].into_iter().filter(|&isa| isa <= Isa::detect());
        let extents = [(1, 1), (3, 5), (16, 16), (2, 40), (33, 17), (64, 3), (35, 70)];
        let dense = [(1, 2), (50, 2), (37, 3), (224, 3), (5, 4), (64, 4)].map(|e| (e, 0));
        let cases: Vec<_> = extents.map(|e| (e, 2)).into_iter().chain(dense).collect();
        for (isa, ((rows, columns), gap)) in levels.flat_map(|isa| cases.iter().map(move |&case| (isa, case))) {
            let (stride_to, stride_from) = (columns + gap, rows + 3);
            let from: Vec<T> = (0..columns * stride_from).map(&of).collect();
            let mut to = vec![T::default(); rows * stride_to];
            let plane = Plane {
                to: to.as_mut_ptr().cast(),
                stride_to: stride_to as isize,
                from: from.as_ptr().cast(),
                stride_from: stride_from as isize,
                rows,
                columns,
            };
            // SAFETY: both buffers have room for the plane, and the machine has the level.
            unsafe { find(size_of::<T>(), isa)(&plane) };
            for (at, &x) in to.iter().enumerate() {
                let (r, c) = (at / stride_to, at % stride_to);
                let want = if c < columns { from[c * stride_from + r] } else { T::default() };
                assert_eq!(x, want, "({r}, {c}) of {rows} × {columns}, {isa:?}");
            }
        }
    }

    #[test]
    fn planes_of_every_extent_and_size_are_transposed() {
        check(|i| i as u8);
        check(|i| i as u16);
        check(|i| i as u32);
        check(|i| i as u64);
    }
}
