//! Kernels of batch-vectorised contractions. A vector has one sum of products for each lane; lanes are contiguous in
//! memory, such as the channels of a depthwise convolution. There is a vector of sums for each point (such as a pixel).
//! Tables give the offsets of the terms of a sum.

mod block;
mod sums;

use self::block::{Blocks, Strip, sliding, strip};
pub use self::sums::{LaneElement, LaneSums};
use super::level::Isa;

/// The maximal number of points per register block. With two vectors per point, the sums and the fixed operand take all
/// sixteen registers, and multiply-adds read the other operand from memory. Images are often a multiple of seven points
/// wide.
const POINTS: usize = 7;
/// The maximal number of points per register block for runs of terms (see [`LaneSums::run`]), with one vector per point.
/// The sums and the fixed operand of five terms take thirteen of sixteen registers.
const SLIDING: usize = 8;

/// The functions ([`Strip`]) for one kind of fixed operand. Each handles blocks of one size. A function for several
/// sizes would keep all of their addresses in registers, which takes longer than a block of few terms. It would also
/// take seconds to optimise.
#[derive(Clone, Copy)]
struct Strips<T> {
    /// The functions for blocks of one point and eight vectors, of one point and four, and of two points and four.
    few: [Strip<T>; 3],
    /// The functions for blocks of two vectors per point.
    two: HighStrips<T>,
    /// The functions for blocks of one vector per point.
    one: HighStrips<T>,
}

/// The functions for blocks of 1, 2, … points.
#[derive(Clone, Copy)]
struct HighStrips<T> {
    whole: [Strip<T>; POINTS],
    /// The functions for blocks whose last vector is partial. They have one point less, because the mask and the loaded
    /// vector take a register each.
    part: [Strip<T>; POINTS - 1],
}

/// The functions for runs of terms of one length, for blocks of 1, 2, … points and one whole vector. There are none for
/// partial vectors, to save compile time.
type Sliding<T> = [Strip<T>; SLIDING];

impl<T: LaneElement> Strips<T> {
    fn of<const EACH: bool>(isa: Isa) -> Strips<T> {
        Strips {
            few: [
                strip::<T, EACH, 1, 8, true>(isa),
                strip::<T, EACH, 1, 4, true>(isa),
                strip::<T, EACH, 2, 4, true>(isa),
            ],
            two: HighStrips::of::<EACH, 2>(isa),
            one: HighStrips::of::<EACH, 1>(isa),
        }
    }
}

impl<T: LaneElement> HighStrips<T> {
    fn of<const EACH: bool, const VECTORS: usize>(isa: Isa) -> HighStrips<T> {
        HighStrips {
            whole: [
                strip::<T, EACH, 1, VECTORS, true>(isa),
                strip::<T, EACH, 2, VECTORS, true>(isa),
                strip::<T, EACH, 3, VECTORS, true>(isa),
                strip::<T, EACH, 4, VECTORS, true>(isa),
                strip::<T, EACH, 5, VECTORS, true>(isa),
                strip::<T, EACH, 6, VECTORS, true>(isa),
                strip::<T, EACH, 7, VECTORS, true>(isa),
            ],
            part: [
                strip::<T, EACH, 1, VECTORS, false>(isa),
                strip::<T, EACH, 2, VECTORS, false>(isa),
                strip::<T, EACH, 3, VECTORS, false>(isa),
                strip::<T, EACH, 4, VECTORS, false>(isa),
                strip::<T, EACH, 5, VECTORS, false>(isa),
                strip::<T, EACH, 6, VECTORS, false>(isa),
            ],
        }
    }
}

fn of_runs<T: LaneElement, const RUN: usize>(isa: Isa) -> Sliding<T> {
    [
        sliding::<T, RUN, 1>(isa),
        sliding::<T, RUN, 2>(isa),
        sliding::<T, RUN, 3>(isa),
        sliding::<T, RUN, 4>(isa),
        sliding::<T, RUN, 5>(isa),
        sliding::<T, RUN, 6>(isa),
        sliding::<T, RUN, 7>(isa),
        sliding::<T, RUN, 8>(isa),
    ]
}

/// The kernels of [`LaneSums`] at an instruction-set level.
#[derive(Clone, Copy)]
pub struct LaneKernels<T> {
    /// The number of lanes of a vector.
    lanes: usize,
    /// The functions for a fixed operand with one element for all lanes, and for one with an element per lane.
    strips: [Strips<T>; 2],
    /// The functions for runs of three terms, and of five. `None` with AVX-512, for which they were not measured:
    /// blocks of one vector have half as many independent sums to hide the latency of multiply-adds.
    sliding: Option<[Sliding<T>; 2]>,
}

