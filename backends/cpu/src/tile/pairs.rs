//! Finds pairs of pointwise ops that one fused function computes.

use eutectic_backend::{Instr, Store, ValueId, axes::Nest, order::needed};
use eutectic_ir::DType;

use crate::simd::{Isa, PointFn, table};

/// The argument with which an op is fused, and the function of at most three arguments that computes both. Nothing else
/// uses the argument. `None` if the op is not fused.
pub type FusedPair = Option<(ValueId, PointFn)>;

/// Returns, for each value of a body, the argument with which it is fused.
pub fn pairs(nest: &Nest, isa: Isa) -> Vec<FusedPair> {
    let roots = || nest.stores.iter().flat_map(Store::values).chain(nest.results.iter().copied());
    let needed = needed(&nest.instrs, roots());
    let mut uses = vec![0; nest.instrs.len()];
    let read = nest.instrs.iter().zip(&needed).filter(|i| *i.1).flat_map(|i| i.0.args());
    read.for_each(|v| uses[v] += 1);
    // A stored value must be computed separately.
    roots().for_each(|v| uses[v] = usize::MAX);
    let map = |id: ValueId| match &nest.instrs[id] {
        Instr::Map { op, args, dtype, .. } if dtype.register() == DType::F32 => Some((*op, args)),
        _ => None,
    };
    let mut pairs: Vec<FusedPair> = vec![None; nest.instrs.len()];
    for outer in (0..nest.instrs.len()).filter(|&id| needed[id]) {
        let Some((op, args)) = map(outer).filter(|m| m.1.len() <= 2) else { continue };
        pairs[outer] = args.iter().find_map(|&inner| {
            let of_inner = map(inner).filter(|m| m.1.len() == 2 && uses[inner] == 1 && pairs[inner].is_none());
            Some((inner, table::pair(of_inner?.0, op, isa)?))
        });
    }
    pairs
}
