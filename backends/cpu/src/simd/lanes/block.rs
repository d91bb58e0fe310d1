//! Register blocks of batch-vectorised contractions, with their epilogue.

use super::sums::{LaneElement, LaneSums};
use crate::simd::{
    level::{Level, per_level},
    vector::Vector,
};

/// Consecutive blocks of points in a row: the first point, and the number of blocks.
#[derive(Clone, Copy)]
pub struct Blocks {
    pub first: usize,
    pub count: usize,
}

/// A function that computes blocks of points in each row, for as many vectors as a block has. The last two arguments
/// are the first lane, and the number of lanes from there to the end.
pub type Strip<T> = unsafe fn(&LaneSums<T>, Blocks, usize, usize);

/// The position of a block: its row, first point and first lane, and the number of remaining lanes.
#[derive(Clone, Copy)]
struct BlockPlace {
    row: usize,
    point: usize,
    lane: usize,
    left: usize,
}

impl BlockPlace {
    /// Returns the address of the block's first element in an operand whose lanes are contiguous. `rows` and `points`
    /// are the operand's strides.
    #[inline(always)]
    fn in_lines<T>(self, from: *const T, rows: isize, points: isize) -> *const T {
        from.wrapping_offset(self.row as isize * rows + self.point as isize * points).wrapping_add(self.lane)
    }
}

per_level! {
    /// Returns the function for blocks of `COUNT` points and `VECTORS` vectors per point. If `WHOLE` is not set, the
    /// last vector is partial. If `EACH` is set, the fixed operand has an element for each lane, otherwise one for all
    /// lanes.
    strip<T: LaneElement; EACH: bool, COUNT: usize, VECTORS: usize, WHOLE: bool>(call: &LaneSums<T>, blocks: Blocks, lane: usize, left: usize) = over_rows
}
per_level! {
    /// Returns the function for blocks of `COUNT` points and one whole vector per point, whose terms form runs of
    /// length `RUN` (see [`LaneSums::run`]).
    sliding<T: LaneElement; RUN: usize, COUNT: usize>(call: &LaneSums<T>, blocks: Blocks, lane: usize, left: usize) = slide_over_rows
}

/// The body of [`strip`].
///
/// # Safety
/// As [`super::LaneKernels::run`], for these points and lanes; the machine must have the instruction set.
#[inline(always)]
unsafe fn over_rows<
    T: LaneElement,
    L: Level,
    const EACH: bool,
    const COUNT: usize,
    const VECTORS: usize,
    const WHOLE: bool,
>(
    call: &LaneSums<T>,
    blocks: Blocks,
    lane: usize,
    left: usize,
) {
    for row in 0..call.rows {
        for n in 0..blocks.count {
            let at = BlockPlace { row, point: blocks.first + n * COUNT, lane, left };
            // SAFETY: the caller keeps this function's contract.
            unsafe { block::<T::Vector<L>, EACH, COUNT, VECTORS, WHOLE>(call, at) };
        }
    }
}

/// The body of [`sliding`].
///
/// # Safety
/// As [`over_rows`], and terms must form runs of length `RUN`.
#[inline(always)]
unsafe fn slide_over_rows<T: LaneElement, L: Level, const RUN: usize, const COUNT: usize>(
    call: &LaneSums<T>,
    blocks: Blocks,
    lane: usize,
    left: usize,
) {
    for row in 0..call.rows {
        for n in 0..blocks.count {
            let at = BlockPlace { row, point: blocks.first + n * COUNT, lane, left };
            // SAFETY: the caller keeps this function's contract.
            unsafe { slide::<T::Vector<L>, RUN, COUNT>(call, at) };
        }
    }
}

/// Loads consecutive vectors. If `WHOLE` is not set, the last one is partial and has `part` elements.
///
/// # Safety
/// The elements must be valid, and the machine must have the instruction set.
#[inline(always)]
unsafe fn vectors<V: Vector, const VECTORS: usize, const WHOLE: bool>(
    at: *const V::Element,
    part: usize,
) -> [V; VECTORS] {
    // SAFETY: the caller keeps this function's contract. A closure instead of the loop would be a function that is
    // compiled without the instruction set.
    unsafe {
        let mut all = [V::zero(); VECTORS];
        for (j, v) in all.iter_mut().enumerate() {
            let at = at.wrapping_add(j * V::LANES);
            *v = if WHOLE || j + 1 < VECTORS { V::load(at) } else { V::load_part(at, part) };
        }
        all
    }
}

