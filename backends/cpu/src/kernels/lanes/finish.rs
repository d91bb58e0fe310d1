//! Splits off the first ops of an epilogue, which batch-vectorised contractions apply to sums in registers.

use eutectic_backend::{Instr, ValueId, axes::Nest};
use eutectic_ir::{Attr, DType};

use crate::kernels::{
    contraction::epilogue::{StridedSlot, strides},
    slots::Slots,
};

/// The ops that are applied to sums in registers: the addition of a loaded value, followed by a lower and an upper
/// bound.
#[derive(Clone, Debug, Default)]
pub struct Finish {
    /// The added value: contiguous along the lanes, or equal for all of them.
    pub added: Option<StridedSlot>,
    /// The lower bound of results.
    pub least: Option<f64>,
    /// The upper bound of results.
    pub most: Option<f64>,
}

/// Removes the ops that are applied to sums in registers from a body whose last axis is that of the lanes. In the body
/// that is left, their result is that of the anchor.
pub fn take(mut body: Nest, acc: DType, slots: &Slots) -> (Nest, Finish) {
    let mut taken = Finish::default();
    while let Some((id, next)) = step(&body, &taken, acc, slots) {
        body.instrs[id] = Instr::Anchor { dtype: acc };
        taken = next;
    }
    (body, taken)
}

/// Returns the only instruction that reads the sums, and the ops in registers with that instruction added. Returns
/// `None` if there are several readers, or the only one cannot be applied in registers.
fn step(body: &Nest, so_far: &Finish, acc: DType, slots: &Slots) -> Option<(ValueId, Finish)> {
    let is_anchor = |v: usize| matches!(body.instrs[v], Instr::Anchor { .. });
    let mut readers = body.instrs.iter().enumerate().filter(|(_, i)| i.args().into_iter().any(is_anchor));
    let ((id, Instr::Map { op, args, attrs, dtype }), None) = (readers.next()?, readers.next()) else { return None };
    if *dtype != acc || body.stores.iter().any(|s| is_anchor(s.value)) {
        return None;
    }
    let bounded = so_far.least.is_some() || so_far.most.is_some();
    let mut next = so_far.clone();
    let number = |at: usize| attrs.get(at).and_then(Attr::float);
    match (op.name(), &args[..]) {
        ("act", _) if attrs.first().and_then(Attr::word) == Some("relu") && !bounded => next.least = Some(0.0),
        ("clamp", _) if !bounded => {
            let bound = |name: &str| op.attr(name).and_then(number).filter(|x| !x.is_nan());
            let (least, most) = (bound("min")?, bound("max")?);
            if least > most {
                return None;
            }
            (next.least, next.most) = (Some(least), Some(most));
        }
        ("add", &[a, b]) if is_anchor(a) != is_anchor(b) && !bounded && next.added.is_none() => {
            let Instr::Load(load) = &body.instrs[if is_anchor(a) { b } else { a }] else { return None };
            let strides = strides(body, load, acc, slots)?;
            let side_by_side = body.domain.last() == Some(&1) || matches!(strides.last(), Some(0 | 1));
            next.added = side_by_side
                .then_some(StridedSlot { slot: load.slot, base: load.at.constant, strides })
                .or(so_far.added.clone());
            next.added.as_ref()?;
        }
        _ => return None,
    }
    Some((id, next))
}

#[cfg(test)]
mod tests {
    use eutectic_backend::{Load, Store};
    use eutectic_ir::{Op, index::Index};

    use super::*;

    /// Returns a body over `[channels, lanes]` that adds a bias of each channel to the sums, and then applies these
    /// ops.
    fn body(ops: &[(&str, &[f64])]) -> (Nest, Slots) {
        let dtype = DType::F32;
        let bias = Load { slot: 0, at: Index::coord(0), guards: Vec::new(), dtype };
        let add =
            Instr::Map { op: Op::named("add").unwrap(), attrs: [].into_iter().collect(), args: vec![0, 1], dtype };
        let mut instrs = vec![Instr::Anchor { dtype }, Instr::Load(bias), add];
        for (name, numbers) in ops {
            let attrs = match *name {
                "act" => vec![Attr::Word("relu".into())],
                _ => numbers.iter().map(|&x| Attr::Float(x.into())).collect(),
            };
            let args = vec![instrs.len() - 1];
            let attrs = attrs.into_iter().collect();
            instrs.push(Instr::Map { op: Op::named(name).unwrap(), attrs, args, dtype });
        }
        let store = Store::new(1, Index::coord(1), instrs.len() - 1);
        let nest = Nest { domain: vec![3, 20], lengths: Vec::new(), instrs, results: Vec::new(), stores: vec![store] };
        (nest, Slots { types: vec![(dtype, 3), (dtype, 60)], given: 2 })
    }

    #[test]
    fn biases_and_bounds_are_taken_and_what_follows_stays() {
        type Ops<'a> = &'a [(&'a str, &'a [f64])];
        let cases: [(Ops<'_>, _, _, _); 4] = [
            (&[("act", &[])], Some(0.0), None, true),
            (&[("clamp", &[-1.0, 6.0])], Some(-1.0), Some(6.0), true),
            (&[("act", &[]), ("sqrt", &[])], Some(0.0), None, false),
            (&[("exp", &[]), ("act", &[])], None, None, false),
        ];
        for (ops, least, most, all) in cases {
            let (nest, slots) = body(ops);
            let (left, taken) = take(nest, DType::F32, &slots);
            assert_eq!((taken.least, taken.most), (least, most), "{ops:?}");
            assert_eq!(taken.added.map(|a| a.strides), Some(vec![1, 0]));
            let stored = matches!(left.instrs[left.stores[0].value], Instr::Anchor { .. });
            assert_eq!(stored, all, "{ops:?}");
        }
    }
}
