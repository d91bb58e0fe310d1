//! Finds the instructions of a contraction's epilogue that micro-kernels apply in registers. They cost almost nothing.

use eutectic_backend::{Body, Instr, ValueId};
use eutectic_ir::Attr;

/// Returns the instructions that are applied to sums in registers, in order: one that adds a row, one that adds a
/// matrix, and a relu. A batch-vectorised contraction (`lanes`) can add only one operand, which may also be constant
/// along a vector, and can clamp. The result agrees with [`crate::kernels::contraction::epilogue::take`] and with its
/// counterpart for batch-vectorised contractions, except at the ends of buffers.
pub fn taken(body: &Body, lanes: bool) -> Vec<ValueId> {
    let mut all = Vec::new();
    let (mut rows, mut matrices) = (0, 0);
    let Some(mut at) = body.instrs.iter().position(|i| matches!(i, Instr::Anchor { .. })) else { return all };
    while let Some((id, Instr::Map { op, attrs, args, dtype })) = reader(body, at) {
        if *dtype != body.instrs[at].dtype() {
            break;
        }
        match (op.name(), &args[..]) {
            ("act", _) if attrs.first().and_then(Attr::word) == Some("relu") => {
                all.push(id);
                break;
            }
            ("clamp", _) if lanes => {
                all.push(id);
                break;
            }
            ("add", &[a, b]) => {
                let Instr::Load(load) = &body.instrs[if a == at { b } else { a }] else { break };
                let strides = load.at.affine(body.domain.len()).filter(|_| load.guards.is_empty());
                let Some(strides) = strides.filter(|_| load.dtype == *dtype) else { break };
                let last = body.domain.iter().rposition(|&n| n > 1).map_or(1, |d| strides[d]);
                let row = strides.iter().zip(&body.domain).filter(|(s, n)| **s != 0 && **n > 1).count() == 1;
                let count = if row && last == 1 && !lanes { &mut rows } else { &mut matrices };
                if !(last == 1 || lanes && last == 0) || *count == 1 {
                    break;
                }
                *count += 1;
                all.push(id);
            }
            _ => break,
        }
        at = id;
    }
    all
}

/// Returns the instruction that uses a value, if exactly one does and the value is not a result.
fn reader(body: &Body, value: ValueId) -> Option<(ValueId, &Instr)> {
    let mut readers = body.instrs.iter().enumerate().filter(|(_, i)| i.args().contains(&value));
    let only = readers.next().filter(|_| readers.next().is_none())?;
    (!body.results.contains(&value)).then_some(only)
}

#[cfg(test)]
mod tests {
    use eutectic_backend::Load;
    use eutectic_ir::{DType, Op, index::Index};

    use super::*;

    #[test]
    fn biases_residuals_and_bounds_are_taken_in_order() {
        let dtype = DType::F32;
        let load = |slot, at: Index| Instr::Load(Load { slot, at, guards: Vec::new(), dtype });
        let map = |name: &str, attrs: Vec<Attr>, args: &[usize]| {
            let (op, attrs) = (Op::named(name).unwrap(), attrs.into_iter().collect());
            Instr::Map { op, attrs, args: args.to_vec(), dtype }
        };
        let relu = |arg| map("act", vec![Attr::Word("relu".into())], &[arg]);
        let row = || load(0, Index::coord(1));
        let channel = || load(0, Index::coord(0));
        let matrix = || load(1, Index::coord(0).times(7).plus(&Index::coord(1)));
        let of = |instrs: Vec<Instr>, lanes| {
            taken(
                &Body {
                    domain: vec![5, 7],
                    instrs: [vec![Instr::Anchor { dtype }], instrs].concat(),
                    ..Body::default()
                },
                lanes,
            )
        };
        assert_eq!(of(vec![row(), map("add", vec![], &[0, 1]), relu(2)], false), [2, 3]);
        assert_eq!(of(vec![row(), map("add", vec![], &[1, 0]), matrix(), map("add", vec![], &[2, 3])], false), [2, 4]);
        // Only a batch-vectorised contraction adds a value that is constant along columns in registers.
        assert_eq!(of(vec![channel(), map("add", vec![], &[0, 1]), relu(2)], false), []);
        assert_eq!(of(vec![channel(), map("add", vec![], &[0, 1]), relu(2)], true), [2, 3]);
        // Nothing follows a relu, and an instruction counts only if all instructions before it do.
        assert_eq!(of(vec![relu(0), row(), map("add", vec![], &[1, 2])], false), [1]);
        assert_eq!(of(vec![map("exp", vec![], &[0]), relu(1)], false), []);
        // Two instructions use the sums.
        assert_eq!(of(vec![relu(0), map("mul", vec![], &[0, 1])], false), []);
    }
}
