//! Compares tensors with the reference, element by element.

use std::fmt;

use eutectic_ir::{
    Bounded, DType, Tensor,
    ops::eval::{Data, Value},
};

use super::expected::Expected;

/// The maximal difference as a multiple of the propagated error bound. It is above 1 because a plan computes in another
/// order and rounds at other places.
const BOUND_FACTOR: f64 = 4.0;
/// The maximal difference as a multiple of the largest change under disturbed inputs.
const CHANGE_FACTOR: f64 = 16.0;
/// The number of adjacent elements among which the largest change counts for all of them, because a single element may
/// change little by chance.
const NEIGHBOURS: usize = 8;
/// The difference that is always allowed, in unit roundoffs of the row's largest element.
const LEAST_UNITS: f64 = 4.0;
/// The share of the row's largest element above which a propagated bound is too coarse to use. Bounds grow with each
/// layer of a network.
const VAGUE: f64 = 1.0 / 64.0;

/// An element for reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Element {
    /// An element of a floating-point tensor.
    Real(f64),
    /// An integer or a Boolean.
    Whole(i64),
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Element::Real(x) => write!(f, "{x:?}"),
            Element::Whole(n) => write!(f, "{n}"),
        }
    }
}

/// The largest difference from the reference, relative to the allowed one.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The index of the element.
    pub at: Vec<usize>,
    /// The element.
    pub got: Element,
    /// The element of the reference.
    pub want: Element,
    /// The absolute difference. It is infinite if one of the elements is not finite and they are not equal.
    pub apart: f64,
    /// The largest allowed absolute difference.
    pub allowed: f64,
}

/// The comparison of a tensor with its reference.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// The number of elements.
    pub elements: usize,
    /// The number of elements that were judged by the propagated error bound instead of by disturbed inputs.
    pub bounded: usize,
    /// The number of elements that cannot be judged, because rounding decides their value.
    pub open: usize,
    /// The number of elements that exceed the allowed difference.
    pub outside: usize,
    /// The largest difference, relative to the allowed one. `None` if all judged elements are equal.
    pub largest: Option<Difference>,
}

impl Comparison {
    /// Returns whether all judged elements are within the allowed differences.
    pub fn is_right(&self) -> bool {
        self.outside == 0
    }
}

/// The precisions to which values may be rounded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tolerance {
    /// The number of significant bits of the narrowest type that is involved.
    pub bits: u32,
    /// The number of significant bits to which the caller allows operands to be rounded.
    pub asked: Option<u32>,
}

/// The expected element and the allowed difference. The difference is `None` if the element cannot be judged.
struct Allowed<E> {
    want: E,
    allowed: Option<f64>,
    bounded: bool,
}

/// Compares a tensor with the reference.
pub(crate) fn compare(got: &Tensor, want: &Expected, tolerance: Tolerance) -> Comparison {
    let mut seen = Comparison { elements: got.count(), ..Comparison::default() };
    let dims = got.dims();
    if got.dtype().is_float() {
        let reals = Reals::of(want, tolerance);
        for (at, got) in got.to_f64().into_iter().enumerate() {
            let Allowed { want, allowed, bounded } = reals.at(at);
            seen.add(dims, at, (Element::Real(got), Element::Real(want)), apart(got, want), allowed, bounded);
        }
        return seen;
    }
    let lanes: Vec<Vec<i64>> = want.lanes.iter().map(Tensor::to_i64).collect();
    for (at, got) in got.to_i64().into_iter().enumerate() {
        let (want, open, bounded) = match want.bounded.as_ref().map(|value| &value.data) {
            Some(Data::Int(whole)) => (whole[at].unwrap_or(lanes[0][at]), whole[at].is_none(), true),
            _ => (lanes[0][at], lanes.iter().any(|lane| lane[at] != lanes[0][at]), false),
        };
        let apart = if got == want { 0.0 } else { (got as f64 - want as f64).abs().max(1.0) };
        let pair = (Element::Whole(got), Element::Whole(want));
        seen.add(dims, at, pair, apart, (!open).then_some(0.0), bounded);
    }
    seen
}

