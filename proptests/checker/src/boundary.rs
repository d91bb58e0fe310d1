//! Lists the numbers at which the arithmetic of an element type changes: limits, halves, and powers of two with their
//! neighbours.

use eutectic::{DType, Tensor};

/// Returns the integers of a type at which results change. The most informative ones come first: small ones, the
/// limits, the numbers of the rule's text and their neighbours. Powers of two with their neighbours follow.
pub fn integers(dtype: DType, literals: &[f64]) -> Vec<i64> {
    let (least, greatest) = dtype.integers();
    let mut all = vec![0, 1, -1, least, greatest, 2, -2, least.wrapping_add(1), greatest - 1, 3, -3];
    for x in literals.iter().filter(|x| x.fract() == 0.0 && x.abs() < 9e18) {
        let n = *x as i64;
        all.extend([n, n.saturating_add(1), n.saturating_sub(1), n.wrapping_neg(), n.saturating_mul(2)]);
    }
    all.extend([greatest / 2, greatest / 2 + 1, least / 2, 7, -7, 10, 100]);
    // 2²⁴, 2⁵³, 2⁸ and 2¹¹ are the largest integers up to which `f32`, `f64`, `bf16` and `f16` represent every integer.
    let powers = [4, 8, 11, 15, 16, 24, 31, 32, 53, 62];
    all.extend(
        powers.iter().flat_map(|p| [1_i64 << p, (1 << p) + 1, (1 << p) - 1, -(1 << p), -(1 << p) - 1, -(1 << p) + 1]),
    );
    distinct(all.into_iter().filter(|n| dtype.wrap(*n) == *n), |n| *n)
}

/// Returns the numbers of a floating type at which results change, the most informative ones first. Without `extreme`,
/// the list has no NaN, no infinities, no subnormal numbers, no −0, and only [`moderate`] numbers.
pub fn floats(dtype: DType, literals: &[f64], extreme: bool) -> Vec<f64> {
    let eps = 2.0 * dtype.unit_roundoff();
    let mut all = vec![0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 1.5, 2.5, -1.5, 3.0, -3.0];
    if extreme {
        let (least, largest) = range(dtype);
        all.splice(1..1, [-0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, largest, -largest]);
        all.extend([least, -least, least * eps, largest * (1.0 - eps), largest.sqrt(), least.sqrt(), largest / 2.0]);
    }
    for x in literals {
        all.extend([*x, x + 1.0, x - 1.0, -x, x * (1.0 + eps), x * (1.0 - eps), x * 2.0, x / 2.0, x + 0.5]);
    }
    all.extend([0.25, 3.5, -2.5, 4.0, 7.0, 10.0, -10.0, 100.0, 1.0 + eps, 1.0 - eps / 2.0, 0.5 - eps / 4.0]);
    // A type with this number of significant bits represents every integer up to the power, and every multiple of ½ up
    // to half of it. The type is this one, or one to which a cast converts.
    for bits in [8, 11, 24, 31, 32, 53, 63] {
        let power = 2_f64.powi(bits);
        all.extend([power, power + 1.0, power - 1.0, -power, power / 2.0 + 0.5, power / 2.0 - 0.5]);
        // The midpoint between 1 and the next number of that type, and the midpoint's neighbours: a cast to that type
        // rounds them differently.
        let middle = 1.0 + 1.0 / power;
        all.extend([middle, middle * (1.0 + eps), middle * (1.0 - eps / 2.0)]);
    }
    let stored = Tensor::from_f64(dtype, &[all.len()], all).to_f64();
    // Without `extreme`, −0 is left out: `reassoc` and `fast` do not distinguish −0 from 0.
    let fits = |x: &f64| extreme || moderate(*x, dtype) && !(*x == 0.0 && x.is_sign_negative());
    distinct(stored.into_iter().filter(fits), |x| if x.is_nan() { u64::MAX } else { x.to_bits() })
}