impl<T: LaneElement> LaneKernels<T> {
    /// Returns the kernels of an instruction-set level. The machine must have that level.
    pub fn new(isa: Isa) -> LaneKernels<T> {
        LaneKernels {
            lanes: T::lanes(isa),
            strips: [Strips::of::<false>(isa), Strips::of::<true>(isa)],
            sliding: (isa != Isa::Avx512).then(|| [of_runs::<T, 3>(isa), of_runs::<T, 5>(isa)]),
        }
    }

    /// Computes the sums.
    ///
    /// # Safety
    /// The operands must be valid for all points, lanes and terms. The memory of the sums must not overlap them.
    pub unsafe fn run(&self, call: &LaneSums<T>) {
        let sliding = self.sliding.as_ref().and_then(|[of_three, of_five]| match call.run() {
            3 => Some(of_three),
            5 => Some(of_five),
            _ => None,
        });
        let strips = &self.strips[usize::from(call.fixed_lanes)];
        let mut lane = 0;
        while lane < call.lanes {
            let left = call.lanes - lane;
            if let Some(sliding) = sliding.filter(|_| left >= self.lanes) {
                // SAFETY: the caller keeps this function's contract; the machine has the level.
                unsafe { even(sliding, call, lane, left) };
                lane += self.lanes;
                continue;
            }
            // A block of one or two points needs more vectors per point. With fewer independent sums, each multiply-add
            // would wait for the one before.
            let (vectors, few) = match call.points {
                1 if left >= 8 * self.lanes => (8, Some(strips.few[0])),
                1 if left >= 4 * self.lanes => (4, Some(strips.few[1])),
                2 if left >= 4 * self.lanes => (4, Some(strips.few[2])),
                _ if left > self.lanes => (2, None),
                _ => (1, None),
            };
            let high = if vectors == 2 { &strips.two } else { &strips.one };
            // SAFETY: the caller keeps this function's contract; the machine has the level.
            unsafe {
                match few {
                    Some(strip) => strip(call, Blocks { first: 0, count: 1 }, lane, left),
                    None if left < vectors * self.lanes => even(&high.part, call, lane, left),
                    None => even(&high.whole, call, lane, left),
                }
            }
            lane += vectors * self.lanes;
        }
    }
}

