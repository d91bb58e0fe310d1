//! Compares two numbers by a contract.

use eutectic::DType;
use eutectic_ir::{Bounded, FloatFormat};
use eutectic_rewrites::Contract;

use eutectic::verify::Element;

use crate::boundary::range;

/// Both values, and a description of the allowed difference.
pub type Wrong = (Element, Element, String);

fn reals_differ(left: f64, right: f64, allowed: String) -> Result<(), Wrong> {
    Err((Element::Real(left), Element::Real(right), allowed))
}

/// Compares integers.
pub fn whole(left: i64, right: i64) -> Option<Result<(), Wrong>> {
    Some(if left == right {
        Ok(())
    } else {
        Err((Element::Whole(left), Element::Whole(right), "no difference (integers)".into()))
    })
}

/// The result of one side for one element.
#[derive(Clone, Copy, Debug)]
pub struct Number {
    /// The result with each op rounded once.
    pub value: f64,
    /// The result in real arithmetic, with its error bound.
    pub bounded: Bounded,
    /// Whether an intermediate result overflowed.
    pub over: bool,
    /// Whether an intermediate result overflowed, was subnormal or vanished.
    pub wild: bool,
    /// Whether an operation on infinities, such as ∞ − ∞, made NaN in an intermediate result.
    pub met: bool,
}

impl Number {
    /// Returns whether the result is certainly finite. The other side must then be finite, even if an underflow makes
    /// the error bound infinite.
    fn surely_finite(&self) -> bool {
        self.value.is_finite() && !self.over && (self.wild || self.bounded.err.is_finite())
    }

    /// Returns whether the result is NaN or an infinity in real arithmetic, too.
    fn surely_not_finite(&self) -> bool {
        !self.bounded.value.is_finite() && self.bounded.err == 0.0
    }
}

/// The parameters by which elements of one type are compared.
pub struct Pair {
    pub contract: Contract,
    /// Whether NaN and infinities are distinguished, because all inputs are finite or both sides are pointwise.
    pub strict: bool,
    /// Whether both sides are pointwise, so that they combine infinities in one order only.
    pub pointwise: bool,
    /// Whether the right side must stay in range if the left side does.
    pub ranged: bool,
    /// Whether inputs are at the ends of the range. Only then does an underflow on the right side alone refute a
    /// `reassoc` rule: rules about 16-bit types may otherwise replace such numbers by 0.
    pub ends: bool,
    /// Whether roundings that large constants of the program cause must be kept. This requires that both sides are
    /// pointwise and that inputs are ordinary, so that nothing else rounds coarsely.
    pub numbers: bool,
    /// Whether all inputs are finite, except for −∞ in a mask.
    pub finite: bool,
    /// Whether the right side has attention, which skips hidden keys. The right side may then be finite although
    /// garbage in hidden keys reaches the left side.
    pub selects: bool,
    /// Whether the left side has an op with intermediate results: a 16-bit composite, or an update that combines. An
    /// element is then not judged if an intermediate result of the right side leaves the range.
    pub parts: bool,
    /// Whether inputs or numbers are so large or small that intermediate results may overflow or vanish.
    pub extreme: bool,
    pub dtype: DType,
}