/// Computes a block of sums. If `WHOLE` is not set, the last vector of a point is partial.
///
/// # Safety
/// As [`super::LaneKernels::run`], for these points and lanes; the machine must have the instruction set.
#[inline(always)]
unsafe fn block<V: Vector, const EACH: bool, const COUNT: usize, const VECTORS: usize, const WHOLE: bool>(
    call: &LaneSums<V::Element>,
    at: BlockPlace,
) {
    let part = at.left - (VECTORS - 1) * V::LANES;
    // SAFETY: the caller promises the operands, and that the machine has the instruction set.
    unsafe {
        let mut sums = [[V::zero(); VECTORS]; COUNT];
        let moving = at.in_lines(call.moving, call.moving_rows, call.moving_points);
        let fixed = call.fixed.wrapping_add(if EACH { at.lane } else { 0 });
        for term in 0..call.terms {
            let moving = moving.wrapping_offset(call.moving_terms.add(term).read());
            let fixed = fixed.wrapping_offset(call.fixed_terms.add(term).read());
            let fixed =
                if EACH { vectors::<V, VECTORS, WHOLE>(fixed, part) } else { [V::splat(fixed.read()); VECTORS] };
            for (i, sums) in sums.iter_mut().enumerate() {
                let moving = moving.wrapping_offset(i as isize * call.moving_points);
                let moving = vectors::<V, VECTORS, WHOLE>(moving, part);
                for j in 0..VECTORS {
                    sums[j] = moving[j].mul_add(fixed[j], sums[j]);
                }
            }
        }
        finish::<V, COUNT, VECTORS, WHOLE>(call, at, sums);
    }
}
/// Computes a block of sums like [`block`], for one whole vector per point and runs of terms (see [`LaneSums::run`]).
/// In a run, a point's element of one term is the element of the next term of the point before it, so both share one
/// load. The order of the terms of a sum stays.
///
/// # Safety
/// As [`block`], and terms must form runs of length `RUN`.
#[inline(always)]
unsafe fn slide<V: Vector, const RUN: usize, const COUNT: usize>(call: &LaneSums<V::Element>, at: BlockPlace) {
    // SAFETY: the caller promises the operands, and that the machine has the instruction set.
    unsafe {
        let mut sums = [[V::zero(); 1]; COUNT];
        let moving = at.in_lines(call.moving, call.moving_rows, call.moving_points);
        let fixed = call.fixed.wrapping_add(at.lane);
        for first in (0..call.terms).step_by(RUN) {
            let moving = moving.wrapping_offset(call.moving_terms.add(first).read());
            let mut of_terms = [V::zero(); RUN];
            for (n, of_term) in of_terms.iter_mut().enumerate() {
                let fixed = fixed.wrapping_offset(call.fixed_terms.add(first + n).read());
                *of_term = V::load(fixed);
            }
            for n in 0..COUNT + RUN - 1 {
                let x = V::load(moving.wrapping_offset(n as isize * call.moving_points));
                for (term, &of_term) in of_terms.iter().enumerate() {
                    if term <= n && n - term < COUNT {
                        sums[n - term][0] = x.mul_add(of_term, sums[n - term][0]);
                    }
                }
            }
        }
        finish::<V, COUNT, 1, true>(call, at, sums);
    }
}

/// Applies the epilogue (an addition and bounds) to the sums of a block, and stores them.
///
/// # Safety
/// As [`block`].
#[inline(always)]
unsafe fn finish<V: Vector, const COUNT: usize, const VECTORS: usize, const WHOLE: bool>(
    call: &LaneSums<V::Element>,
    at: BlockPlace,
    sums: [[V; VECTORS]; COUNT],
) {
    let part = at.left - (VECTORS - 1) * V::LANES;
    let mut sums = sums;
    // SAFETY: the caller promises the operands, and that the machine has the instruction set.
    unsafe {
        if !call.added.is_null() {
            // With one loop for both cases, the compiler would not keep the sums in registers.
            if call.added_lanes {
                let added = at.in_lines(call.added, call.added_rows, call.added_points);
                for (i, sums) in sums.iter_mut().enumerate() {
                    let at = added.wrapping_offset(i as isize * call.added_points);
                    let added = vectors::<V, VECTORS, WHOLE>(at, part);
                    for j in 0..VECTORS {
                        sums[j] = sums[j].add(added[j]);
                    }
                }
            } else {
                let added = BlockPlace { lane: 0, ..at }.in_lines(call.added, call.added_rows, call.added_points);
                for (i, sums) in sums.iter_mut().enumerate() {
                    let added = V::splat(added.wrapping_offset(i as isize * call.added_points).read());
                    for sum in sums {
                        *sum = sum.add(added);
                    }
                }
            }
        }
        if let Some(least) = call.bounds[0] {
            let least = V::splat(least);
            for sums in &mut sums {
                for sum in sums {
                    *sum = sum.at_least(least);
                }
            }
        }
        if let Some(most) = call.bounds[1] {
            let most = V::splat(most);
            for sums in &mut sums {
                for sum in sums {
                    *sum = sum.at_most(most);
                }
            }
        }
        let to = at.in_lines(call.sums.cast_const(), call.sums_rows, call.sums_points).cast_mut();
        for (i, sums) in sums.iter().enumerate() {
            let to = to.wrapping_offset(i as isize * call.sums_points);
            for (j, &sum) in sums.iter().enumerate() {
                let to = to.wrapping_add(j * V::LANES);
                if WHOLE || j + 1 < VECTORS { sum.store(to) } else { sum.store_part(to, part) }
            }
        }
    }
}
