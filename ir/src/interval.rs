//! Intervals of values that an op may compute, given the intervals of its operands.
//!
//! The op table says how each op maps intervals ([`OpDef::interval`](crate::ops::OpDef)). A result contains every
//! value that a kernel may compute, whether or not the kernel rounds to the element type after each op.

use std::cmp::Ordering;

use crate::DType;

/// All values from `low` to `high`, and NaN if `nan` is set. Truth values are 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The least value.
    pub low: f64,
    /// The greatest.
    pub high: f64,
    /// Whether the value may be NaN.
    pub nan: bool,
}

impl Interval {
    /// Returns the interval from one value to another.
    pub fn new(low: f64, high: f64) -> Interval {
        Interval { low, high, nan: false }
    }

    /// Returns the interval that contains only `x`.
    pub fn exact(x: f64) -> Interval {
        if x.is_nan() { Interval::any(DType::F64) } else { Interval::new(x, x) }
    }

    /// Returns the interval of all values of an element type.
    pub fn any(dtype: DType) -> Interval {
        if dtype.is_float() {
            return Interval { low: f64::NEG_INFINITY, high: f64::INFINITY, nan: true };
        }
        let (low, high) = dtype.integers();
        Interval::new(low as f64, high as f64)
    }

    /// Returns whether the interval contains only this number.
    pub fn is(&self, x: f64) -> bool {
        self.low == x && self.high == x && !self.nan
    }

    /// Returns the smallest interval that contains both intervals.
    pub fn or(self, other: Interval) -> Interval {
        Interval { low: self.low.min(other.low), high: self.high.max(other.high), nan: self.nan || other.nan }
    }

    /// Converts the interval to elements of a type: floats are rounded, and integers that may wrap can have any
    /// value.
    pub fn of(self, dtype: DType) -> Interval {
        let any = Interval::any(dtype);
        if !dtype.is_float() {
            // Ends beyond 2⁵³ are rounded in `f64`, so the comparison with the type's range would be unreliable.
            let held = self.low.abs().max(self.high.abs()) < 2_f64.powi(53);
            return if held && !self.nan && self.low >= any.low && self.high <= any.high { self } else { any };
        }
        let (low, high) = (dtype.rounded(self.low), dtype.rounded(self.high));
        // A format without infinities rounds numbers that are too large to NaN. The finite end is kept then.
        let nan = self.nan || low.is_nan() || high.is_nan();
        Interval { low: self.low.min(low), high: self.high.max(high), nan }
    }

    /// Returns the interval of a function of two numbers whose extremes are at the corners. If a corner is NaN, the
    /// interval includes NaN, and the remaining corners give the bounds.
    fn corners(self, other: Interval, f: impl Fn(f64, f64) -> f64, dtype: DType) -> Interval {
        let ends = [f(self.low, other.low), f(self.low, other.high), f(self.high, other.low), f(self.high, other.high)];
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        ends.into_iter().filter(|x| !x.is_nan()).for_each(|x| (low, high) = (low.min(x), high.max(x)));
        if low > high {
            return Interval::any(dtype);
        }
        let nan = self.nan || other.nan || ends.iter().any(|x| x.is_nan());
        Interval { low, high, nan }.of(dtype)
    }
}

/// A function from the intervals of an op's operands and the result's element type to the interval of the result. The
/// interval may be wider than needed.
pub type IntervalFn = fn(&[Interval], DType) -> Interval;

pub(crate) fn any(_: &[Interval], dtype: DType) -> Interval {
    Interval::any(dtype)
}

pub(crate) fn neg(x: &[Interval], dtype: DType) -> Interval {
    Interval { low: -x[0].high, high: -x[0].low, nan: x[0].nan }.of(dtype)
}

pub(crate) fn add(x: &[Interval], dtype: DType) -> Interval {
    x[0].corners(x[1], |a, b| a + b, dtype)
}

