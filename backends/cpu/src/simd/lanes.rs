//! Sums of products side by side: a vector of sums for each of some points, whose terms lie wherever tables of offsets say. What many small
//! products that lie side by side in memory are computed by, as of a depthwise convolution: its channels are the lanes.

#[cfg(target_arch = "x86_64")]
use super::level::{Avx2, Avx512};
use super::{
    level::{Baseline, Isa, Level, per_level},
    vector::Vector,
};

/// Sums over `terms` of products of two operands, for `points` points of `lanes` lanes each. Offsets are in elements.
pub struct LaneSums<T> {
    /// How many sums lie side by side.
    pub lanes: usize,
    /// How many points there are.
    pub points: usize,
    /// How many products each sum has.
    pub terms: usize,
    /// The operand that has an element for each lane, side by side: at the first point.
    pub moving: *const T,
    /// Where its terms begin, from there on.
    pub moving_terms: *const isize,
    /// From a point to the next.
    pub moving_points: isize,
    /// The operand that is the same for all points.
    pub fixed: *const T,
    /// Where its terms begin, from there on.
    pub fixed_terms: *const isize,
    /// Whether it has an element for each lane, side by side, or one for all of them.
    pub fixed_lanes: bool,
    /// If not null: what is added to the sums at last, so that their terms are rounded at their own magnitude.
    pub added: *const T,
    /// From a point to the next.
    pub added_points: isize,
    /// Whether it has an element for each lane, side by side, or one for all of them.
    pub added_lanes: bool,
    /// The least and the most that a result is.
    pub bounds: [Option<T>; 2],
    /// Where the sums of the first point go.
    pub sums: *mut T,
    /// From a point to the next.
    pub sums_points: isize,
}

/// Points of a block: with two vectors of each, its sums and what is read fit into sixteen registers.
const POINTS: usize = 6;

/// Sums of all points for some vectors, from a lane on; so many lanes are left there.
type Strip<T> = unsafe fn(&LaneSums<T>, usize, usize);

/// The strips for an operand that is fixed in one way. Each is a function: together they would be one so large that
/// optimizing it takes seconds.
#[derive(Clone, Copy)]
struct Strips<T> {
    /// Eight vectors of one point, four of it, and four of two.
    few: [Strip<T>; 3],
    /// Two vectors, of which the last is whole, or read in part.
    two: [Strip<T>; 2],
    /// The same of one vector.
    one: [Strip<T>; 2],
}

impl<T: LaneElement> Strips<T> {
    fn of<const EACH: bool>(isa: Isa) -> Strips<T> {
        Strips {
            few: [
                strip::<T, EACH, 1, 8, true>(isa),
                strip::<T, EACH, 1, 4, true>(isa),
                strip::<T, EACH, 2, 4, true>(isa),
            ],
            two: [strip::<T, EACH, POINTS, 2, true>(isa), strip::<T, EACH, POINTS, 2, false>(isa)],
            one: [strip::<T, EACH, POINTS, 1, true>(isa), strip::<T, EACH, POINTS, 1, false>(isa)],
        }
    }
}

/// What computes [`LaneSums`] at an instruction-set level.
#[derive(Clone, Copy)]
pub struct LaneKernels<T> {
    /// Lanes of a vector.
    lanes: usize,
    /// For an operand that has one element for all lanes, and for one that has an element for each.
    strips: [Strips<T>; 2],
}

impl<T: LaneElement> LaneKernels<T> {
    /// Those of a level, which the machine must have.
    pub fn new(isa: Isa) -> LaneKernels<T> {
        LaneKernels { lanes: T::lanes(isa), strips: [Strips::of::<false>(isa), Strips::of::<true>(isa)] }
    }

    /// Computes the sums.
    ///
    /// # Safety
    /// The operands must be valid for all points, lanes and terms, and the sums may not overlap them.
    pub unsafe fn run(&self, call: &LaneSums<T>) {
        let strips = &self.strips[usize::from(call.fixed_lanes)];
        let mut lane = 0;
        while lane < call.lanes {
            let left = call.lanes - lane;
            // Multiply-adds have a latency: a block of one or two points needs more vectors of each, or its sums wait
            // for themselves.
            let (vectors, strip) = match call.points {
                1 if left >= 8 * self.lanes => (8, strips.few[0]),
                1 if left >= 4 * self.lanes => (4, strips.few[1]),
                2 if left >= 4 * self.lanes => (4, strips.few[2]),
                _ if left > self.lanes => (2, strips.two[usize::from(left < 2 * self.lanes)]),
                _ => (1, strips.one[usize::from(left < self.lanes)]),
            };
            // SAFETY: passed on from the caller; the machine has the level.
            unsafe { strip(call, lane, left) };
            lane += vectors * self.lanes;
        }
    }
}

