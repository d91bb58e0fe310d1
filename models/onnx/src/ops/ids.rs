//! Ids as nodes give them: those that are known are compared with their axis here, all others are checked where they are read.

use eutectic_ir::{
    NodeId,
    ops::{Ids, OutOfRange},
};

use super::super::{
    call::{NodeCall, NodeResult},
    error::NodeError,
};

/// The elements that ids name along an axis of a given extent; negative ids count from its end.
pub(super) fn named(c: &mut NodeCall<'_, '_>, ids: NodeId, extent: usize) -> NodeResult {
    checked(c, ids, Ids { extent: extent as i64, from_end: true })
}

/// The elements that ids name.
pub(super) fn checked(c: &mut NodeCall<'_, '_>, ids: NodeId, legal: Ids) -> NodeResult {
    known_in_range(c, ids, &[legal])?;
    match c.value(ids) {
        Some(known) if known.to_i64().iter().all(|&id| id >= 0) => Ok(ids),
        _ => c.checked_id(ids, legal),
    }
}

/// Checks ids whose values are known; their last axis has a coordinate for each of several axes.
pub(super) fn known_in_range(c: &NodeCall<'_, '_>, ids: NodeId, legal: &[Ids]) -> Result<(), NodeError> {
    let Some(known) = c.value(ids) else { return Ok(()) };
    let dims = known.dims().to_vec();
    let wrong = |(number, (&id, &ids)): (usize, (&i64, &Ids))| {
        ids.place(id).is_none().then(|| out_of_range(OutOfRange { id, ids }, number, &dims))
    };
    known.to_i64().iter().zip(legal.iter().cycle()).enumerate().find_map(wrong).map_or(Ok(()), Err)
}

/// That the id of this number in a tensor of these extents is wrong.
pub(super) fn out_of_range(problem: OutOfRange, mut number: usize, dims: &[usize]) -> NodeError {
    let mut at = vec![0; dims.len()];
    for (at, &extent) in at.iter_mut().zip(dims).rev() {
        (*at, number) = (number % extent, number / extent);
    }
    NodeError(format!("cannot read or write by index: {problem} (element {at:?} of the ids)"))
}
