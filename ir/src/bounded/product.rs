//! Products of many factors with a running error bound.

use super::{Bounded, range};

/// The product of all factors, in whatever order a kernel takes them.
pub fn product(factors: impl IntoIterator<Item = Bounded>) -> Bounded {
    let mut product = Bounded { value: 1.0, err: 0.0, unit: 0.0 };
    // The largest and the least that a part of the factors may come to.
    let (mut most, mut least, mut count) = (1.0_f64, 1.0_f64, 0.0);
    let mut infinite = false;
    for x in factors {
        product = product * x;
        count += 1.0;
        if x.value.is_infinite() {
            infinite = true;
        } else if x.value != 0.0 && !x.value.is_nan() {
            most *= (x.value.abs() + x.err).max(1.0);
            least *= (x.value.abs() - x.err).clamp(0.0, 1.0);
        }
    }
    let (smallest, largest) = range(product.unit);
    // NaN stays NaN in any order; nothing that is large or small on the way makes another zero of an exact one.
    let settled = product.value.is_nan() || product.value == 0.0 && product.err == 0.0 && !infinite;
    let overflows = most > largest;
    let vanishes = least < smallest;
    match () {
        // ∞ on the way, which a zero or what vanished makes NaN.
        () if overflows && !product.value.is_nan() => Bounded { err: f64::INFINITY, ..product },
        () if settled => product,
        () if infinite && vanishes => Bounded { err: f64::INFINITY, ..product },
        () if vanishes => Bounded { err: product.err + count * smallest * most, ..product }.checked(),
        () => product,
    }
}