/// The body of [`strip`]: blocks of up to `MOST` points.
///
/// # Safety
/// As [`LaneKernels::run`], for these lanes; the machine must have the instruction set.
#[inline(always)]
unsafe fn over_points<
    T: LaneElement,
    L: Level,
    const EACH: bool,
    const MOST: usize,
    const VECTORS: usize,
    const WHOLE: bool,
>(
    call: &LaneSums<T>,
    lane: usize,
    left: usize,
) {
    let mut point = 0;
    while point < call.points {
        let rest = call.points - point;
        // The last two blocks are about as high as each other: one of few points waits for its sums.
        let count = if (MOST + 1..2 * MOST).contains(&rest) { rest.div_ceil(2) } else { rest.min(MOST) };
        // SAFETY: passed on from the caller.
        unsafe {
            match count {
                1 if MOST > 1 => block::<T::Vector<L>, EACH, 1, VECTORS, WHOLE>(call, point, lane, left),
                2 if MOST > 2 => block::<T::Vector<L>, EACH, 2, VECTORS, WHOLE>(call, point, lane, left),
                3 if MOST > 2 => block::<T::Vector<L>, EACH, 3, VECTORS, WHOLE>(call, point, lane, left),
                4 if MOST > 2 => block::<T::Vector<L>, EACH, 4, VECTORS, WHOLE>(call, point, lane, left),
                5 if MOST > 2 => block::<T::Vector<L>, EACH, 5, VECTORS, WHOLE>(call, point, lane, left),
                _ => block::<T::Vector<L>, EACH, MOST, VECTORS, WHOLE>(call, point, lane, left),
            }
        }
        point += count;
    }
}

per_level! {
    /// Sums of all points for `VECTORS` vectors, from a lane on; so many lanes are left there.
    strip<T: LaneElement; EACH: bool, MOST: usize, VECTORS: usize, WHOLE: bool>(call: &LaneSums<T>, lane: usize, left: usize) = over_points
}

/// Vectors that follow each other; the last one in part unless all are `WHOLE`.
///
/// # Safety
/// The elements must be valid, and the machine must have the instruction set.
#[inline(always)]
unsafe fn vectors<V: Vector, const VECTORS: usize, const WHOLE: bool>(
    at: *const V::Element,
    part: usize,
) -> [V; VECTORS] {
    // SAFETY: passed on from the caller. No closure: it would be a function without the instruction set.
    unsafe {
        let mut all = [V::zero(); VECTORS];
        for (j, v) in all.iter_mut().enumerate() {
            let at = at.wrapping_add(j * V::LANES);
            *v = if WHOLE || j + 1 < VECTORS { V::load(at) } else { V::load_part(at, part) };
        }
        all
    }
}