impl Pair {
    /// Judges an element. Returns `None` if the contract promises nothing for the element, or the reference is not
    /// precise enough.
    pub fn floats(&self, left: Number, right: Number) -> Option<Result<(), Wrong>> {
        let (l, r) = (left.value, right.value);
        // Near the largest number, the order of a sum may decide whether the sum is finite.
        let last = self.contract == Contract::Reassoc && l.is_finite() && l.abs() > range(self.dtype).1 * (1.0 - LOST);
        match self.contract {
            Contract::Exact if l.to_bits() == r.to_bits() || l.is_nan() && r.is_nan() => Some(Ok(())),
            Contract::Exact => Some(reals_differ(l, r, "no difference (exact)".into())),
            Contract::Fast => self.reals(left.bounded, right.bounded),
            // Rounding an intermediate result may cause a pole or NaN, although real arithmetic gives a number.
            _ if self.parts && (right.wild || !r.is_finite() && !right.surely_not_finite()) => None,
            _ if left.surely_finite() && !last && !r.is_finite() && (self.ranged || !right.over) => {
                Some(reals_differ(l, r, "any finite number, because the left side is finite".into()))
            }
            Contract::Ulp(n) => self.ulps(n, left, right),
            Contract::Reassoc if !left.bounded.value.is_finite() => self.kept(left, right),
            Contract::Reassoc
                if self.ranged
                    && self.ends
                    && !last
                    && right.wild
                    && !left.wild
                    && is_precise(left.bounded)
                    && far_from(r, left.bounded) =>
            {
                Some(reals_differ(l, r, "an intermediate result in range, as the left side has it".into()))
            }
            Contract::Reassoc
                if self.numbers
                    && !left.wild
                    && !right.wild
                    && is_precise(right.bounded)
                    && far_from(l, right.bounded) =>
            {
                Some(reals_differ(l, r, "the rounding that numbers of the left side make".into()))
            }
            // In `f64` the bounds do not show underflow.
            Contract::Reassoc if left.wild && self.dtype == DType::F64 => None,
            Contract::Reassoc => self.reals(left.bounded, right.bounded),
        }
    }

    /// Judges by ulps. Elements whose intermediate results overflowed or underflowed on the left side are not judged.
    fn ulps(&self, n: u32, left: Number, right: Number) -> Option<Result<(), Wrong>> {
        let (l, r) = (left.value, right.value);
        let near = || (l - r).abs() <= f64::from(n) * ulp(l.abs().max(r.abs()), self.dtype);
        let same = match l.is_finite() && r.is_finite() {
            true if l == 0.0 && r == 0.0 => l.is_sign_negative() == r.is_sign_negative(),
            true => near(),
            false => l == r || l.is_nan() && r.is_nan(),
        };
        match (left.wild || right.wild && !self.ranged, same) {
            (true, _) => None,
            (false, true) => Some(Ok(())),
            (false, false) => Some(reals_differ(l, r, format!("{n} ulp of {}, and the sign of 0", self.dtype))),
        }
    }

    /// Judges infinities and NaN of the left side, which must be kept. NaN and an infinity may replace each other if
    /// the order of a sum is open.
    fn kept(&self, left: Number, right: Number) -> Option<Result<(), Wrong>> {
        let (a, b) = (left.bounded.value, right.value);
        if left.wild || left.bounded.err.is_infinite() || right.bounded.err.is_infinite() {
            return None;
        }
        if self.selects && b.is_finite() {
            return None;
        }
        let same = a == b || a.is_nan() && b.is_nan();
        let one_is_nan = (a.is_nan() || b.is_nan()) && !b.is_finite();
        let open = !self.strict || !self.pointwise && (left.met || right.met);
        match same || open && one_is_nan {
            true => Some(Ok(())),
            false => Some(reals_differ(a, b, "the same infinity, or NaN on both sides".into())),
        }
    }

    /// Compares results in real arithmetic, within the sum of both error bounds.
    fn reals(&self, l: Bounded, r: Bounded) -> Option<Result<(), Wrong>> {
        if l.err.is_infinite() || r.err.is_infinite() {
            return None;
        }
        let (a, b) = (l.value, r.value);
        if a.is_finite() && b.is_finite() {
            let allowed = l.err + r.err;
            let fine = (a - b).abs() <= allowed;
            // For a `fast` rule, two equal values count only if the bound is far below them. Values near 0 would be
            // equal under a wrong rule, too.
            let telling = self.contract != Contract::Fast || allowed < a.abs().max(b.abs()) * PRECISE;
            return match fine {
                true => telling.then_some(Ok(())),
                false => Some(reals_differ(a, b, format!("{allowed:.3e} (the propagated bound)"))),
            };
        }
        // A `fast` rule may exclude inputs. Nevertheless, if the left side is certainly a number, the right side must
        // not be NaN.
        let sure = a.is_finite() && b.is_nan() && self.finite && !self.extreme;
        (self.contract == Contract::Fast && sure).then(|| reals_differ(a, b, "a number".into()))
    }

