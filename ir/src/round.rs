//! Conversions of numbers to 16-bit elements with a single rounding, as kernels convert. They are faster than
//! [`FloatFormat`](crate::FloatFormat), which supports any format.
//!
//! The crate `half` rounds an `f64` to `f16` through `f32` if the processor has F16C. For `bf16` it drops the low 32
//! bits. Both can turn a number just above a midpoint into a tie, which may round down.

use half::{bf16, f16};

use crate::DType;

/// Returns a number whose rounding to a floating type is the element nearest to an integer. The `f64` nearest to the
/// integer would round twice.
pub fn of_integer(n: i64, dtype: DType) -> f64 {
    let near = n as f64;
    if dtype == DType::F64 || near as i128 == i128::from(n) {
        return near;
    }
    let away = (near as i128).abs() > i128::from(n).abs();
    f64::from_bits((near.to_bits() - u64::from(away)) | 1)
}

/// Returns the `f16` nearest to a number, and the one with an even significand if two are nearest.
pub fn to_f16(x: f64) -> f16 {
    f16::from_f32(to_odd(x))
}

/// Returns the `bf16` nearest to a number, and the one with an even significand if two are nearest.
pub fn to_bf16(x: f64) -> bf16 {
    bf16::from_f32(to_odd(x))
}

/// Returns a number in `f32`, rounded to odd: towards zero, with the last bit set if bits were lost. If the
/// result is rounded to a type with at least two bits less, this equals rounding the number itself (Boldo and
/// Melquiond, When double rounding is odd, 2005).
fn to_odd(x: f64) -> f32 {
    let near = x as f32;
    if x.is_nan() || f64::from(near) == x {
        return near;
    }
    let away = f64::from(near).abs() > x.abs();
    f32::from_bits((near.to_bits() - u32::from(away)) | 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the nearest element, and the even one if two are nearest. Infinity counts as the element after the
    /// largest.
    fn nearest(x: f64, all: &[(u16, f64)]) -> u16 {
        let apart = |&(bits, value): &(u16, f64)| ((value - x.abs()).abs(), bits & 1);
        let least = all.iter().min_by(|a, b| apart(a).partial_cmp(&apart(b)).unwrap()).unwrap();
        least.0 | if x.is_sign_negative() { 0x8000 } else { 0 }
    }

    #[test]
    fn middles_and_their_neighbours_round_once() {
        let f16s: Vec<(u16, f64)> = (0..0x7c00_u16).map(|b| (b, f64::from(f16::from_bits(b)))).collect();
        let f16s = [f16s, vec![(0x7c00, 65536.0)]].concat();
        let bf16s: Vec<(u16, f64)> = (0..0x7f80_u16).map(|b| (b, f64::from(bf16::from_bits(b)))).collect();
        let bf16s = [bf16s, vec![(0x7f80, 2_f64.powi(128))]].concat();
        for (all, round) in [(&f16s, (|x| to_f16(x).to_bits()) as fn(f64) -> u16), (&bf16s, |x| to_bf16(x).to_bits())] {
            for pair in all.windows(2) {
                let middle = (pair[0].1 + pair[1].1) / 2.0;
                for x in [middle, middle.next_up(), middle.next_down(), pair[0].1, pair[0].1.next_up()] {
                    for x in [x, -x] {
                        assert_eq!(round(x), nearest(x, pair), "{x:e} between {pair:?}");
                    }
                }
            }
            assert_eq!(round(f64::INFINITY), all.last().unwrap().0);
            assert_eq!(round(1e300), all.last().unwrap().0);
            assert_eq!(round(-1e-300), 0x8000);
            assert_eq!(round(f64::from_bits(1)), 0);
        }
        assert!(to_f16(f64::NAN).is_nan() && to_bf16(-f64::NAN).is_nan());
    }

    #[test]
    fn integers_round_once() {
        let near = [24, 25, 53, 54, 60, 62].map(|bits| 1_i64 << bits);
        let steps = [24, 8].map(|digits| move |n: i64| n >> digits);
        for n in near.into_iter().flat_map(|n| steps.map(|step| [n + step(n), n + step(n) + 1, n + step(n) - 1])) {
            for n in n.into_iter().flat_map(|n| [n, -n]) {
                assert_eq!(of_integer(n, DType::F64), n as f64);
                assert_eq!(DType::F32.rounded(of_integer(n, DType::F32)), f64::from(n as f32), "{n}");
                let up = DType::Bf16.rounded(of_integer(n, DType::Bf16)) as i128;
                let low = 1_i128 << (n.unsigned_abs().ilog2() - 7);
                let (down, rest) = (i128::from(n.abs()) / low, i128::from(n.abs()) % low);
                let want = down + i128::from(2 * rest > low || 2 * rest == low && down % 2 == 1);
                assert_eq!(up.abs(), want * low, "{n}");
            }
        }
        assert_eq!(of_integer(i64::MAX, DType::F32), 2_f64.powi(63).next_down());
        assert_eq!(of_integer(i64::MIN, DType::F32), -2_f64.powi(63));
    }
}