/// Returns the numbers at which the range of a type ends, the most informative ones first. The list has the largest,
/// the least and subnormal numbers. It also has numbers whose reciprocals, squares, cubes or fourth powers leave the
/// range. With `moderate`, the list has the ends of the range that the contracts of rules with products cover.
pub fn ends(dtype: DType, moderate: bool) -> Vec<f64> {
    let (least, largest) = range(dtype);
    let eps = 2.0 * dtype.unit_roundoff();
    // An exponent b for which eᵇ is subnormal and e⁻ᵇ is infinite.
    let subnormal = ((least * eps).ln() + least.ln()) / 2.0;
    // An exponent b for which the magnitude of b·eᵇ is a few times the least subnormal number.
    let vanishing = (4.0 * least * eps).ln() - (-(least * eps).ln()).ln();
    if moderate {
        let most = 2_f64.powi(moderate_exponent(dtype));
        return vec![
            1.0,
            most,
            1.0 / most,
            0.0,
            Tensor::from_f64(dtype, &[], [subnormal]).to_f64()[0],
            -most,
            most.sqrt(),
            -1.0 / most,
            0.75 * most,
            1.5 / most,
            -1.0,
            3.0,
            -0.0,
            Tensor::from_f64(dtype, &[], [vanishing]).to_f64()[0],
        ];
    }
    let mut all = vec![1.0, largest, least * eps, subnormal, 0.0, -largest, least, largest / 2.0, least / 4.0, -least];
    for root in [2.0, 3.0, 4.0] {
        let (high, low) = (largest.powf(1.0 / root) * 1.25, least.powf(1.0 / root) / 1.25);
        all.extend([high, low, -high, -low]);
    }
    // The second exponent b is one for which eᵇ is subnormal and b·eᵇ is normal.
    all.extend([-subnormal, least.ln() - (-least.ln()).ln()]);
    all.extend([
        -1.0,
        1.0 / largest,
        largest * (1.0 - eps),
        -largest / 3.0,
        least * (1.0 - eps),
        -least * eps,
        3.0,
        -0.0,
    ]);
    let stored = Tensor::from_f64(dtype, &[all.len()], all).to_f64();
    distinct(stored.into_iter(), |x| x.to_bits())
}

/// Returns the largest moderate numbers of either sign. If such a constant is added to an ordinary number, the sum is
/// rounded coarsely.
pub fn coarse(dtype: DType) -> [f64; 2] {
    let most = 2_f64.powi(moderate_exponent(dtype));
    [most, -most]
}

/// Returns the least positive normal and the largest number of a floating type; those of `f32` for other types.
pub fn range(dtype: DType) -> (f64, f64) {
    if dtype.is_float() { dtype.normal_range() } else { DType::F32.normal_range() }
}

/// Returns the largest binary exponent of moderate numbers: about a third of the type's largest exponent, and at most
/// 40.
pub fn moderate_exponent(dtype: DType) -> i32 {
    dtype.float().map_or(40, |format| ((1 - format.least_exponent()) / 3).min(40))
}

/// Returns whether a number is 0 or moderate: products of a few moderate numbers neither underflow nor overflow.
pub fn moderate(x: f64, dtype: DType) -> bool {
    let most = 2_f64.powi(moderate_exponent(dtype));
    x == 0.0 || (1.0 / most..=most).contains(&x.abs())
}

fn distinct<T: Copy, K: Ord>(all: impl Iterator<Item = T>, key: impl Fn(&T) -> K) -> Vec<T> {
    let mut seen = std::collections::BTreeSet::new();
    all.filter(|x| seen.insert(key(x))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_their_neighbours_are_listed_for_every_type() {
        for dtype in DType::ALL.into_iter().filter(|d| d.is_int()) {
            let (least, greatest) = dtype.integers();
            let all = integers(dtype, &[]);
            assert!([least, least + 1, greatest - 1, greatest].iter().all(|n| all.contains(n)), "{dtype}: {all:?}");
        }
        assert!(integers(DType::I64, &[1001.0]).contains(&1002) && integers(DType::I32, &[]).contains(&16_777_217));
    }

    #[test]
    fn ends_are_finite_and_some_of_their_powers_overflow() {
        for dtype in DType::ALL.into_iter().filter(|d| d.is_float()) {
            let (all, (least, largest)) = (ends(dtype, false), range(dtype));
            assert!(all.iter().all(|x| x.is_finite()), "{dtype}: {all:?}");
            assert!(all.contains(&largest) && all.iter().any(|x| *x > 0.0 && *x < least), "{dtype}: {all:?}");
            for power in [2, 3, 4] {
                let beyond = |x: &&f64| x.abs() < largest / 4.0 && x.abs().powi(power) > largest;
                assert!(all.iter().any(|x| beyond(&x)), "{dtype}: no power {power} overflows");
            }
        }
    }

    #[test]
    fn numbers_that_are_not_extreme_are_moderate() {
        for dtype in DType::ALL.into_iter().filter(|d| d.is_float()) {
            assert!(floats(dtype, &[1e30, 0.1], false).iter().all(|x| moderate(*x, dtype)), "{dtype}");
            let extreme = floats(dtype, &[], true);
            assert!(extreme.contains(&range(dtype).1) && extreme.iter().any(|x| x.is_nan()), "{dtype}");
        }
        assert!(floats(DType::F32, &[0.1], false).contains(&f64::from(0.1_f32)));
    }
}