    /// Returns whether a difference may be due to the range: both sides have a number, and the right side has an
    /// intermediate result that is out of range.
    pub fn asks_for_range(&self, left: Number, right: Number) -> bool {
        let numbers = left.value.is_finite() && right.value.is_finite();
        self.contract == Contract::Reassoc && self.ends && numbers && right.wild
    }

    /// Returns whether a difference is due to the range. `unlimited` is the right side's number, computed with
    /// exponents of any size. There is no such arithmetic for `f64`, so for `f64` each difference beyond the error
    /// bounds counts as due to the range.
    pub fn range_tells(&self, left: Number, right: Number, unlimited: Option<f64>) -> bool {
        match self.dtype {
            DType::F64 => (right.value - left.bounded.value).abs() > left.bounded.err + right.bounded.err,
            _ => unlimited.is_none_or(|unlimited| left_the_range(right.value, unlimited, left.bounded.value)),
        }
    }
}

/// Returns whether a number was changed by the range of its type. `unlimited` is the result with exponents of any size.
/// The difference must exceed the share [`LOST`] of the larger of that result and the left side's value. The left
/// side's value matters if rounding cancels all large terms: a tiny term that vanishes is then no error.
fn left_the_range(x: f64, unlimited: f64, left: f64) -> bool {
    let off = (x - unlimited).abs();
    off.is_nan() || off > unlimited.abs().max(left.abs()) * LOST
}

/// Returns whether a number differs from the reference by more than any rounding explains.
fn far_from(x: f64, reference: Bounded) -> bool {
    (x - reference.value).abs() > reference.err + reference.value.abs() * LOST
}

/// The relative error that a result in range cannot reach.
const LOST: f64 = 1.0 / 16.0;

/// Numbers beyond this, or below its reciprocal, may overflow or vanish in an exponential or in some products.
pub const FAR: f64 = 64.0;

/// The largest relative error bound at which a comparison is informative.
const PRECISE: f64 = 1.0 / 64.0;

/// Returns whether the error bound is a small part of the value, so that rounding does not explain a large difference
/// from the value.
fn is_precise(x: Bounded) -> bool {
    x.err == 0.0 || x.err.is_finite() && x.err <= x.value.abs() * PRECISE
}

