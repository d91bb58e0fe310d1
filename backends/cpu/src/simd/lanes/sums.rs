//! What sums side by side are of: a call, and the types that it takes.

#[cfg(target_arch = "x86_64")]
use crate::simd::level::{Avx2, Avx512};
use crate::simd::{
    level::{Baseline, Isa, Level},
    vector::Vector,
};

/// Sums over `terms` of products of two operands, for `rows` rows of `points` points of `lanes` lanes each. Offsets are in elements.
pub struct LaneSums<T> {
    /// How many sums lie side by side.
    pub lanes: usize,
    /// How many points a row has.
    pub points: usize,
    /// How many rows of points there are.
    pub rows: usize,
    /// How many products each sum has.
    pub terms: usize,
    /// The operand that has an element for each lane, side by side: at the first point.
    pub moving: *const T,
    /// Where its terms begin, from there on.
    pub moving_terms: *const isize,
    /// From a point to the next.
    pub moving_points: isize,
    /// From a row to the next.
    pub moving_rows: isize,
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
    /// From a row to the next.
    pub added_rows: isize,
    /// Whether it has an element for each lane, side by side, or one for all of them.
    pub added_lanes: bool,
    /// The least and the most that a result is.
    pub bounds: [Option<T>; 2],
    /// Where the sums of the first point go.
    pub sums: *mut T,
    /// From a point to the next.
    pub sums_points: isize,
    /// From a row to the next.
    pub sums_rows: isize,
}

/// Fewer points share too little.
pub const SLIDES: usize = 3;

impl<T> LaneSums<T> {
    /// Terms of the runs that they come in, where a point reads with one what the point after it reads with the one before, as windows do that
    /// slide along a line; 1 if there are none.
    pub fn run(&self) -> usize {
        let from = |term: usize| {
            // SAFETY: whoever made the call promises as many.
            unsafe { self.moving_terms.add(term).read() }
        };
        let slides = |term: usize| from(term) - from(term - 1) == self.moving_points;
        if !self.fixed_lanes || self.points < SLIDES {
            return 1;
        }
        let run = (1..self.terms).find(|&term| !slides(term)).unwrap_or(self.terms).max(1);
        let all = self.terms.is_multiple_of(run) && (1..self.terms).all(|term| term % run == 0 || slides(term));
        if all { run } else { 1 }
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
