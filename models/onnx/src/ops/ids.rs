//! Ids that nodes read or write by. The import checks known ids, and each run checks the others.

use eutectic_ir::{
    NodeId,
    ops::{Ids, OutOfRange},
};

use super::super::{
    call::{NodeCall, NodeResult},
    error::NodeError,
};

/// Replaces negative ids, which count from the end of an axis, and checks all ids.
pub(super) fn named(c: &mut NodeCall<'_, '_>, ids: NodeId, extent: usize) -> NodeResult {
    checked(c, ids, Ids { extent: extent as i64, from_end: true })
}

/// Replaces negative ids if they are legal, and checks all ids.
pub(super) fn checked(c: &mut NodeCall<'_, '_>, ids: NodeId, legal: Ids) -> NodeResult {
    known_in_range(c, ids, &[legal])?;
    match c.value(ids) {
        Some(known) if known.to_i64().iter().all(|&id| id >= 0) => Ok(ids),
        _ => c.checked_id(ids, legal),
    }
}

/// Checks ids if they are known. The last axis of `ids` has a coordinate for each element of `legal`.
pub(super) fn known_in_range(c: &NodeCall<'_, '_>, ids: NodeId, legal: &[Ids]) -> Result<(), NodeError> {
    let Some(known) = c.value(ids) else { return Ok(()) };
    let dims = known.dims().to_vec();
    let wrong = |(number, (&id, &ids)): (usize, (&i64, &Ids))| {
        ids.place(id).is_none().then(|| out_of_range(OutOfRange { id, ids }, number, &dims))
    };
    known.to_i64().iter().zip(legal.iter().cycle()).enumerate().find_map(wrong).map_or(Ok(()), Err)
}

/// Describes an id that is out of range. `number` is its flat index in the tensor of ids, and `dims` are the extents of
/// that tensor.
pub(super) fn out_of_range(problem: OutOfRange, mut number: usize, dims: &[usize]) -> NodeError {
    let mut at = vec![0; dims.len()];
    for (at, &extent) in at.iter_mut().zip(dims).rev() {
        (*at, number) = (number % extent, number / extent);
    }
    NodeError(format!("cannot read or write by index: {problem} (element {at:?} of the ids)"))
}
