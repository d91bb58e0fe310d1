//! Finds the needed instructions of a body, orders them, and merges nested selections.

use crate::body::{Body, Guard, Instr, ValueId};

impl Body {
    /// Returns whether computing `value` needs the value `on`, or is equal to it.
    pub fn depends(&self, value: ValueId, on: ValueId) -> bool {
        // Arguments come before users.
        on <= value && needed(&self.instrs[..=value], std::iter::once(value))[on]
    }
}

/// Returns, for each value, whether it is a root or a root depends on it.
pub fn needed(instrs: &[Instr], roots: impl Iterator<Item = ValueId>) -> Vec<bool> {
    let mut needed = vec![false; instrs.len()];
    roots.for_each(|v| needed[v] = true);
    for id in (0..instrs.len()).rev() {
        if needed[id] {
            instrs[id].args().into_iter().for_each(|a| needed[a] = true);
        }
    }
    needed
}

/// Returns an order in which arguments come before users. Loads and constants come before the pointwise ops that
/// precede them, unless they need a value. So pointwise ops form long sequences.
pub fn order(instrs: &[Instr]) -> Vec<ValueId> {
    let (mut order, mut ops) = (Vec::with_capacity(instrs.len()), Vec::new());
    for (id, instr) in instrs.iter().enumerate() {
        match instr {
            Instr::Map { .. } => ops.push(id),
            _ => {
                if !instr.args().is_empty() {
                    order.append(&mut ops);
                }
                order.push(id);
            }
        }
    }
    order.append(&mut ops);
    order
}

/// Merges nested selections with equal fill values into a single selection. They occur in padding along several axes,
/// and in concats of concats.
pub fn flatten_pieces(instrs: &mut [Instr]) {
    for id in 0..instrs.len() {
        let Instr::Select { pieces, fill, .. } = &instrs[id] else { continue };
        let mut all = Vec::with_capacity(pieces.len());
        for (at, (outer, inner)) in pieces.iter().enumerate() {
            // If no inner piece applies, the result must be the fill value. After the merge, a later outer piece would
            // apply instead, unless its guards exclude those of this piece.
            let is_last_chance = || pieces[at + 1..].iter().all(|(later, _)| exclude(outer, later));
            match &instrs[*inner] {
                Instr::Select { pieces: of_inner, fill: other, .. } if fill == other && is_last_chance() => {
                    all.extend(of_inner.iter().map(|(guards, value)| ([guards.as_slice(), outer].concat(), *value)));
                }
                _ => all.push((outer.clone(), *inner)),
            }
        }
        if let Instr::Select { pieces, .. } = &mut instrs[id] {
            *pieces = all;
        }
    }
}

/// Returns whether two sets of guards never hold together, because they restrict one index to disjoint ranges.
fn exclude(some: &[Guard], others: &[Guard]) -> bool {
    let apart = |(a, b): (&Guard, &Guard)| a.0 == b.0 && (a.1.end <= b.1.start || b.1.end <= a.1.start);
    some.iter().any(|a| others.iter().any(|b| apart((a, b))))
}

#[cfg(test)]
mod tests {
    use eutectic_ir::{DType, Op, attr::Number, index::Index};

    use super::*;
    use crate::body::Load;

    fn load() -> Instr {
        Instr::Load(Load { slot: 0, at: Index::coord(0), guards: Vec::new(), dtype: DType::F32 })
    }

    fn add(a: ValueId, b: ValueId) -> Instr {
        let (op, attrs) = (Op::named("add").unwrap(), [].into_iter().collect());
        Instr::Map { op, attrs, args: vec![a, b], dtype: DType::F32 }
    }

    #[test]
    fn loads_come_before_the_ops_of_a_stretch() {
        let instrs = [load(), add(0, 0), load(), add(1, 2), load()];
        assert_eq!(order(&instrs), [0, 2, 4, 1, 3]);
        assert_eq!(needed(&instrs, [1].into_iter()), [true, true, false, false, false]);
        assert_eq!(needed(&instrs, [3].into_iter()), [true, true, true, true, false]);
    }

    #[test]
    fn nested_pieces_hold_where_all_of_their_guards_do() {
        let guard = |axis| (Index::coord(axis), 1..4);
        let select = |guards, value, fill: f64| Instr::Select {
            pieces: vec![(guards, value)],
            fill: Number::from(fill),
            dtype: DType::F32,
        };
        let mut instrs = [load(), select(vec![guard(0)], 0, 0.0), select(vec![guard(1)], 1, 0.0)];
        flatten_pieces(&mut instrs);
        assert_eq!(instrs[2], select(vec![guard(0), guard(1)], 0, 0.0));
        // A concat of concats. The outer pieces exclude each other.
        let between = |range| (Index::coord(0), range);
        let several =
            |pieces: Vec<(Vec<_>, usize)>| Instr::Select { pieces, fill: Number::from(0.0), dtype: DType::F32 };
        let inner = || several(vec![(vec![between(0..2)], 0), (vec![between(2..4)], 1)]);
        let outer = |from| several(vec![(vec![between(0..4)], 2), (vec![between(from..8)], 3)]);
        let mut instrs = [load(), load(), inner(), load(), outer(4)];
        flatten_pieces(&mut instrs);
        let both = |range| vec![between(range), between(0..4)];
        assert_eq!(instrs[4], several(vec![(both(0..2), 0), (both(2..4), 1), (vec![between(4..8)], 3)]));
        // The outer pieces overlap, so the second piece would apply where no inner piece does.
        let mut instrs = [load(), load(), inner(), load(), outer(3)];
        let before = instrs.clone();
        flatten_pieces(&mut instrs);
        assert_eq!(instrs, before);
        // The selections have different fills, so they cannot become one.
        let mut instrs = [load(), select(vec![guard(0)], 0, 1.0), select(vec![guard(1)], 1, 0.0)];
        let before = instrs.clone();
        flatten_pieces(&mut instrs);
        assert_eq!(instrs, before);
    }
}