/// Computes all points in blocks whose numbers of points differ by at most one. A block of few points would wait for
/// the latency of its multiply-adds.
///
/// # Safety
/// As [`LaneKernels::run`], for these lanes; the machine must have the strips' level.
unsafe fn even<T>(strips: &[Strip<T>], call: &LaneSums<T>, lane: usize, left: usize) {
    let blocks = call.points.div_ceil(strips.len()).max(1);
    let (high, longer) = (call.points / blocks, call.points % blocks);
    // SAFETY: the caller keeps this function's contract.
    unsafe {
        if longer > 0 {
            strips[high](call, Blocks { first: 0, count: longer }, lane, left);
        }
        if high > 0 {
            strips[high - 1](call, Blocks { first: longer * (high + 1), count: blocks - longer }, lane, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{sums::SLIDES, *};

    fn numbers<T: From<f32>>(count: usize, seed: usize) -> Vec<T> {
        (0..count).map(|i| T::from(((i * 37 + seed * 11) % 29) as f32 - 14.0)).collect()
    }

    /// Compares sums with those of simple loops. The operands are small integers, so sums are exact in any order.
    fn check<
        T: LaneElement + From<f32> + PartialOrd + std::fmt::Debug + std::ops::Mul<Output = T> + std::ops::Add<Output = T>,
    >(
        isa: Isa,
    ) {
        let apart = 230_usize;
        // Terms are separate (a run of 1), or form runs of one length.
        for ((terms, run), (lanes, points, fixed_lanes, each)) in [1_usize, 3, 16, 17, 32, 37, 64, 71, 128, 223]
            .into_iter()
            .flat_map(|l| [1_usize, 2, 5, 6, 7, 13, 22].map(|p| (l, p, p % 2 == 0, l % 2 == 0)))
            .flat_map(|(l, p, f, b)| [(l, p, f, b), (l, p, !f, !b)])
            .flat_map(|shape| [(5, 1), (6, 3), (10, 5)].map(|terms| (terms, shape)))
        {
            let term = |t: usize| if run == 1 { terms - 1 - t } else { t / run * 2 + t % run };
            // Rows of the sums have room for one more point. Rows of the moving operand overlap.
            let (rows, row, moves) = (1 + lanes % 3, (points + 1) * apart, points.div_ceil(2) * apart);
            let moving: Vec<T> = numbers(rows * moves + (points + terms) * apart, 1);
            let fixed: Vec<T> = numbers(terms * apart, 2);
            let added: Vec<T> = numbers(rows * row, 3);
            let bounds = [each.then_some(T::from(-50.0)), fixed_lanes.then_some(T::from(60.0))];
            let mut sums = vec![T::from(77.0); rows * row];
            let moving_terms: Vec<isize> = (0..terms).map(|t| (term(t) * apart) as isize).collect();
            let fixed_terms: Vec<isize> = (0..terms as isize).map(|t| t * apart as isize).collect();
            let call = LaneSums {
                lanes,
                points,
                rows,
                terms,
                moving: moving.as_ptr(),
                moving_terms: moving_terms.as_ptr(),
                moving_points: apart as isize,
                moving_rows: moves as isize,
                fixed: fixed.as_ptr(),
                fixed_terms: fixed_terms.as_ptr(),
                fixed_lanes,
                added: if lanes > 1 { added.as_ptr() } else { std::ptr::null() },
                added_points: if points == 5 { 0 } else { apart as isize },
                added_rows: row as isize,
                added_lanes: each,
                bounds,
                sums: sums.as_mut_ptr(),
                sums_points: apart as isize,
                sums_rows: row as isize,
            };
            assert_eq!(call.run(), if fixed_lanes && points >= SLIDES { run } else { 1 });
            // SAFETY: the operands have room for all points, lanes and terms.
            unsafe { LaneKernels::new(isa).run(&call) };
            let all = (0..rows).flat_map(|r| (0..=points).flat_map(move |p| (0..apart).map(move |l| (r, p, l))));
            for (r, point, lane) in all {
                let product = |t: usize| {
                    moving[r * moves + (point + term(t)) * apart + lane]
                        * fixed[t * apart + if fixed_lanes { lane } else { 0 }]
                };
                let of = r * row + if points == 5 { 0 } else { point * apart } + if each { lane } else { 0 };
                let plus = if lanes > 1 { added[of] } else { T::from(0.0) };
                let sum = || (0..terms).fold(T::from(0.0), |sum, t| sum + product(t)) + plus;
                let least = |x: T| bounds[0].filter(|b| x < *b).unwrap_or(x);
                let most = |x: T| bounds[1].filter(|b| x > *b).unwrap_or(x);
                let want = if lane < lanes && point < points { most(least(sum())) } else { T::from(77.0) };
                let got = sums[r * row + point * apart + lane];
                assert_eq!(got, want, "row {r} point {point} lane {lane} of {rows} x {points} x {lanes}");
            }
        }
    }

    #[test]
    fn sums_are_those_of_loops_at_every_level() {
        for isa in [Isa::Portable, Isa::Avx2, Isa::Avx512].into_iter().filter(|&isa| isa <= Isa::detect()) {
            check::<f32>(isa);
            check::<f64>(isa);
        }
    }

    #[test]
    fn what_is_added_is_added_to_whole_sums() {
        for isa in [Isa::Portable, Isa::Avx2, Isa::Avx512].into_iter().filter(|&isa| isa <= Isa::detect()) {
            let (terms, ones, far, mut sums) = ([0_isize, 1], [1.0_f32; 4], [16_777_216.0_f32; 3], [0.0_f32; 3]);
            let call = LaneSums {
                lanes: 3,
                points: 1,
                rows: 1,
                terms: 2,
                moving: ones.as_ptr(),
                moving_terms: terms.as_ptr(),
                moving_points: 0,
                moving_rows: 0,
                fixed: ones.as_ptr(),
                fixed_terms: terms.as_ptr(),
                fixed_lanes: false,
                added: far.as_ptr(),
                added_points: 0,
                added_rows: 0,
                added_lanes: true,
                bounds: [None; 2],
                sums: sums.as_mut_ptr(),
                sums_points: 0,
                sums_rows: 0,
            };
            // SAFETY: the operands have room for all lanes and terms.
            unsafe { LaneKernels::new(isa).run(&call) };
            assert_eq!(sums, [16_777_218.0; 3], "a sum that starts with the added value loses each term");
        }
    }
}