/// A block of sums; the last vector of a point counts in part unless all are `WHOLE`.
///
/// # Safety
/// As [`LaneKernels::run`], for these points and lanes; the machine must have the instruction set.
#[inline(always)]
unsafe fn block<V: Vector, const EACH: bool, const COUNT: usize, const VECTORS: usize, const WHOLE: bool>(
    call: &LaneSums<V::Element>,
    point: usize,
    lane: usize,
    left: usize,
) {
    let part = left - (VECTORS - 1) * V::LANES;
    // SAFETY: the caller promises the operands, and that the machine has the instruction set.
    unsafe {
        let mut sums = [[V::zero(); VECTORS]; COUNT];
        let moving = call.moving.wrapping_offset(point as isize * call.moving_points).wrapping_add(lane);
        let fixed = call.fixed.wrapping_add(if EACH { lane } else { 0 });
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
        if !call.added.is_null() {
            let added = call.added.wrapping_offset(point as isize * call.added_points);
            let added = added.wrapping_add(if call.added_lanes { lane } else { 0 });
            for (i, sums) in sums.iter_mut().enumerate() {
                let at = added.wrapping_offset(i as isize * call.added_points);
                let added = match call.added_lanes {
                    true => vectors::<V, VECTORS, WHOLE>(at, part),
                    false => [V::splat(at.read()); VECTORS],
                };
                for j in 0..VECTORS {
                    sums[j] = sums[j].add(added[j]);
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
        for (i, sums) in sums.iter().enumerate() {
            let to = call.sums.wrapping_offset((point + i) as isize * call.sums_points).wrapping_add(lane);
            for (j, &sum) in sums.iter().enumerate() {
                let to = to.wrapping_add(j * V::LANES);
                if WHOLE || j + 1 < VECTORS { sum.store(to) } else { sum.store_part(to, part) }
            }
        }
    }
}

/// A type of sums side by side.
pub trait LaneElement: Copy + Send + Sync + 'static {
    /// Its vectors at a level.
    type Vector<L: Level>: Vector<Element = Self>;
    /// The nearest number of this type.
    fn nearest(x: f64) -> Self;

    /// Lanes of a vector.
    fn lanes(isa: Isa) -> usize {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => <Self::Vector<Avx512> as Vector>::LANES,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => <Self::Vector<Avx2> as Vector>::LANES,
            _ => <Self::Vector<Baseline> as Vector>::LANES,
        }
    }
}

impl LaneElement for f32 {
    type Vector<L: Level> = L::Floats;

    fn nearest(x: f64) -> f32 {
        x as f32
    }
}

impl LaneElement for f64 {
    type Vector<L: Level> = L::Doubles;

    fn nearest(x: f64) -> f64 {
        x
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers<T: From<f32>>(count: usize, seed: usize) -> Vec<T> {
        (0..count).map(|i| T::from(((i * 37 + seed * 11) % 29) as f32 - 14.0)).collect()
    }

    /// Of small integers, so that sums are exact in any order.
    fn check<
        T: LaneElement + From<f32> + PartialOrd + std::fmt::Debug + std::ops::Mul<Output = T> + std::ops::Add<Output = T>,
    >(
        isa: Isa,
    ) {
        let (terms, apart) = (5, 230);
        for (lanes, points, fixed_lanes, each) in [1, 3, 16, 17, 32, 37, 64, 71, 128, 223]
            .into_iter()
            .flat_map(|l| [1, 2, 5, 6, 7, 13].map(|p| (l, p, p % 2 == 0, l % 2 == 0)))
            .flat_map(|(l, p, f, b)| [(l, p, f, b), (l, p, !f, !b)])
        {
            let moving: Vec<T> = numbers((points + terms) * apart, 1);
            let fixed: Vec<T> = numbers(terms * apart, 2);
            let added: Vec<T> = numbers(points * apart, 3);
            let bounds = [each.then_some(T::from(-50.0)), fixed_lanes.then_some(T::from(60.0))];
            let mut sums = vec![T::from(77.0); points * apart];
            let moving_terms: Vec<isize> =
                (0..terms as isize).map(|t| (terms as isize - 1 - t) * apart as isize).collect();
            let fixed_terms: Vec<isize> = (0..terms as isize).map(|t| t * apart as isize).collect();
            let call = LaneSums {
                lanes,
                points,
                terms,
                moving: moving.as_ptr(),
                moving_terms: moving_terms.as_ptr(),
                moving_points: apart as isize,
                fixed: fixed.as_ptr(),
                fixed_terms: fixed_terms.as_ptr(),
                fixed_lanes,
                added: if lanes > 1 { added.as_ptr() } else { std::ptr::null() },
                added_points: if points == 5 { 0 } else { apart as isize },
                added_lanes: each,
                bounds,
                sums: sums.as_mut_ptr(),
                sums_points: apart as isize,
            };
            // SAFETY: the operands have room for all points, lanes and terms.
            unsafe { LaneKernels::new(isa).run(&call) };
            for (point, lane) in (0..points).flat_map(|p| (0..apart).map(move |l| (p, l))) {
                let product = |t: usize| {
                    moving[(point + terms - 1 - t) * apart + lane]
                        * fixed[t * apart + if fixed_lanes { lane } else { 0 }]
                };
                let of = if points == 5 { 0 } else { point * apart } + if each { lane } else { 0 };
                let plus = if lanes > 1 { added[of] } else { T::from(0.0) };
                let sum = || (0..terms).fold(T::from(0.0), |sum, t| sum + product(t)) + plus;
                let least = |x: T| bounds[0].filter(|b| x < *b).unwrap_or(x);
                let most = |x: T| bounds[1].filter(|b| x > *b).unwrap_or(x);
                let want = if lane < lanes { most(least(sum())) } else { T::from(77.0) };
                assert_eq!(sums[point * apart + lane], want, "point {point} lane {lane} of {points} x {lanes}");
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
                terms: 2,
                moving: ones.as_ptr(),
                moving_terms: terms.as_ptr(),
                moving_points: 0,
                fixed: ones.as_ptr(),
                fixed_terms: terms.as_ptr(),
                fixed_lanes: false,
                added: far.as_ptr(),
                added_points: 0,
                added_lanes: true,
                bounds: [None; 2],
                sums: sums.as_mut_ptr(),
                sums_points: 0,
            };
            // SAFETY: the operands have room for all lanes and terms.
            unsafe { LaneKernels::new(isa).run(&call) };
            assert_eq!(sums, [16_777_218.0; 3], "beginning with it, each term is lost");
        }
    }
}
