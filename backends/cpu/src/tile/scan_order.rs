//! Chooses the order of a domain's axes for scans of rows.

use std::borrow::Cow;

use eutectic_backend::{Instr, axes::Nest};
use eutectic_ir::{DType, index::Index, ops::Writes};

use super::{MAX_RANK, compile::innermost, domain::AxisMask};
use crate::simd::scan::Order;

/// Returns the nest, whose innermost `rows` axes form a row, with its axes in the order for scans, and the mask of the
/// row axes. Rows are interleaved if neighbouring elements of different rows are contiguous in more buffers than those
/// of one row. The axis along which they are contiguous then becomes the last. The order stays if scans go in both
/// directions.
pub fn scan_order<'n>(nest: &'n Nest, rows: usize, slots: &[(DType, usize)]) -> (Cow<'n, Nest>, AxisMask) {
    let (rank, row) = (nest.domain.len(), innermost(nest, rows));
    match axis_across(nest, rank.saturating_sub(rows), slots).filter(|_| rank <= MAX_RANK) {
        Some(lanes) => {
            let order: Vec<usize> = (0..rank).filter(|&axis| axis != lanes).chain([lanes]).collect();
            (Cow::Owned(nest.permuted(&order)), row >> 1)
        }
        None => (Cow::Borrowed(nest), row),
    }
}

/// Returns the axis among the first `outer` along which more bytes of loads and stores are contiguous than along any
/// axis of a row.
fn axis_across(nest: &Nest, outer: usize, slots: &[(DType, usize)]) -> Option<usize> {
    let mut reverse = nest.instrs.iter().filter(|instr| instr.row().is_some()).map(|instr| match instr {
        Instr::Row { op, attrs, .. } => Order::of(*op, attrs).map(|order| order.reverse),
        _ => None,
    });
    let first = reverse.next().flatten()?;
    if !reverse.all(|reverse| reverse == Some(first)) || nest.stores.iter().any(|store| store.writes != Writes::Apart) {
        return None;
    }
    let rank = nest.domain.len();
    let loads = nest.instrs.iter().filter_map(|instr| match instr {
        Instr::Load(load) => Some((&load.at, load.slot)),
        _ => None,
    });
    let places: Vec<_> = loads.chain(nest.stores.iter().map(|store| (&store.at, store.slot))).collect();
    let bytes_along = |axis: usize| -> usize {
        let is_dense = |at: &Index| at.affine(rank).is_some_and(|strides| strides[axis] == 1);
        let dense = places.iter().filter(|(at, _)| is_dense(at));
        dense.map(|(_, slot)| slots.get(*slot).map_or(0, |slot| slot.0.size())).sum()
    };
    let along = (outer..rank).map(bytes_along).max().unwrap_or(0);
    (0..outer).filter(|&axis| bytes_along(axis) > along).max_by_key(|&axis| bytes_along(axis))
}
