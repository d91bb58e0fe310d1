//! Finds the needed instructions of a body, and an order in which to compute them.

use crate::body::{Body, Guard, Instr, ValueId};

impl Body {
    /// Returns whether computing a value takes another one, or is that one.
    pub fn depends(&self, value: ValueId, on: ValueId) -> bool {
        // Arguments come before users.
        on <= value && needed(&self.instrs[..=value], std::iter::once(value))[on]
    }
}

/// Returns which values the roots depend on, the roots included.
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

/// Returns an order in which arguments come before users. Loads and constants come before the ops of a stretch, so that
/// ops follow each other.
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

/// Merges nested selections with one fill value into a single selection, as for padding along several axes, or for
/// concats of concats.
pub fn flatten_pieces(instrs: &mut [Instr]) {
    for id in 0..instrs.len() {
        let Instr::Select { pieces, fill, .. } = &instrs[id] else { continue };
        let mut all = Vec::with_capacity(pieces.len());
        for (at, (outer, inner)) in pieces.iter().enumerate() {
            // Where no piece of the inner selection holds, the next outer piece would apply instead of the fill value.
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

/// Returns whether two sets of guards exclude each other, because an index is in disjoint ranges.
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
        // A concat of concats. The last piece of the outer selection does not exclude the pieces before, but no piece
        // follows it.
        let between = |range| (Index::coord(0), range);
        let several =
            |pieces: Vec<(Vec<_>, usize)>| Instr::Select { pieces, fill: Number::from(0.0), dtype: DType::F32 };
        let inner = || several(vec![(vec![between(0..2)], 0), (vec![between(2..4)], 1)]);
        let outer = |from| several(vec![(vec![between(0..4)], 2), (vec![between(from..8)], 3)]);
        let mut instrs = [load(), load(), inner(), load(), outer(4)];
        flatten_pieces(&mut instrs);
        let both = |range| vec![between(range), between(0..4)];
        assert_eq!(instrs[4], several(vec![(both(0..2), 0), (both(2..4), 1), (vec![between(4..8)], 3)]));
        // If the outer pieces overlap, the second would show through holes of the first.
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