impl Comparison {
    fn add(
        &mut self,
        dims: &[usize],
        at: usize,
        (got, want): (Element, Element),
        apart: f64,
        allowed: Option<f64>,
        bounded: bool,
    ) {
        let Some(allowed) = allowed else {
            self.open += 1;
            return;
        };
        self.bounded += usize::from(bounded);
        self.outside += usize::from(apart > allowed);
        let part = |apart: f64, allowed: f64| if apart == 0.0 { 0.0 } else { apart / allowed };
        let before = self.largest.as_ref().map_or(0.0, |d| part(d.apart, d.allowed));
        if part(apart, allowed) > before {
            self.largest = Some(Difference { at: index(dims, at), got, want, apart, allowed });
        }
    }
}

/// The lanes of a floating tensor, prepared for queries about its elements.
struct Reals<'a> {
    lanes: Vec<Vec<f64>>,
    bounds: Option<&'a [Bounded]>,
    /// The largest finite element of each row.
    largest: Vec<f64>,
    /// The largest change among a few neighbours, for each group of neighbours.
    changes: Vec<f64>,
    row: usize,
    /// The unit roundoff to which the caller allows operands to be rounded, as a multiple of the unit roundoff of the
    /// type in which kernels compute. It is at least 1.
    wider: f64,
    /// The unit roundoffs for the minimal allowed difference: with disturbed inputs, and with propagated bounds.
    units: [f64; 2],
    smallest: f64,
}

impl Reals<'_> {
    fn of(want: &Expected, tolerance: Tolerance) -> Reals<'_> {
        let first = &want.lanes[0];
        let (dtype, row) = (first.dtype(), first.dims().last().copied().unwrap_or(1).max(1));
        let lanes: Vec<Vec<f64>> = want.lanes.iter().map(Tensor::to_f64).collect();
        let finite = |m: f64, x: &f64| if x.is_finite() { m.max(x.abs()) } else { m };
        let largest = lanes[0].chunks(row).map(|row| row.iter().fold(0.0, finite)).collect();
        let change = |at: usize| lanes.iter().map(|lane| (lane[at] - lanes[0][at]).abs()).fold(0.0, f64::max);
        let starts = (0..lanes[0].len()).step_by(NEIGHBOURS);
        let changes = starts
            .map(|start| {
                let end = (start + NEIGHBOURS).min(lanes[0].len());
                (start..end).map(change).filter(|c| c.is_finite()).fold(0.0, f64::max)
            })
            .collect();
        let bounds = match want.bounded.as_ref() {
            Some(Value { data: Data::Real(bounds), .. }) => Some(bounds.as_slice()),
            _ => None,
        };
        let computing = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let asked = tolerance.asked.map_or(0.0, |bits| 0.5_f64.powi(bits as i32));
        let own = dtype.unit_roundoff();
        Reals {
            largest,
            changes,
            lanes,
            bounds,
            row,
            wider: (asked / computing.unit_roundoff()).max(1.0),
            units: [own.max(0.5_f64.powi(tolerance.bits as i32)), own.max(asked)],
            smallest: if dtype == DType::F64 { f64::MIN_POSITIVE } else { f64::from(f32::MIN_POSITIVE) },
        }
    }

    fn at(&self, at: usize) -> Allowed<f64> {
        let largest = self.largest[at / self.row];
        let least = |unit: f64| (LEAST_UNITS * unit * largest).max(self.smallest);
        if let Some(bound) = self.bounds.map(|bounds| bounds[at]).filter(|bound| bound.err.is_finite()) {
            let vague = VAGUE * largest.max(bound.value.abs());
            if !bound.value.is_finite() {
                return Allowed { want: bound.value, allowed: Some(0.0), bounded: true };
            }
            if bound.err <= vague.max(self.smallest) {
                let allowed = (BOUND_FACTOR * self.wider * bound.err).max(least(self.units[1]));
                return Allowed { want: bound.value, allowed: Some(allowed), bounded: true };
            }
        }
        let want = self.lanes[0][at];
        let same = self.lanes.iter().all(|lane| kind(lane[at]) == kind(want));
        let allowed = match (same, want.is_finite()) {
            (false, _) => None,
            (true, false) => Some(0.0),
            (true, true) => {
                let changed = CHANGE_FACTOR * self.changes[at / NEIGHBOURS];
                Some(changed.max(least(self.units[0])))
            }
        };
        Allowed { want, allowed, bounded: false }
    }
}

/// Distinguishes NaN, the infinities and finite numbers.
fn kind(x: f64) -> u8 {
    match x {
        _ if x.is_nan() => 0,
        _ if x.is_finite() => 1,
        _ if x > 0.0 => 2,
        _ => 3,
    }
}