/// Returns the distance between neighbouring numbers of a type at a magnitude.
fn ulp(magnitude: f64, dtype: DType) -> f64 {
    let format = dtype.float().unwrap_or(FloatFormat::ieee(8, 23));
    let (bits, least) = (format.mantissa as i32, format.least_exponent());
    let exponent = if magnitude > 0.0 { (magnitude.log2().floor() as i32).max(least) } else { least };
    // Two steps are needed: `powi` takes a reciprocal for a negative exponent, and that of a subnormal power of two
    // overflows.
    2_f64.powi(exponent - bits + 100) * 2_f64.powi(-100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ulps_are_those_of_the_type() {
        assert_eq!(ulp(1.5, DType::F32), f64::from(f32::EPSILON));
        assert_eq!(ulp(1e-300, DType::F32), f64::from(f32::from_bits(1)));
        assert_eq!(ulp(1.0, DType::F64), f64::EPSILON);
        assert_eq!(ulp(1e-310, DType::F64), f64::from_bits(1));
        assert_eq!(ulp(4.0, DType::F16), 2_f64.powi(-8));
    }

    fn pair(contract: Contract, strict: bool) -> Pair {
        Pair {
            contract,
            strict,
            pointwise: false,
            ranged: true,
            ends: true,
            numbers: false,
            finite: strict,
            selects: false,
            parts: false,
            extreme: false,
            dtype: DType::F32,
        }
    }

    /// Returns whether a pair of numbers keeps a contract. The flag next to a number is set if an intermediate result
    /// left the range.
    fn judge(contract: Contract, strict: bool, left: (f64, bool), right: (f64, bool)) -> Option<bool> {
        let pair = pair(contract, strict);
        let of = |(value, wild): (f64, bool)| Number {
            value,
            bounded: Bounded::new(value, 0.0, DType::F32),
            over: wild && !value.is_finite(),
            wild,
            met: false,
        };
        pair.floats(of(left), of(right)).map(|judged| judged.is_ok())
    }

    #[test]
    fn contracts_distinguish_zeros_and_infinities() {
        let tame = |contract, strict, l, r| judge(contract, strict, (l, false), (r, false));
        assert_eq!(tame(Contract::Exact, true, 0.0, -0.0), Some(false));
        assert_eq!(tame(Contract::Exact, true, f64::NAN, -f64::NAN), Some(true));
        assert_eq!(tame(Contract::Ulp(1), true, 0.0, -0.0), Some(false));
        assert_eq!(tame(Contract::Reassoc, true, 0.0, -0.0), Some(true));
        assert_eq!(tame(Contract::Ulp(1), true, 1.0, 1.0 + f64::from(f32::EPSILON)), Some(true));
        assert_eq!(tame(Contract::Ulp(1), true, 1.0, 1.0 + 2.0 * f64::from(f32::EPSILON)), Some(false));
        assert_eq!(tame(Contract::Ulp(9), false, f64::INFINITY, f64::NAN), Some(false));
        assert_eq!(tame(Contract::Reassoc, true, f64::INFINITY, f64::NAN), Some(false));
    }

    #[test]
    fn a_coarse_rounding_by_a_large_constant_is_kept() {
        let judged = |numbers: bool, l: f64, err: f64, r: f64| {
            let pair = Pair { numbers, ..pair(Contract::Reassoc, true) };
            let of = |value: f64, exact: f64, err: f64| Number {
                value,
                bounded: Bounded::new(exact, err, DType::F32),
                over: false,
                wild: false,
                met: false,
            };
            pair.floats(of(l, r, err), of(r, r, 0.0)).map(|judged| judged.is_ok())
        };
        // The left side is (x + c) − c for x = 0.3. It is 0 for c = 2⁴⁰, and 0.3000001 for a small c.
        assert_eq!(judged(true, 0.0, 65536.0, 0.3), Some(false));
        assert_eq!(judged(false, 0.0, 65536.0, 0.3), Some(true));
        assert_eq!(judged(true, 0.3000001, 2e-7, 0.3), Some(true));
    }

    #[test]
    fn in_sums_only_nan_and_infinities_may_replace_each_other() {
        let sum = |l, r| judge(Contract::Reassoc, false, (l, false), (r, false));
        assert_eq!(sum(f64::INFINITY, f64::NAN), Some(true));
        assert_eq!(sum(f64::NAN, f64::NEG_INFINITY), Some(true));
        assert_eq!(sum(f64::INFINITY, f64::NEG_INFINITY), Some(false));
        assert_eq!(sum(f64::NAN, 1.0), Some(false));
        assert_eq!(sum(1.0, f64::NAN), Some(false));
    }

    #[test]
    fn in_sums_infinities_of_poles_may_become_nan() {
        let judged = |pointwise: bool, met: bool, l: f64, r: f64| {
            let pair = Pair { pointwise, ..pair(Contract::Reassoc, true) };
            let bounded = |value| Bounded::new(value, 0.0, DType::F32);
            let of = |value: f64, met| Number { value, bounded: bounded(value), over: false, wild: false, met };
            pair.floats(of(l, met && l.is_nan()), of(r, met && r.is_nan())).map(|judged| judged.is_ok())
        };
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        for (l, r) in [(nan, inf), (inf, nan), (nan, -inf)] {
            assert_eq!(judged(false, true, l, r), Some(true), "{l} {r}");
            // √−1 is NaN in any order, and pointwise ops have one order only.
            assert_eq!(judged(false, false, l, r), Some(false), "{l} {r}");
            assert_eq!(judged(true, true, l, r), Some(false), "{l} {r}");
        }
        // A number never replaces NaN or the converse, and no infinity replaces the other one.
        assert_eq!(judged(false, true, nan, 1.0), Some(false));
        assert_eq!(judged(false, true, 1.0, nan), Some(false));
        assert_eq!(judged(false, true, inf, -inf), Some(false));
    }

    #[test]
    fn the_right_side_alone_may_not_leave_the_range() {
        for contract in [Contract::Ulp(4), Contract::Reassoc] {
            assert_eq!(judge(contract, true, (1.0, false), (f64::INFINITY, true)), Some(false));
            assert_eq!(judge(contract, true, (1.0, false), (0.0, true)), Some(false));
            // A left side that overflows is not judged. If it underflows, the right side must be finite.
            assert_eq!(judge(contract, true, (f64::INFINITY, true), (1.0, false)), None);
            assert_eq!(judge(contract, true, (0.0, true), (f64::NAN, true)), Some(false));
        }
        assert_eq!(judge(Contract::Ulp(4), true, (0.5, true), (1.0, false)), None);
    }

    #[test]
    fn a_tiny_term_may_vanish_if_rounding_cancels_the_others() {
        let number = |value| Number {
            value,
            bounded: Bounded::new(value, 0.0, DType::F32),
            over: false,
            wild: true,
            met: false,
        };
        let tells = |left, right, unlimited| {
            pair(Contract::Reassoc, true).range_tells(number(left), number(right), Some(unlimited))
        };
        // In 8 significant bits, rounding makes ½·100.6 − ½·100.7 equal to 0 instead of −0.05. The limited range loses
        // only a third term, 1e−59.
        assert!(!tells(-0.05, 0.0, 1e-59));
        assert!(tells(-0.05, 0.0, -0.05));
        assert!(tells(1e-30, 0.0, 1.1e-30));
    }

    #[test]
    fn near_the_largest_number_rounding_may_cause_overflow() {
        let judged = |contract, l: f64| {
            let pair = Pair { dtype: DType::F16, ..pair(contract, true) };
            let of = |value: f64, exact: f64| Number {
                value,
                bounded: Bounded::new(exact, 0.0, DType::F16),
                over: value.is_infinite(),
                wild: value.is_infinite(),
                met: false,
            };
            pair.floats(of(l, l), of(f64::INFINITY, l)).map(|judged| judged.is_ok())
        };
        // In `f16`, (2048 − 32)·32 = 64512 is finite, and 2048·32 − 32·32 overflows in its first term.
        assert_eq!(judged(Contract::Reassoc, 64512.0), Some(true));
        assert_eq!(judged(Contract::Reassoc, 65504.0), Some(true));
        assert_eq!(judged(Contract::Reassoc, 60000.0), Some(false));
        assert_eq!(judged(Contract::Ulp(4), 65504.0), Some(false));
    }

    #[test]
    fn only_intermediate_results_of_an_op_may_leave_the_range() {
        for contract in [Contract::Ulp(4), Contract::Reassoc] {
            let pair = Pair { parts: true, ..pair(contract, true) };
            let of = |value: f64, wild: bool| Number {
                value,
                bounded: Bounded::new(value, 0.0, DType::F32),
                over: wild && !value.is_finite(),
                wild,
                met: false,
            };
            let judged = |l, r| pair.floats(l, r).map(|judged| judged.is_ok());
            // (x − m)/√v is NaN where rounding makes v 0, and nowhere else.
            let rounded = |exact: f64| Number { bounded: Bounded::new(exact, 0.0, DType::F32), ..of(f64::NAN, false) };
            assert_eq!(judged(of(1.0, false), rounded(1.0)), None);
            assert_eq!(judged(of(1.0, false), rounded(f64::NAN)), Some(false));
            // x + (u + v) is infinite where u + v is; as one op, it is a number.
            assert_eq!(judged(of(1.0, false), of(f64::INFINITY, true)), None);
            assert_eq!(judged(of(1.0, false), of(0.0, true)), None);
            assert_eq!(judged(of(1.0, false), of(f64::INFINITY, false)), Some(false));
            assert_eq!(judged(of(1.0, false), of(f64::NAN, false)), Some(false));
        }
    }
}
