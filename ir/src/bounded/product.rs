//! Products of many factors with a running error bound.

use super::{Bounded, range, rounding};

/// Returns the product of all factors, with a bound that covers every order of multiplication.
pub fn product(factors: impl IntoIterator<Item = Bounded>) -> Bounded {
    let mut product = Bounded { value: 1.0, err: 0.0, unit: 0.0, terms: 0.0 };
    // Bounds of the magnitude of any partial product.
    let (mut most, mut least, mut count) = (1.0_f64, 1.0_f64, 0.0);
    let mut infinite = false;
    // The number of multiplications that are exact in this order but may round in another.
    let mut spared = 0.0;
    for x in factors {
        let others = !is_power_of_two(product.value) && !is_power_of_two(x.value);
        product = product * x;
        spared += f64::from(u8::from(others && product.err == 0.0));
        count += 1.0;
        if x.value.is_infinite() {
            infinite = true;
        } else if x.value != 0.0 && !x.value.is_nan() {
            most *= (x.value.abs() + x.err).max(1.0);
            least *= (x.value.abs() - x.err).clamp(0.0, 1.0);
        }
    }
    let (smallest, largest) = range(product.unit);
    // If a nonzero product is exact, it is exact in every order: no partial product has a longer significand than
    // the full product.
    if product.err > 0.0 && product.value.is_finite() {
        let most = product.value.abs() + product.err;
        product = Bounded { err: product.err + rounding(most, product.unit * spared, smallest), ..product }.checked();
    }
    // NaN stays NaN in any order. An exact zero without infinite factors stays zero whether or not partial products
    // overflow or underflow.
    let settled = product.value.is_nan() || product.value == 0.0 && product.err == 0.0 && !infinite;
    let overflows = most > largest;
    let vanishes = least < smallest;
    match () {
        // A partial product may be ∞, and ∞ times a zero or an underflowed factor is NaN.
        () if overflows && !product.value.is_nan() => Bounded { err: f64::INFINITY, ..product },
        () if settled => product,
        () if infinite && vanishes => Bounded { err: f64::INFINITY, ..product },
        () if vanishes => Bounded { err: product.err + count * smallest * most, ..product }.checked(),
        () => product,
    }
}

fn is_power_of_two(x: f64) -> bool {
    x.is_normal() && x.to_bits() << 12 == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    #[test]
    fn every_order_of_factors_is_admitted() {
        // The product of the first two needs no rounding. The product of the last two is rounded.
        let factors = [2.5_f32, -400.0, 1.0 - f32::EPSILON / 2.0];
        let of = |order: [usize; 3]| product(order.map(|n| Bounded::new(factors[n].into(), 0.0, DType::F32)));
        let orders = [[0, 1, 2], [0, 2, 1], [1, 2, 0]];
        for (a, b) in orders.into_iter().flat_map(|a| orders.map(|b| (a, b))) {
            let other = b.map(|n| factors[n]).into_iter().product::<f32>();
            assert_eq!(of(a).admits(other.into()), Some(true), "{a:?} {b:?} {other}");
        }
        // If no rounding occurs in one order, none occurs in another.
        let exact = product([2.5_f32, -400.0, 3.0].map(|x| Bounded::new(x.into(), 0.0, DType::F32)));
        assert_eq!((exact.value, exact.err), (-3000.0, 0.0));
    }
}
