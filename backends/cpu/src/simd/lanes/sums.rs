//! The arguments of batch-vectorised sums, and their element types.

#[cfg(target_arch = "x86_64")]
use crate::simd::level::{Avx2, Avx512};
use crate::simd::{
    level::{Baseline, Isa, Level},
    vector::Vector,
};

/// Sums over `terms` of products of two operands, for `rows` rows of `points` points of `lanes` lanes each. Offsets are
/// in elements.
pub struct LaneSums<T> {
    /// The number of lanes.
    pub lanes: usize,
    /// The number of points per row.
    pub points: usize,
    /// The number of rows of points.
    pub rows: usize,
    /// The number of products per sum.
    pub terms: usize,
    /// The operand that has an element for each lane, side by side: at the first point.
    pub moving: *const T,
    /// The offsets of its terms.
    pub moving_terms: *const isize,
    /// The distance of two points.
    pub moving_points: isize,
    /// The distance of two rows.
    pub moving_rows: isize,
    /// The operand that is the same for all points.
    pub fixed: *const T,
    /// The offsets of its terms.
    pub fixed_terms: *const isize,
    /// Whether it has contiguous elements per lane, or one element for all lanes.
    pub fixed_lanes: bool,
    /// If not null: a value that is added to each sum after its terms, which are thus rounded at their own magnitude.
    pub added: *const T,
    /// The distance of two points.
    pub added_points: isize,
    /// The distance of two rows.
    pub added_rows: isize,
    /// Whether it has contiguous elements per lane, or one element for all lanes.
    pub added_lanes: bool,
    /// The least and the most that a result is.
    pub bounds: [Option<T>; 2],
    /// The destination of the first point's sums.
    pub sums: *mut T,
    /// The distance of two points.
    pub sums_points: isize,
    /// The distance of two rows.
    pub sums_rows: isize,
}

/// Fewer points share too little.
pub const SLIDES: usize = 3;

impl<T> LaneSums<T> {
    /// Returns the length of sliding runs of terms: a point reads with one term the element that the next point reads
    /// with the term before, as windows along a line do. Returns 1 if there are none.
    pub fn run(&self) -> usize {
        let from = |term: usize| {
            // SAFETY: the creator of the call guarantees this number of terms.
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
    /// Returns the nearest number of this type.
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
