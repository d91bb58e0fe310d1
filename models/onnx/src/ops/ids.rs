//! Ids of nodes. Known ids are checked during the import. Others are checked in each run.

use eutectic_ir::{
    NodeId,
    ops::{Ids, OutOfRange},
};

use super::super::{
    call::{NodeCall, NodeResult},
    error::NodeError,
};

/// Normalizes and checks ids along an axis. Negative ids count from its end.
pub(super) fn named(c: &mut NodeCall<'_, '_>, ids: NodeId, extent: usize) -> NodeResult {
    checked(c, ids, Ids { extent: extent as i64, from_end: true })
}

/// Normalizes and checks ids against the legal range.
pub(super) fn checked(c: &mut NodeCall<'_, '_>, ids: NodeId, legal: Ids) -> NodeResult {
    known_in_range(c, ids, &[legal])?;
    match c.value(ids) {
        Some(known) if known.to_i64().iter().all(|&id| id >= 0) => Ok(ids),
        _ => c.checked_id(ids, legal),
    }
}

/// Checks known ids. Their last axis has one coordinate for each indexed axis.
pub(super) fn known_in_range(c: &NodeCall<'_, '_>, ids: NodeId, legal: &[Ids]) -> Result<(), NodeError> {
    let Some(known) = c.value(ids) else { return Ok(()) };
    let dims = known.dims().to_vec();
    let wrong = |(number, (&id, &ids)): (usize, (&i64, &Ids))| {
        ids.place(id).is_none().then(|| out_of_range(OutOfRange { id, ids }, number, &dims))
    };
    known.to_i64().iter().zip(legal.iter().cycle()).enumerate().find_map(wrong).map_or(Ok(()), Err)
}

/// Describes an id that is out of range, by its index in the tensor of ids, which has these extents.
pub(super) fn out_of_range(problem: OutOfRange, mut number: usize, dims: &[usize]) -> NodeError {
    let mut at = vec![0; dims.len()];
    for (at, &extent) in at.iter_mut().zip(dims).rev() {
        (*at, number) = (number % extent, number / extent);
    }
    NodeError(format!("cannot read or write by index: {problem} (element {at:?} of the ids)"))
}
