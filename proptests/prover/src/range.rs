//! Searches for instances on which a rule breaks its contract although both sides are equal over the reals. On such an
//! instance the right side overflows, becomes NaN, loses a value, or reads elements that the left side masks. Or a
//! pointwise rule changes an infinity or NaN.
//!
//! The inputs are those for which the contract promises the range. They are moderate if the rule has a sum, a product
//! of matrices, attention or a norm.

use std::collections::BTreeMap;

use eutectic_ir::{
    Bounded, Class, DType, Graph, Tensor, Type,
    interp::{interpret, interpret_rounded},
    lang::Bindings,
    ops::eval::Data,
};
use eutectic_rewrites::{Probe, Rule};

use crate::falsify::{Counterexample, Draws, search};

/// Searches for an instance on which only the right side leaves the range, or on which only one side is NaN.
pub fn beyond(probe: &Probe) -> Option<Counterexample> {
    search(probe, &Bindings::default(), &|rule, seed| Draws::of(rule, seed, DType::F32), &extreme, &leaves)
}

/// Returns a tensor of values at the ends of the range or far from 1, sometimes with infinities and NaN.
fn extreme(ty: &Type, seed: u64, random: &mut fastrand::Rng) -> Option<Tensor> {
    const MODERATE: [f64; 8] = [0.0, 1.0, -1.0, 90.0, -90.0, 1e12, -1e12, 1e-12];
    const FINITE: [f64; 11] = [0.0, 1.0, 90.0, -1e12, 1e20, -1e20, 1e-20, 1e36, 1e-36, 3e38, -3e38];
    const ALL: [f64; 7] = [0.0, 1.0, -1.0, 2.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
    let (dtype, dims) = (ty.dtype()?, ty.dims()?);
    let count: usize = dims.iter().product();
    if count > 4_000 {
        return None;
    }
    // All elements are equal, or each one is drawn.
    let of: &[f64] = [&ALL[..], &FINITE, &MODERATE][seed as usize % 3];
    let one = of[random.usize(..of.len())];
    let alike = random.bool();
    Some(match dtype.is_float() {
        true => {
            Tensor::from_f64(dtype, &dims, (0..count).map(|_| if alike { one } else { of[random.usize(..of.len())] }))
        }
        false => Tensor::from_i64(dtype, &dims, (0..count).map(|_| random.i64(0..2))),
    })
}

/// Returns the first element that breaks the contract: it is far inside the range on the left side, and infinite, NaN
/// or wrong on the right side. In a pointwise rule, an element that is a different infinity, or NaN on one side only,
/// breaks it too.
fn leaves(
    rule: &Rule,
    left: &Graph,
    right: &Graph,
    given: &BTreeMap<String, Tensor>,
) -> Option<(usize, usize, f64, f64)> {
    // Products and norms promise the range for moderate numbers only, because a sum may be evaluated in any order.
    let combines = |graph: &Graph| {
        graph.nodes().any(|(_, node)| matches!(node.op.def().class, Class::Composite | Class::Anchor(_)))
    };
    let moderate = |t: &Tensor| {
        !t.dtype().is_float() || t.to_f64().iter().all(|x| *x == 0.0 || (1e-12..=1.1e12).contains(&x.abs()))
    };
    // The constants of a program must always be moderate.
    let constants = || rule.tensors().filter(|(_, _, constant)| *constant).filter_map(|(v, ..)| given.get(&v.name));
    if !constants().all(moderate) || (combines(left) || combines(right)) && !given.values().all(moderate) {
        return None;
    }
    // Numbers up to 2 are assumed to cause no overflow in a pointwise rule, so both sides must have the same infinities
    // and NaN.
    let small = |t: &Tensor| t.to_f64().iter().all(|x| x.abs() <= 2.0 || !x.is_finite());
    let kept = !combines(left) && !combines(right) && given.values().all(small);
    // `Bounded` bounds the rounding error. If it is small on the left side, the right side must have about the same
    // value.
    let sure = interpret::<Bounded>(left, &|name| given.get(name).cloned()).ok()?;
    let run = |graph: &Graph| interpret_rounded(graph, &|name| given.get(name).cloned()).ok();
    let (left, right) = (run(left)?, run(right)?);
    for (root, (l, r)) in left.iter().zip(&right).enumerate() {
        let (Data::Real(x), Data::Real(y), Data::Real(sure)) = (&l.data, &r.data, &sure[root].data) else { continue };
        let far = l.dtype.normal_range().1 / 16.0;
        let changes = |n: usize| {
            let (x, y, sure) = (x[n], y[n], sure[n]);
            let other = x.is_nan() != y.is_nan() || x.is_infinite() && x != y;
            let is_sure = sure.err <= sure.value.abs() / 1024.0 && sure.value.abs() >= l.dtype.normal_range().0 * 1e6;
            let lost = is_sure && !(0.5..2.0).contains(&(y / sure.value));
            x.abs() <= far && (!y.is_finite() || lost) || kept && other
        };
        if let Some(at) = (0..x.len().min(y.len())).find(|n| changes(*n)) {
            return Some((root, at, x[at], y[at]));
        }
    }
    None
}
