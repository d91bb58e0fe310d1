//! What is found out about a body before it is compiled, and what is made simpler.

use eutectic_backend::{Instr, Store, ValueId, axes::Nest};
use eutectic_ir::DType;

use crate::simd::{Isa, PointFn, convert::register, table};

/// Pieces of pieces, with the same elsewhere, as one selection: what is padded along several axes.
pub fn flat(nest: &Nest) -> Nest {
    let mut nest = nest.clone();
    for id in 0..nest.instrs.len() {
        let Instr::Select { pieces, fill, .. } = &nest.instrs[id] else { continue };
        let [(outer, inner)] = pieces.as_slice() else { continue };
        let Instr::Select { pieces: of_inner, fill: other, .. } = &nest.instrs[*inner] else { continue };
        if fill.get().to_bits() != other.get().to_bits() {
            continue;
        }
        let all: Vec<_> =
            of_inner.iter().map(|(guards, value)| ([guards.as_slice(), outer].concat(), *value)).collect();
        if let Instr::Select { pieces, .. } = &mut nest.instrs[id] {
            *pieces = all;
        }
    }
    nest
}

/// Which values something is stored of, or given.
pub fn needed(nest: &Nest) -> Vec<bool> {
    let mut needed = vec![false; nest.instrs.len()];
    nest.stores.iter().flat_map(Store::values).chain(nest.results.iter().copied()).for_each(|v| needed[v] = true);
    for id in (0..nest.instrs.len()).rev() {
        if needed[id] {
            nest.instrs[id].args().into_iter().for_each(|a| needed[a] = true);
        }
    }
    needed
}

/// The order in which values are computed: loads and numbers come before the ops of a stretch, so that ops follow each other.
pub fn order(nest: &Nest) -> Vec<ValueId> {
    let (mut order, mut ops) = (Vec::with_capacity(nest.instrs.len()), Vec::new());
    for (id, instr) in nest.instrs.iter().enumerate() {
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

/// An op's argument that nothing else reads and with which it is one function of at most three arguments.
pub type Pair = Option<(ValueId, PointFn)>;

/// For each value, with which argument it is a pair.
pub fn pairs(nest: &Nest, isa: Isa) -> Vec<Pair> {
    let needed = needed(nest);
    let mut uses = vec![0; nest.instrs.len()];
    let read = nest.instrs.iter().zip(&needed).filter(|i| *i.1).flat_map(|i| i.0.args());
    read.for_each(|v| uses[v] += 1);
    // What is stored must be there by itself.
    nest.stores.iter().flat_map(Store::values).chain(nest.results.iter().copied()).for_each(|v| uses[v] = usize::MAX);
    let map = |id: ValueId| match &nest.instrs[id] {
        Instr::Map { op, args, dtype, .. } if register(*dtype) == DType::F32 => Some((*op, args)),
        _ => None,
    };
    let mut pairs: Vec<Pair> = vec![None; nest.instrs.len()];
    for outer in (0..nest.instrs.len()).filter(|&id| needed[id]) {
        let Some((op, args)) = map(outer).filter(|m| m.1.len() <= 2) else { continue };
        pairs[outer] = args.iter().find_map(|&inner| {
            let of_inner = map(inner).filter(|m| m.1.len() == 2 && uses[inner] == 1 && pairs[inner].is_none());
            Some((inner, table::pair(of_inner?.0, op, isa)?))
        });
    }
    pairs
}
