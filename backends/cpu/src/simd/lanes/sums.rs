//! The arguments of the kernels of batch-vectorised contractions, and their element types.

#[cfg(target_arch = "x86_64")]
use crate::simd::level::{Avx2, Avx512};
use crate::simd::{
    level::{Baseline, Isa, Level},
    vector::Vector,
};

/// Sums of products of two operands, for `rows` rows of `points` points of `lanes` lanes each. A sum has `terms` terms.
/// All offsets and distances are in elements.
pub struct LaneSums<T> {
    /// The number of lanes.
    pub lanes: usize,
    /// The number of points per row.
    pub points: usize,
    /// The number of rows of points.
    pub rows: usize,
    /// The number of products per sum.
    pub terms: usize,
    /// The operand that differs between points, at the first point. Its elements for the lanes are contiguous.
    pub moving: *const T,
    /// The offset of each term in `moving`.
    pub moving_terms: *const isize,
    /// The distance of neighbouring points in `moving`.
    pub moving_points: isize,
    /// The distance of neighbouring rows in `moving`.
    pub moving_rows: isize,
    /// The operand that is equal for all points.
    pub fixed: *const T,
    /// The offset of each term in `fixed`.
    pub fixed_terms: *const isize,
    /// Whether `fixed` has contiguous elements for the lanes, instead of one element for all lanes.
    pub fixed_lanes: bool,
    /// The operand that is added to each sum; null for none. It is added after the terms, so that a large number does
    /// not make their sum less accurate.
    pub added: *const T,
    /// The distance of neighbouring points in `added`.
    pub added_points: isize,
    /// The distance of neighbouring rows in `added`.
    pub added_rows: isize,
    /// Whether `added` has contiguous elements for the lanes, instead of one element for all lanes.
    pub added_lanes: bool,
    /// The minimum and the maximum to which results are clamped.
    pub bounds: [Option<T>; 2],
    /// The destination of the first point's sums.
    pub sums: *mut T,
    /// The distance of neighbouring points in `sums`.
    pub sums_points: isize,
    /// The distance of neighbouring rows in `sums`.
    pub sums_rows: isize,
}

/// The minimal number of points for runs of terms. With fewer points, too few loads are shared.
pub const SLIDES: usize = 3;

impl<T> LaneSums<T> {
    /// Returns the length of the runs that the terms form; 1 if they form none. In a run, neighbouring terms have the
    /// distance of neighbouring points in `moving`, as in windows at stride 1. So a point's element of one term is the
    /// next point's element of the term before.
    pub fn run(&self) -> usize {
        let from = |term: usize| {
            // SAFETY: the table has `terms` offsets.
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

/// An element type of batch-vectorised contractions.
pub trait LaneElement: Copy + Send + Sync + 'static {
    /// The vector type at a level.
    type Vector<L: Level>: Vector<Element = Self>;
    /// Rounds a number to this type.
    fn nearest(x: f64) -> Self;

    /// Returns the number of lanes of a vector at a level.
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