pub(crate) fn sub(x: &[Interval], dtype: DType) -> Interval {
    x[0].corners(x[1], |a, b| a - b, dtype)
}

pub(crate) fn mul(x: &[Interval], dtype: DType) -> Interval {
    let zero_by_infinity =
        |a: Interval, b: Interval| a.low <= 0.0 && a.high >= 0.0 && (b.low.is_infinite() || b.high.is_infinite());
    if zero_by_infinity(x[0], x[1]) || zero_by_infinity(x[1], x[0]) {
        return Interval::any(dtype);
    }
    x[0].corners(x[1], |a, b| a * b, dtype)
}

/// Returns the interval of an integer quotient by a positive number. The quotient is truncated towards 0, which is
/// monotone.
pub(crate) fn div(x: &[Interval], dtype: DType) -> Interval {
    if dtype.is_float() || x[1].low <= 0.0 {
        return Interval::any(dtype);
    }
    x[0].corners(x[1], |a, b| (a / b).trunc(), dtype)
}

pub(crate) fn max(x: &[Interval], dtype: DType) -> Interval {
    x[0].corners(x[1], f64::max, dtype)
}

pub(crate) fn min(x: &[Interval], dtype: DType) -> Interval {
    x[0].corners(x[1], f64::min, dtype)
}

pub(crate) fn cast(x: &[Interval], dtype: DType) -> Interval {
    match dtype {
        DType::Bool if x[0].is(0.0) => Interval::exact(0.0),
        DType::Bool if x[0].low > 0.0 || x[0].high < 0.0 => Interval::exact(1.0),
        DType::Bool => Interval::any(dtype),
        _ if dtype.is_float() => x[0].of(dtype),
        // Casts of floats to integers truncate towards 0.
        _ => Interval { low: x[0].low.trunc(), high: x[0].high.trunc(), nan: x[0].nan }.of(dtype),
    }
}

/// Returns the interval of bitwise `and`. If an operand is non-negative, the result is non-negative and at most that
/// operand.
pub(crate) fn bit_and(x: &[Interval], dtype: DType) -> Interval {
    let high = x.iter().filter(|x| x.low >= 0.0).map(|x| x.high).fold(f64::INFINITY, f64::min);
    if high.is_finite() { Interval::new(0.0, high) } else { Interval::any(dtype) }
}

/// Returns the interval of bitwise `or` and `xor` of non-negative integers. No result has more bits than the larger
/// operand.
pub(crate) fn bit_or(x: &[Interval], dtype: DType) -> Interval {
    let (low, high) = (x[0].low.min(x[1].low), x[0].high.max(x[1].high));
    match low >= 0.0 && high < 2_f64.powi(53) {
        true => Interval::new(0.0, (high as u64 + 1).next_power_of_two() as f64 - 1.0),
        false => Interval::any(dtype),
    }
}

/// Returns the interval of a · 2ᵇ of integers, which wraps. The op returns 0 if b is no valid shift.
pub(crate) fn shift_left(x: &[Interval], dtype: DType) -> Interval {
    let of_bits = x[1].low >= 0.0 && x[1].high < dtype.bits() as f64;
    if of_bits { x[0].corners(x[1], |a, b| a * b.exp2(), dtype) } else { Interval::any(dtype) }
}

/// Returns the interval of ⌊a / 2ᵇ⌋ of non-negative integers. The op returns 0 if b is no valid shift.
pub(crate) fn shift_right(x: &[Interval], dtype: DType) -> Interval {
    match x[0].low >= 0.0 {
        true => Interval::new(0.0, (x[0].high / x[1].low.max(0.0).exp2()).floor()),
        false => Interval::any(dtype),
    }
}

pub(crate) fn select(x: &[Interval], _: DType) -> Interval {
    match x[0] {
        keep if keep.low > 0.0 => x[1],
        keep if keep.high < 1.0 => x[2],
        _ => x[1].or(x[2]),
    }
}