fn apart(got: f64, want: f64) -> f64 {
    match (got - want).abs() {
        _ if got == want || got.is_nan() && want.is_nan() => 0.0,
        apart if apart.is_nan() => f64::INFINITY,
        apart => apart,
    }
}

/// Returns the index of an element by its row-major offset.
fn index(dims: &[usize], mut at: usize) -> Vec<usize> {
    let mut index: Vec<usize> = dims
        .iter()
        .rev()
        .map(|&extent| {
            let here = at % extent.max(1);
            at /= extent.max(1);
            here
        })
        .collect();
    index.reverse();
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLERANCE: Tolerance = Tolerance { bits: 24, asked: None };

    fn tensor(x: &[f64]) -> Tensor {
        Tensor::from_f64(DType::F32, &[x.len()], x.iter().copied())
    }

    fn lanes(of: &[&[f64]]) -> Expected {
        Expected { lanes: of.iter().map(|x| tensor(x)).collect(), bounded: None }
    }

    #[test]
    fn a_difference_beyond_what_disturbed_inputs_change_is_found() {
        let want = lanes(&[&[1.0, 2.0, -3.0], &[1.001, 2.0, -3.0]]);
        let right = compare(&tensor(&[1.01, 2.0, -3.0]), &want, TOLERANCE);
        assert!(right.is_right() && right.open == 0 && right.largest.is_some());
        let wrong = compare(&tensor(&[1.0, 2.0, -3.1]), &want, TOLERANCE);
        let largest = wrong.largest.unwrap();
        assert_eq!((wrong.outside, largest.at, largest.want), (1, vec![2], Element::Real(-3.0)));
    }

    #[test]
    fn what_is_not_finite_must_be_the_same() {
        let x = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.0];
        let want = lanes(&[&x, &x]);
        assert!(compare(&tensor(&x), &want, TOLERANCE).is_right());
        for at in 0..4 {
            for other in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.0] {
                let mut got = x;
                got[at] = other;
                let seen = compare(&tensor(&got), &want, TOLERANCE);
                assert_eq!(seen.is_right(), other == x[at] || other.is_nan() && x[at].is_nan(), "{at} {other}");
            }
        }
        // An element that becomes infinite only for disturbed inputs is not judged.
        let open = compare(&tensor(&[7.0]), &lanes(&[&[1.0], &[f64::INFINITY]]), TOLERANCE);
        assert_eq!((open.open, open.outside), (1, 0));
    }

    #[test]
    fn whole_numbers_are_equal_or_open() {
        let ids = |x: &[i64]| Tensor::from_i64(DType::I64, &[x.len()], x.iter().copied());
        let want = Expected { lanes: vec![ids(&[1, 2, 3]), ids(&[1, 2, 4])], bounded: None };
        let seen = compare(&ids(&[1, 2, 9]), &want, TOLERANCE);
        assert_eq!((seen.open, seen.outside), (1, 0));
        assert_eq!(compare(&ids(&[1, 3, 3]), &want, TOLERANCE).outside, 1);
        let far = Expected { lanes: vec![ids(&[i64::MAX])], bounded: None };
        assert_eq!(compare(&ids(&[i64::MAX - 1]), &far, TOLERANCE).outside, 1);
    }

    #[test]
    fn a_precise_bound_judges_and_a_vague_one_does_not() {
        let bounded = |err: f64| {
            let data = Data::Real(vec![Bounded::new(1.0, err, DType::F32)]);
            let bounded = Some(Value { dtype: DType::F32, dims: vec![1], data });
            Expected { bounded, ..lanes(&[&[1.0], &[1.0]]) }
        };
        let seen = |got: f64, err: f64, asked| compare(&tensor(&[got]), &bounded(err), Tolerance { bits: 24, asked });
        assert!(seen(1.003, 0.001, None).is_right() && !seen(1.005, 0.001, None).is_right());
        assert!(!seen(1.5, 1.0, None).is_right() && seen(1.5, 1.0, None).bounded == 0);
        // The allowed difference includes the requested precision.
        assert!(seen(1.001, 1e-7, Some(11)).is_right() && !seen(1.001, 1e-7, None).is_right());
    }

    #[test]
    fn offsets_are_shown_as_indices() {
        assert_eq!(index(&[2, 3, 4], 23), [1, 2, 3]);
        assert_eq!(index(&[], 0), [] as [usize; 0]);
    }
}