pub(crate) fn not(x: &[Interval], _: DType) -> Interval {
    Interval::new(1.0 - x[0].high, 1.0 - x[0].low)
}

pub(crate) fn and(x: &[Interval], _: DType) -> Interval {
    Interval::new(x[0].low.min(x[1].low), x[0].high.min(x[1].high))
}

pub(crate) fn or(x: &[Interval], _: DType) -> Interval {
    Interval::new(x[0].low.max(x[1].low), x[0].high.max(x[1].high))
}

/// Returns the interval of a comparison. `holds` returns the comparison's value for an order of the operands (`None`
/// if one is NaN). The interval is one number if all possible orders agree.
pub(crate) fn compare(x: &[Interval], holds: impl Fn(Option<Ordering>) -> bool) -> Interval {
    let [a, b] = [x[0], x[1]];
    let orders = [
        (a.low < b.high, Some(Ordering::Less)),
        (a.high > b.low, Some(Ordering::Greater)),
        (a.low <= b.high && b.low <= a.high, Some(Ordering::Equal)),
        (a.nan || b.nan, None),
    ];
    let mut possible = orders.into_iter().filter(|o| o.0).map(|o| f64::from(u8::from(holds(o.1))));
    let first = possible.next().unwrap_or(0.0);
    possible.fold(Interval::exact(first), |all, x| all.or(Interval::exact(x)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Op, Type};

    /// Checks every op on numbers and bits, for the element types that it takes, at every point of small intervals.
    #[test]
    fn intervals_hold_what_ops_compute() {
        let boxes: Vec<(i64, i64)> = (-3..4).flat_map(|low| (low..low + 4).map(move |high| (low, high))).collect();
        for name in [
            "add",
            "sub",
            "mul",
            "div",
            "max",
            "min",
            "eq",
            "ne",
            "lt",
            "le",
            "gt",
            "ge",
            "mod",
            "bit-and",
            "bit-or",
            "bit-xor",
            "shift-left",
            "shift-right",
        ] {
            let op = Op::named(name).unwrap();
            for (&(a, b), &(c, d)) in boxes.iter().flat_map(|x| boxes.iter().map(move |y| (x, y))) {
                for from in [DType::I8, DType::F32] {
                    let operand = Type::tensor(from, &[]);
                    let Ok(Type::Tensor(to, _)) = op.infer(&[], &[&operand, &operand]) else { continue };
                    let of = |(low, high): (i64, i64)| Interval::new(low as f64, high as f64);
                    let interval = (op.def().interval)(&[of((a, b)), of((c, d))], to);
                    for (x, y) in (a..=b).flat_map(|x| (c..=d).map(move |y| (x as f64, y as f64))) {
                        let Some(z) = op.fold(&[], &[(x, from), (y, from)], to) else { continue };
                        let held = if z.is_nan() { interval.nan } else { interval.low <= z && z <= interval.high };
                        assert!(held, "{name} of {x} and {y} in {from} is {z}, not in {interval:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn masks_are_settled_where_they_can_be() {
        let (query, key) = (Interval::new(24.0, 47.0), |low: f64| Interval::new(low, low + 63.0));
        let le = Op::named("le").unwrap().def().interval;
        let choose = Op::named("where").unwrap().def().interval;
        let (zero, hidden) = (Interval::exact(0.0), Interval::exact(f64::NEG_INFINITY));
        let bias = |low| choose(&[le(&[key(low), query], DType::Bool), zero, hidden], DType::F32);
        assert!(bias(48.0).is(f64::NEG_INFINITY));
        assert!(!bias(0.0).is(0.0) && !bias(0.0).is(f64::NEG_INFINITY));
        assert!(bias(-64.0).is(0.0));
        let wraps = (Op::named("add").unwrap().def().interval)(&[Interval::new(100.0, 120.0); 2], DType::I8);
        assert_eq!(wraps, Interval::any(DType::I8));
    }
}
